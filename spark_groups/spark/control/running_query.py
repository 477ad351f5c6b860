"""The running query of a `foreachBatch` call: its options, run ID and ranges."""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from spark_groups.errors import OptionsError
from spark_groups.group.ledger.plan_text import parse_plan_text
from spark_groups.spark.options.packed import SOURCE_NAME, with_schemas
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.types import OffsetRange, PlanTopic
from spark_groups.wire.cluster_identity import ClusterIdentity

if TYPE_CHECKING:
    from spark_groups.wire.cluster import Cluster

logger = logging.getLogger(__name__)

_RUNS_MAX: Final = 1_000
"""How many runs of queries keep their schemas at the same time."""
_QUERY_ID: Final = "sql.streaming.queryId"
_LOADED_STREAM: Final = "StreamingRelationV2"
_TIMED_TRIGGER: Final = "ProcessingTimeTrigger"
_OBSERVED: Final = "CollectMetrics"
_BATCH: Final = "LogicalRDD"
_BATCH_ROWS: Final = "SQLExecutionRDD"
"""The plan of the frame that Spark 4 passes to foreachBatch, and the class of its rows."""
_SERVED_BATCH: Final = "CachedRemoteRelation"
"""The plan of the frame that a Spark Connect server passes."""


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query that reads one stream of kafka-group.

    Args:
        options: The stream's options by name, with secrets; excluded from the repr. Through
            Spark Connect there are none, but `packed`.
        ranges: The offset ranges of the current batch.
        topics: The topics that the query reads.
        before: The offset ranges of the previous batch, which is in Spark's log as done.
        is_as_loaded: Whether the query writes the stream without transforming it.
        cluster_id: Kafka's id of the cluster of the current batch; None: unknown.
        plan: The end offset of the current batch, as in Spark's checkpoint.
        packed: Through Spark Connect: the validated options, pickled; excluded from the repr.
        trigger_interval_s: Seconds between batch starts; 0 if not fixed or unknown.
    """

    options: tuple[tuple[str, str], ...] = field(repr=False)
    run_id: str
    ranges: tuple[OffsetRange, ...]
    topics: tuple[PlanTopic, ...]
    before: tuple[OffsetRange, ...]
    is_as_loaded: bool
    cluster_id: str | None = None
    plan: str = ""
    packed: bytes = field(default=b"", repr=False)
    trigger_interval_s: float = 0.0

    @property
    def checked(self) -> SourceOptions:
        """The validated options."""
        return _checked(self.options, self.packed)

    def cluster(self) -> Cluster:
        """Return a client of the cluster of the current batch."""
        return cluster_of(self.checked, ClusterIdentity(self.cluster_id))

    def range_settings(self) -> RangeSettings:
        """Return the settings that read and write in the cluster of the current batch."""
        return replace(self.checked.range_settings(), cluster_id=self.cluster_id)

    def reading_settings(self) -> RangeSettings:
        """Return the settings that read records, with the schemas of their rows.

        A run of a query keeps the schemas that its first batch has found.

        Raises:
            SchemaLookupError: A registry does not have a schema, or does not return it.
        """
        settings = _with_schemas(self.options, self.packed, self.run_id)
        return replace(settings, cluster_id=self.cluster_id)


def running_query(batch: DataFrame, caller: str) -> RunningQuery:
    """Return the query that a batch belongs to.

    Args:
        caller: The function to name in errors.

    Raises:
        OptionsError: The query is unknown, or does not read exactly one kafka-group stream.
    """
    session: Any = batch.sparkSession
    _check_is_classic(hasattr(session, "_jsparkSession"), caller)
    query_id = session.sparkContext.getLocalProperty(_QUERY_ID)
    if query_id is None:
        raise OptionsError(
            f"{caller} cannot identify the query: call its function on the thread of foreachBatch,"
            " and do not change PYSPARK_PIN_THREAD"
        )
    key = session.sparkContext._jvm.java.util.UUID.fromString(query_id)
    execution = session._jsparkSession.sharedState().activeStreamingQueries().get(key)
    plan = execution.analyzedPlan()
    streams = _streams(plan)
    if len(streams) != 1:
        raise OptionsError(
            f"{caller} requires a query with one kafka-group stream, not {len(streams)}"
        )
    start, end = _text(execution.committedOffsets()), _text(execution.availableOffsets())
    running = query_between(start, end, _given(streams[0]), execution.runId().toString())
    interval_s = trigger_interval_s(execution)
    return replace(running, is_as_loaded=_is_loaded(plan), trigger_interval_s=interval_s)


def query_between(
    start: str,
    end: str,
    options: tuple[tuple[str, str], ...],
    run_id: str,
    packed: bytes = b"",
) -> RunningQuery:
    """Return the query whose batch has these end offsets; its stream counts as loaded.

    Args:
        start: The end offset of the previous batch; empty: there is none.
        end: That of the batch.
        options: See `RunningQuery`.
        run_id: See `RunningQuery`.
        packed: See `RunningQuery`.
    """
    planned = parse_plan_text(end) if end != start else None
    before = parse_plan_text(start) if start else None
    is_own = planned and before and planned.group_id == before.group_id
    return RunningQuery(
        options,
        run_id,
        planned.ranges if planned else (),
        planned.topics if planned else (),
        before.ranges if before and is_own else (),
        is_as_loaded=True,
        cluster_id=planned.cluster_id if planned else None,
        plan=end,
        packed=packed,
    )


def loaded_stream(stream: DataFrame, caller: str) -> tuple[SourceOptions, bool]:
    """Return the options of a stream that no query reads yet, and whether it is as loaded.

    Args:
        stream: The stream.
        caller: The function to name in errors.

    Raises:
        OptionsError: It does not read exactly one kafka-group stream.
    """
    frame: Any = stream
    _check_is_classic(hasattr(frame, "_jdf"), caller)
    plan = frame._jdf.queryExecution().analyzed()
    streams = _streams(plan)
    if len(streams) != 1:
        raise OptionsError(f"{caller} requires one kafka-group stream, not {len(streams)}")
    return _options_of(streams[0]), _is_loaded(plan)


def brokers_of(stream: DataFrame) -> str:
    """Return the `kafka.bootstrap.servers` of a stream that no query reads yet; unchecked.

    Args:
        stream: A stream of a classic session; other sources than kafka-group have none.
    """
    frame: Any = stream
    streams = _streams(frame._jdf.queryExecution().analyzed())
    given = (name_and_value for each in streams for name_and_value in _given(each))
    return ",".join(
        dict.fromkeys(value for name, value in given if name.lower() == "kafka.bootstrap.servers")
    )


def _check_is_classic(is_classic: bool, caller: str) -> None:
    if not is_classic:
        raise OptionsError(
            f"{caller} requires a classic session: Spark Connect does not expose the query"
        )


def batch_frame_id(batch: DataFrame, caller: str, cure: str) -> int | str:
    """Return an id that no frame of another batch has, of the frame that Spark has passed.

    Args:
        batch: What the function got that `caller` has returned.
        caller: The function to name in errors.
        cure: Where changes of rows belong instead.

    Raises:
        OptionsError: It is another frame, such as one that was filtered or limited.
    """
    frame: Any = batch
    if not hasattr(frame, "_jdf"):
        if type(frame._plan).__name__ == _SERVED_BATCH:
            return str(frame._plan._relation_id)
    elif (rdd := _batch_rows(frame._jdf.queryExecution().logical())) is not None:
        return int(rdd.id())
    raise OptionsError(
        f"the function of {caller} got a DataFrame that is not the batch as Spark passes it to"
        " foreachBatch, but one that was made of it or read elsewhere: the offsets of the whole"
        f" batch would be committed. Pass the batch as it is; {cure}"
    )


def _batch_rows(plan: Any) -> Any:
    """Return the rows of the plan of a frame that Spark passes to foreachBatch; else None."""
    if plan.getClass().getSimpleName() != _BATCH:
        return None
    rdd = plan.rdd()
    return rdd if rdd.getClass().getSimpleName() == _BATCH_ROWS else None


def split_group(execution: Any) -> tuple[str, str] | None:
    """Return a group that a query would join with several members, and the reason to refuse it.

    Each stream of a query is a member. A stream joined with itself becomes two streams with the
    same options; a union of a stream with itself stays one.
    """
    streams: list[Any] = []
    for leaf in _streams(execution.analyzedPlan()):
        if not any(leaf.equals(stream) for stream in streams):
            streams.append(leaf)
    for one, other in combinations(map(_options_of, streams), 2):
        is_one_group = one.group_id == other.group_id
        is_one_cluster = set(one.bootstrap_servers) & set(other.bootstrap_servers)
        topics = one.subscription, other.subscription
        if is_one_group and is_one_cluster and topics[0].shares_topics_with(topics[1]):
            return one.group_id, (
                f"the query is refused: it has two streams in the group {one.group_id!r} with the"
                " same topics, and each would read only part of the partitions. A stream joined"
                " with itself becomes two: load it twice, each with its own kafka.group.id"
            )
    return None


def trigger_interval_s(execution: Any) -> float:
    """Return the seconds between batch starts of a query; 0 if they are not fixed.

    Args:
        execution: The StreamExecution of Spark.
    """
    trigger = execution.trigger()
    is_timed = trigger.getClass().getSimpleName() == _TIMED_TRIGGER
    return float(trigger.intervalMs()) / 1000 if is_timed else 0.0


def groups_of(execution: Any) -> frozenset[str]:
    """Return the groups that a query joins.

    Args:
        execution: The StreamExecution of Spark.
    """
    return frozenset(_options_of(each).group_id for each in _streams(execution.analyzedPlan()))


def cluster_of(checked: SourceOptions, identity: ClusterIdentity | None = None) -> Cluster:
    """Return a client of a stream's cluster; without its identity, of the first one met."""
    # Kafka's protocol, which a driver that only starts queries does not use.
    from spark_groups.wire.cluster import Cluster

    return Cluster(
        checked.bootstrap_servers,
        client_id=checked.range_settings().client_id,
        security=checked.security,
        timeouts=checked.timeouts,
        request_timeout_s=checked.api_timeout_ms / 1000,
        identity=identity,
    )


