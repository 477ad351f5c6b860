"""Plain consumers: they read what they are given, commit when they please, give up at once."""

from __future__ import annotations

from group_lab.commands.simulation import Run, play
from group_lab.sim import facts
from group_lab.sim.swarm import Swarm
from lab.tests.sim.scenes import Facts, world

BOTH = Swarm(queries=1, consumers=1, partitions=4, from_latest=0, starts_s=0.0)


def test_a_plain_consumer_reads_and_commits_from_the_beginning_on() -> None:
    seen = Facts(facts.Consumed, facts.Committed)
    found = world(BOTH, "kafka-4.3", 1, seen)
    found.consumers[0].start()
    found.scene.schedule.run_until(30.0)
    consumed = [fact for fact in seen.seen if isinstance(fact, facts.Consumed)]
    begins = {begin for fact in consumed for begin, _ in fact.ranges.values()}
    assert 0 in begins
    assert found.consumers[0].restless() == ""
    found.scene.network.is_faulty = False
    found.scene.schedule.run_until(32.0)
    for key, log in found.scene.storage.logs.items():
        assert found.scene.coordination.committed(key) == log.end_offset


def test_it_shares_the_group_with_a_query_and_gives_up_at_once() -> None:
    found = world(BOTH)
    found.consumers[0].start()
    found.scene.schedule.run_until(10.0)
    assert len(found.consumers[0].member.assigned) == 4
    found.queries[0].start()
    found.scene.schedule.run_until(15.0)
    assert len(found.consumers[0].member.owned) == 2
    member = found.queries[0].member
    assert member is not None
    assert len(member.assigned) == 2


def test_it_looks_for_the_coordinator_when_that_has_moved() -> None:
    found = world(BOTH)
    found.consumers[0].start()
    found.scene.schedule.run_until(10.0)
    found.scene.coordination.move(0.1, crash=True)
    found.scene.schedule.run_until(25.0)
    assert found.consumers[0].restless() == ""
    assert len(found.scene.coordination.group.members) == 1


def test_it_is_not_settled_before_it_is_a_member() -> None:
    assert world(BOTH).consumers[0].restless() == "c1 is not settled (UNSUBSCRIBED)"


def test_its_commit_that_arrives_after_it_released_the_partition_breaks_no_promise() -> None:
    # Kafka 4.2 accepts it: the member has not learned of its next epoch.
    assert play(Run(7_100_373, "kafka-4.2")) is None
