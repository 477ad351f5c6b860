"""What an operator does between runs, on a real broker; the members are stand-ins."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.table_names import TableKind
from spark_groups.group.ledger.commit_metadata import committed_topics
from spark_groups.group.ledger.plan_text import plan_text
from spark_groups.types import BatchPlan, OffsetRange, PlanTopic, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from workshop.chaos.faults.resets import AtHand, Resets
from workshop.chaos.faults.schedule import ResetFaultKind, Standstill
from workshop.chaos.members.checkpoint import Checkpoint
from workshop.chaos.members.ensemble import Outcome
from workshop.chaos.members.journal import Journal
from workshop.chaos.members.kinds import MemberKind
from workshop.chaos.results.facts import Note, RunKey
from workshop.chaos.setting import Files
from workshop.chaos.systems.cluster import Broker
from workshop.chaos.systems.sinks import Row as SinkRow
from workshop.chaos.systems.sinks import SinkBatch, TableSink
from workshop.chaos.systems.tables import Places, open_table, table_rows
from workshop.parts.brokers import Row, create_topic, produce

KINDS = {"q1": MemberKind.QUERY, "q2": MemberKind.QUERY, "c1": MemberKind.PLAIN}
RECORDS = 20
COMMITTED = 15
LAST = (10, 15)
"""The range of the last batch of q1."""
METADATA = "of a query"


@dataclass
class Members:
    """Members that run when they are started, and end when they are held."""

    started: list[str] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)
    restored: list[str] = field(default_factory=list)
    on_start: Callable[[str], bool] = lambda _: True
    """Returns whether a member runs on."""

    def __post_init__(self) -> None:
        self.members = {name: SimpleNamespace(is_running=True, key=name) for name in KINDS}

    def settle(self) -> None:
        pass

    def hold(self, killed: Iterable[str]) -> bool:
        self.killed |= set(killed)
        for member in self.members.values():
            member.is_running = False
        return True

    def waiting(self) -> list[str]:
        return [name for name, member in self.members.items() if not member.is_running]

    def start(self, names: Iterable[str]) -> None:
        for name in names:
            self.started.append(name)
            self.members[name].is_running = self.on_start(name)

    def release(self) -> None:
        self.started.append("all others")

    def note_restored(self, name: str) -> None:
        self.restored.append(name)


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    ends_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > ends_s:
            return False
        time.sleep(0.05)
    return True


class Stage:
    """A group of two partitions, without members, and the checkpoint of one of its queries."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, group_id: str, directory: Path) -> None:
        servers = kafka.bootstrap_servers
        create_topic(servers, topic, 2)
        for partition in range(2):
            produce(servers, topic, [Row(b"x", partition=partition)] * RECORDS)
        self.topic, self.group_id = topic, group_id
        self.broker = Broker(servers)
        ((self.topic_id, _),) = self.broker.names([topic]).items()
        self.keys = [TopicIdPartition(self.topic_id, each) for each in range(2)]
        with Cluster(servers) as self.cluster:
            offsets = dict.fromkeys(self.keys, COMMITTED)
            commit_outside(self.cluster, group_id, offsets, {self.topic_id: METADATA})
        self.files = Files(directory / "run", directory)
        self.files.make()
        self.places = Places(self.files.tables)
        self.members = Members()
        for number, until_offset in enumerate((LAST[0], LAST[1])):
            self.checkpoint("q1").plan(number, self._plan(until_offset))
            self.checkpoint("q1").finish(number)
        at_hand = AtHand(
            broker=self.broker,
            bootstrap_servers=servers,
            group_id=group_id,
            files=self.files,
            places=self.places,
            tables=[TableKind.SQLITE],
            ensemble=self.members,  # type: ignore[arg-type]
            kinds=KINDS,
            counts=lambda: {topic: 2},
            add_topic=lambda: "another",
            is_quiet=lambda: True,
            until=until,
            say=print,
        )
        self.resets = Resets(at_hand, random.Random(7))

    def checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(self.files.checkpoint(name))

    def _plan(self, until_offset: int) -> str:
        ranges = (OffsetRange(self.topic_id, self.topic, 0, until_offset - 5, until_offset),)
        topics = (PlanTopic(self.topic_id, self.topic, 2),)
        return plan_text(BatchPlan(self.group_id, "m", 1, ranges, topics))

    def write(self, partition: int, until_offset: int) -> None:
        """Write records of a partition to the table."""
        ranges = (OffsetRange(self.topic_id, self.topic, partition, 0, until_offset),)
        rows = tuple(SinkRow(self.topic, partition, each, b"x") for each in range(until_offset))
        batch = SinkBatch("q1.1.0", self.group_id, 0, ranges, rows)
        TableSink(open_table(TableKind.SQLITE, self.places)).write(batch)

    def carry_out(self, *kinds: ResetFaultKind) -> dict[int, int]:
        """Do it, and return the committed offsets by partition."""
        self.resets.carry_out(Standstill(0.0, kinds, 0.5, 0.0))
        assert self.resets.problems == []
        found = self.broker.committed(self.group_id)
        return {index: offset for (_, index), offset in found.items()}


