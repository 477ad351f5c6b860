"""What the epochs that KIP-848 rejected would cost, counted on the log of a group that was played.

The group's members get and release the same partitions at the same times; only what the coordinator
writes about them differs.

Source: KIP-848, "Rejected Alternatives", "An epoch per partition" and "An epoch per member not
aligned to the group epoch".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from group_lab.coordinator import records as r
from spark_groups.types import TopicIdPartition

Partitions = frozenset[TopicIdPartition]
NONE: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class EpochCosts:
    """What each kind of epoch costs.

    Args:
        aligned_writes: Records of assignments, as the KIP has them.
        unaligned_writes: Records of them with a member epoch that grows only when the member's
            partitions change.
        partition_writes: Records with an epoch per partition: revoke, bump and assign are one each.
        members: How many members there are in the end.
        aligned_members: Of them, how many show by their epoch that they have their target.
        unaligned_members: The same with epochs that are not aligned with the group's.
    """

    aligned_writes: int
    unaligned_writes: int
    partition_writes: int
    members: int
    aligned_members: int
    unaligned_members: int


def epoch_costs(records: Iterable[r.Record]) -> EpochCosts:
    """Count the writes of a whole log, which is not compacted, with each kind of epoch.

    A member that joins takes the group's epoch also without alignment, because its assignment is
    computed then; its later epochs follow its own changes.
    """
    assignment_epoch = aligned = unaligned = per_partition = 0
    held: dict[str, tuple[Partitions, Partitions]] = {}
    member_epochs: dict[str, int] = {}
    unaligned_epochs: dict[str, int] = {}
    for record in records:
        match record:
            case r.Record(r.TargetMetadataKey(), r.TargetMetadataValue() as target):
                assignment_epoch = target.assignment_epoch
            case r.Record(r.CurrentAssignmentKey(member_id=member_id), None):
                # What it had is free: bumped, so that another member may get it.
                owned, revoking = held.pop(member_id, (NONE, NONE))
                per_partition += len(owned | revoking)
                member_epochs.pop(member_id, None)
                unaligned_epochs.pop(member_id, None)
            case r.Record(
                r.CurrentAssignmentKey(member_id=member_id), r.CurrentAssignmentValue() as value
            ):
                after = (frozenset(value.assigned), frozenset(value.pending_revocation))
                before = held.get(member_id, (NONE, NONE))
                aligned += 1
                has_changed = member_id not in held or after != before
                unaligned += has_changed
                freed = frozenset.union(*before) - frozenset.union(*after)
                per_partition += len(after[1] - before[1]) + len(freed) + len(after[0] - before[0])
                held[member_id] = after
                member_epochs[member_id] = value.member_epoch
                if has_changed:
                    unaligned_epochs[member_id] = value.member_epoch
    return EpochCosts(
        aligned,
        unaligned,
        per_partition,
        len(member_epochs),
        sum(member_epoch == assignment_epoch for member_epoch in member_epochs.values()),
        sum(unaligned_epoch == assignment_epoch for unaligned_epoch in unaligned_epochs.values()),
    )
