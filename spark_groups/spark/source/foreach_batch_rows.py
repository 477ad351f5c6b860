"""`spark_groups.foreach_batch_rows`: batches of a group, read by Spark's own Kafka source.

The stream emits ranges; the JVM reads each batch with `spark.read.format("kafka")`. Ranges and
options come from the running query, so no Python task is needed, and secrets stay where they were:
in options, which Spark masks, or in references, which consumers resolve on executors within the
limits that the driver's environment sets.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from spark_groups.errors import OptionsError
from spark_groups.spark.control.batch_proof import report_done
from spark_groups.spark.control.running_query import RunningQuery, batch_frame_id, running_query
from spark_groups.spark.options.option_values import Emit
from spark_groups.spark.options.packed import columns
from spark_groups.spark.options.range_settings import lose
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.types import OffsetRange
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.security.config_references import PATHS_VARIABLE, Allowed, resolved
from spark_groups.wire.security.token_provider import PROVIDER_OPTION

_V1_SOURCES: Final = "spark.sql.sources.useV1SourceList"
_KAFKA: Final = "kafka"
_NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})
TUNING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.max.partition.fetch.bytes": "8388608",
        "kafka.max.poll.records": "10000",
        "kafka.receive.buffer.bytes": "4194304",
    }
)
"""Doubles the speed of JVM consumers for small records."""
_FORWARDED: Final = frozenset(
    name.lower()
    for name in (
        "failOnDataLoss",
        "includeHeaders",
        "kafkaConsumer.pollTimeoutMs",
        "maxRecordsPerPartition",
        "minPartitions",
    )
)
_MEMBERSHIP: Final = frozenset(
    {
        "kafka.group.id",
        "kafka.group.instance.id",
        "kafka.group.protocol",
        "kafka.group.remote.assignor",
        "kafka.max.poll.interval.ms",
    }
)
"""Options without meaning for consumers that read ranges and are not members."""
_SELECTION: Final = frozenset(
    {"assign", "subscribe", "subscribepattern", "kafka.group.id", "groupidprefix"}
)
_JVM_LOGIN: Final = ("kafka.sasl.login.callback.handler.class", "kafka.sasl.mechanism")
_BOUNDS: Final = ("starting", "ending")
_REFERENCE: Final = re.compile(r"\$\{(env|file|directory):")
_PROVIDERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        provider: f"org.apache.kafka.common.config.provider.{name}ConfigProvider"
        for provider, name in (("env", "EnvVar"), ("file", "File"), ("directory", "Directory"))
    }
)


def foreach_batch_rows(
    handler: Callable[[DataFrame, int], object], options: Mapping[str, str] = _NO_OPTIONS
) -> Callable[[DataFrame, int], None]:
    """Return a function for `writeStream.foreachBatch` that reads batches in the JVM.

    The stream must be loaded with `emit` set to `ranges` and written unchanged; the handler
    transforms the rows. Requires Spark's Kafka connector. Offsets are committed when the handler
    has returned, or, if a function of your own calls this one, as for any query.

    Args:
        handler: Called with the batch's records, in the columns of Spark's Kafka source, and the
            batch ID. Each action reads the records again unless they are persisted.
        options: Further options of Spark's Kafka source, such as `kafka.max.poll.records`; they
            take precedence over the stream's.

    Raises:
        OptionsError: `options` would change the offsets that are read.
    """
    check_further(options)

    def read_batch(batch: DataFrame, batch_id: int) -> None:
        running = _running(batch)
        checked = running.checked
        with running.cluster() as cluster:
            there = _still_there(cluster, checked, running.ranges)
        handler(_rows(batch.sparkSession, running, options, there), batch_id)
        # The JVM's source reads by topic name, so the names must still have the planned IDs; and by
        # address, so a new connection must lead to the same cluster.
        with running.cluster() as cluster:
            _still_there(cluster, checked, there)
        report_done(running)

    return read_batch


def _running(batch: DataFrame) -> RunningQuery:
    running = running_query(batch, "foreach_batch_rows")
    if not running.is_as_loaded:
        raise OptionsError(
            "foreach_batch_rows requires the stream that load() returned: transform the rows in the"
            " handler"
        )
    batch_frame_id(batch, "foreach_batch_rows", "transform the rows in the handler")
    if running.checked.range_settings().formats is not None:
        raise OptionsError(
            "foreach_batch_rows reads bytes with Spark's own Kafka source: leave keyFormat and"
            " valueFormat out, and decode in the function (from_json, from_avro); or write with"
            " write_table; or load the stream without emit=ranges, and write its columns with a"
            " foreachBatch of your own"
        )
    if running.checked.emit is not Emit.RANGES:
        raise OptionsError('foreach_batch_rows requires a stream with .option("emit", "ranges")')
    return running


def _still_there(
    cluster: Cluster, checked: SourceOptions, ranges: tuple[OffsetRange, ...]
) -> tuple[OffsetRange, ...]:
    """Return the ranges whose topics still have the planned IDs.

    Raises:
        DataLossError: Some do not, and `failOnDataLoss` is true.
    """
    if not ranges:
        return ()
    topics = {each.topic for each in ranges}
    found = cluster.topics(topics)
    ids = {known.topic.name: topic_id for topic_id, known in found.topics.items()}
    # A topic with an error may exist; reading it reports the error.
    there = tuple(
        each
        for each in ranges
        if each.topic in found.errors or ids.get(each.topic) == each.topic_id
    )
    for topic in sorted(topics - {each.topic for each in there}):
        lose(checked.range_settings(), f"the topic {topic} was deleted after the batch was planned")
    return there


def _rows(
    session: SparkSession,
    running: RunningQuery,
    further: Mapping[str, str],
    ranges: tuple[OffsetRange, ...],
) -> DataFrame:
    """Load the records of ranges with Spark's own Kafka source.

    Raises:
        OptionsError: Spark's Kafka connector is missing.
    """
    if not ranges:
        names = columns(include_headers=running.checked.include_headers)
        return session.createDataFrame([], names)
    reading_id = f"spark-groups-{running.run_id}"
    options = reading_options(dict(running.options), further, ranges, reading_id)
    # The V1 source, the default for batches, converts every row to objects and back.
    before = session.conf.get(_V1_SOURCES) or ""
    session.conf.set(
        _V1_SOURCES, ",".join(each for each in before.split(",") if each.strip() != _KAFKA)
    )
    try:
        return session.read.format(_KAFKA).options(**options).load()
    except AnalysisException as error:
        if "Failed to find data source" not in str(error):
            raise
        version = connector_version(session.version)
        raise OptionsError(
            "foreach_batch_rows requires Spark's Kafka connector: start Spark with"
            f" --packages org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
        ) from error
    finally:
        session.conf.set(_V1_SOURCES, before)


def check_further(options: Mapping[str, str]) -> None:
    """Raise an OptionsError for options that would change the offsets or the group."""
    wrong = [
        name for name in options if name.lower() in _SELECTION or name.lower().startswith(_BOUNDS)
    ]
    if wrong:
        raise OptionsError(
            f"{', '.join(wrong)} cannot be set for foreach_batch_rows: the group's plan determines"
            " the offsets of a batch"
        )


def reading_options(
    stream: Mapping[str, str],
    further: Mapping[str, str],
    ranges: Iterable[OffsetRange],
    reading_id: str,
) -> dict[str, str]:
    """Return the options for reading these ranges in the JVM.

    Args:
        further: Options for Spark's Kafka source alone; they take precedence.
        ranges: At most one per partition.
        reading_id: The `group.id` of the JVM consumers, by which executors cache them.

    Raises:
        OptionsError: The stream's tokens come from a provider, which a JVM cannot call.
    """
    passed = {name.lower(): value for name, value in stream.items() if _is_forwarded(name.lower())}
    mine = {name.lower(): value for name, value in further.items()}
    if PROVIDER_OPTION in passed:
        if not any(name in mine for name in _JVM_LOGIN):
            raise OptionsError(
                f"Spark's own Kafka source cannot call {PROVIDER_OPTION}: give foreach_batch_rows"
                f" the login of a JVM as further options, such as {_JVM_LOGIN[0]}"
            )
        # The provider's settings, secrets among them, mean nothing to a JVM.
        passed = {k: v for k, v in passed.items() if not k.startswith("kafka.sasl.oauthbearer.")}
    return {
        **TUNING,
        **_store_types(passed),
        **_providers({**passed, **mine}),
        **passed,
        **mine,
        "kafka.group.id": reading_id,
        **_exactly(ranges),
    }


def _is_forwarded(name: str) -> bool:
    return name in _FORWARDED or (name.startswith("kafka.") and name not in _MEMBERSHIP)


def _exactly(ranges: Iterable[OffsetRange]) -> dict[str, str]:
    """Return the three options that select the ranges."""
    assigned: dict[str, list[int]] = {}
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    for each in ranges:
        assigned.setdefault(each.topic, []).append(each.partition)
        starting.setdefault(each.topic, {})[str(each.partition)] = each.from_offset
        ending.setdefault(each.topic, {})[str(each.partition)] = each.until_offset
    named = {"assign": assigned, "startingOffsets": starting, "endingOffsets": ending}
    return {name: json.dumps(value, separators=(",", ":")) for name, value in named.items()}


def _store_types(options: Mapping[str, str]) -> dict[str, str]:
    """Set the types of certificate files, which the JVM would take for Java key stores."""
    allowed = Allowed.by(os.environ)
    return {
        f"kafka.ssl.{store}.type": _type_of(resolved(location, allowed), allowed)
        for store in ("truststore", "keystore")
        if (location := options.get(f"kafka.ssl.{store}.location"))
    }


def _type_of(path: str, allowed: Allowed) -> str:
    # This import takes a tenth of a second, which plaintext clusters avoid.
    from spark_groups.wire.security import keystores  # noqa: PLC0415

    try:
        allowed.check_store(path)
    except ValueError as error:
        raise OptionsError(str(error)) from None
    return keystores.read_store(path, None)[0]


def _providers(options: Mapping[str, str]) -> dict[str, str]:
    """Return config providers for the references in the options.

    Raises:
        OptionsError: The driver's environment does not allow them.
    """
    used = {each for value in options.values() for each in _REFERENCE.findall(value)}
    if not used:
        return {}
    allowed = Allowed.by(os.environ)
    named = {"kafka.config.providers": ",".join(sorted(used))}
    for each in sorted(used):
        try:
            allowed.check_provider(each)
        except ValueError as error:
            raise OptionsError(f"${{{each}:...}}: {error}") from error
        if each != "env" and not allowed.paths:
            # Without paths, Kafka's providers would read any file.
            raise OptionsError(
                f"${{{each}:...}} is not allowed: {PATHS_VARIABLE} in the driver's environment"
                " names no path"
            )
        named[f"kafka.config.providers.{each}.class"] = _PROVIDERS[each]
        if each == "env" and allowed.pattern is not None:
            named["kafka.config.providers.env.param.allowlist.pattern"] = allowed.pattern
        elif each != "env":
            paths = ",".join(allowed.paths or ())
            named[f"kafka.config.providers.{each}.param.allowed.paths"] = paths
    return named


def connector_version(spark_version: str) -> str:
    """Return the version of Spark's Kafka source to use with a version of Spark.

    None is published for Spark 4.3; that of 4.2 works there.
    """
    return min(spark_version, "4.2.0", key=_numbers)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
