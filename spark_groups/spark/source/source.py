"""`format("kafka-group")`: the data source, its stream reader, and its backlog reader.

Spark copies a reader: one copy runs in a runner process on the driver's host and starts the member
in its first call; others are pickled to executors and only read. While a query starts, Spark looks
up sources, validates the load and plans the read in separate Python processes: each of these
imports only what it needs.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_groups.errors import OptionsError
from spark_groups.group.ledger.plan_text import NOTHING_PLANNED
from spark_groups.spark.options.own_columns import OwnColumns
from spark_groups.spark.options.packed import KEY_NAME, SOURCE_NAME, Load
from spark_groups.spark.source.packing import pack
from spark_groups.systems import check_system
from spark_groups.types import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_groups.monitoring.endpoint import MonitoringEndpoint
    from spark_groups.observation.member_times import MemberTimes
    from spark_groups.runtime.snapshot_sockets import SnapshotPublisher
    from spark_groups.spark.options.source_options import SourceOptions
    from spark_groups.spark.source.query_run import QueryRun

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL: Final = True
except ImportError:  # Spark 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False  # type: ignore[misc]

logger = logging.getLogger(__name__)

NO_LIMIT_ROWS: Final = 2**62
"""The default read limit. It is not `ReadAllAvailable`, so that this can only mean Trigger.Once."""


class KafkaGroupDataSource(OwnColumns):
    """Topics of a Kafka cluster, read as a member of a consumer group."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        check_system(sys.platform)
        self._load = Load.of(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return SOURCE_NAME

    def columns(self) -> str:
        """Return the columns of Spark's own Kafka source, or of ranges if the load emits them."""
        return self._load.columns

    def schema(self) -> str | StructType:
        """Return the columns; those of ranges with the load's key, if it has one."""
        ddl = super().schema()
        if not self._load.key:
            return ddl
        types = {"bigint": "long", "int": "integer"}
        named = [each.split() for each in self.columns().split(", ")]
        fields: list[dict[str, Any]] = [
            {"name": name, "type": types.get(kind, kind), "nullable": True, "metadata": {}}
            for name, kind in named
        ]
        fields[0]["metadata"] = {KEY_NAME: self._load.key}
        return StructType.fromJson({"type": "struct", "fields": fields})

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader of one query."""
        return KafkaGroupStreamReader(self._load)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader of the group's backlog."""
        return KafkaGroupBacklogReader(self._load)


@dataclass
class RangesPartition(InputPartition):
    """The offset ranges that one task reads, and Kafka's id of their cluster, if it is known."""

    ranges: tuple[OffsetRange, ...]
    cluster_id: str | None


@dataclass
class WarmUpPartition(InputPartition):
    """A task that warms its Python worker up for the next batch, and reads nothing.

    Args:
        run: The member id in the warm-up plan.
        tasks: The number of the plan's tasks.
        topics: The topics whose leaders are connected; none: all brokers.
        cluster_id: Kafka's id of the cluster, if it is known.
    """

    run: str
    tasks: int
    topics: tuple[str, ...]
    cluster_id: str | None


class KafkaGroupBacklogReader(DataSourceReader):
    """Reads a group's backlog without joining the group."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks that read the current backlog; runs on the driver."""
        from spark_groups.spark.source.batch_read import read_backlog
        from spark_groups.wire.cluster_identity import ClusterIdentity

        options = self._load.options()
        identity = ClusterIdentity()
        ranges = read_backlog(options, identity)
        return _tasks(self._load, options, ranges, identity.cluster_id)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records or ranges of one task; runs on executors."""
        # Spark creates a placeholder partition if there is none.
        if isinstance(partition, RangesPartition):
            yield from _rows(self._load, partition)


class _StreamReader(DataSourceStreamReader):
    """The reader without the methods of Spark 4.2."""

    _run: QueryRun | None = None
    _publisher: SnapshotPublisher | None = None
    _endpoint: MonitoringEndpoint | None = None
    _times: MemberTimes | None = None

    def __init__(self, load: Load) -> None:
        self._load = load

    def __getstate__(self) -> dict[str, Any]:
        return {"_load": self._load}

    @cached_property
    def _options(self) -> SourceOptions:
        return self._load.options()

    def initialOffset(self) -> dict[str, Any]:
        """Return a constant; the group's committed offsets determine the start."""
        return dict(NOTHING_PLANNED)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return tasks that read exactly the ranges of the batch's plan, or warm workers up."""
        plan = self._live().batch(start, end)
        if plan is None:
            return []
        if plan.warm_up_tasks:
            names = {
                *self._options.subscription.topic_names,
                *(topic.name for topic in plan.topics),
            }
            warm_up = WarmUpPartition(
                plan.member_id, plan.warm_up_tasks, tuple(sorted(names)), plan.cluster_id
            )
            return [warm_up] * plan.warm_up_tasks
        return _tasks(self._load, self._options, plan.ranges, plan.cluster_id)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records or ranges of one task; runs on executors."""
        if isinstance(partition, WarmUpPartition):
            _warm_up(self._load, partition)
            return
        assert isinstance(partition, RangesPartition)
        yield from _rows(self._load, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: `latestOffset` has already proved this batch, one trigger ago."""

    def stop(self) -> None:
        """Leave the group, after waiting for the report of the last batch."""
        if self._run is not None:
            self._run.note_end()
        if self._endpoint is not None:
            # Before the group is left, because the query's next run needs the same port.
            self._endpoint.close()
        if self._times is not None:
            self._times.close()
        if self._run is not None:
            # Spark closes the connection and sends a signal, in either order; each leads here.
            self._run.await_last_report()
            self._run.leave()
        if self._publisher is not None:
            self._publisher.close()

    def _live(self) -> QueryRun:
        """Return the run of this reader; the first call, in the runner, creates it."""
        if self._run is None:
            from spark_groups.runtime.snapshot_sockets import SnapshotPublisher
            from spark_groups.spark.control.channel import files_directory
            from spark_groups.spark.control.jvm_connection import (
                acknowledge_calls_at_once,
                jvm_connection,
            )
            from spark_groups.spark.control.runner_process import (
                RunnerEnd,
                log_to_stderr,
                writes_to_terminal,
            )
            from spark_groups.spark.source.application import warn_of_siblings
            from spark_groups.spark.source.query_run import QueryRun

            log_to_stderr(
                self._options.log_level,
                lambda: self._run.control.query_id if self._run else None,
                is_terminal=writes_to_terminal(os.getppid()),
            )
            for note in self._load.notes:
                logger.info("%s", note)
            # Before the member opens connections of its own.
            connection = jvm_connection()
            self._run = QueryRun(
                self._options, spark_passes_start=HAS_ADMISSION_CONTROL, key=self._load.key
            )
            RunnerEnd(
                self.stop, files_directory=files_directory(), jvm_connection=connection
            ).watch()
            # Threads that start before watch() would not block SIGTERM.
            acknowledge_calls_at_once(connection)
            self._run.control.start()
            self._publisher = SnapshotPublisher(self._run.snapshot)
            self._publisher.start()
            warn_of_siblings(self._options.group_id, self._run.application)
            self._endpoint = self._monitored(self._run)
        return self._run

    def _monitored(self, run: QueryRun) -> MonitoringEndpoint | None:
        """Serve metrics and health if metricsPort is set."""
        if self._options.metrics_port is None:
            return None
        from spark_groups.monitoring.endpoint import MonitoringEndpoint
        from spark_groups.observation.member_times import MemberTimes

        self._times = MemberTimes(
            self._options.bootstrap_servers,
            security=self._options.security,
            read_committed=self._options.read_committed,
            identity=run.driver.identity,
        )
        endpoint = MonitoringEndpoint(
            run.driver.snapshot,
            host=self._options.metrics_host,
            port=self._options.metrics_port,
            measure=self._times.measure,
        )
        endpoint.start()
        return endpoint


if HAS_ADMISSION_CONTROL:

    class KafkaGroupStreamReader(_StreamReader, SupportsTriggerAvailableNow):
        """The reader on Spark 4.2 and later, with admission control."""

        def getDefaultReadLimit(self) -> ReadLimit:
            """Return maxOffsetsPerTrigger or maxBytesPerTrigger, or effectively no limit."""
            limit = self._options.plan_limit()
            if limit.max_offsets is None and limit.max_bytes is not None:
                return ReadMaxBytes(limit.max_bytes)
            return ReadMaxRows(limit.max_offsets or NO_LIMIT_ROWS)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            """Return the next plan, or `start` if there is nothing to read."""
            run = self._live()
            if not isinstance(limit, ReadAllAvailable):
                return dict(run.latest_offset(start))
            if not run.control.is_reported_to:
                # Whether a function will prove the batch is not known before Spark calls it.
                raise OptionsError(
                    "Trigger.Once is refused: without a listener, the offsets of its only batch"
                    " may not be committed. Use trigger(availableNow=True), or, in a classic"
                    " session, call spark_groups.listen(spark) before the query starts"
                )
            run.prepare_available_now()
            return dict(run.latest_offset(start, everything=True))

        def prepareForTriggerAvailableNow(self) -> None:
            """End after reading the offsets that exist when each partition is assigned."""
            self._live().prepare_available_now()

        def reportLatestOffset(self) -> dict[str, Any]:
            """Return the log ends of the member's partitions, as Spark's Kafka source does."""
            ends: dict[str, Any] = {}
            for each, end in sorted(self._live().driver.latest_offsets().items()):
                ends.setdefault(each.topic, {})[str(each.partition)] = end
            return ends

else:

    class KafkaGroupStreamReader(_StreamReader):  # type: ignore[no-redef]
        """The reader on Spark 4.0 and 4.1."""

        def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
            """Return the next plan, or the last one if there is nothing to read."""
            return dict(self._live().latest_offset(None))


def _tasks(
    load: Load, options: SourceOptions, ranges: tuple[OffsetRange, ...], cluster_id: str | None
) -> list[InputPartition]:
    if load.emits_ranges and not load.key:
        return [RangesPartition(ranges, cluster_id)] if ranges else []
    # Through Spark Connect, the tasks that get ranges read them, too.
    tasks = pack(
        ranges,
        default_tasks=os.cpu_count() or 1,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [RangesPartition(ranges, cluster_id) for ranges in tasks]


def _rows(load: Load, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
    from spark_groups.spark.control.jvm_connection import acknowledge_tasks_at_once

    acknowledge_tasks_at_once()
    if load.emits_ranges:
        from spark_groups.spark.reading.rows import range_rows

        yield range_rows(partition.ranges)
    else:
        from spark_groups.spark.reading.reader import read_ranges

        settings = replace(load.range_settings, cluster_id=partition.cluster_id)
        yield from read_ranges(settings, partition.ranges)


def _warm_up(load: Load, partition: WarmUpPartition) -> None:
    from spark_groups.spark.control.jvm_connection import acknowledge_tasks_at_once
    from spark_groups.spark.reading.worker_warm_up import warm_slot

    acknowledge_tasks_at_once()

    def warm() -> None:
        if load.emits_ranges:
            from spark_groups.spark.reading.rows import range_rows

            range_rows(())
        else:
            from spark_groups.spark.reading.reader import warm_up

            settings = replace(load.range_settings, cluster_id=partition.cluster_id)
            warm_up(settings, partition.topics)

    warm_slot(warm, run=partition.run, tasks=partition.tasks)
