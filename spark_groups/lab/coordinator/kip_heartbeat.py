"""What an answer to a heartbeat says under KIP-848 beyond what Kafka ships.

That is who has to compute, which partitions are not released yet, and what the one that computed
tells the member. Source: KIP-848, "Response Schema", "Assignment", "Client Side Mode".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_groups.lab.coordinator.client_assignment import progress
from spark_groups.lab.coordinator.effects import Surroundings, Timer
from spark_groups.lab.coordinator.member import GroupMember, ReconciliationState
from spark_groups.lab.coordinator.messages import KipHeartbeatResponse
from spark_groups.lab.coordinator.profile import KIP_848
from spark_groups.lab.coordinator.records import TargetMemberValue
from spark_groups.lab.coordinator.subscribing import Change
from spark_groups.lab.coordinator.target_assignment import Aim, last_target
from spark_groups.protocol.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import NO_PARTITIONS, Assignment


@dataclass(frozen=True, slots=True)
class Standing:
    """A member, and what it is on its way to.

    Args:
        member: The member.
        aim: Its target.
    """

    member: GroupMember
    aim: Aim

    @property
    def has_arrived(self) -> bool:
        """True once the member has the target's epoch: it waits for partitions at most."""
        revokes = self.member.state is ReconciliationState.UNREVOKED_PARTITIONS
        return self.member.member_epoch == self.aim.assignment_epoch and not revokes

    @property
    def pending(self) -> Assignment:
        """The partitions that others have not released yet; none while it revokes."""
        return self.aim.target - self.member.assignment if self.has_arrived else NO_PARTITIONS


def extended(
    response: HeartbeatResponse,
    request: HeartbeatRequest,
    change: Change,
    after: Standing,
    around: Surroundings,
    *,
    group_epoch: int,
) -> tuple[KipHeartbeatResponse, tuple[Timer, ...]]:
    """Say in an answer what only the KIP has, and keep a computation going.

    Args:
        response: The answer so far.
        request: What is answered.
        change: What it makes of the group's members.
        after: Its sender, once the request counts.
        around: The time, and the computation in flight.
        group_epoch: The group's epoch once the request counts.
    """
    group, sender = change.group, change.sender.member
    is_due = group_epoch > after.aim.assignment_epoch
    step = progress(group.group_id, change.members(), after.member.member_id, around, is_due=is_due)
    said = KipHeartbeatResponse(
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        should_compute_assignment=step.should_compute,
    )
    before = Standing(sender, Aim(group.assignment_epoch, last_target(group, sender, KIP_848)))
    if response.assignment is not None or _is_news(request, before, after):
        said = _with_assignment(said, change, after)
    return said, step.timers


def _is_news(request: HeartbeatRequest, before: Standing, after: Standing) -> bool:
    """Tell whether a member has something to hear, or has not acknowledged what it heard."""
    owned = request.topic_partitions
    return (
        before.member.member_epoch != after.member.member_epoch
        or before.pending != after.pending
        or (owned is not None and owned != after.member.assignment)
    )


def _with_assignment(
    said: KipHeartbeatResponse, change: Change, after: Standing
) -> KipHeartbeatResponse:
    """Return the answer with the KIP's Assignment."""
    group = change.group
    installed = group.target_metadata
    given, error = TargetMemberValue(), 0
    if installed and installed.assignment_epoch == after.aim.assignment_epoch and after.has_arrived:
        given = group.targets.get(after.member.member_id, given)
        error = installed.error
    return replace(
        said,
        assignment=after.member.assignment,
        assignment_error=error,
        pending_topic_partitions=after.pending,
        metadata_version=given.metadata_version,
        metadata_bytes=given.metadata,
    )
