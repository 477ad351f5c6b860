"""A client is driven by answers and wake-ups; it may stand still, or be gone."""

from __future__ import annotations

import pytest

from spark_groups.client.client_config import ClientConfig
from spark_groups.client.group_client import GroupClient
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.queries import HELD_S, Incarnation
from spark_groups.lab.sim.schedule import Clock
from spark_groups.lab.sim.swarm import Swarm
from spark_groups.offsets.events import RevocationHeld
from spark_groups.offsets.starting import StartingOffsets
from spark_groups.protocol.events import PartitionsRevoked
from spark_groups.protocol.member_config import MemberConfig
from spark_groups.protocol.subscription import Subscription
from tests.lab.sim.scenes import Facts, world

SKEWED = Clock(1_000.0, 1.01)


def incarnation() -> tuple[Incarnation, Facts]:
    seen = Facts(facts.Sent, facts.Happened)
    scene = world(None, "kafka-4.3", 1, seen).scene
    config = ClientConfig(
        member=MemberConfig(group_id="g", subscription=Subscription.of_names("orders1")),
        starting_offsets=StartingOffsets(),
    )
    ids = iter(["m1", "m2"])
    client = GroupClient(config, new_member_id=lambda: next(ids))
    found = Incarnation(scene, "q1.1", client, SKEWED)
    client.start(found.now)
    found.pump()
    return found, seen


def test_answers_and_wake_ups_make_it_a_member_that_heartbeats() -> None:
    found, seen = incarnation()
    found._scene.schedule.run_until(30.0)
    sent = [fact for fact in seen.seen if isinstance(fact, facts.Sent)]
    beats = [fact for fact in sent if fact.outgoing.channel.name == "HEARTBEAT"]
    assert found.client.member_epoch > 0
    assert 14 <= len(beats) <= 40, "every two seconds, faster at the beginning"
    told = [fact.event.at for fact in seen.seen if isinstance(fact, facts.Happened)]
    assert min(told) > SKEWED.offset_s, "it goes by its own clock"


def test_it_notices_nothing_while_it_stands_still_and_goes_on_afterwards() -> None:
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
