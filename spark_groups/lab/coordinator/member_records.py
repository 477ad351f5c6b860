"""The records of one member: what it told of itself, what it has, and that it is gone."""

from __future__ import annotations

from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.records import (
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    MemberMetadataKey,
    MemberMetadataValue,
    Record,
    TargetMemberKey,
)


def told(group_id: str, member: GroupMember) -> Record:
    """Return the record of what a member told of itself."""
    return Record(
        MemberMetadataKey(group_id, member.member_id),
        MemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            client_assignors=member.client_assignors,
        ),
    )


def current(group_id: str, member: GroupMember) -> Record:
    """Return the record of what a member has."""
    return Record(
        CurrentAssignmentKey(group_id, member.member_id),
        CurrentAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned=member.assigned,
            pending_revocation=member.pending_revocation,
        ),
    )


def gone(group_id: str, member_id: str) -> tuple[Record, ...]:
    """Return the tombstones of a member, in Kafka's order (GroupMetadataManager.removeMember)."""
    return (
        Record(CurrentAssignmentKey(group_id, member_id), None),
        Record(TargetMemberKey(group_id, member_id), None),
        Record(MemberMetadataKey(group_id, member_id), None),
    )