@pytest.fixture
def stage(kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path) -> Stage:
    return Stage(kafka, topic_name, group_id, tmp_path)


@pytest.mark.broker
def test_offsets_are_set_back_and_a_query_starts_before_all_others(stage: Stage) -> None:
    found = stage.carry_out(ResetFaultKind.EARLIEST)
    assert 0 in found.values()
    assert set(found.values()) <= {0, COMMITTED}
    assert stage.members.started[0] == "q1", "q2 has no checkpoint"
    assert sorted(stage.members.started[1:3]) == ["c1", "q2"]
    (trouble,) = stage.resets.troubles
    history = stage.broker.commit_history(stage.group_id)
    resets = [each for found in history.values() for each in found if each.offset == 0]
    assert all(trouble.from_s <= reset.at_s <= trouble.until_s for reset in resets)
    assert stage.resets.stood_s > 0


@pytest.mark.broker
def test_tool_sets_an_offset_to_the_last_batch_of_a_query_and_keeps_its_metadata(
    stage: Stage,
) -> None:
    assert stage.carry_out(ResetFaultKind.METADATA_KEPT) == {0: LAST[0], 1: COMMITTED}
    with Cluster(stage.broker._servers) as cluster:
        committed = cluster.fetch_all_offsets(stage.group_id)
    assert committed[stage.keys[0]].metadata == METADATA
    assert committed_topics(committed) == {stage.topic_id}


@pytest.mark.broker
def test_offsets_are_those_of_the_table_that_has_least(stage: Stage) -> None:
    stage.write(0, 11)
    assert stage.carry_out(ResetFaultKind.TABLE) == {0: 11, 1: COMMITTED}


@pytest.mark.broker
def test_rows_are_deleted_and_the_table_and_the_queries_begin_again(stage: Stage) -> None:
    for partition in range(2):
        stage.write(partition, COMMITTED)
    found = stage.carry_out(ResetFaultKind.REWRITTEN)
    assert min(found.values()) < COMMITTED
    entries = open_table(TableKind.SQLITE, stage.places).read(stage.group_id).entries
    assert {key.partition: entry.next_offset for key, entry in entries.items()} == found
    rows = table_rows(TableKind.SQLITE, stage.places)
    assert Counter(row.partition for row in rows) == Counter(found)
    assert stage.checkpoint("q1").last_planned() is None
    assert stage.members.restored == ["q1", "q2"]


@pytest.mark.broker
def test_query_that_refuses_deleted_offsets_starts_after_the_command_that_it_prints(
    stage: Stage,
) -> None:
    servers = stage.broker._servers

    def refuses_once(name: str) -> bool:
        if stage.members.started.count("q1") > 1 or name != "q1":
            return True
        command = f"spark-groups reset-offsets {stage.group_id} --topic {stage.topic} --to-earliest"
        error = f"offsets are gone: run `{command} --execute --bootstrap-server {servers}`"
        journal = Journal(stage.files.journals, RunKey("q1", 1))
        journal.note(Note.FAILS, error=error)
        return False

    stage.members.on_start = refuses_once
    assert stage.carry_out(ResetFaultKind.DELETED) == {0: 0, 1: 0}
    assert stage.members.started[:2] == ["q1", "q1"]
    assert stage.resets.outcomes == {
        (ResetFaultKind.DELETED, Outcome.DONE): 1,
        (ResetFaultKind.REMEDY, Outcome.DONE): 1,
    }


@pytest.mark.broker
def test_checkpoints_become_older_ones_and_copies_of_others(stage: Stage) -> None:
    stage.carry_out(ResetFaultKind.RESTORED, ResetFaultKind.COPIED)
    assert stage.members.restored == ["q1", "q2"]
    for name in ("q1", "q2"):
        assert stage.checkpoint(name).last_planned() == 0
    assert json.loads((stage.files.checkpoint("q2") / "offsets" / "0").read_text())["member"] == "m"


@pytest.mark.broker
def test_what_cannot_be_done_is_skipped_and_members_start_nevertheless(stage: Stage) -> None:
    stage.checkpoint("q1").go_back(-1, is_finished=True)
    kinds: tuple[Any, ...] = (ResetFaultKind.COPIED, ResetFaultKind.METADATA_KEPT)
    assert stage.carry_out(*kinds) == {0: COMMITTED, 1: COMMITTED}
    assert stage.resets.outcomes == {(kind, Outcome.SKIPPED): 1 for kind in kinds}
    assert sorted(stage.members.started) == ["all others", "c1", "q1", "q2"]
