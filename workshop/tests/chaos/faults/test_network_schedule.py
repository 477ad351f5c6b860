"""Faults of the network are drawn from a seed, apart from all others."""

from __future__ import annotations

import random

from workshop.chaos.faults.link import Passage
from workshop.chaos.faults.network_schedule import (
    ELSEWHERE,
    NETWORK_FAULTS,
    NetworkFault,
    NetworkFaultKind,
    Side,
    draw_network_faults,
    draw_sides,
)

SESSION_S = 10.0


def drawn(seed: int) -> tuple[NetworkFault, ...]:
    return draw_network_faults(
        random.Random(seed), duration_s=720.0, nodes=(1, 2, 3), session_s=SESSION_S
    )


def test_same_seed_draws_the_same_faults_in_order() -> None:
    faults = drawn(7)
    assert faults == drawn(7) != drawn(8)
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert 0 < faults[0].at_s < faults[-1].at_s < 720.0


def test_every_kind_is_drawn_on_both_sides_for_one_broker_and_for_all() -> None:
    faults = [fault for seed in range(10) for fault in drawn(seed)]
    assert {each.kind for each in faults} == set(NETWORK_FAULTS)
    assert {*NETWORK_FAULTS, *ELSEWHERE} == set(NetworkFaultKind)
    assert {each.side for each in faults} == set(Side)
    assert {each.nodes for each in faults} == {(1,), (2,), (3,), (1, 2, 3)}


def test_every_kind_lasts_shorter_and_longer_than_a_session() -> None:
    faults = [fault for seed in range(10) for fault in drawn(seed)]
    for kind in NETWORK_FAULTS:
        lasting_s = [each.takes_s for each in faults if each.kind is kind]
        assert min(lasting_s) < SESSION_S < max(lasting_s), kind


def test_only_a_slow_network_has_a_slowness() -> None:
    for each in drawn(7):
        is_slow, is_late = (each.kind is NetworkFaultKind[name] for name in ("SLOW", "LATE"))
        assert (each.condition.slowness is not None) == (is_slow or is_late)
        assert (each.condition.to_broker is Passage.SLOW) == is_slow


def test_late_answers_take_half_a_second_to_eight() -> None:
    late = [f for seed in range(10) for f in drawn(seed) if f.kind is NetworkFaultKind.LATE]
    waits_s = [f.condition.slowness.latency_s for f in late if f.condition.slowness is not None]
    assert len(waits_s) == len(late)
    assert 0.5 <= min(waits_s) < 2
    assert 7 < max(waits_s) <= 8
    assert {f.condition.to_broker for f in late} == {Passage.OPEN}


def test_members_are_on_both_sides() -> None:
    members = [f"q{number}" for number in range(1, 7)]
    sides = draw_sides(random.Random(7), members)
    assert list(sides) == members
    for side in Side:
        assert sum(each is side for each in sides.values()) == 3
    first = {draw_sides(random.Random(seed), members)["q1"] for seed in range(20)}
    assert first == set(Side)
