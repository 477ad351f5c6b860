"""`spark.read.format("kafka-group-state")`: who has which partition of a group, and its lag.

The groups are read on the driver, where members of this machine say what no broker knows; the rows
travel to a task as they are. Of Spark's processes, each imports here only what it does.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_groups.errors import GroupNotFoundError
from spark_groups.spark.state.rows import STATE_COLUMNS, StateRow, state_rows

if TYPE_CHECKING:
    from spark_groups.spark.state.state_options import StateOptions


class KafkaGroupStateDataSource(DataSource):
    """Consumer groups of a Kafka cluster as they stand, one row for each partition."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        from spark_groups.spark.state.state_options import StateOptions

        self._packed_options = pickle.dumps(StateOptions.of(options))

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-group-state"

    def schema(self) -> str:
        """Return the columns, without asking a broker."""
        return STATE_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader of the groups."""
        return KafkaGroupStateReader(self._packed_options)


@dataclass
class StatePartition(InputPartition):
    """All rows, which are read by then."""

    rows: tuple[StateRow, ...]


class KafkaGroupStateReader(DataSourceReader):
    """Reads groups once for each plan, on the driver.

    Args:
        packed_options: The options, pickled: a task imports nothing of what they consist of.
    """

    def __init__(self, packed_options: bytes) -> None:
        self._packed_options = packed_options

    def partitions(self) -> Sequence[InputPartition]:
        """Return all rows, as the groups are now."""
        options: StateOptions = pickle.loads(self._packed_options)
        return [StatePartition(tuple(read_state(options)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Yield the rows."""
        assert isinstance(partition, StatePartition)
        yield from partition.rows


def read_state(options: StateOptions) -> Iterator[StateRow]:
    """Yield the rows of groups, in the order in which they are named, else by id.

    Args:
        options: Where they are, and which.

    Raises:
        GroupNotFoundError: One that is named is not there.
        BrokerUnreachableError: Not all answers came in time.
        ProtocolError: A broker refused, or its answer cannot be read.
    """
    from spark_groups.observation.observe import GroupObserver
    from spark_groups.wire.security.warnings import warn_of_open_secrets

    warn_of_open_secrets(options.security)
    servers = ",".join(options.bootstrap_servers)
    timeout_s = options.api_timeout_ms / 1000
    with GroupObserver(servers, timeout_s=timeout_s, security=options.security) as observer:
        for group_id in options.group_ids:
            yield from state_rows(observer.view(group_id))
        for group_id in () if options.group_ids else _all_groups(options):
            # One that is deleted meanwhile is none.
            with contextlib.suppress(GroupNotFoundError):
                yield from state_rows(observer.view(group_id))


def _all_groups(options: StateOptions) -> Iterator[str]:
    from spark_groups.wire.cluster import Cluster

    with Cluster(
        options.bootstrap_servers,
        security=options.security,
        request_timeout_s=options.api_timeout_ms / 1000,
    ) as cluster:
        # Classic groups may be of others than consumers, such as the workers of Kafka Connect.
        for each in cluster.list_groups(types=("Consumer", "Classic")):
            if each.protocol_type in ("consumer", ""):
                yield each.group_id
