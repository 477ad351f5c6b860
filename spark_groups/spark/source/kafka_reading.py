"""The options with which `spark.read.format("kafka")` reads exactly the ranges of a batch.

What the stream was loaded with is passed on under its own names, so secrets stay where they were:
in options, which Spark masks, or in references, which the consumers resolve where they run. What
these may read is what the driver's environment allows, there too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from spark_groups.errors import OptionsError
from spark_groups.types import OffsetRange
from spark_groups.wire.security.config_references import PATHS_VARIABLE, Allowed, resolved

TUNING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.max.partition.fetch.bytes": "8388608",
        "kafka.max.poll.records": "10000",
        "kafka.receive.buffer.bytes": "4194304",
    }
)
"""What makes the JVM's consumers twice as fast as their defaults do, for small records."""

_PASSED_ON: Final = frozenset(
    name.lower()
    for name in (
        "failOnDataLoss",
        "includeHeaders",
        "kafkaConsumer.pollTimeoutMs",
        "maxRecordsPerPartition",
        "minPartitions",
    )
)
_OF_THE_MEMBER: Final = frozenset(
    {
        "kafka.group.id",
        "kafka.group.instance.id",
        "kafka.group.protocol",
        "kafka.group.remote.assignor",
        "kafka.max.poll.interval.ms",
    }
)
"""What is about the membership: consumers that read ranges are no members."""

_WHAT_IS_READ: Final = frozenset(
    {"assign", "subscribe", "subscribepattern", "kafka.group.id", "groupidprefix"}
)
_BOUNDS: Final = ("starting", "ending")

_REFERENCE: Final = re.compile(r"\$\{(env|file|directory):")
_PROVIDERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        provider: f"org.apache.kafka.common.config.provider.{name}ConfigProvider"
        for provider, name in (("env", "EnvVar"), ("file", "File"), ("directory", "Directory"))
    }
)


def check_further(options: Mapping[str, str]) -> None:
    """Refuse options that would change what is read, or in whose name.

    Args:
        options: Options for Spark's Kafka source alone, by name.

    Raises:
        OptionsError: Some of them do.
    """
    wrong = [
        name
        for name in options
        if name.lower() in _WHAT_IS_READ or name.lower().startswith(_BOUNDS)
    ]
    if wrong:
        raise OptionsError(
            f"{', '.join(wrong)} cannot be an option of foreach_batch_rows: the group's plan says"
            " what a batch reads"
        )


def reading_options(
    stream: Mapping[str, str],
    further: Mapping[str, str],
    ranges: Iterable[OffsetRange],
    reading_id: str,
) -> dict[str, str]:
    """Return the options that read these ranges as the stream would.

    Args:
        stream: The options of the stream, by name.
        further: Options for Spark's Kafka source alone; they go before the stream's.
        ranges: What is read; each partition once.
        reading_id: The `group.id` of the consumers, by which executors keep them.
    """
    passed = {name.lower(): value for name, value in stream.items() if _is_passed_on(name.lower())}
    mine = {name.lower(): value for name, value in further.items()}
    return {
        **TUNING,
        **_store_types(passed),
        **_providers({**passed, **mine}),
        **passed,
        **mine,
        "kafka.group.id": reading_id,
        **_exactly(ranges),
    }


def _is_passed_on(name: str) -> bool:
    return name in _PASSED_ON or (name.startswith("kafka.") and name not in _OF_THE_MEMBER)


def _exactly(ranges: Iterable[OffsetRange]) -> dict[str, str]:
    """Return the three options that name the ranges."""
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
    """Say what files of certificates are: the JVM takes them for Java key stores."""
    allowed = Allowed.by(os.environ)
    return {
        f"kafka.ssl.{store}.type": _type_of(resolved(location, allowed))
        for store in ("truststore", "keystore")
        if (location := options.get(f"kafka.ssl.{store}.location"))
    }


def _type_of(path: str) -> str:
    # What it imports takes a tenth of a second, which a plaintext cluster need not wait for.
    from spark_groups.wire.security import keystores  # noqa: PLC0415

    return keystores.read_store(path, None)[0]


def _providers(options: Mapping[str, str]) -> dict[str, str]:
    """Have the JVM's consumers resolve the references that there are.

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
            # Kafka's providers read every file then.
            raise OptionsError(
                f"${{{each}:...}} may not be read: {PATHS_VARIABLE} in the environment of the"
                " driver names no path"
            )
        named[f"kafka.config.providers.{each}.class"] = _PROVIDERS[each]
        if each == "env" and allowed.pattern is not None:
            named["kafka.config.providers.env.param.allowlist.pattern"] = allowed.pattern
        elif each != "env":
            paths = ",".join(allowed.paths or ())
            named[f"kafka.config.providers.{each}.param.allowed.paths"] = paths
    return named
