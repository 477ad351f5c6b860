"""`spark.read.format("kafka-group-state")`: owners and lag of a group's partitions.

The driver reads the groups, because snapshots of members on its host add what brokers do not know;
rows travel to a task unchanged. Each of Spark's processes imports only its part.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_groups.errors import GroupNotFoundError, ProtocolError
from spark_groups.spark.options.own_columns import OwnColumns
from spark_groups.systems import check_system
from spark_groups.types import TopicPartition

if TYPE_CHECKING:
    from spark_groups.observation.lag_times import LagTime
    from spark_groups.observation.observe import GroupObserver
    from spark_groups.observation.views import GroupView
    from spark_groups.spark.state.state_options import StateOptions
    from spark_groups.wire.cluster import ListedGroup
STATE_COLUMNS: Final = (
    "group_id string, group_type string, group_state string, group_epoch int,"
    " assignment_epoch int, assignor_name string, topic string, topic_id string, partition int,"
    " member_id string, instance_id string, client_id string, client_host string,"
    " member_epoch int, member_type string, rack_id string, target_member_id string,"
    " moves_to string, log_start_offset bigint, committed_offset bigint, log_end_offset bigint,"
    " lag bigint, seconds_behind double, first_unread timestamp, deletion string,"
    " deletion_in_s double, remark string"
)
"""Spark's DDL, with the names of `spark-groups describe --json`."""


class KafkaGroupStateDataSource(OwnColumns):
    """The current state of consumer groups, one row per partition."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        check_system(sys.platform)
        from spark_groups.spark.state.state_options import StateOptions

        self._packed_options = pickle.dumps(StateOptions.of(options))

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-group-state"

    def columns(self) -> str:
        """Return the columns."""
        return STATE_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader of the groups."""
        return KafkaGroupStateReader(self._packed_options)


@dataclass
class StatePartition(InputPartition):
    """All rows, already read."""

    rows: tuple[StateRow, ...]


class KafkaGroupStateReader(DataSourceReader):
    """Reads groups once per query plan, on the driver.

    Args:
        packed_options: Pickled options, so that executors never import pydantic.
    """

    def __init__(self, packed_options: bytes) -> None:
        self._packed_options = packed_options

    def partitions(self) -> Sequence[InputPartition]:
        """Return all rows, read now."""
        options: StateOptions = pickle.loads(self._packed_options)
        return [StatePartition(tuple(read_state(options)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Yield the rows."""
        assert isinstance(partition, StatePartition)
        yield from partition.rows


def read_state(options: StateOptions) -> Iterator[StateRow]:
    """Yield the rows of groups, in the given order, else by ID.

    Raises:
        GroupNotFoundError: A named group does not exist.
        BrokerUnreachableError: A broker did not respond in time.
        ProtocolError: A broker returned an error or an invalid response for a named group.
    """
    from spark_groups.observation.observe import GroupObserver
    from spark_groups.wire.security.security import warn_of_open_secrets

    warn_of_open_secrets(options.security)
    servers = ",".join(options.bootstrap_servers)
    timeout_s = options.api_timeout_ms / 1000
    with GroupObserver(
        servers,
        timeout_s=timeout_s,
        security=options.security,
        read_committed=options.read_committed,
    ) as observer:
        for group_id in options.group_ids:
            yield from state_rows(observer.view(group_id))
        for listed in () if options.group_ids else _all_groups(options):
            # The group may be deleted meanwhile.
            with contextlib.suppress(GroupNotFoundError):
                yield from _rows_if_readable(observer, listed)


def _rows_if_readable(observer: GroupObserver, listed: ListedGroup) -> Iterator[StateRow]:
    """Yield the rows of a group, or one that says why it cannot be read.

    One group that the user may not describe must not hide all others.
    """
    try:
        view = observer.view(listed.group_id)
    except ProtocolError as error:
        yield StateRow(
            group_id=listed.group_id,
            group_type=listed.group_type.lower(),
            group_state=listed.group_state,
            group_epoch=None,
            assignment_epoch=None,
            assignor_name=None,
            remark=str(error),
        )
    else:
        yield from state_rows(view)


def _all_groups(options: StateOptions) -> Iterator[ListedGroup]:
    from spark_groups.wire.cluster import Cluster

    with Cluster(
        options.bootstrap_servers,
        security=options.security,
        request_timeout_s=options.api_timeout_ms / 1000,
    ) as cluster:
        # Classic groups also include others than consumers, such as Kafka Connect workers.
        for each in cluster.list_groups(types=("Consumer", "Classic")):
            if each.protocol_type in ("consumer", ""):
                yield each


class StateRow(NamedTuple):
    """A row; None means unknown or absent.

    A field has the meaning of the field of the same name in `GroupView`, in the `MemberView` of the
    partition's owner, in its `PartitionView`, or in its `LagTime`.

    Args:
        topic_id: As Kafka's tools write it.
        target_member_id: The member that has the partition in its target assignment.
        first_unread: The timestamp of the first unread record.
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
    member_type: str | None = None
    rack_id: str | None = None
    target_member_id: str | None = None
    moves_to: str | None = None
    log_start_offset: int | None = None
    committed_offset: int | None = None
    log_end_offset: int | None = None
    lag: int | None = None
    seconds_behind: float | None = None
    first_unread: datetime | None = None
    deletion: str | None = None
    deletion_in_s: float | None = None
    remark: str | None = None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MEMBER_FIELDS: Final = StateRow._fields[9:16]
_PARTITION_FIELDS: Final = (*StateRow._fields[6:9], *StateRow._fields[17:22])


def state_rows(view: GroupView) -> Iterator[StateRow]:
    """Yield the rows of a group, and one row for an empty group."""
    group = StateRow(
        group_id=view.group_id,
        group_type=view.group_type,
        group_state=view.group_state,
        group_epoch=view.group_epoch,
        assignment_epoch=view.assignment_epoch,
        assignor_name=view.assignor_name or None,
    )
    members = {each.member_id: each for each in view.members}
    targets = {each: member.member_id for member in view.members for each in member.target}
    for partition in view.partitions:
        owner = members.get(partition.owner or "")
        row = _with(group, owner, _MEMBER_FIELDS) if owner is not None else group
        row = _with(row, partition, _PARTITION_FIELDS)
        time = partition.time
        yield row._replace(
            member_id=partition.owner,
            target_member_id=targets.get(TopicPartition(partition.topic, partition.partition)),
            seconds_behind=time.seconds_behind,
            first_unread=_moment(time.first_unread_ms),
            deletion=time.deletion.value if _is_known(time) else None,
            deletion_in_s=time.deletion_in_s,
            remark=partition.remark or time.remark or None,
        )
    owners = {each.owner for each in view.partitions}
    for member in view.members:
        if member.member_id not in owners:
            yield _with(group, member, _MEMBER_FIELDS)
    if not view.partitions and not view.members:
        yield group


def _is_known(time: LagTime) -> bool:
    return time.first_unread_offset is not None and time.deletion.value != "unknown"


def _moment(timestamp_ms: int | None) -> datetime | None:
    """Return a timestamp as Spark takes it; None also if it is outside Python's range."""
    try:
        return None if timestamp_ms is None else _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def _with(row: StateRow, view: object, names: tuple[str, ...]) -> StateRow:
    return row._replace(**{name: getattr(view, name) for name in names})
