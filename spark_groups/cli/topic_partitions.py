"""Topics and partitions as in options of Kafka's own tools: `flights` or `flights:0,2`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import typer

from spark_groups.errors import OptionsError
from spark_groups.group.member.messages import TopicMetadata
from spark_groups.types import TopicPartition

TOPIC_OPTION: Final[Any] = typer.Option(
    "--topic", metavar="TOPIC[:0,1]", help="A topic, or only these partitions of it; repeatable."
)


def parse_topics(given: Iterable[str]) -> dict[str, frozenset[int] | None]:
    """Parse the values of `--topic`; None stands for all partitions of a topic.

    Raises:
        OptionsError: Malformed values; lists all of them.
    """
    found: dict[str, frozenset[int] | None] = {}
    problems = []
    for text in given:
        name, colon, indexes = text.partition(":")
        parts = indexes.split(",") if colon else []
        if not name or not all(part.strip().isdecimal() for part in parts):
            problems.append(f"{text!r} is neither TOPIC nor TOPIC:0,1,2")
            continue
        chosen = frozenset(map(int, parts)) if colon else None
        before = found.get(name, frozenset())
        found[name] = None if chosen is None or before is None else before | chosen
    if problems:
        raise OptionsError("; ".join(problems))
    return found


def is_chosen(name: TopicPartition, topics: Mapping[str, frozenset[int] | None]) -> bool:
    """Return whether a partition is one of those that `parse_topics` returned."""
    indexes = topics.get(name.topic, frozenset())
    return indexes is None or name.partition in indexes


def partitions_of(
    topics: Mapping[str, frozenset[int] | None], known: Iterable[TopicMetadata]
) -> tuple[tuple[TopicPartition, ...], tuple[TopicPartition, ...]]:
    """Return the requested partitions that exist, and the missing ones.

    Partition -1 stands for all partitions of a missing topic.
    """
    counts = {each.name: each.partition_count for each in known}
    there: list[TopicPartition] = []
    missing: list[TopicPartition] = []
    for topic, chosen in sorted(topics.items()):
        count = counts.get(topic, 0)
        indexes = chosen if chosen is not None else range(count) or [-1]
        for index in sorted(indexes):
            found = there if 0 <= index < count else missing
            found.append(TopicPartition(topic, index))
    return tuple(there), tuple(missing)
