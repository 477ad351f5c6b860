"""`spark-groups delete` and `delete-offsets`: delete groups, or committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.cli.connecting import (
    Brokers,
    DryRunFlag,
    GroupArgument,
    GroupArguments,
    JsonFlag,
    connects,
    usage_errors,
)
from spark_groups.cli.output import UNKNOWN, Column, dry_run_note, plain, show, table_of
from spark_groups.cli.topic_partitions import TOPIC_OPTION, parse_topics, partitions_of
from spark_groups.errors import ErrorCode, GroupNotFoundError, ProtocolError, printable, rule_for
from spark_groups.group.member.messages import MetadataRequest
from spark_groups.group.member.near_names import hint
from spark_groups.observation.observe import describe_any_group
from spark_groups.observation.plain_values import View
from spark_groups.types import TopicPartition
from spark_groups.wire import group_admin
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import RequestError
from spark_groups.wire.group_admin import OffsetDeletion


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedGroup:
    """The result for one group.

    Args:
        error: The name of Kafka's error code; None: the group was deleted.
        remark: How to resolve the error.
    """

    group_id: str
    error: str | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeletionView(View):
    """The result of `delete`, or with `is_dry_run` the expected result."""

    groups: tuple[DeletedGroup, ...]
    is_dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether every deletion succeeded."""
        return all(group.error is None for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedOffset:
    """The result for the committed offset of one partition.

    Args:
        partition: None: the topic does not exist.
        error: The name of Kafka's error code; None: the offset was deleted.
        remark: How to resolve the error.
    """

    topic: str
    partition: int | None
    error: str | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeletionView(View):
    """The result of `delete-offsets`, or with `is_dry_run` the expected result."""

    group_id: str
    offsets: tuple[DeletedOffset, ...]
    is_dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether every deletion succeeded."""
        return all(each.error is None for each in self.offsets)


_DELETE_GROUPS_ANSWERS: Final[Mapping[str, int]] = {
    "Empty": ErrorCode.NONE.value,
    "Dead": ErrorCode.GROUP_ID_NOT_FOUND.value,
}
"""Error codes by group state (org.apache.kafka.coordinator.group.GroupMetadataManager)."""


def delete_groups(
    cluster: Cluster, group_ids: Iterable[str], *, is_dry_run: bool = False
) -> GroupDeletionView:
    """Delete groups with their committed offsets.

    A group that fails does not hide what became of the others.

    Raises:
        RequestError: With `is_dry_run`, the brokers did not list their groups in time.
        ProtocolError: Nor did they list them in a form that can be decoded.
    """
    listed_groups = cluster.list_groups() if is_dry_run else ()
    states = {listed_group.group_id: listed_group.group_state for listed_group in listed_groups}

    def fields(group_id: str) -> dict[str, Any]:
        if not is_dry_run:
            try:
                return error_fields(group_admin.delete_group(cluster, group_id).error_code)
            except (RequestError, ProtocolError) as error:
                # The coordinator may have deleted the group without its answer being read.
                remark = f"{error}; repeat the command to see whether the group is deleted"
                return {"error": ErrorCode.NETWORK_EXCEPTION.name, "remark": remark}
        state = states.get(group_id, "Dead")
        return error_fields(_DELETE_GROUPS_ANSWERS.get(state, ErrorCode.NON_EMPTY_GROUP.value))

    return GroupDeletionView(
        groups=tuple(
            DeletedGroup(group_id=each, **fields(each)) for each in dict.fromkeys(group_ids)
        ),
        is_dry_run=is_dry_run,
    )


def delete_group_offsets(
    cluster: Cluster,
    group_id: str,
    topics: Mapping[str, frozenset[int] | None],
    *,
    is_dry_run: bool = False,
) -> OffsetDeletionView:
    """Delete committed offsets of a group.

    Args:
        topics: Partitions by topic; None: all partitions.

    Raises:
        RequestError: The coordinator did not answer in time.
        ProtocolError: A response cannot be decoded.
    """
    request = MetadataRequest(topic_names=frozenset(topics), wants_near=True)
    known = cluster.metadata(request)
    there, missing = partitions_of(topics, known.topics)
    if is_dry_run:
        answer = _expected(cluster, group_id, there)
    else:
        answer = group_admin.delete_offsets(cluster, group_id, there) if there else OffsetDeletion()
    offsets = view_deleted(there, missing, answer, known.near)
    return OffsetDeletionView(group_id=group_id, offsets=offsets, is_dry_run=is_dry_run)


def _expected(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> OffsetDeletion:
    """Return the response to expect: the offsets of subscribed topics cannot be deleted."""
    not_found = OffsetDeletion(error_code=ErrorCode.GROUP_ID_NOT_FOUND.value)
    try:
        _, described = describe_any_group(cluster, group_id)
    except GroupNotFoundError:
        return not_found
    if described.group_state == "Dead":
        return not_found
    read = {name for member in described.members for name in member.subscribed_topic_names}
    held = {key.topic_id for member in described.members for key in member.assignment.partitions}
    read |= {described.topic_names[each] for each in held if each in described.topic_names}
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.value
    return OffsetDeletion(
        errors={partition: subscribed if partition.topic in read else 0 for partition in partitions}
    )


def view_deleted(
    there: Iterable[TopicPartition],
    missing: Iterable[TopicPartition],
    answer: OffsetDeletion,
    near: Mapping[str, str] = MappingProxyType({}),
) -> tuple[DeletedOffset, ...]:
    """Return what became of committed offsets, once the coordinator has answered.

    Args:
        there: Partitions that it was asked to forget.
        missing: Partitions that do not exist, -1 for all of a topic.
        near: By the name of a missing topic: a topic with a similar name.
    """
    unanswered = answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR.value
    codes = {each: answer.errors.get(each, unanswered) for each in there}
    codes |= dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value)
    return tuple(
        DeletedOffset(
            topic=each.topic,
            partition=each.partition if each.partition >= 0 else None,
            **error_fields(codes[each], hint(each.topic, near)),
        )
        for each in sorted(codes)
    )


def error_fields(code: int, hinted: str = "") -> dict[str, Any]:
    """Return the fields `error` and `remark` for one of Kafka's error codes.

    Args:
        hinted: What follows the remark.
    """
    if not code:
        return {}
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {"error": ErrorCode.name_of(code), "remark": "there is no such group"}
    return {"error": ErrorCode.name_of(code), "remark": f"{rule_for(code).remedy}{hinted}"}


@connects
def delete(
    groups: GroupArguments, brokers: Brokers, dry_run: DryRunFlag = False, as_json: JsonFlag = False
) -> None:
    """Delete groups without members, with all their committed offsets.

    Example: spark-groups delete flight-readers flight-writers --dry-run

    Exit code 1 if any group is not deleted, or would not be with --dry-run.
    """
    with brokers.cluster() as cluster:
        view = delete_groups(cluster, groups, is_dry_run=dry_run)
    show(view, render_deleted_groups, as_json=as_json, is_success=view.is_complete)


@connects
def delete_offsets(
    group: GroupArgument,
    brokers: Brokers,
    topics: Annotated[list[str], TOPIC_OPTION],
    dry_run: DryRunFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Delete the committed offsets of a group, for topics to which no member subscribes.

    Example: spark-groups delete-offsets flight-readers --topic flights:0,1 --topic orders

    Exit code 1 if any offset is not deleted, or would not be with --dry-run.
    """
    with usage_errors("--topic"):
        wanted = parse_topics(topics)
    with brokers.cluster() as cluster:
        view = delete_group_offsets(cluster, group, wanted, is_dry_run=dry_run)
    show(view, render_deleted_offsets, as_json=as_json, is_success=view.is_complete)


def render_deleted_groups(view: GroupDeletionView) -> RenderableType:
    """Return one line for each group."""
    lines = [
        _line(group, "would be deleted" if view.is_dry_run else "deleted") for group in view.groups
    ]
    return Group(*lines, *dry_run_note(is_dry_run=view.is_dry_run))


def render_deleted_offsets(view: OffsetDeletionView) -> RenderableType:
    """Return one row for each partition, in the columns of kafka-consumer-groups.sh."""
    table = table_of(
        view.offsets,
        Column("TOPIC", lambda each: each.topic),
        Column("PARTITION", lambda each: plain(each.partition), is_number=True),
        Column("STATUS", _status),
    )
    shown = table if view.offsets else Text(UNKNOWN)
    return Group(shown, *dry_run_note(is_dry_run=view.is_dry_run))


def _status(offset: DeletedOffset) -> Text:
    if offset.error is None:
        return Text("Successful", "green")
    return Text(f"Error: {offset.error}, {offset.remark}", "red")


def _line(group: DeletedGroup, done: str) -> Text:
    name = printable(group.group_id)
    if group.error is None:
        return Text.assemble(f"group {name!r}: ", (done, "green"))
    said = f"could not be deleted due to: {group.error}, {group.remark}"
    return Text.assemble(f"group {name!r}: ", (said, "red"))
