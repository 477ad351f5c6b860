"""Planted bugs: each does what its description says, and the package does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.commits import CommitQueue
from spark_groups.group.ledger.ledger import Ledger, Phase
from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.types import BatchPlan, OffsetRange
from tests.group.harness import ClientHarness
from tests.group.ledger.ledger_setup import commits, key, owning, parts, plan, ready, span
from tests.spark.reading.both_readers import topic_ids
from workshop.chaos.member_plants import IN_MEMBERS, Lasting, plant_in_member
from workshop.chaos.plants import DESCRIPTIONS, CompareBefore, NoCompare, Plant, planted
from workshop.parts.brokers import Row, create_topic, produce

OF_TABLES = {Plant.NO_COMPARE, Plant.COMPARE_BEFORE, Plant.KAFKA_FIRST}
BATCHES = 10


@dataclass
class Recorded:
    """Notes what would be replaced."""

    names: list[str] = field(default_factory=list)

    def setattr(self, _target: object, name: str, _value: object) -> None:
        self.names.append(name)


def test_each_bug_is_described_and_is_one_of_members_or_of_tables() -> None:
    assert set(DESCRIPTIONS) == set(Plant)
    assert set(IN_MEMBERS) == set(Plant) - OF_TABLES


@pytest.mark.parametrize("plant", [None, *(each for each in Plant if each in OF_TABLES)])
def test_no_function_is_replaced_without_a_bug_of_members(plant: Plant | None) -> None:
    recorded = Recorded()
    plant_in_member(plant, recorded)
    assert recorded.names == []


@pytest.mark.parametrize("plant", Plant)
def test_only_two_bugs_change_a_table(plant: Plant) -> None:
    wrappers = {Plant.NO_COMPARE: NoCompare, Plant.COMPARE_BEFORE: CompareBefore}
    assert type(planted("table", plant)) is wrappers.get(plant, str)  # type: ignore[arg-type]


def test_lasting_patch_stays() -> None:
    target = Recorded()
    Lasting().setattr(target, "names", ["other"])
    assert target.names == ["other"]


def lost_batch() -> tuple[Ledger, BatchPlan]:
    """Return a ledger whose partition 0 was lost while a batch reads it, partition 1 was not."""
    ledger = owning({0: 5, 1: 5})
    batch = plan(span(0, 5, 9), span(1, 5, 7))
    ledger.record(batch)
    ledger.drop(parts(0))
    return ledger, batch


def test_lost_range_is_committed_only_with_the_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, batch = lost_batch()
    assert commits(ledger.finish(batch).commits) == {1: (7, 3)}
    plant_in_member(Plant.COMMITS_LOST, monkeypatch)
    ledger, batch = lost_batch()
    finished, queue = ledger.finish(batch), CommitQueue()
    assert commits(finished.commits) == {0: (9, 3), 1: (7, 3)}
    queue.add(finished.commits)
    sent = queue.poll(1.0, member_epoch=3, proven_at=1.0, tenure=ledger.tenure)
    assert set(sent) == {key(0), key(1)}, "the queue does not notice that one is lost"


def returned() -> Ledger:
    """Return a ledger whose partition 0 stood at 5, was dropped, and is assigned again."""
    ledger = owning({0: 5})
    ledger.drop(parts(0))
    ledger.assign(parts(0, 1), 4)
    return ledger


def test_partition_keeps_its_position_only_with_the_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(returned().in_phase(Phase.FETCHING)) == {key(0), key(1)}
    plant_in_member(Plant.KEEPS_POSITION, monkeypatch)
    ledger = returned()
    assert ledger.positions(parts(0, 1)) == {key(0): 5}
    assert ledger.unready() == {key(1)}, "it was never owned before"
    assert ledger.tenure(key(0)) == ledger.tenure(key(1))
    other = Ledger("run")
    other.assign(parts(0), 4)
    assert other.unready() == {key(0)}, "another member does not have that position"


def test_value_that_comes_back_is_evidence_only_with_the_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def taken(mark: str) -> tuple[OffsetRange, ...]:
        ledger = Ledger("run")
        ledger.finish(plan(span(0, 5, 9), member_id="m0"))
        ledger.assign(parts(0), 1)
        ready(ledger, {0: 5}, {0: mark})
        return ledger.inherit(1).taken

    assert (taken("at5"), taken("another commit")) == ((span(0, 5, 9),), ())
    plant_in_member(Plant.VALUE_AS_EVIDENCE, monkeypatch)
    assert taken("another commit") == (span(0, 5, 9),)


def restarted() -> Ledger:
    """Return the ledger of a client that runs the batch of its checkpoint again."""
    old = plan(span(0, 5, 9), member_id="m0")
    client = ClientHarness(checkpointed=old).client
    client.replay(old, 0.0)
    return client.parts.ledger


def test_replayed_batch_is_finished_only_with_the_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    assert restarted().in_flight is not None
    plant_in_member(Plant.REPLAY_FINISHED, monkeypatch)
    ledger = restarted()
    assert ledger.in_flight is None
    ledger.assign(parts(0), 1)
    ready(ledger, {0: 5})
    assert commits(ledger.inherit(1).commits) == {0: (9, 1)}


def test_replayed_batch_delays_no_revocation_with_the_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def delayed(ledger: Ledger) -> set[Any]:
        ledger.replay(plan(span(0, 5, 9), member_id="m0"))
        return set(ledger.delaying_revocation(parts(0), frozenset(), commits_start_first=False))

    assert delayed(owning({0: 5})) == {key(0)}
    plant_in_member(Plant.REPLAY_UNNOTED, monkeypatch)
    assert delayed(owning({0: 5})) == set()


@pytest.mark.broker
def test_readers_return_other_rows_with_a_bug(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name)
    for _ in range(BATCHES):
        # The producer waits for all four, and the range begins and ends within such a batch.
        produce(servers, topic_name, [Row(b"x" * 100)] * 4, {"linger.ms": 1000})
    end = BATCHES * 4 - 2

    def offsets(reader: ReaderChoice, plant: Plant | None) -> list[int]:
        # Consumers are kept by their settings: that of a bug is used for no other.
        settings = RangeSettings(
            bootstrap_servers=(servers,),
            group_id=f"{group_id}-{plant}",
            poll_timeout_s=120.0,
            reader=reader,
        )
        topic_id = topic_ids(settings, [topic_name])[topic_name]
        with pytest.MonkeyPatch.context() as patch:
            plant_in_member(plant, patch)
            batches = list(read_ranges(settings, [OffsetRange(topic_id, topic_name, 0, 2, end)]))
        return [each for batch in batches for each in batch.column("offset").to_pylist()]

    right = list(range(2, end))
    for reader in (ReaderChoice.FAST, ReaderChoice.LIBRDKAFKA):
        assert offsets(reader, None) == right
        assert offsets(reader, Plant.LAST_RECORD) == right[:-1]
        assert offsets(reader, Plant.BEYOND_RANGE) == [*right, end]
    assert offsets(ReaderChoice.FAST, Plant.BATCH_START) == [0, 1, *right]
    cut = offsets(ReaderChoice.FAST, Plant.CUT_FETCH)
    assert cut == right[: len(cut)]
    assert 0 < len(cut) < len(right)
