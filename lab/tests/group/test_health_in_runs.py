"""Health over whole simulated runs: negative well before something happens, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from group_lab.sim import facts
from group_lab.sim.swarm import Swarm
from lab.tests.sim.scenes import Facts, world
from spark_groups.group.ledger.events import PartitionsGivenUp
from spark_groups.group.member.events import Event, PartitionsLost
from spark_groups.group.snapshot import MemberSnapshot, take_snapshot
from spark_groups.monitoring.health import SHARE, Condition, Health, assess

EVERY_S = 0.5


@dataclass(frozen=True)
class Probe:
    """How it stood with one run of a query at one instant.

    Args:
        who: The run.
        at: Seconds of its clock.
        health: What a probe would have been answered.
        view: Why.
    """

    who: str
    at: float
    health: Health
    view: MemberSnapshot


def probed(swarm: Swarm, seed: int) -> tuple[list[Probe], list[tuple[str, Event]]]:
    """Play a run whose queries are probed all the while; return that, and what happened."""
    happened = Facts(facts.Happened)
    run = world(swarm, "kafka-4.3", seed, happened)
    probes: list[Probe] = []

    def probe() -> None:
        for query in run.queries:
            current = query.current
            if current is not None:
                view = take_snapshot(current.client, current.now)
                probes.append(Probe(current.name, current.now, assess(view), view))
        run.scene.schedule.after(EVERY_S, probe)

    run.scene.schedule.after(EVERY_S, probe)
    run.run()
    said = [each for each in happened.seen if isinstance(each, facts.Happened)]
    return probes, [(each.who, each.event) for each in said]


def before(probes: list[Probe], who: str, at: float) -> Iterator[Probe]:
    """The probes of a run before an instant, the latest first."""
    return (each for each in reversed(probes) if each.who == who and each.at < at)


def test_calm_group_is_always_well() -> None:
    # The last of three members gets none of two partitions.
    probes, _ = probed(Swarm(queries=3, partitions=2, starts_s=20.0), seed=1)
    conditions = {each.health.condition for each in probes}
    assert conditions - {Condition.OUTSIDE} == {Condition.READING, Condition.STANDBY}


def test_member_is_stuck_for_long_before_it_gives_partitions_up() -> None:
    given_up = 0
    for seed in range(5):
        swarm = Swarm(queries=3, starts_s=15.0, batch_s=40.0, rebalance_s=12.0)
        probes, happened = probed(swarm, seed)
        for who, event in happened:
            if not isinstance(event, PartitionsGivenUp):
                continue
            given_up += 1
            last = next(before(probes, who, event.at))
            timeout_s = last.view.revocation_timeout_s
            requested_at = last.at - last.view.revocation_age_s
            late = [
                each
                for each in before(probes, who, event.at)
                if each.at >= requested_at + SHARE * timeout_s
            ]
            assert {each.health.condition for each in late} == {Condition.STUCK}
            assert late[-1].at <= event.at - 0.3 * timeout_s
    assert given_up > 0


def test_member_is_not_ready_for_long_before_it_is_removed_for_its_silence() -> None:
    removed = 0
    for seed in range(12):
        probes, happened = probed(Swarm(queries=2, partitionings=4), seed)
        for who, event in happened:
            if not isinstance(event, PartitionsLost):
                continue
            removed += 1
            cut_off = [
                each
                for each in before(probes, who, event.at)
                if each.health.condition is Condition.CUT_OFF
                and each.view.member_id == event.member_id
                and each.view.last_heartbeat_age_s <= 0.6 * each.view.proven_for_s
            ]
            assert cut_off
            assert all(each.health.is_live for each in cut_off)
    assert removed > 0
