"""Groups as rows: one for each partition, and one for each member that has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from spark_groups.observation.views import GroupView, MemberView, PartitionView

STATE_COLUMNS: Final = (
    "group_id string, group_type string, group_state string, group_epoch int,"
    " assignment_epoch int, assignor_name string, topic string, topic_id string, partition int,"
    " member_id string, instance_id string, client_id string, client_host string,"
    " member_epoch int, moves_to string, log_start_offset bigint, committed_offset bigint,"
    " log_end_offset bigint, lag bigint, remark string"
)
"""As Spark's DDL; the words are those of `spark-groups describe --json`."""


class StateRow(NamedTuple):
    """A row; what is not known, and what there is none of, is None.

    Args:
        group_id: The group.
        group_type: Of which protocol it is: consumer or classic.
        group_state: The coordinator's word.
        group_epoch: Rises whenever members, subscriptions or topics change.
        assignment_epoch: The group epoch that the target assignment was computed at.
        assignor_name: Who computes it.
        topic: The partition's topic.
        topic_id: Its id, as Kafka's tools write it.
        partition: Its index.
        member_id: The member that has the partition.
        instance_id: `group.instance.id` of that member.
        client_id: What its client calls itself.
        client_host: Where it connects from.
        member_epoch: The epoch that it has acknowledged.
        moves_to: Id of the member that will have the partition, if that is another one.
        log_start_offset: The first offset there is.
        committed_offset: The next offset to read.
        log_end_offset: The next offset to be written.
        lag: From the committed offset, or the log start where none is committed, to the end.
        remark: What is unusual, in words.
    """

    group_id: str
    group_type: str
    group_state: str
    group_epoch: int | None
    assignment_epoch: int | None
    assignor_name: str | None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    member_id: str | None = None
    instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    member_epoch: int | None = None
    moves_to: str | None = None
    log_start_offset: int | None = None
    committed_offset: int | None = None
    log_end_offset: int | None = None
    lag: int | None = None
    remark: str | None = None


def state_rows(view: GroupView) -> Iterator[StateRow]:
    """Yield the rows of a group; one without partitions and members has a row of its own.

    Args:
        view: The group.
    """
    group = StateRow(
        group_id=view.group_id,
        group_type=view.group_type,
        group_state=view.group_state,
        group_epoch=view.group_epoch,
        assignment_epoch=view.assignment_epoch,
        assignor_name=view.assignor_name or None,
    )
    members = {each.member_id: each for each in view.members}
    for partition in view.partitions:
        row = _of_member(group, members.get(partition.owner or ""))
        yield _of_partition(row, partition)
    owners = {each.owner for each in view.partitions}
    for member in view.members:
        if member.member_id not in owners:
            yield _of_member(group, member)
    if not view.partitions and not view.members:
        yield group


def _of_member(row: StateRow, member: MemberView | None) -> StateRow:
    if member is None:
        return row
    return row._replace(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_epoch=member.member_epoch,
    )


def _of_partition(row: StateRow, partition: PartitionView) -> StateRow:
    return row._replace(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        member_id=partition.owner,
        moves_to=partition.moves_to,
        log_start_offset=partition.log_start_offset,
        committed_offset=partition.committed_offset,
        log_end_offset=partition.log_end_offset,
        lag=partition.lag,
        remark=partition.remark or None,
    )
