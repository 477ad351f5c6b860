"""What a checkpoint of Spark's own Kafka source says; the files are those of Spark 4.2.0."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from spark_groups.cli.checkpoint_log import (
    ChosenOffsets,
    SourceOffsets,
    SourcePosition,
    SparkCheckpoint,
    positions_of,
    read_checkpoint,
)
from spark_groups.errors import CheckpointError, OptionsError
from spark_groups.group.ledger.plan_text import plan_text
from spark_groups.types import BatchPlan, PlanTopic, TopicPartition

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795470947898,"conf":{}}'
COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@dataclass
class Files:
    """A checkpoint in memory: the texts of its files by name."""

    texts: Mapping[str, str]

    def names(self, folder: str) -> list[str]:
        below = (each.removeprefix(f"{folder}/") for each in self.texts if each.startswith(folder))
        return sorted({each.partition("/")[0] for each in below})

    def read(self, name: str) -> str:
        return self.texts[name]


def v1(*offsets: str) -> str:
    return "\n".join(("v1", METADATA, *offsets))


def v2(*offsets: str) -> str:
    return "\n".join(("v2", METADATA, *offsets))


def kafka(**topics: tuple[int, ...]) -> str:
    """Return an offset: `a=(7, 9)` is where partitions 0 and 1 of topic a end."""
    named = {topic: dict(enumerate(ends)) for topic, ends in topics.items()}
    return json.dumps(named, separators=(",", ":"))


def read(**texts: str) -> SparkCheckpoint:
    """Read a checkpoint; `offsets_3` names the file offsets/3."""
    named = {name.replace("_", "/"): text for name, text in texts.items()}
    return read_checkpoint(Files(named), "cp")


def test_the_last_committed_batch_counts() -> None:
    found = read(
        offsets_8=v1(kafka(a=(3, 3))),
        offsets_9=v1(kafka(a=(5, 5))),
        offsets_10=v1(kafka(a=(7, 9))),
        commits_8=COMMITTED,
        commits_9=COMMITTED,
        commits_10=COMMITTED,
        metadata="{}",
    )
    assert found == SparkCheckpoint(10, (SourceOffsets("0", {A0: 7, A1: 9}),))


def test_a_batch_without_a_commit_is_only_planned() -> None:
    found = read(offsets_9=v1(kafka(a=(5, 5))), offsets_10=v1(kafka(a=(7, 9))), commits_9=COMMITTED)
    assert (found.batch_id, found.planned_batch_id) == (9, 10)
    positions = positions_of(found, None, all_topics=False)
    assert positions == {A0: SourcePosition("0", 5, 7), A1: SourcePosition("0", 5, 9)}
    assert ChosenOffsets("cp", found, positions).planned_offsets() == 6


def test_version_2_names_its_sources() -> None:
    """Lines are in no order; a source without an offset has a dash, other sources other values."""
    found = read(
        offsets_0=v2(f"1:{kafka(b=(4,))}", f"alpha:{kafka(a=(7, 9))}", "ticks:-", "rate:12"),
        commits_0=COMMITTED,
    )
    assert found.sources == (
        SourceOffsets("1", {B0: 4}),
        SourceOffsets("alpha", {A0: 7, A1: 9}),
    )


def test_version_1_counts_sources_without_an_offset() -> None:
    found = read(offsets_0=v1("-", "6", kafka(b=(4,))), commits_0=COMMITTED)
    assert found.sources == (SourceOffsets("2", {B0: 4}),)


def test_a_query_whose_first_batch_is_not_committed_is_where_it_began() -> None:
    """Spark's Kafka source writes a byte 0 before the version."""
    found = read(
        offsets_0=v1(kafka(a=(7, 9))),
        sources_0_0="\0v1\n" + kafka(a=(2, 0)),
        sources_1_0="v1\n1795471441110",
        sources_1_x="",
    )
    assert (found.batch_id, found.planned_batch_id) == (None, 0)
    assert positions_of(found, None, all_topics=False) == {
        A0: SourcePosition("0", 2, 7),
        A1: SourcePosition("0", 0, 9),
    }