@lru_cache(maxsize=16)
def _checked(options: tuple[tuple[str, str], ...], packed: bytes = b"") -> SourceOptions:
    """Cache the options across batches, because certificate files are slow to load."""
    if packed:
        unpacked: SourceOptions = pickle.loads(packed)
        return unpacked
    return SourceOptions.of(dict(options))


@lru_cache(maxsize=_RUNS_MAX)
def _with_schemas(
    options: tuple[tuple[str, str], ...], packed: bytes, run_id: str
) -> RangeSettings:
    settings, notes = with_schemas(_checked(options, packed))
    for note in notes:
        logger.info("run %s: %s", run_id, note)
    return settings


def _streams(plan: Any) -> list[Any]:
    """Return the kafka-group streams in a plan, with duplicates."""
    leaves = plan.collectLeaves()
    return [leaf for leaf in map(leaves.apply, range(leaves.size())) if _is_group(leaf)]


def _given(stream: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(dict(stream.extraOptions().asCaseSensitiveMap()).items()))


def _options_of(stream: Any) -> SourceOptions:
    return _checked(_given(stream))


def _is_loaded(plan: Any) -> bool:
    """Return whether rows are those of a stream: what observes them changes none."""
    while plan.getClass().getSimpleName() == _OBSERVED:
        plan = plan.child()
    return _is_stream(plan)


def _is_stream(plan: Any) -> bool:
    return bool(plan.getClass().getSimpleName() == _LOADED_STREAM)


def _is_group(plan: Any) -> bool:
    return _is_stream(plan) and plan.sourceName() == SOURCE_NAME


def _text(progress: Any) -> str:
    """Return the offset of a query's only stream; empty before its first batch."""
    offset = progress.values().headOption()
    return str(offset.get().json()) if offset.isDefined() else ""
