"""Where a query with Spark's own Kafka source stands, from the logs of its checkpoint.

Spark writes `offsets/N` before it runs batch N: where each source's part of the batch ends. It
writes `commits/N` after the sink has the batch. Both logs hold one file for each of the last
batches, and no compacted ones. `sources/*/0` holds where Spark's Kafka source began.

    v1                                  v2
    {"batchWatermarkMs": 0, ...}        {"batchWatermarkMs": 0, ...}
    {"flights": {"0": 7, "1": 9}}       0:{"flights": {"0": 7, "1": 9}}
    -                                   ticks:-

Version 1 has a line for each source in the order of the query; version 2, from Spark 4.2 on, has
the source's name or number in front. `-`: the source has no offset yet. Seen in files of Spark
4.2.0; the writer is org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from spark_groups.cli.topic_partitions import is_chosen
from spark_groups.errors import CheckpointError, OptionsError
from spark_groups.group.ledger.plan_text import parse_plan_text
from spark_groups.group.ledger.sparks_kafka_offsets import sparks_kafka_offsets
from spark_groups.types import TopicPartition

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
SOURCES: Final = "sources"
VOID_OFFSET: Final = "-"
SHOWN_CHARACTERS_MAX: Final = 60


class CheckpointFiles(Protocol):
    """The files of a checkpoint, on any file system."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder of the checkpoint; none if it does not exist."""

    def read(self, name: str) -> str:
        """Return the text of a file of the checkpoint."""


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """The next offsets of one Kafka source.

    Args:
        name: The position of the source in the query, from 0, or its name.
        offsets: The next offset of each partition.
    """

    name: str
    offsets: Mapping[TopicPartition, int]

    @property
    def topics(self) -> list[str]:
        """The topics that the source reads, in order."""
        return sorted({each.topic for each in self.offsets})


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """Where a query with Spark's own Kafka source stands.

    Args:
        batch_id: The last committed batch; None: there is none, and the sources are where the query
            began.
        sources: The Kafka sources at the end of that batch.
        planned_batch_id: The batch that is planned, but not committed; None: there is none.
        planned: The Kafka sources at the end of that batch.
    """

    batch_id: int | None
    sources: tuple[SourceOffsets, ...]
    planned_batch_id: int | None = None
    planned: tuple[SourceOffsets, ...] = ()


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where a partition stands in a checkpoint.

    Args:
        source_name: The source that reads the partition.
        offset: Its next offset.
        planned_offset: The end of a planned, but uncommitted batch; None: there is none.
    """

    source_name: str
    offset: int
    planned_offset: int | None = None


@dataclass(frozen=True, slots=True)
class ChosenOffsets:
    """Where the chosen partitions of a checkpoint stand.

    Args:
        place: The path or URI of the checkpoint.
        checkpoint: What it holds.
        positions: The chosen partitions.
    """

    place: str
    checkpoint: SparkCheckpoint
    positions: Mapping[TopicPartition, SourcePosition]

    def first_count(self, topic: str) -> int:
        """Return how many partitions of a topic, from 0 on, the query has read without a gap.

        A partition behind them was added later, or left out by `assign`.
        """
        sources = self.checkpoint.sources
        read = {
            name.partition for source in sources for name in source.offsets if name.topic == topic
        }
        return next(index for index in range(len(read) + 1) if index not in read)

    def planned_offsets(self) -> int:
        """Return how many offsets of the chosen partitions a planned batch reads."""
        return sum(
            max(0, position.planned_offset - position.offset)
            for position in self.positions.values()
            if position.planned_offset is not None
        )


def read_checkpoint(files: CheckpointFiles, place: str) -> SparkCheckpoint:
    """Read the last committed batch of a checkpoint, and the one that is planned behind it.

    Args:
        files: The files of the checkpoint.
        place: The name of the checkpoint in errors.

    Raises:
        CheckpointError: It is not the checkpoint of a query with Spark's own Kafka source, or a
            file of it is missing or damaged.
    """
    planned_ids, committed_ids = _batch_ids(files, OFFSETS), _batch_ids(files, COMMITS)
    if not planned_ids:
        raise CheckpointError(
            f"{place} has no {OFFSETS}/ with batches: give the checkpointLocation of a query, which"
            f" has the folders {OFFSETS} and {COMMITS}"
        )
    last_planned = planned_ids[-1]
    batch_id = committed_ids[-1] if committed_ids else None
    if batch_id is None:
        sources = _beginnings(files, place)
    elif batch_id not in planned_ids:
        raise CheckpointError(
            f"{place} has {COMMITS}/{batch_id}, but no {OFFSETS}/{batch_id}: the checkpoint is"
            " incomplete. Copy it again while its query is stopped"
        )
    else:
        name = f"{COMMITS}/{batch_id}"
        if not files.read(name).startswith("v"):
            raise _damaged(place, name, "it does not begin with a version")
        sources = _sources_of(files, place, batch_id)
    is_planned = batch_id is None or last_planned > batch_id
    return SparkCheckpoint(
        batch_id=batch_id,
        sources=sources,
        planned_batch_id=last_planned if is_planned else None,
        planned=_sources_of(files, place, last_planned) if is_planned else (),
    )


def _batch_ids(files: CheckpointFiles, folder: str) -> list[int]:
    """Return the batches in a log, in order; other files are temporary or checksums."""
    names = files.names(folder)
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def _sources_of(files: CheckpointFiles, place: str, batch_id: int) -> tuple[SourceOffsets, ...]:
    name = f"{OFFSETS}/{batch_id}"
    texts = dict(_texts_by_source(files.read(name), place, name))
    found = _kafka_sources(texts.items())
    if not found:
        raise CheckpointError(f"{place} {_what_else(texts)}")
    return found


def _texts_by_source(text: str, place: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the offset of each source that has one."""
    version, *lines = text.split("\n")
    if version.strip() not in {"v1", "v2"}:
        shown = version[:SHOWN_CHARACTERS_MAX]
        raise _damaged(place, name, f"its version is {shown!r}, and this program reads v1 and v2")
    if len(lines) < 2:
        raise _damaged(place, name, "it ends before the offsets")
    for position, line in enumerate(filter(None, lines[1:])):
        source, text_of_it = str(position), line
        if version.strip() == "v2":
            source, colon, text_of_it = line.partition(":")
            if not colon:
                raise _damaged(place, name, f"line {position + 3} is not SOURCE:OFFSET")
        if text_of_it != VOID_OFFSET:
            yield source, text_of_it