def test_named_sources_of_version_1_keep_their_planned_batch() -> None:
    """With names, Spark 4.2.0 writes them to sources/ only: version 1 counts."""
    found = read(offsets_0=v1(kafka(a=(7,))), sources_alpha_0="\0v1\n" + kafka(a=(2,)))
    assert positions_of(found, None, all_topics=False) == {A0: SourcePosition("alpha", 2, 7)}


OWN = plan_text(BatchPlan("g", "m", 3, (), (PlanTopic(uuid.UUID(int=1), "a", 4),)))


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({}, "has no offsets/ with batches: give the checkpointLocation"),
        ({"offsets_.0.crc": ""}, "has no offsets/ with batches"),
        ({"offsets_1": v1(kafka(a=(7,)))}, "no committed batch, and no sources/*/0 says"),
        (
            {"offsets_1": v1(kafka(a=(7,))), "commits_2": COMMITTED},
            "has commits/2, but no offsets/2: the checkpoint is incomplete",
        ),
        ({"offsets_0": v1("5"), "commits_0": COMMITTED}, "no offsets of Spark's own Kafka source"),
        ({"offsets_0": v1("{"), "commits_0": COMMITTED}, "no offsets of Spark's own Kafka source"),
        ({"offsets_0": v1("-"), "commits_0": COMMITTED}, "it has none"),
        ({"offsets_0": v1(OWN), "commits_0": COMMITTED}, "Copy them with --from-group g"),
        ({"offsets_0": "v3\n\n", "commits_0": COMMITTED}, "version is 'v3', and this program"),
        ({"offsets_0": "v1", "commits_0": COMMITTED}, "it ends before the offsets"),
        ({"offsets_0": "", "commits_0": COMMITTED}, "cp/offsets/0 cannot be read: its version"),
        ({"offsets_0": v2("5"), "commits_0": COMMITTED}, "line 3 is not SOURCE:OFFSET"),
        ({"offsets_0": v1(kafka(a=(7,))), "commits_0": ""}, "cp/commits/0 cannot be read"),
    ],
)
def test_what_cannot_be_read_says_why(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(CheckpointError, match=re.escape(reason)):
        read(**texts)


TWO = SparkCheckpoint(3, (SourceOffsets("0", {A0: 7, A1: 9}), SourceOffsets("1", {B0: 4, A0: 7})))


def test_one_of_several_sources_is_chosen_by_its_topics() -> None:
    listed = "source 0 reads a; source 1 reads a, b"
    with pytest.raises(OptionsError, match=re.escape(f"2 Kafka sources ({listed})")):
        positions_of(TWO, None, all_topics=False)
    with pytest.raises(OptionsError, match=f"no source of the checkpoint reads c, d: {listed}"):
        positions_of(TWO, {"d": None, "a": None, "c": None}, all_topics=False)
    assert set(positions_of(TWO, None, all_topics=True)) == {A0, A1, B0}
    assert set(positions_of(TWO, {"b": None}, all_topics=False)) == {B0}
    assert set(positions_of(TWO, {"a": frozenset({1})}, all_topics=False)) == {A1}


def test_a_partition_at_two_offsets_is_refused() -> None:
    apart = SparkCheckpoint(3, (SourceOffsets("0", {A0: 7}), SourceOffsets("1", {A0: 8, B0: 1})))
    with pytest.raises(OptionsError, match="sources 0 and 1 have read a-0 to different offsets"):
        positions_of(apart, None, all_topics=True)
    assert set(positions_of(apart, {"b": None}, all_topics=False)) == {B0}


def test_partitions_are_counted_up_to_the_first_gap() -> None:
    """A later partition was added, or left out by `assign`: it is read from its beginning."""
    gap = SourceOffsets("0", {A0: 1, A1: 1, TopicPartition("a", 3): 1, B0: 1})
    chosen = ChosenOffsets("cp", SparkCheckpoint(0, (gap,)), {})
    assert [chosen.first_count(each) for each in "abc"] == [2, 1, 0]
