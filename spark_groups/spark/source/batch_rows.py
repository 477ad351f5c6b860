"""`spark_groups.foreach_batch_rows`: batches of a group, read by Spark's own Kafka source.

The stream emits ranges; who owns what, what is planned and what is committed stays as it is. Each
batch is then read in the JVM by `spark.read.format("kafka")`. Ranges and options are taken from the
running query itself: no task of Python is needed for a batch, and no secret is kept anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from spark_groups.errors import OptionsError
from spark_groups.spark.options.packed import columns
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.options.values import Emit
from spark_groups.spark.source.kafka_reading import check_further, reading_options
from spark_groups.spark.source.planned_ranges import lose
from spark_groups.spark.source.running_query import RunningQuery, cluster_of, running_query
from spark_groups.types import OffsetRange
from spark_groups.wire.cluster import Cluster

_V1_SOURCES: Final = "spark.sql.sources.useV1SourceList"
_KAFKA: Final = "kafka"
_NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


def foreach_batch_rows(
    handler: Callable[[DataFrame, int], object], options: Mapping[str, str] = _NO_OPTIONS
) -> Callable[[DataFrame, int], None]:
    """Return a function for `writeStream.foreachBatch` that reads batches in the JVM.

    The stream has to be loaded with `emit` set to `ranges`, and to be written as it was loaded:
    what is to be done with the rows belongs into the handler. Spark's Kafka connector has to be
    there. Offsets are committed when the batch is finished, as with any other query.

    Args:
        handler: Called with the records of a batch, in the columns of Spark's Kafka source, and
            the batch's id. Each action on them reads them anew, unless it persists them.
        options: Further options of Spark's Kafka source, such as `kafka.max.poll.records`; they
            go before those of the stream, which are passed on.

    Raises:
        OptionsError: Some of `options` would change what is read.
    """
    check_further(options)

    def read_batch(batch: DataFrame, batch_id: int) -> None:
        running = _running(batch)
        checked = running.checked
        with cluster_of(checked) as cluster:
            there = _still_there(cluster, checked, running.ranges)
            handler(_rows(batch.sparkSession, running, options, there), batch_id)
            # The JVM's source goes by the names of topics: they have to mean the same as before.
            _still_there(cluster, checked, there)

    return read_batch


def _running(batch: DataFrame) -> RunningQuery:
    """Find the query that a batch belongs to.

    Raises:
        OptionsError: It cannot be found, or its stream is not what `load()` returned.
    """
    running = running_query(batch, "foreach_batch_rows")
    if not running.is_as_loaded:
        raise OptionsError(
            "foreach_batch_rows takes a stream of kafka-group as load() returned it: do in the"
            " handler what is to be done with the rows"
        )
    if running.checked.emit is not Emit.RANGES:
        raise OptionsError('foreach_batch_rows needs the stream to have .option("emit", "ranges")')
    return running


def _still_there(
    cluster: Cluster, checked: SourceOptions, ranges: tuple[OffsetRange, ...]
) -> tuple[OffsetRange, ...]:
    """Return the ranges whose topics still are those that were planned.

    Raises:
        DataLossError: Some are not, and `failOnDataLoss` is true.
    """
    if not ranges:
        return ()
    found = cluster.topics({each.topic for each in ranges})
    ids = {known.topic.name: topic_id for topic_id, known in found.topics.items()}
    # A topic that cannot be looked at may be there: the reading says what is wrong with it.
    there = tuple(
        each
        for each in ranges
        if each.topic in found.errors or ids.get(each.topic) == each.topic_id
    )
    for topic in sorted({each.topic for each in ranges} - {each.topic for each in there}):
        lose(checked.range_settings(), f"the topic {topic} was deleted after the batch was planned")
    return there


def _rows(
    session: SparkSession,
    running: RunningQuery,
    further: Mapping[str, str],
    ranges: tuple[OffsetRange, ...],
) -> DataFrame:
    """Load the records of ranges by Spark's own Kafka source.

    Raises:
        OptionsError: Spark's Kafka connector is missing.
    """
    if not ranges:
        names = columns(include_headers=running.checked.include_headers)
        return session.createDataFrame([], names)
    reading_id = f"spark-groups-{running.run_id}"
    options = reading_options(dict(running.options), further, ranges, reading_id)
    # Its older interface, the default for batches, makes objects of every row and back.
    before = session.conf.get(_V1_SOURCES) or ""
    session.conf.set(
        _V1_SOURCES, ",".join(each for each in before.split(",") if each.strip() != _KAFKA)
    )
    try:
        return session.read.format(_KAFKA).options(**options).load()
    except AnalysisException as error:
        if "Failed to find data source" not in str(error):
            raise
        raise OptionsError(
            "Spark's Kafka connector is missing, which foreach_batch_rows reads with: start Spark"
            f" with --packages org.apache.spark:spark-sql-kafka-0-10_2.13:{session.version}"
        ) from error
    finally:
        session.conf.set(_V1_SOURCES, before)
