"""How a member moves from its current assignment to its target.

A partition is assigned only after its previous owner has released it, so revocations come first: a
member keeps its epoch until it has acknowledged them, then moves to the epoch of the target and
takes the free partitions (KIP-848, "Member Epoch - Reconciliation of the group";
org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

from group_lab.coordinator.effects import RefusedError
from group_lab.coordinator.member import GroupMember, ReconciliationState
from group_lab.coordinator.profile import Profile
from spark_groups.errors import ErrorCode
from spark_groups.types import Assignment, TopicId, TopicIdPartition
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The input of a reconciliation.

    Args:
        assignment_epoch: The epoch of the target.
        subscribed: Ids of the topics the member subscribes to, by name and by resolved pattern.
        names_no_topic: Whether there is not even the name of a topic that does not exist.
        has_subscription_changed: Whether this heartbeat changed the subscription.
        owned: The partitions that the member reports; None without a report.
        held: Returns the partitions held by all members of the group.
    """

    assignment_epoch: int
    target: Assignment
    subscribed: Container[TopicId]
    names_no_topic: bool
    has_subscription_changed: bool
    owned: Assignment | None
    held: Callable[[], Container[TopicIdPartition]]
    profile: Profile

    def of(self, member: GroupMember) -> GroupMember:
        """Return the member after its next step; the same object if it must wait.

        Raises:
            RefusedError: FENCED_MEMBER_EPOCH for an unknown state.
        """
        match member.state:
            case ReconciliationState.STABLE:
                if member.member_epoch != self.assignment_epoch:
                    return self._advance(member, member.member_epoch)
                return self._stay(member)
            case ReconciliationState.UNREVOKED_PARTITIONS:
                if self._still_owns(member.pending_revocation):
                    return self._stay(member)
                bump = 1 if self.profile.bumps_epoch_while_unrevoked else 0
                return self._advance(member, member.member_epoch + bump)
            case ReconciliationState.UNRELEASED_PARTITIONS:
                return self._advance(member, member.member_epoch)
            case ReconciliationState.UNKNOWN:
                if self.owned is None or self.owned.partitions:
                    raise RefusedError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The consumer group member is in a unknown state."
                        " The member must abandon all its partitions and rejoin.",
                    )
                return self._advance(member, self.assignment_epoch)

    def _advance(self, member: GroupMember, revoking_epoch: int) -> GroupMember:
        """Take the next step; `revoking_epoch` is the epoch if that is a revocation."""
        # Target = target assignment, of topics that are still subscribed
        target = self.target.partitions
        if self.profile.strips_unsubscribed:
            target = frozenset(each for each in target if each.topic_id in self.subscribed)
        # New assigned = assigned ∩ target
        assigned = {key: at for key, at in member.assigned.items() if key in target}
        # Pending revocation = assigned - new assigned
        revoked = {key: at for key, at in member.assigned.items() if key not in assigned}
        if revoked and self._still_owns(revoked):
            return _moved(
                member,
                member_epoch=revoking_epoch,
                state=ReconciliationState.UNREVOKED_PARTITIONS,
                assigned=assigned,
                pending_revocation=revoked,
            )
        # Pending assignment = target - new assigned - unreleased
        missing = target - assigned.keys()
        unreleased = self._unreleased(member, missing) if missing else frozenset()
        assigned.update(dict.fromkeys(missing - unreleased, self.assignment_epoch))
        return _moved(
            member,
            member_epoch=self.assignment_epoch,
            state=ReconciliationState.UNRELEASED_PARTITIONS
            if unreleased
            else ReconciliationState.STABLE,
            assigned=assigned,
            pending_revocation={},
        )

    def _unreleased(
        self, member: GroupMember, missing: frozenset[TopicIdPartition]
    ) -> frozenset[TopicIdPartition]:
        held = self.held()
        own = member.pending_revocation if self.profile.own_revocation_is_released else ()
        return frozenset(each for each in missing if each in held and each not in own)

    def _stay(self, member: GroupMember) -> GroupMember:
        """Keep the state, but remove partitions that are no longer subscribed."""
        if not (self.profile.strips_unsubscribed and self.has_subscription_changed):
            return member
        stripped = {
            key: at for key, at in member.assigned.items() if key.topic_id not in self.subscribed
        }
        # Kafka compares the maps of assigned partitions by identity here: Map.of() replaces that of
        # a member with nothing, too (CurrentAssignmentBuilder.updateCurrentAssignment).
        is_emptied = self.names_no_topic and self.profile.empty_subscription_is_a_step
        if not stripped and (member.pending_revocation or not is_emptied):
            return member
        previous_member_epoch = (
            member.member_epoch
            if self.profile.strip_overwrites_previous_epoch
            else member.previous_member_epoch
        )
        shrunk = replace(
            member,
            previous_member_epoch=previous_member_epoch,
            assigned={key: at for key, at in member.assigned.items() if key not in stripped},
        )
        pending = {**member.pending_revocation, **stripped}
        if not pending or not self._still_owns(pending):
            return shrunk
        return replace(
            shrunk, state=ReconciliationState.UNREVOKED_PARTITIONS, pending_revocation=pending
        )

    def _still_owns(self, revoked: Mapping[TopicIdPartition, int]) -> bool:
        return self.owned is None or any(
            partition in revoked for partition in self.owned.partitions
        )


def _moved(member: GroupMember, member_epoch: int, **changes: Any) -> GroupMember:
    # Every step overwrites the previous epoch, even with the same one: a heartbeat whose answer was
    # lost is no longer accepted (ConsumerGroupMember.Builder.updateMemberEpoch).
    return replace(
        member, member_epoch=member_epoch, previous_member_epoch=member.member_epoch, **changes
    )
