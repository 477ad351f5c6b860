"""What an answer to a heartbeat says under KIP-848 beyond what Kafka ships.

That is who has to compute, which partitions are not released yet, and what the one that computed
tells the member. Source: KIP-848, "Response Schema", "Revocation", "Assignment".
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from spark_groups.coordinator.group import ConsumerGroup
from spark_groups.coordinator.member import GroupMember, ReconciliationState
from spark_groups.coordinator.messages import KipHeartbeatResponse
from spark_groups.coordinator.records import TargetMemberValue
from spark_groups.protocol.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import NO_PARTITIONS, Assignment


@dataclass(frozen=True, slots=True)
class Aim:
    """A member, and the target it is on its way to.

    Args:
        member: The member.
        assignment_epoch: The epoch of the target.
        target: What it is meant to have.
    """

    member: GroupMember
    assignment_epoch: int
    target: Assignment

    @property
    def is_reached(self) -> bool:
        """True once the member has the target's epoch: it waits for partitions at most."""
        revokes = self.member.state is ReconciliationState.UNREVOKED_PARTITIONS
        return self.member.member_epoch == self.assignment_epoch and not revokes

    @property
    def pending(self) -> Assignment:
        """The partitions that others have not released yet; none while it revokes."""
        return self.target - self.member.assignment if self.is_reached else NO_PARTITIONS


def extended(
    response: HeartbeatResponse,
    request: HeartbeatRequest,
    group: ConsumerGroup,
    before: Aim,
    after: Aim,
    *,
    should_compute: bool,
) -> KipHeartbeatResponse:
    """Say in an answer what only the KIP has.

    The assignment is told where Kafka tells it, and until the member has acknowledged: where its
    epoch or what is pending changed, and where it reports other partitions than it has.

    Args:
        response: The answer so far.
        request: What is answered.
        group: The group before it.
        before: The member before it.
        after: The member after it.
        should_compute: Whether the member has to compute the target.
    """
    values = {each.name: getattr(response, each.name) for each in fields(response)}
    values["should_compute_assignment"] = should_compute
    owned = request.topic_partitions
    is_told = (
        response.assignment is not None
        or before.member.member_epoch != after.member.member_epoch
        or before.pending != after.pending
        or (owned is not None and owned != after.member.assignment)
    )
    if not is_told:
        return KipHeartbeatResponse(**values)
    values["assignment"] = after.member.assignment
    installed = group.target_metadata
    given = TargetMemberValue()
    error = 0
    if installed and installed.assignment_epoch == after.assignment_epoch and after.is_reached:
        given = group.targets.get(after.member.member_id, given)
        error = installed.error
    return KipHeartbeatResponse(
        **values,
        assignment_error=error,
        pending_topic_partitions=after.pending,
        metadata_version=given.metadata_version,
        metadata_bytes=given.metadata,
    )
