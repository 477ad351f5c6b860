"""What the epochs that KIP-848 rejected would write, on logs that a reader can count."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from group_lab.coordinator import records as r
from group_lab.coordinator.member import ReconciliationState
from group_lab.sim.epoch_costs import EpochCosts, epoch_costs
from spark_groups.types import TopicIdPartition

TOPIC = uuid.UUID(int=1)


def current(
    member_id: str, member_epoch: int, owned: Iterable[int], revoking: Iterable[int] = ()
) -> r.Record:
    """Return the record of a member's assignment."""
    state = ReconciliationState.STABLE
    assigned = {TopicIdPartition(TOPIC, each): member_epoch for each in owned}
    pending = {TopicIdPartition(TOPIC, each): member_epoch for each in revoking}
    value = r.CurrentAssignmentValue(
        member_epoch=member_epoch,
        previous_member_epoch=member_epoch - 1,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )
    return r.Record(r.CurrentAssignmentKey("g", member_id), value)


def target(assignment_epoch: int) -> r.Record:
    return r.Record(
        r.TargetMetadataKey("g"), r.TargetMetadataValue(assignment_epoch=assignment_epoch)
    )


def writes(costs: EpochCosts) -> tuple[int, int, int]:
    return costs.aligned_writes, costs.unaligned_writes, costs.partition_writes


def test_a_move_of_a_partition_is_three_writes_of_its_epoch() -> None:
    settled = [target(1), current("a", 1, (0, 1)), current("b", 1, (2,))]
    move = [
        target(2),
        current("a", 1, (0,), revoking=(1,)),
        current("a", 2, (0,)),
        current("b", 2, (2, 1)),
    ]
    before, after = writes(epoch_costs(settled)), writes(epoch_costs([*settled, *move]))
    # A member that joins gets each partition with one write of the partition's epoch.
    assert before == (2, 2, 3)
    assert after == (5, 5, 6)


def test_a_member_whose_partitions_stay_is_written_only_with_aligned_epochs() -> None:
    log = [
        target(1),
        current("a", 1, (0,)),
        current("b", 1, (1,)),
        target(2),
        current("a", 2, (0,)),
        current("b", 2, (1,)),
    ]
    costs = epoch_costs(log)
    assert writes(costs) == (4, 2, 2)
    assert (costs.members, costs.aligned_members, costs.unaligned_members) == (2, 2, 0)


def test_partitions_of_a_member_that_is_removed_are_freed_by_their_epochs() -> None:
    gone = r.Record(r.CurrentAssignmentKey("g", "a"), None)
    costs = epoch_costs([target(1), current("a", 1, (0, 1)), gone])
    assert writes(costs) == (1, 1, 4)
    assert costs.members == 0
