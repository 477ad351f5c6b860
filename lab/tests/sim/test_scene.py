"""Listeners receive facts; an event is one line; when a group is settled."""

from __future__ import annotations

import uuid
from pathlib import Path

from group_lab.sim import facts
from group_lab.sim.scene import LINE_LENGTH, LINES_KEPT, EventLog, restless
from group_lab.sim.swarm import Swarm
from lab.tests.sim.scenes import scene, world
from spark_groups.types import TopicIdPartition


def test_facts_reach_those_who_listen_for_them() -> None:
    found, seen = scene(), []
    found.listen([{facts.Forgotten: lambda fact: seen.append((1, fact.who))}])
    found.listen([{facts.Forgotten: lambda fact: seen.append((2, fact.who))}, {}])
    found.publish(facts.Forgotten("q1"))
    found.publish(facts.Incident("grows", ""))
    assert seen == [(1, "q1"), (2, "q1")]


def test_faults_end_with_those_of_the_network() -> None:
    found = scene()
    assert found.is_faulty
    found.network.is_faulty = False
    assert not found.is_faulty
    assert found.now == 0.0


ROOT = Path(__file__).parents[3]


def test_columns_are_time_who_epoch_what_and_details() -> None:
    log = EventLog()
    log.add(12.3456, "q1.2", "7", "runs", TopicIdPartition(uuid.UUID(int=1), 3), "two\nlines")
    assert log.lines() == ["    12.346 q1.2          7 runs       AQ-3 two lines"]


def test_only_the_last_lines_are_kept_and_none_is_endless() -> None:
    log = EventLog()
    for number in range(LINES_KEPT + 5):
        log.add(number, "q1", "", "says", "x" * 1_000)
    lines = log.lines()
    assert len(lines) == LINES_KEPT
    assert lines[0].split()[0] == "5.000"
    assert {len(line) for line in lines} == {LINE_LENGTH}


def test_every_word_that_is_logged_is_documented() -> None:
    text = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    source = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "lab/group_lab/sim").glob("*.py")
    )
    words = {"starts", "dies", "fails", "freezes", "runs", "leaves", "says", "answers", "moves"}
    words |= {"crash", "move", "nolog", "cut", "grows", "deletes", "creates", "elects", "retains"}
    assert [word for word in words if f'"{word}"' not in source] == []
    assert [word for word in words if f"`{word}`" not in text] == []


def test_everything_that_is_still_to_come_is_named() -> None:
    found = world(Swarm(queries=1, partitions=1, starts_s=0.0))
    key, log = next(iter(found.scene.storage.logs.items()))
    assert list(restless(found.scene)) == [
        "q1 is down",
        f"{key} is committed at None of {log.end_offset}",
    ]
    found.queries[0].start()
    assert [each.split(" (")[0] for each in restless(found.scene)][:2] == [
        "the group is Empty",
        "q1 is not settled",
    ]
    found.scene.schedule.run_until(10.0)
    assert list(restless(found.scene)) == []
    log.append(1)
    assert len(list(restless(found.scene))) == 1
    found.queries[0].stop(None)
    found.scene.schedule.run_until(20.0)
    assert len(list(restless(found.scene))) == 1, "an empty group has only unread records"


def test_a_group_that_missed_a_new_leader_is_restless() -> None:
    found = world(Swarm(queries=1, partitions=1, starts_s=0.0))
    found.queries[0].start()
    found.scene.schedule.run_until(10.0)
    key, log = next(iter(found.scene.storage.logs.items()))
    log.elect(0, 10.0)
    assert list(restless(found.scene)) == [f"q1 has not seen the leader of {key}"]


def test_a_group_that_missed_a_deletion_is_restless() -> None:
    found = world(Swarm(queries=1, partitions=1, starts_s=0.0))
    found.queries[0].start()
    found.scene.schedule.run_until(10.0)
    (key,) = found.scene.storage.logs
    found.scene.storage.delete("orders1")
    assert list(restless(found.scene)) == [f"{key} is held, but gone"]
