"""Streaming queries as Spark runs them."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.queries import LEAVE_S
from spark_groups.lab.sim.swarm import Swarm
from spark_groups.lab.sim.world import World
from spark_groups.protocol.membership import MemberState
from tests.lab.sim.scenes import Facts, world

ONE = Swarm(queries=1, from_latest=0, batch_s=4.0, starts_s=0.0)


def started(swarm: Swarm = ONE, *kinds: type) -> tuple[World, Facts]:
    seen = Facts(*kinds)
    found = world(swarm, "kafka-4.3", 1, seen)
    found.queries[0].start()
    return found, seen


def wait(found: World, seconds: float) -> None:
    found.scene.schedule.run_until(found.scene.now + seconds)


def in_a_batch(found: World, seen: Facts) -> facts.Read:
    """Wait until a batch with rows begins, which has not finished then."""
    while True:
        reads = [fact for fact in seen.seen if isinstance(fact, facts.Read) and fact.plan.ranges]
        if reads:
            return reads[-1]
        wait(found, 0.005)


def test_a_query_joins_plans_reads_and_commits() -> None:
    found, seen = started(ONE, facts.Finished)
    wait(found, 20.0)
    assert sum(len(fact.plan.ranges) for fact in seen.seen if isinstance(fact, facts.Finished)) >= 4
    committed = [found.scene.coordination.committed(key) for key in found.scene.storage.logs]
    assert committed == [log.end_offset for log in found.scene.storage.logs.values()]
    assert found.queries[0].restless() == ""


def test_a_query_that_is_killed_runs_its_unfinished_batch_again() -> None:
    found, seen = started(ONE, facts.Read, facts.Finished)
    first = in_a_batch(found, seen)
    found.queries[0].kill(1.0, forget=False)
    assert found.queries[0].restless() == "q1 is down"
    wait(found, 1.5)
    again = seen.seen[-1]
    assert isinstance(again, facts.Read)
    assert (again.plan, again.records) == (first.plan, first.records)
    current = found.queries[0].current
    assert current is not None
    assert current.name == "q1.2"


def test_a_query_that_forgets_starts_from_what_is_committed() -> None:
    found, seen = started(ONE, facts.Read, facts.Forgotten)
    in_a_batch(found, seen)
    found.queries[0].kill(1.0, forget=True)
    assert seen.seen[-1] == facts.Forgotten("q1")
    assert found.queries[0].plan is None
    wait(found, 20.0)
    assert isinstance(seen.seen[-1], facts.Read)


def test_a_query_that_is_stopped_finishes_its_batch_leaves_and_comes_back() -> None:
    found, seen = started(ONE, facts.Read, facts.Finished)
    first = in_a_batch(found, seen)
    found.queries[0].stop(2.0)
    wait(found, 4.1)
    assert facts.Finished("q1", first.plan, first.records) in seen.seen
    assert found.scene.coordination.group.members == {}
    wait(found, LEAVE_S + 2.0)
    current = found.queries[0].current
    assert current is not None
    assert current.name == "q1.2"


def test_a_query_that_is_stopped_for_good_stays_away() -> None:
    found, _ = started()
    wait(found, 10.0)
    found.queries[0].stop(None)
    wait(found, 60.0)
    assert (found.queries[0].current, found.queries[0].restless()) == (None, "")


def test_a_batch_that_fails_is_not_finished_and_runs_again() -> None:
    found, seen = started(ONE, facts.Read, facts.Finished)
    first = in_a_batch(found, seen)
    found.queries[0].fail(0.5)
    wait(found, LEAVE_S + 0.6)
    reads = [fact.plan for fact in seen.seen if isinstance(fact, facts.Read) and fact.plan.ranges]
    assert reads == [first.plan, first.plan]


def test_a_frozen_query_that_was_replaced_finishes_nothing_when_it_wakes_up() -> None:
    found, seen = started(ONE, facts.Read, facts.Finished)
    in_a_batch(found, seen)
    frozen = found.queries[0].current
    assert frozen is not None
    found.queries[0].replace_frozen(10.0, 1.0)
    wait(found, 9.0)
    current = found.queries[0].current
    assert current is not None
    assert current.name == "q1.2"
    finished = len([fact for fact in seen.seen if isinstance(fact, facts.Finished)])
    assert finished, "the one that replaced it went on"
    assert frozen.is_alive
    wait(found, 7.0)
    assert not frozen.is_alive


def test_a_static_query_keeps_its_place_while_it_is_away() -> None:
    static = Swarm.parse(f"{ONE.text},static=1")
    found, _ = started(static)
    wait(found, 10.0)
    found.queries[0].stop(3.0)
    wait(found, 4.5)
    (member,) = found.scene.coordination.group.members.values()
    assert (member.instance_id, member.is_away) == ("i1", True)
    wait(found, 10.0)
    current = found.queries[0].current
    assert current is not None
    assert current.client.state is MemberState.STABLE


def test_a_listener_tells_at_once_that_a_batch_has_ended() -> None:
    slow = Swarm.parse(f"{ONE.text},trigger_s=30,listener=1")
    found, seen = started(slow, facts.Finished, facts.Committed)
    while not any(isinstance(fact, facts.Finished) and fact.plan.ranges for fact in seen.seen):
        wait(found, 0.005)
    before = len([fact for fact in seen.seen if isinstance(fact, facts.Committed)])
    wait(found, 0.05)
    assert len([fact for fact in seen.seen if isinstance(fact, facts.Committed)]) > before


def test_a_query_that_is_refused_while_it_plans_is_started_again() -> None:
    found, seen = started(ONE, facts.Read)
    in_a_batch(found, seen)
    query = found.queries[0]
    refused = query.current
    assert refused is not None
    refused.client.fail("its place is taken", found.scene.now)
    query._plan(refused, {})
    assert query.current is None
    wait(found, 20.0)
    assert query.current is not None
    assert query.current is not refused
