"""A schedule is drawn from a seed, and from nothing else."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from workshop.chaos.faults.schedule import (
    AT_POINTS,
    BROKER_FAULTS,
    FAULTS,
    FURTHER_BROKER_FAULTS,
    FURTHER_BROKER_GAP_S,
    PLAIN_POINTS,
    SPARE_PAGES,
    BrokerFault,
    BrokerFaultKind,
    Fault,
    FaultClass,
    FaultKind,
    MachineFault,
    MachineFaultKind,
    ResetFaultKind,
    draw_broker_faults,
    draw_faults,
    draw_machine_faults,
    draw_queries,
    draw_standstills,
    due_times_s,
    with_a_clock,
    with_losses,
)

QUERIES = ("q1", "q2", "q3")


def drawn(seed: int, duration_s: float = 720.0) -> tuple[Fault, ...]:
    return draw_faults(
        random.Random(seed),
        duration_s=duration_s,
        session_s=10.0,
        queries=QUERIES,
        plain_consumers=("c1",),
        topics=("ants", "bees"),
    )


def test_same_seed_draws_the_same_faults_and_queries() -> None:
    assert drawn(7) == drawn(7) != drawn(8)
    first, again = (draw_queries(random.Random(7), 5, fast=True) for _ in range(2))
    assert first == again


def test_faults_are_in_order_and_within_the_time() -> None:
    faults = drawn(7)
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert 0 < faults[0].at_s < faults[-1].at_s < 720.0
    assert drawn(7, duration_s=0.0) == ()


def test_every_kind_and_every_point_is_drawn_for_whom_it_is_meant() -> None:
    faults = [fault for seed in range(10) for fault in drawn(seed)]
    assert Counter(each.kind for each in faults).keys() == set(FaultKind) == set(FAULTS)
    for fault in faults:
        assert (fault.target in ("ants", "bees")) == (fault.kind is FaultKind.GROW)
        assert (fault.point is not None) == (fault.kind in AT_POINTS)
        assert (fault.partitions > 0) == (fault.kind is FaultKind.GROW)
        if fault.target == "c1":
            assert fault.kind is not FaultKind.SLOW_BATCH
            assert fault.point is None or fault.point in PLAIN_POINTS


def test_who_stands_still_does_so_beyond_the_session_or_within() -> None:
    for fault in drawn(7):
        if fault.kind in (FaultKind.FREEZE, FaultKind.FREEZE_AT_POINT):
            assert fault.takes_s > 10.0
        if fault.kind is FaultKind.PAUSE:
            assert fault.takes_s < 10.0


@pytest.mark.parametrize("seed", range(20))
def test_short_run_has_a_fault_of_each_kind_that_is_drawn_apart(seed: int) -> None:
    for gap_s in (3.0, FURTHER_BROKER_GAP_S):
        assert list(due_times_s(random.Random(seed), 2.0, gap_s))


def test_one_query_has_a_clock_that_can_jump_if_that_is_possible() -> None:
    slow = draw_queries(random.Random(7), 3, fast=False)
    assert with_a_clock(slow, fast=False) == slow
    first, *others = with_a_clock(slow, fast=True)
    assert (first.reader, first.name, tuple(others)) == ("fast", "q1", slow[1:])
    assert with_a_clock((first, *others), fast=True) == (first, *others)


def drawn_of_brokers(seed: int) -> tuple[BrokerFault, ...]:
    return draw_broker_faults(random.Random(seed), duration_s=720.0, nodes=(1, 2, 3), session_s=4.0)


def test_same_seed_draws_the_same_faults_of_brokers_in_order() -> None:
    faults = drawn_of_brokers(7)
    assert faults == drawn_of_brokers(7) != drawn_of_brokers(8)
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert 0 < faults[0].at_s < faults[-1].at_s < 720.0


def test_every_kind_is_drawn_for_every_broker_and_for_the_coordinator() -> None:
    faults = [fault for seed in range(10) for fault in drawn_of_brokers(seed)]
    assert {each.kind for each in faults} == set(BROKER_FAULTS)
    apart = {kind for kind, _ in FURTHER_BROKER_FAULTS.values()}
    assert {*BROKER_FAULTS, *apart} == set(BrokerFaultKind)
    assert {each.node for each in faults} == {None, 1, 2, 3}
    for each in faults:
        if each.kind is BrokerFaultKind.FREEZE:
            assert each.takes_s > 4.0
        if each.kind is BrokerFaultKind.PAUSE:
            assert each.takes_s < 4.0


@pytest.mark.parametrize("part", FURTHER_BROKER_FAULTS)
def test_class_adds_faults_of_all_brokers(part: FaultClass) -> None:
    kind, rule = FURTHER_BROKER_FAULTS[part]
    faults = draw_broker_faults(
        random.Random(7),
        duration_s=720.0,
        nodes=(1, 2, 3),
        session_s=4.0,
        rules={kind: rule},
        gap_s=FURTHER_BROKER_GAP_S,
    )
    assert {fault.kind for fault in faults} == {kind}
    assert {fault.node for fault in faults} == {None, 1, 2, 3}
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    low_s, high_s = rule.takes_s
    assert low_s <= min(fault.takes_s for fault in faults)
    assert max(fault.takes_s for fault in faults) <= high_s


def drawn_of_machine(seed: int, *parts: FaultClass) -> tuple[MachineFault, ...]:
    chances = {part: random.Random(f"{seed}-{part.value}") for part in parts}
    return draw_machine_faults(chances, duration_s=720.0, queries=QUERIES, clocks=("q2", "q3"))


def test_faults_of_one_part_of_the_machine_are_the_same_beside_another() -> None:
    disks, clocks = drawn_of_machine(7, FaultClass.DISK), drawn_of_machine(7, FaultClass.CLOCK)
    both = drawn_of_machine(7, *FaultClass)
    assert drawn_of_machine(7) == ()
    assert sorted((*disks, *clocks), key=lambda each: each.at_s) == list(both)
    assert both != drawn_of_machine(8, *FaultClass)
    assert 0 < both[0].at_s < both[-1].at_s < 720.0


def test_every_fault_of_the_machine_is_drawn_for_whom_it_is_meant() -> None:
    faults = [each for seed in range(10) for each in drawn_of_machine(seed, *FaultClass)]
    assert {fault.kind for fault in faults} == set(MachineFaultKind)
    assert {fault.spare_bytes for fault in faults} == {
        4096 * spare_page for spare_page in SPARE_PAGES
    }
    jumps_s = [fault.ahead_s for fault in faults if fault.kind is MachineFaultKind.JUMP]
    assert min(jumps_s) < -3_600
    assert max(jumps_s) > 3_600
    assert any(1.0 <= abs(each) <= 120.0 for each in jumps_s)
    for fault in faults:
        is_jump = fault.kind is MachineFaultKind.JUMP
        assert fault.target in (("q2", "q3") if is_jump else QUERIES)
    chances = {FaultClass.CLOCK: random.Random(7)}
    assert draw_machine_faults(chances, duration_s=720.0, queries=QUERIES, clocks=()) == ()


def test_queries_differ_in_what_matters() -> None:
    queries = draw_queries(random.Random(7), 8, fast=True)
    assert {query.starting_offsets for query in queries} == {"earliest", "latest"}
    instance_ids = [query.instance_id for query in queries if query.instance_id is not None]
    assert len(instance_ids) == len(set(instance_ids)) == 2
    assert {each.reader for each in draw_queries(random.Random(7), 8, fast=False)} == {"librdkafka"}


def test_query_says_what_it_is() -> None:
    named = [str(each) for each in draw_queries(random.Random(7), 3, fast=True)]
    assert named[0].startswith("q1: startingOffsets=earliest, reader=")
    assert "static: " in named[2]


def test_each_kind_is_done_between_runs_checkpoints_before_offsets() -> None:
    found, again, other = (
        draw_standstills(random.Random(seed), duration_s=180.0) for seed in (7, 7, 8)
    )
    assert found == again != other
    drawn = {kind for each in found for kind in each.kinds}
    assert drawn == set(ResetFaultKind) - {ResetFaultKind.REMEDY}
    order = list(ResetFaultKind)
    assert all(list(each.kinds) == sorted(each.kinds, key=order.index) for each in found)
    assert draw_standstills(random.Random(7), duration_s=5.0), "however short a run is"


def test_queries_of_each_starting_offset_fail_and_continue_where_offsets_are_gone() -> None:
    queries = with_losses(draw_queries(random.Random(7), 4, fast=True))
    found = {(query.starting_offsets, query.fails_on_loss) for query in queries}
    assert len(found) == 4
    assert [query.name for query in queries if "failOnDataLoss=false" in str(query)] == ["q1", "q4"]
