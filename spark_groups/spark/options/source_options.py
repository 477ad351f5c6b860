"""The options of the `kafka-group` source: names, defaults and meanings.

Each option is declared once, in `SourceOptions` or in `FETCH_TUNING`; the tables of the reference
are made from these. One error lists all invalid options of a load().
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from spark_groups.errors import OptionsError
from spark_groups.group.batches.available_now_wait import AvailableNowWait, WhenUnsettled
from spark_groups.group.batches.plan_limit import FIRST_BYTES, PlanLimit
from spark_groups.group.ledger.starting import (
    StartingOffsets,
    StartingPoint,
    Timestamps,
    WithoutRecord,
)
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.subscription import Subscription
from spark_groups.spark.options.checks import (
    SECURITY_OPTIONS,
    read_security,
    read_tuning,
    refuse_load,
    uncovered_topics,
    unknown_or_refused,
)
from spark_groups.spark.options.contradictions import contradicting_limits, empty_reads
from spark_groups.spark.options.declaring import (
    Declared,
    OnRestart,
    declared_options,
    option,
    parsed,
)
from spark_groups.spark.options.format_options import (
    REGISTRY_OPTIONS,
    FormatOptions,
    read_registry,
)
from spark_groups.spark.options.librdkafka_options import FETCH_TUNING
from spark_groups.spark.options.option_values import (
    Emit,
    EndingOffsets,
    LogLevel,
    MoveWithState,
    one_of,
    parse_boolean,
    parse_bytes,
    parse_duration_s,
    parse_ending_offsets,
    parse_instance_id,
    parse_isolation,
    parse_limit_bytes,
    parse_limit_s,
    parse_rack,
    parse_servers,
    parse_starting_offsets,
    parse_text,
    parse_timestamp_ms,
    parse_timestamps_ms,
    parse_unreleased,
    whole_number,
)
from spark_groups.spark.options.range_settings import (
    MEMORY_BYTES,
    RangeSettings,
    ReaderChoice,
    UnreadableTimestamp,
)
from spark_groups.types import TopicPartition
from spark_groups.wire.security.security import PLAINTEXT, Security
from spark_groups.wire.timeouts import Timeouts

if TYPE_CHECKING:
    from spark_groups.group.client_config import ClientConfig

GROUP_PROTOCOL: Final = "consumer"
UNNAMED: Final = "spark-groups"
"""The client id of executors without one, and the `group.id` of a batch read of no group."""
MEMORY_BYTES_MIN: Final = 16 * 1024 * 1024
_NO_GROUP: Final = "kafka.group.id is missing: a stream requires a group to join"
_NO_TOPICS: Final = "the query has no topics: set subscribe or subscribePattern"


def _group_protocol(value: str) -> str:
    if value.lower() != GROUP_PROTOCOL:
        raise ValueError(
            f"{value!r} is not supported: the source uses the consumer protocol (KIP-848); classic"
            " groups have no member epochs and no assignment by the coordinator"
        )
    return GROUP_PROTOCOL


def _memory_bytes(text: str) -> int:
    if (size_bytes := parse_bytes(text)) < MEMORY_BYTES_MIN:
        raise ValueError(f"{text!r} is less than {MEMORY_BYTES_MIN >> 20}m")
    return size_bytes


_positive: Final = whole_number(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(FormatOptions):
    """The validated options of one load()."""

    bootstrap_servers: tuple[str, ...] = option(
        "kafka.bootstrap.servers",
        parse_servers,
        "Brokers to bootstrap from, as host:port,host:port.",
        default=MISSING,
        shown="required",
        on_restart=OnRestart.CLUSTER,
    )
    group: str | None = option(
        "kafka.group.id",
        parse_text,
        "The consumer group that the query joins as a member. A batch read without it is of no"
        " group, like that of Spark's own source.",
        shown="required for a stream",
        on_restart=OnRestart.GROUP,
    )
    subscribe: Subscription | None = option(
        "subscribe",
        Subscription.of_names,
        "Topics, separated by commas. A stream requires this or subscribePattern.",
        on_restart=OnRestart.TOPICS,
    )
    subscribe_pattern: Subscription | None = option(
        "subscribePattern",
        Subscription.of_pattern,
        "RE2 expression that matches whole topic names; the coordinator evaluates it.",
        on_restart=OnRestart.TOPICS,
    )
    starting_offsets: StartingOffsets = option(
        "startingOffsets",
        parse_starting_offsets,
        "Where the group starts in a partition without a committed offset: latest, earliest, or"
        ' JSON such as {"orders": {"0": 23, "1": -2}}.',
        default=StartingOffsets(default=StartingPoint.LATEST),
        shown="latest",
        on_restart=OnRestart.NEW_PARTITIONS,
    )
    starting_timestamp_ms: int | None = option(
        "startingTimestamp",
        parse_timestamp_ms,
        "Instead of startingOffsets: the first record with this timestamp or a later one, in ms"
        " since 1970. A partition added later starts at its beginning.",
        on_restart=OnRestart.NEW_PARTITIONS,
    )
    starting_timestamps_ms: Mapping[TopicPartition, int] | None = option(
        "startingOffsetsByTimestamp",
        parse_timestamps_ms,
        'Timestamps by partition, as JSON: {"orders": {"0": 1764000000000}}; startingTimestamp'
        " takes precedence.",
        on_restart=OnRestart.NEW_PARTITIONS,
    )
    without_record: WithoutRecord = option(
        "startingOffsetsByTimestampStrategy",
        partial(one_of, WithoutRecord),
        "Action if no record of a partition has its starting timestamp or a later one: error,"
        " or latest to start at the log end.",
        default=WithoutRecord.ERROR,
        on_restart=OnRestart.NEW_PARTITIONS,
    )
    ending_offsets: EndingOffsets = option(
        "endingOffsets",
        parse_ending_offsets,
        "Only for batch reads: latest, or JSON with the first offset that is not read, for every"
        " partition; -1 is latest.",
        default=EndingOffsets(),
        shown="latest",
        on_restart=OnRestart.BATCH_ONLY,
    )
    ending_timestamp_ms: int | None = option(
        "endingTimestamp",
        parse_timestamp_ms,
        "Only for batch reads, instead of endingOffsets: they end before the first record with this"
        " timestamp or a later one; without such a record, at the log end.",
        on_restart=OnRestart.BATCH_ONLY,
    )
    ending_timestamps_ms: Mapping[TopicPartition, int] | None = option(
        "endingOffsetsByTimestamp",
        parse_timestamps_ms,
        "The same by partition, as JSON, for every partition; endingTimestamp takes precedence.",
        on_restart=OnRestart.BATCH_ONLY,
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        _positive,
        "Maximum number of offsets per batch.",
        on_restart=OnRestart.NEXT_BATCH,
    )
    max_bytes_per_trigger: float | None = option(
        "maxBytesPerTrigger",
        parse_limit_bytes,
        "Size of the records of a batch, such as 100m, without compression: estimated, so it may be"
        " exceeded; none: no limit. If maxOffsetsPerTrigger is set too, the smaller one counts. By"
        " default, if neither is set, it is 1g for the first batch of a run, and twice as much for"
        " each one after it, until a batch has the whole backlog; then there is no limit.",
        shown="1g for the first batch",
        on_restart=OnRestart.NEXT_BATCH,
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        _positive,
        "Minimum number of offsets per batch; a smaller backlog waits.",
        on_restart=OnRestart.NEXT_BATCH,
    )
    max_trigger_delay_s: float = option(
        "maxTriggerDelay",
        parse_duration_s,
        "Maximum wait for minOffsetsPerTrigger.",
        default=900.0,
        shown="15m",
        on_restart=OnRestart.NEXT_BATCH,
    )
    min_partitions: int | None = option(
        "minPartitions",
        _positive,
        "Minimum number of tasks per batch; large ranges are split. By default, ranges share as"
        " many tasks as the driver has processors.",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        _positive,
        "Maximum number of offsets per task.",
    )
    emit: Emit = option(
        "emit",
        partial(one_of, Emit),
        "The content of rows: records, or offset ranges for `spark_groups.foreach_batch_rows` and"
        " `spark_groups.write_table`.",
        default=Emit.RECORDS,
        on_restart=OnRestart.COLUMNS,
    )
    reader: ReaderChoice = option(
        "reader",
        partial(one_of, ReaderChoice),
        "The reader in tasks: fast, which requires spark-groups[fast]; librdkafka; or auto,"
        " which prefers fast. Both return the same rows; librdkafka refuses batches that are"
        " compressed in several parts.",
        default=ReaderChoice.AUTO,
    )
    memory_bytes: int = option(
        "maxMemoryPerTask",
        _memory_bytes,
        "Maximum memory of the fast reader per task, such as 64m or 1g; at least five times the"
        " largest record.",
        default=MEMORY_BYTES,
        shown="256m",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        parse_boolean,
        "Whether a query fails when offsets no longer exist: retention deleted them, the log was"
        " truncated, or the topic of a planned batch was deleted, or deleted and created again."
        " Otherwise it logs a WARN, and continues from the earliest offset, after a truncation from"
        " the point of divergence, or without the topic. It does not cover records of a deleted"
        " topic that no batch had planned: with either value the query continues without the topic,"
        " or from the beginning of the new one, and a WARN says how many such records are known.",
        default=True,
    )
    on_unreadable_timestamp: UnreadableTimestamp = option(
        "onUnreadableTimestamp",
        partial(one_of, UnreadableTimestamp),
        "Action for a record whose timestamp does not fit Spark's, such as nanoseconds in place of"
        " milliseconds: fail, or null, which reads it without its timestamp and logs a WARN with"
        " the number of such records.",
        default=UnreadableTimestamp.FAIL,
    )
    include_headers: bool = option(
        "includeHeaders",
        parse_boolean,
        "Whether rows include the column headers.",
        default=False,
        on_restart=OnRestart.COLUMNS,
    )
    move_with_state: MoveWithState = option(
        "partitionMoveWithState",
        partial(one_of, MoveWithState),
        "Action when partitions move away from a stateful query: warn, fail or ignore; requires"
        " `spark_groups.listen`.",
        default=MoveWithState.WARN,
    )
    settle_timeout_s: float = option(
        "availableNowSettleTimeout",
        parse_duration_s,
        "How long AvailableNow and Once wait for partitions that other members still own.",
        default=10.0,
        shown="10s",
    )
    when_unsettled: WhenUnsettled = option(
        "availableNowUnsettled",
        partial(one_of, WhenUnsettled),
        "Action of AvailableNow and Once if partitions are still missing after that: warn and"
        " end, fail, or wait up to the session timeout plus 10 s and then fail.",
        default=WhenUnsettled.WARN,
    )
    poll_timeout_ms: int = option(
        "kafkaConsumer.pollTimeoutMs",
        _positive,
        "How long a task waits for the next record of its ranges, in ms.",
        default=120_000,
    )
    instance_id: str | None = option(
        "kafka.group.instance.id",
        parse_instance_id,
        "Makes the query a static member; must be unique per query. ${HOSTNAME}, ${POD_NAME} and"
        " other variables are read from the driver's environment.",
    )
    leave_on_stop: bool = option(
        "leaveOnStop",
        parse_boolean,
        "Whether a static member releases its partitions as soon as it stops.",
        default=False,
    )
    await_instance: bool = option(
        "unreleasedInstance",
        parse_unreleased,
        "Action when another member still holds the instance ID: wait, for at most twice the"
        " session timeout, or fail.",
        default=True,
        shown="wait",
    )
    fast_heartbeats: bool = option(
        "fastHeartbeats",
        parse_boolean,
        "Whether the member sends several heartbeats per second while partitions move.",
        default=True,
    )
    max_idle_s: float | None = option(
        "maxIdleTime",
        parse_limit_s,
        "The member leaves when Spark makes no call for this long, with no batch running; none"
        " disables this.",
        shown="4 times the longest gap between calls, at least 10m",
    )
    max_batch_s: float = option(
        "maxBatchTime",
        parse_limit_s,
        "The member leaves when one batch takes this long; the batch continues, uncommitted.",
        default=inf,
        shown="none",
    )
    log_level: LogLevel | None = option(
        "logLevel",
        partial(one_of, LogLevel),
        "Minimum level of the member's lines in the driver's log: debug, info, warn, error or off.",
        shown="info",
    )
    metrics_port: int | None = option(
        "metricsPort",
        whole_number(0, 65_535),
        "Port for /metrics, /live, /ready and /health on the driver's host; 0 binds any free port"
        " and logs it.",
    )
    metrics_host: str = option(
        "metricsHost",
        parse_text,
        "Address to bind metricsPort to.",
        default="127.0.0.1",
    )
    remote_assignor: str | None = option(
        "kafka.group.remote.assignor",
        parse_text,
        "The coordinator's assignor: uniform or range.",
        shown="the broker's",
    )
    rack: str | None = option(
        "kafka.client.rack",
        parse_rack,
        "The rack, or zone, whose replicas are read. `${env:NAME}` is resolved on each executor,"
        " from its own environment.",
    )
    client_id: str | None = option(
        "kafka.client.id",
        parse_text,
        "Name of the query in the brokers' logs and quotas. Without it, the member has the name of"
        " the Spark application (`spark.app.name`), and executors that of the package.",
    )
    max_poll_interval_ms: int = option(
        "kafka.max.poll.interval.ms",
        whole_number(1, 2**31 - 1),
        "The rebalance timeout: how long a batch may delay a revocation, in ms.",
        default=300_000,
    )
    read_committed: bool = option(
        "kafka.isolation.level",
        parse_isolation,
        "read_committed excludes records of transactions that are not committed.",
        default=False,
        shown="read_uncommitted",
        on_restart=OnRestart.ROWS,
    )
    api_timeout_ms: int = option(
        "kafka.default.api.timeout.ms",
        _positive,
        "Timeout of the driver's calls to the group and its topics, in ms, including retries.",
        default=60_000,
    )
    request_timeout_ms: int = option(
        "kafka.request.timeout.ms",
        _positive,
        "Timeout of one request, in ms.",
        default=30_000,
    )
    setup_timeout_ms: int = option(
        "kafka.socket.connection.setup.timeout.ms",
        _positive,
        "Timeout of a TCP connection, in ms; each failure doubles it.",
        default=10_000,
    )
    setup_timeout_max_ms: int = option(
        "kafka.socket.connection.setup.timeout.max.ms",
        _positive,
        "The longest timeout of a TCP connection after failures, in ms.",
        default=30_000,
    )
    connections_max_idle_ms: int = option(
        "kafka.connections.max.idle.ms",
        whole_number(-1, 2**31 - 1),
        "Idle time after which a connection is not used again, in ms; 0 or -1 means never.",
        default=540_000,
    )
    group_protocol: str = option(
        "kafka.group.protocol",
        _group_protocol,
        "Only consumer, the protocol of KIP-848.",
        default=GROUP_PROTOCOL,
    )
    fetch_tuning: tuple[tuple[str, str], ...] = ()
    security: Security = PLAINTEXT

    @classmethod
    def of(cls, options: Mapping[str, str], *, may_lack_group: bool = False) -> SourceOptions:
        """Validate the options of a load().

        Args:
            options: Texts by name, in any case.
            may_lack_group: Whether the load may turn out to be a batch read without a group.

        Raises:
            OptionsError: Options are unknown, missing, invalid or contradictory; lists all.
        """
        given = {name.lower(): str(value) for name, value in options.items()}
        wrong: list[str] = []
        values = parsed(cls, given, wrong)
        problems = [*unknown_or_refused(options, _KNOWN), *wrong]
        if "kafka.group.id" not in given:
            problems += [] if may_lack_group else ["kafka.group.id is missing"]
            # Spark's default for batch reads: at the end there is nothing to read.
            values.setdefault("starting_offsets", StartingOffsets(default=StartingPoint.EARLIEST))
        chosen = [values[name] for name in ("subscribe", "subscribe_pattern") if name in values]
        if len(chosen) > 1:
            problems.append("subscribe and subscribePattern are both set: remove one")
        problems += uncovered_topics(chosen, values)
        values["fetch_tuning"] = read_tuning(given, problems)
        values["security"] = read_security(given, problems)
        values["registry"] = read_registry(given, problems)
        checked = None if wrong else cls(**values)
        problems += checked._contradictions() if checked else ()
        if problems or checked is None:
            refuse_load("kafka-group", problems)
        return checked

    def _contradictions(self) -> Iterator[str]:
        yield from empty_reads(self.starting, self.ending, has_group=self.group is not None)
        yield from contradicting_limits(
            self.min_offsets_per_trigger, self.max_offsets_per_trigger, self.fetch_tuning
        )
        topics = self.chosen.topic_names if self.chosen else ()
        yield from self.format_problems(topics, emits_ranges=self.emit is Emit.RANGES)

    @property
    def group_id(self) -> str:
        """The group, which a stream requires."""
        if self.group is None:
            raise OptionsError(_NO_GROUP)
        return self.group

    @property
    def starting(self) -> StartingOffsets:
        """Where partitions without a committed offset start."""
        timestamps = _timestamps(
            ("startingTimestamp", self.starting_timestamp_ms),
            ("startingOffsetsByTimestamp", self.starting_timestamps_ms),
            self.without_record,
        )
        return StartingOffsets.at(timestamps) if timestamps else self.starting_offsets

    @property
    def ending(self) -> EndingOffsets:
        """Where a batch read ends."""
        timestamps = _timestamps(
            ("endingTimestamp", self.ending_timestamp_ms),
            ("endingOffsetsByTimestamp", self.ending_timestamps_ms),
        )
        return EndingOffsets(timestamps=timestamps) if timestamps else self.ending_offsets

    def check_stream(self) -> None:
        """Check what load() cannot know: whether a stream or a batch read becomes of it.

        Raises:
            OptionsError: A stream lacks an option that a batch read may lack, or has one that only
                a batch read has; lists all.
        """
        ends = {
            "endingTimestamp": self.ending_timestamp_ms,
            "endingOffsetsByTimestamp": self.ending_timestamps_ms,
            "endingOffsets": self.ending_offsets.by_partition or None,
        }
        problems = [
            *((_NO_GROUP,) if self.group is None else ()),
            *((_NO_TOPICS,) if self.chosen is None else ()),
            *(
                f"{name}: a stream has no end: use Trigger.AvailableNow"
                for name, value in ends.items()
                if value is not None
            ),
        ]
        if problems:
            refuse_load("kafka-group", problems, "started as a stream")

    @property
    def subscription(self) -> Subscription:
        """The subscription, which a stream requires."""
        if self.chosen is None:
            raise OptionsError(_NO_TOPICS)
        return self.chosen

    @property
    def chosen(self) -> Subscription | None:
        """The subscription, if any."""
        return self.subscribe or self.subscribe_pattern

    def client_config(self, restart_s: float | None = None) -> ClientConfig:
        """Return the configuration of the group member.

        Args:
            restart_s: Seconds that a restart of the application takes, if known.
        """
        from spark_groups.group.batches.liveness import LivenessLimits
        from spark_groups.group.client_config import ClientConfig

        return ClientConfig(
            member=MemberConfig(
                group_id=self.group_id,
                subscription=self.subscription,
                instance_id=self.instance_id,
                rack_id=self._rack_of_driver(),
                rebalance_timeout_ms=self.max_poll_interval_ms,
                server_assignor=self.remote_assignor,
                fast_heartbeats=self.fast_heartbeats,
                await_instance=self.await_instance,
                restart_s=restart_s,
                identity=self.range_settings().identity,
            ),
            starting_offsets=self.starting,
            read_committed=self.read_committed,
            fail_on_data_loss=self.fail_on_data_loss,
            liveness=LivenessLimits(max_idle_s=self.max_idle_s, max_batch_s=self.max_batch_s),
            available_now_wait=AvailableNowWait(self.settle_timeout_s, self.when_unsettled),
            request_timeout_s=self.timeouts.request_s,
            command_options=self.command_options(),
        )

    def _rack_of_driver(self) -> str | None:
        """Return the rack that the member reports; None if the driver's is unknown."""
        try:
            return self.range_settings().in_process(os.environ).rack
        except OptionsError:
            # The variable is for executors, which fetch the records.
            return None

    def command_options(self) -> str:
        """Return options that connect a `spark-groups` command to the same brokers."""
        options = ("--bootstrap-server", ",".join(self.bootstrap_servers))
        secured = () if self.security == PLAINTEXT else ("--command-config", "client.properties")
        return shlex.join((*options, *secured))

    def plan_limit(self) -> PlanLimit:
        """Return the size limits of a batch."""
        limit_bytes = self.max_bytes_per_trigger
        has_limit = self.max_offsets_per_trigger or limit_bytes
        return PlanLimit(
            max_bytes=int(limit_bytes) if limit_bytes is not None and limit_bytes < inf else None,
            first_bytes=None if has_limit else FIRST_BYTES,
            max_offsets=self.max_offsets_per_trigger,
            min_offsets=self.min_offsets_per_trigger,
            max_trigger_delay_s=self.max_trigger_delay_s,
        )

    @property
    def timeouts(self) -> Timeouts:
        """The limits of connections and requests."""
        idle_ms = self.connections_max_idle_ms
        return Timeouts(
            request_s=self.request_timeout_ms / 1000,
            setup_s=self.setup_timeout_ms / 1000,
            setup_max_s=max(self.setup_timeout_ms, self.setup_timeout_max_ms) / 1000,
            max_idle_s=idle_ms / 1000 if idle_ms > 0 else inf,
        )

    def range_settings(self) -> RangeSettings:
        """Return the settings for reading ranges on executors."""
        return RangeSettings(
            bootstrap_servers=self.bootstrap_servers,
            group_id=self.group or UNNAMED,
            client_id=self.client_id or UNNAMED,
            rack=self.rack,
            read_committed=self.read_committed,
            include_headers=self.include_headers,
            fail_on_data_loss=self.fail_on_data_loss,
            on_unreadable_timestamp=self.on_unreadable_timestamp,
            poll_timeout_s=self.poll_timeout_ms / 1000,
            timeouts=self.timeouts,
            reader=self.reader,
            memory_bytes=self.memory_bytes,
            tuning=self.fetch_tuning,
            security=self.security,
            formats=self.row_formats(self.chosen.topic_names if self.chosen else ()),
        )


def _timestamps(
    of_all: tuple[str, int | None],
    by_partition: tuple[str, Mapping[TopicPartition, int] | None],
    without_record: WithoutRecord = WithoutRecord.ERROR,
) -> Timestamps | None:
    """Return the timestamps of two options, of which the first takes precedence."""
    if of_all[1] is not None:
        return Timestamps(of_all[0], default_ms=of_all[1], without_record=without_record)
    name, timestamps_ms = by_partition
    if timestamps_ms is not None:
        return Timestamps(name, by_partition_ms=timestamps_ms, without_record=without_record)
    return None


DECLARED_OPTIONS: Final[tuple[Declared, ...]] = tuple(declared_options(SourceOptions).values())
_KNOWN: Final = {
    name.lower(): name
    for name in (
        *(each.name for each in DECLARED_OPTIONS),
        *(name for name, _, _ in (*SECURITY_OPTIONS, *REGISTRY_OPTIONS)),
        *(tuning.name for tuning in FETCH_TUNING),
    )
}
