"""Streaming queries as Spark runs them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_lab.sim import facts
from group_lab.sim.incarnation import HELD_S, Incarnation
from group_lab.sim.queries import LEAVE_S, REPORTED_S
from group_lab.sim.schedule import Clock
from group_lab.sim.swarm import Swarm
from group_lab.sim.world import World
from lab.tests.sim.scenes import Facts, world
from spark_groups.errors import AccessError
from spark_groups.group.client import GroupClient
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.events import RevocationHeld
from spark_groups.group.ledger.starting import StartingOffsets
from spark_groups.group.member.events import PartitionsRevoked
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.subscription import Subscription

SKEWED = Clock(1_000.0, 1.01)
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


def test_a_query_that_forgets_starts_from_the_committed_offsets() -> None:
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
    assert finished, "its replacement continued"
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
    assert current.client.parts.member.state is MemberState.STABLE


def test_a_listener_tells_before_the_next_trigger_that_a_batch_has_ended() -> None:
    slow = Swarm.parse(f"{ONE.text},trigger_s=30,listener=1")
    found, seen = started(slow, facts.Finished, facts.Committed)
    while not any(isinstance(fact, facts.Finished) and fact.plan.ranges for fact in seen.seen):
        wait(found, 0.005)
    before = len([fact for fact in seen.seen if isinstance(fact, facts.Committed)])
    wait(found, max(REPORTED_S) + 0.1)
    assert len([fact for fact in seen.seen if isinstance(fact, facts.Committed)]) > before


def test_a_query_that_is_refused_while_it_plans_is_started_again() -> None:
    found, seen = started(ONE, facts.Read)
    in_a_batch(found, seen)
    query = found.queries[0]
    refused = query.current
    assert refused is not None
    refused.client.fail(AccessError("its place is taken"), found.scene.now)
    query._trigger(refused)
    assert query.current is None
    wait(found, 20.0)
    assert query.current is not None
    assert query.current is not refused


def incarnation() -> tuple[Incarnation, Facts]:
    seen = Facts(facts.Sent, facts.Happened)
    scene = world(None, "kafka-4.3", 1, seen).scene
    config = ClientConfig(
        member=MemberConfig(group_id="g", subscription=Subscription.of_names("orders1")),
        starting_offsets=StartingOffsets(),
    )
    ids = iter(["m1", "m2"])
    client = GroupClient(ClientParts(config, new_member_id=lambda: next(ids)))
    found = Incarnation(scene, "q1.1", client, SKEWED)
    client.start(found.now)
    found.pump()
    return found, seen


def test_answers_and_wake_ups_make_it_a_member_that_heartbeats() -> None:
    found, seen = incarnation()
    found._scene.schedule.run_until(30.0)
    sent = [fact for fact in seen.seen if isinstance(fact, facts.Sent)]
    beats = [fact for fact in sent if fact.outgoing.channel.name == "HEARTBEAT"]
    assert found.client.parts.member.member_epoch > 0
    assert 14 <= len(beats) <= 40, "every two seconds, faster at the beginning"
    times = [fact.event.at for fact in seen.seen if isinstance(fact, facts.Happened)]
    assert min(times) > SKEWED.offset_s, "events have the times of its own clock"


def test_it_notices_nothing_while_it_stands_still_and_continues_afterwards() -> None:
    found, seen = incarnation()
    found._scene.schedule.run_until(5.0)
    found.stand_still(4.0)
    before = len(seen.seen)
    done: list[float] = []
    found.after(1.0, lambda: done.append(found._scene.now))
    found.take(lambda _client, now: done.append(now))
    found._scene.schedule.run_until(8.9)
    assert (len(seen.seen), done) == (before, [])
    found._scene.schedule.run_until(12.0)
    assert len(seen.seen) > before
    assert sorted(done) == [9.0, SKEWED.local(9.0)]


def test_a_rebalance_listener_lets_a_revocation_go() -> None:
    seen = Facts(facts.Happened)
    found = world(Swarm(queries=2, holds=1, stops=0, starts_s=0.0), "kafka-4.3", 1, seen)
    for each in found.queries:
        found.scene.schedule.run_until(found.scene.now + 10.0)
        each.start()
    found.scene.schedule.run_until(80.0)
    held = [e.event for e in seen.seen if isinstance(e, facts.Happened)]
    held_at = [each.at for each in held if isinstance(each, RevocationHeld)]
    revoked_at = [each.at for each in held if isinstance(each, PartitionsRevoked)]
    assert len(held_at) == len(revoked_at) == 1
    assert any(revoked_at[0] - held_at[0] == pytest.approx(each) for each in HELD_S)


def test_the_dead_do_nothing() -> None:
    found, seen = incarnation()
    found._scene.schedule.run_until(5.0)
    found.die()
    before = len(seen.seen)
    found.after(1.0, lambda: seen.seen.append("alive"))
    found.take(lambda *_: seen.seen.append("alive"))
    found._scene.schedule.run_until(20.0)
    assert len(seen.seen) == before


SPARSE = Swarm(queries=1, from_latest=0, batch_s=0.5, trigger_s=0.05, log_every_s=5.0, starts_s=0.0)
"""With asynchronous progress tracking: most batches have no entry in Spark's logs."""


def wait_and_write(found: World, seconds: int) -> None:
    """Let time pass in which records are written."""
    for _ in range(seconds * 2):
        for log in found.scene.storage.logs.values():
            log.append(2, found.scene.now)
        wait(found, 0.5)


def test_a_batch_without_an_entry_in_the_log_never_runs_again() -> None:
    found, seen = started(SPARSE, facts.Finished)
    wait_and_write(found, 4)
    finished = [fact.plan for fact in seen.seen if isinstance(fact, facts.Finished)]
    query, coordination = found.queries[0], found.scene.coordination
    committed = {key: coordination.committed(key) or 0 for key in found.scene.storage.logs}
    query.kill(1.0, forget=False)
    wait(found, 1.001)
    # The first batch of a run always has an entry; later ones have none for five seconds.
    assert len(finished) > 2
    assert query.plan == finished[0]
    wait_and_write(found, 4)
    again = [fact.plan for fact in seen.seen if isinstance(fact, facts.Finished)][len(finished) :]
    assert again
    assert all(each.member_id == "q1.2.1" for each in again)
    assert all((coordination.committed(key) or 0) >= each for key, each in committed.items())


def test_the_last_entry_of_the_log_runs_again_if_the_commit_log_lacks_it() -> None:
    found, seen = started(SPARSE, facts.Read)
    wait_and_write(found, 4)
    query = found.queries[0]
    query.kill(1.0, forget=False)
    query._logs._commits.clear()
    first, *_ = reads = [fact.plan for fact in seen.seen if isinstance(fact, facts.Read)]
    wait(found, 1.05)
    again = [fact.plan for fact in seen.seen if isinstance(fact, facts.Read)][len(reads) :]
    assert again == [first]


def test_a_query_that_starts_from_a_copied_checkpoint_removes_the_member_of_the_original() -> None:
    found, seen = started(replace(ONE, queries=2), facts.Finished)
    found.queries[1].start()
    while not seen.seen:
        wait(found, 0.1)
    found.queries[1].kill(0.1, forget=False)
    original = found.queries[0].member
    assert original is not None
    removed_id = original.member_id
    found.queries[1].restore(found.queries[0])
    assert found.scene.late.copied_member_ids == {removed_id}
    assert removed_id in found.scene.coordination.member_ids
    while removed_id in found.scene.coordination.member_ids and found.scene.now < 30.0:
        wait(found, 0.1)
    assert removed_id not in found.scene.coordination.member_ids