def _kafka_sources(texts: Iterable[tuple[str, str]]) -> tuple[SourceOffsets, ...]:
    read = ((name, sparks_kafka_offsets(_json(text))) for name, text in sorted(texts))
    return tuple(SourceOffsets(name, offsets) for name, offsets in read if offsets)


def _beginnings(files: CheckpointFiles, place: str) -> tuple[SourceOffsets, ...]:
    """Return where the sources began: files whose first byte is 0, for readers before Spark 2.1."""
    texts = {
        source: files.read(f"{SOURCES}/{source}/0").lstrip("\0").partition("\n")[2]
        for source in sorted(files.names(SOURCES))
        if "0" in files.names(f"{SOURCES}/{source}")
    }
    found = _kafka_sources(texts.items())
    if not found:
        raise CheckpointError(
            f"{place} has no committed batch, and no {SOURCES}/*/0 says where Spark's own Kafka"
            " source began. Start the old query once more with trigger(availableNow=True)"
        )
    return found


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _what_else(texts: Mapping[str, str]) -> str:
    for text in texts.values():
        try:
            plan = parse_plan_text(text)
        except CheckpointError:
            continue
        where = f"--from-group {plan.group_id}" if plan else "--from-group"
        return (
            "is a checkpoint of the kafka-group source: the offsets of its group are in Kafka. Copy"
            f" them with {where}"
        )
    shown = ", ".join(text[:SHOWN_CHARACTERS_MAX] for text in texts.values()) or "none"
    return f"has no offsets of Spark's own Kafka source, which reads by topic; it has {shown}"


def _damaged(place: str, name: str, reason: str) -> CheckpointError:
    return CheckpointError(f"{place}/{name} cannot be read: {reason}")


def positions_of(
    checkpoint: SparkCheckpoint,
    topics: Mapping[str, frozenset[int] | None] | None,
    *,
    all_topics: bool,
) -> dict[TopicPartition, SourcePosition]:
    """Return where the chosen partitions stand.

    Args:
        checkpoint: The checkpoint.
        topics: Partitions by topic, None for all of a topic. None: not chosen, which is enough if
            the query has one Kafka source.
        all_topics: Whether the topics of all sources are chosen.

    Raises:
        OptionsError: The choice is missing, or names a topic that no source reads, or two sources
            have read the same partition to different offsets.
    """
    listed = "; ".join(f"source {e.name} reads {', '.join(e.topics)}" for e in checkpoint.sources)
    if topics is None and not all_topics and len(checkpoint.sources) > 1:
        raise OptionsError(
            f"the query has {len(checkpoint.sources)} Kafka sources ({listed}): choose their topics"
            " with --topic, or all with --all-topics"
        )
    known = {topic for each in checkpoint.sources for topic in each.topics}
    missing = sorted(set(topics or ()) - known)
    if missing:
        raise OptionsError(f"no source of the checkpoint reads {', '.join(missing)}: {listed}")
    planned = {each.name: each.offsets for each in checkpoint.planned}
    found: dict[TopicPartition, SourcePosition] = {}
    for source in checkpoint.sources:
        for name, offset in source.offsets.items():
            if topics is not None and not is_chosen(name, topics):
                continue
            other = found.get(name)
            if other is not None and other.offset != offset:
                raise OptionsError(
                    f"sources {other.source_name} and {source.name} have read {name} to different"
                    f" offsets, {other.offset} and {offset}: choose one with --from-file, in a"
                    f" group for each source"
                )
            # Without a name in version 1, the beginnings and the log may number sources otherwise.
            ends = [planned[source.name]] if source.name in planned else planned.values()
            ahead = [each[name] for each in ends if name in each]
            found[name] = SourcePosition(source.name, offset, max(ahead, default=None))
    return found
