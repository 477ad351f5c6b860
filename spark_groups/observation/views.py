"""The view of a group: one value, made from the responses of brokers.

Unknown values are None, never 0. A partition in the current assignment of one member and the target
assignment of another is moving.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from spark_groups.errors import ErrorCode
from spark_groups.group.ledger.events import WithheldRange
from spark_groups.group.member.messages import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    UNKNOWN_AUTHORIZED_OPERATIONS,
    DescribedMember,
    DescribeGroupResponse,
    PartitionError,
)
from spark_groups.observation.lag_times import (
    NO_UNREAD_RECORD,
    UNKNOWN_RETENTION,
    LagTime,
    lag_time,
    largest_behind_s,
    soonest_deletion_s,
    unread_lag,
)
from spark_groups.observation.local_members import LocalMember, parse_local_members
from spark_groups.observation.plain_values import View
from spark_groups.observation.reading import GroupReading, GroupType
from spark_groups.types import (
    TopicId,
    TopicIdPartition,
    TopicPartition,
    sum_of_known,
    topic_id_text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTotals:
    """Sums over a group.

    Args:
        moving_partitions: Partitions that will have another owner.
        lag: The sum of all known lags; None if none is known.
        unknown_lag_partitions: Partitions whose lag is unknown.
        seconds_behind: The age of the oldest first unread record; 0.0 if no record is unread; None
            if no age is known.
        unknown_time_partitions: Partitions for which that age is unknown.
        deletion_in_s: When retention may first delete an unread record; None: unknown, or never.
    """

    members: int
    partitions: int
    assigned_partitions: int
    unassigned_partitions: int
    moving_partitions: int
    lag: int | None
    unknown_lag_partitions: int
    seconds_behind: float | None = None
    unknown_time_partitions: int = 0
    deletion_in_s: float | None = None


def group_totals(
    members: tuple[MemberView, ...], partitions: tuple[PartitionView, ...]
) -> GroupTotals:
    """Return the sums over a group."""
    assigned = sum(partition.owner is not None for partition in partitions)
    return GroupTotals(
        members=len(members),
        partitions=len(partitions),
        assigned_partitions=assigned,
        unassigned_partitions=len(partitions) - assigned,
        moving_partitions=sum(partition.moves_to is not None for partition in partitions),
        lag=sum_of_known(partition.lag for partition in partitions),
        unknown_lag_partitions=sum(partition.lag is None for partition in partitions),
        seconds_behind=largest_behind_s(partition.time for partition in partitions),
        unknown_time_partitions=sum(
            partition.time.seconds_behind is None for partition in partitions
        ),
        deletion_in_s=soonest_deletion_s(partition.time for partition in partitions),
    )


STATE_MEANINGS: Final[Mapping[str, str]] = {
    "Empty": "The group has no members; its committed offsets are kept.",
    "Assigning": "The coordinator is about to compute a new target assignment; until then members"
    " keep their partitions.",
    "Reconciling": "Members are moving from their current assignments to the target assignment.",
    "Stable": "Every member has its target assignment.",
    "Dead": "The group has neither members nor committed offsets, and is being removed.",
    "PreparingRebalance": "All members are rejoining; none has an assignment yet.",
    "CompletingRebalance": "All members have joined, and wait for the assignment by their leader.",
}
"""By group state, of the consumer and the classic protocol
(org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup.ConsumerGroupState and
org.apache.kafka.coordinator.group.classic.ClassicGroupState)."""

UNKNOWN_STATE_MEANING: Final = "This version does not know this state."


OPERATIONS: Final[Mapping[int, str]] = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
"""Names by bit (org.apache.kafka.common.acl.AclOperation)."""


def authorized_operations(bits: int) -> tuple[str, ...] | None:
    """Return the names of the operations in a bit field; None if it is unknown."""
    if bits == UNKNOWN_AUTHORIZED_OPERATIONS:
        return None
    return tuple(name for bit, name in OPERATIONS.items() if bits >> bit & 1)


MEMBER_TYPES: Final[Mapping[int, str]] = {-1: "unknown", 0: "classic", 1: "consumer"}
"""By the MemberType of ConsumerGroupDescribe."""


class LagOrigin(Enum):
    """The offset from which lag is counted."""

    COMMITTED_OFFSET = "committed offset"
    LOG_START_OFFSET = "log start offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member as the coordinator describes it.

    Args:
        instance_id: `group.instance.id` of a static member.
        client_host: The host from which it connects.
        rack_id: `client.rack`.
        member_epoch: -2: a static member that left and may return; None: a classic group.
        member_type: Its protocol: consumer, classic or unknown.
        subscribed_topic_regex: An RE2 expression.
        current: Its current assignment; from Kafka 4.3 with partitions that it must still revoke.
        target: Its target assignment.
        pending: Target without current assignment.
        revoking: Current without target assignment.
        local: Its own snapshot, if it runs on this machine.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None
    member_epoch: int | None
    member_type: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    current: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    pending: tuple[TopicPartition, ...]
    revoking: tuple[TopicPartition, ...]
    local: LocalMember | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """A partition of a group.

    Args:
        topic: The topic name; the topic id of a topic that no longer exists.
        owner: The id of the member that owns it; None: no member.
        moves_to: The id of its next owner; None: it does not move.
        committed_offset: None: unknown, or no offset is committed.
        committed_leader_epoch: The leader epoch of the committed offset; None: it has none.
        log_end_offset: The high watermark.
        lag: Log end offset minus committed offset (or log start offset); 0 in an internal topic
            that no member reads; None: unknown.
        lag_origin: LOG_START_OFFSET if no offset is committed; None: unknown.
        time: The lag in time.
        remark: Anything unusual; empty if there is nothing.
        withheld: The range that waits for the next owner until the current owner revokes the
            partition, as reported by a member on this machine; None: unknown, or no range.
    """

    topic: str
    topic_id: str
    partition: int
    owner: str | None
    moves_to: str | None
    log_start_offset: int | None
    committed_offset: int | None
    committed_leader_epoch: int | None
    log_end_offset: int | None
    lag: int | None
    lag_origin: LagOrigin | None
    time: LagTime = field(default_factory=LagTime)
    remark: str = ""
    withheld: WithheldRange | None = None

    @property
    def unread_lag(self) -> int | None:
        """The lag by which the group is judged: 0 if no record is unread; None: unknown."""
        return unread_lag(self.lag, self.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView(View):
    """A group at one time.

    Args:
        group_type: consumer or classic.
        state_meaning: The meaning of the state, as a sentence.
        group_epoch: Rises with every change of members, subscriptions or topics; None: a classic
            group.
        assignment_epoch: The group epoch of the target assignment.
        coordinator: The coordinating broker; None: unknown.
        members: Sorted by client id and member id.
        partitions: Sorted by topic and index.
        authorized_operations: The reader's authorized operations, by Kafka's names; None: unknown.
        outside: By member id, queries on this machine that are not members now: they wait for their
            instance id, or left because Spark did not call.
    """

    group_id: str
    group_type: str
    group_state: str
    state_meaning: str
    group_epoch: int | None
    assignment_epoch: int | None
    assignor_name: str
    coordinator: str | None
    members: tuple[MemberView, ...]
    partitions: tuple[PartitionView, ...]
    totals: GroupTotals
    authorized_operations: tuple[str, ...] | None = None
    outside: Mapping[str, LocalMember] = field(default_factory=dict)


def view_group(reading: GroupReading, snapshots: Iterable[Mapping[str, Any]] = ()) -> GroupView:
    """Return the view of a group.

    Args:
        snapshots: Snapshots of members on this machine, as `group.snapshot` writes them; those of
            other groups are ignored.
    """
    description = reading.description
    names = reading.topic_names()
    local = parse_local_members(snapshots, description.group_id)
    has_epochs = reading.group_type is GroupType.CONSUMER
    members = tuple(
        sorted(
            (
                _view_member(each, names, local.get(each.member_id), has_epochs=has_epochs)
                for each in description.members
            ),
            key=lambda member: (member.client_id, member.member_id),
        )
    )
    owners = _owners(description, names, local)
    targets = {
        each: member.member_id
        for member in description.members
        for each in member.target_assignment.partitions
    }
    withheld, held = _withheld(local), reading.held_topics()
    partitions = tuple(
        sorted(
            (
                _view_partition(
                    reading,
                    each,
                    names,
                    owners.get(each),
                    targets.get(each),
                    withheld=withheld,
                    is_held=each.topic_id in held,
                )
                for each in reading.partitions()
            ),
            key=lambda partition: (partition.topic, partition.partition, partition.topic_id),
        )
    )
    return GroupView(
        group_id=description.group_id,
        group_type=reading.group_type.value,
        group_state=description.group_state,
        state_meaning=STATE_MEANINGS.get(description.group_state, UNKNOWN_STATE_MEANING),
        group_epoch=description.group_epoch if has_epochs else None,
        assignment_epoch=description.assignment_epoch if has_epochs else None,
        assignor_name=description.assignor_name,
        coordinator=None if reading.coordinator is None else str(reading.coordinator),
        members=members,
        partitions=partitions,
        totals=group_totals(members, partitions),
        authorized_operations=authorized_operations(description.authorized_operations),
        outside={
            member_id: each
            for member_id, each in local.items()
            if each.says_why_it_is_outside and all(m.member_id != member_id for m in members)
        },
    )


def _view_member(
    member: DescribedMember,
    names: Mapping[TopicId, str],
    local: LocalMember | None,
    *,
    has_epochs: bool,
) -> MemberView:
    current, target = member.assignment, member.target_assignment
    return MemberView(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        # Java prints an address without a host name as "/127.0.0.1".
        client_host=member.client_host.removeprefix("/"),
        rack_id=member.rack_id,
        member_epoch=member.member_epoch if has_epochs else None,
        member_type=MEMBER_TYPES.get(member.member_type, MEMBER_TYPES[-1]),
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex or None,
        current=_named(current, names),
        target=_named(target, names),
        pending=_named(target - current, names),
        revoking=_named(current - target, names),
        local=local,
    )


def _named(
    partitions: Iterable[TopicIdPartition], names: Mapping[TopicId, str]
) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(_name(each.topic_id, names), each.partition) for each in partitions)
    )


def _name(topic_id: TopicId, names: Mapping[TopicId, str]) -> str:
    return names.get(topic_id) or topic_id_text(topic_id)


def _owners(
    description: DescribeGroupResponse,
    names: Mapping[TopicId, str],
    local: Mapping[str, LocalMember],
) -> dict[TopicIdPartition, str]:
    """Return the owner of each partition.

    Before Kafka 4.3 the coordinator omits partitions that a member must still revoke. They have an
    owner only if that member runs on this machine.
    """
    ids = {name: topic_id for topic_id, name in names.items()}
    owners = {
        TopicIdPartition(ids[each.topic], each.partition): member_id
        for member_id, member in local.items()
        for each in member.revoking
        if each.topic in ids
    }
    for member in description.members:
        owners.update(dict.fromkeys(member.assignment.partitions, member.member_id))
    return owners


def _view_partition(
    reading: GroupReading,
    key: TopicIdPartition,
    names: Mapping[TopicId, str],
    owner: str | None,
    target: str | None,
    *,
    withheld: Mapping[tuple[str, int], Mapping[str, WithheldRange]],
    is_held: bool,
) -> PartitionView:
    topic = _name(key.topic_id, names)
    committed = reading.committed.get(key)
    committed_offset: int | None = None
    leader_epoch: int | None = None
    origin: LagOrigin | None = LagOrigin.LOG_START_OFFSET
    if isinstance(committed, PartitionError):
        origin = None
    elif committed is not None and committed.committed_offset != NO_OFFSET:
        committed_offset, origin = committed.committed_offset, LagOrigin.COMMITTED_OFFSET
        if committed.leader_epoch != NO_LEADER_EPOCH:
            leader_epoch = committed.leader_epoch
    start, end = reading.log_start(key), reading.log_end(key)
    counted_from = start if origin is LagOrigin.LOG_START_OFFSET else committed_offset
    lag = None if end is None or counted_from is None else end - counted_from
    remark = "; ".join(
        f"{what}: {ErrorCode.name_of(code)}" for what, code in reading.errors(key).items()
    )
    if lag is not None and lag < 0:
        lag, remark = None, f"offset {counted_from:,} is committed, but the log ends at {end:,}"
    if is_held:
        lag, origin, remark = 0, None, "internal topic, matched by a pattern: not read"
    if committed_offset is not None and start is not None and committed_offset < start:
        remark = f"offsets deleted before they were read: {start - committed_offset:,}"
    waiting = withheld.get((topic, key.partition), {})
    return PartitionView(
        topic=topic,
        topic_id=topic_id_text(key.topic_id),
        partition=key.partition,
        owner=owner,
        moves_to=target if target != owner else None,
        log_start_offset=start,
        committed_offset=committed_offset,
        committed_leader_epoch=leader_epoch,
        log_end_offset=end,
        lag=lag,
        lag_origin=origin,
        time=_lag_time(reading, key, lag, committed_offset, start),
        remark=remark,
        withheld=next((each for member_id, each in waiting.items() if member_id != owner), None),
    )


def _lag_time(
    reading: GroupReading,
    key: TopicIdPartition,
    lag: int | None,
    committed_offset: int | None,
    log_start_offset: int | None,
) -> LagTime:
    unread = reading.unread
    if unread is None or lag is None:
        return LagTime()
    first = unread.first
    # With all of its log deleted, a partition lags and has nothing to read.
    is_empty = log_start_offset is not None and log_start_offset == reading.log_end(key)
    is_known = lag == 0 or is_empty or key in first.found
    time = lag_time(
        first.found.get(key),
        unread.now_ms,
        unread.retention.get(key.topic_id, UNKNOWN_RETENTION),
        committed_offset=committed_offset,
        log_start_offset=log_start_offset,
        reason="" if is_known else first.unknown.get(key, "no leader was asked"),
    )
    has_only_markers = lag and time.has_no_unread_record and not time.lost_offsets
    return replace(time, remark=NO_UNREAD_RECORD) if has_only_markers else time


def _withheld(
    local: Mapping[str, LocalMember],
) -> dict[tuple[str, int], dict[str, WithheldRange]]:
    """Return the ranges for which members on this machine wait, by partition and member id."""
    found: dict[tuple[str, int], dict[str, WithheldRange]] = {}
    for member_id, member in local.items():
        for each in member.withheld:
            found.setdefault((each.topic, each.partition), {})[member_id] = each
    return found
