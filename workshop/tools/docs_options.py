"""The options as Markdown tables, for the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_groups.spark.options.checks import SECURITY_OPTIONS
from spark_groups.spark.options.declaring import OnRestart
from spark_groups.spark.options.format_options import REGISTRY_OPTIONS
from spark_groups.spark.options.librdkafka_options import FETCH_TUNING
from spark_groups.spark.options.source_options import DECLARED_OPTIONS

_FETCH: Final = ("reader", "maxMemoryPerTask", "kafkaConsumer.pollTimeoutMs")
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Essential": (
        *("kafka.bootstrap.servers", "kafka.group.id", "subscribe", "subscribePattern"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
        *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "onUnreadableTimestamp"),
        *("includeHeaders", "kafka.isolation.level", "emit"),
    ),
    "Formats": (
        *("valueFormat", "valueSchema", "valueMessageName", "valueSubject"),
        *("valueSchemaVersion", "valueSchemaId"),
        *("keyFormat", "keySchema", "keyMessageName", "keySubject"),
        *("keySchemaVersion", "keySchemaId"),
        *("onUndecodable", "schemaRegistryUrl", *(name for name, _, _ in REGISTRY_OPTIONS)),
    ),
    "Batch reads": ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    "Batch size": (
        *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"),
        *("maxTriggerDelay", "minPartitions", "maxRecordsPerPartition"),
    ),
    "Member": (),
    "Security": tuple(name for name, _, _ in SECURITY_OPTIONS),
    "Fetch": (*_FETCH, *(each.name for each in FETCH_TUNING)),
}
"""Options by group of the reference; all others belong to the member."""


def option_table(group: str | None = None) -> str:
    """Return a Markdown table of options.

    Args:
        group: None returns one table of all options.
    """
    rows = [(each.name, each.shown, each.meaning) for each in DECLARED_OPTIONS]
    rows += (*REGISTRY_OPTIONS, *SECURITY_OPTIONS)
    rows += [(tuning.name, tuning.default, tuning.meaning) for tuning in FETCH_TUNING]
    groups = {name: group for group, names in _GROUPS.items() for name in names}
    lines = ["| option | default | meaning |", "|---|---|---|"]
    return "\n".join(
        lines
        + [
            f"| `{name}` | {default} | {meaning} |"
            for name, default, meaning in rows
            if group in (None, groups.get(name, "Member"))
        ]
    )


def options_on_restart() -> str:
    """Return a Markdown table: what a changed value of each option does on a restart."""
    names: dict[OnRestart, list[str]] = {each: [] for each in OnRestart}
    for each in DECLARED_OPTIONS:
        names[each.on_restart].append(f"`{each.name}`")
    names[OnRestart.AT_ONCE] = ["all others"]
    rows = [f"| {', '.join(named)} | {each.value} |" for each, named in names.items()]
    return "\n".join(["| option | a changed value |", "|---|---|", *rows])


def grouped_options() -> str:
    """Return Markdown tables of all options, one per group."""
    return "\n\n".join(f"## {group}\n\n{option_table(group)}" for group in _GROUPS)
