"""What a run is made of: drawn from its seed, written and read, and made smaller."""

from __future__ import annotations

from dataclasses import fields
from random import Random

import pytest

from group_lab.sim.swarm import (
    CALM,
    FAULTS,
    Deploy,
    Faults,
    GroupProtocol,
    Swarm,
    drawn,
    shrunk,
    with_faults,
)


def test_one_seed_is_one_swarm_and_every_part_is_drawn_somewhere() -> None:
    swarms = [drawn(Random(seed)) for seed in range(300)]
    assert swarms == [drawn(Random(seed)) for seed in range(300)]
    fixed = {
        "heartbeat_s",
        "starts_s",
        "first_delay_s",
        "moves_max",
        "move_interval_s",
        "initial_delay_s",
        "deploy_every_s",
        "restart_s",
        "assignor",
        "planned",
    }
    classic = {"classic", "classic_protocol", "rebalance_delay_s", "migrations"}
    for each in fields(Swarm):
        values = {getattr(swarm, each.name) for swarm in swarms}
        assert (len(values) == 1) == (each.name in fixed | classic), each.name


def test_classic_members_are_drawn_last_so_that_seeds_keep_their_groups() -> None:
    for seed in range(100):
        alone, chance = drawn(Random(seed)), Random(seed)
        mixed = drawn(chance, tuple(GroupProtocol))
        assert mixed.classic
        assert (mixed.partitions, mixed.session_s) == (alone.partitions, alone.session_s)
        eager = drawn(Random(seed), (GroupProtocol.CLASSIC_EAGER,))
        assert eager.classic_protocol is GroupProtocol.CLASSIC_EAGER
    swarms = [drawn(Random(seed), tuple(GroupProtocol)) for seed in range(100)]
    drawn_parts = ("classic", "classic_protocol", "rebalance_delay_s", "migrations")
    for name in (*drawn_parts, "queries", "consumers"):
        assert len({getattr(swarm, name) for swarm in swarms}) > 1, name


def test_about_a_quarter_has_no_faults() -> None:
    calm = sum(
        not any(value for name, value in drawn(Random(seed)).faults.items() if name != "moves")
        for seed in range(400)
    )
    assert 60 < calm < 160


def test_every_fault_makes_a_swarm_rough() -> None:
    assert CALM.is_calm
    for name in FAULTS:
        assert not Swarm.parse(f"{name}=1").is_calm, name


@pytest.mark.parametrize("seed", range(20))
def test_text_is_read_back(seed: int) -> None:
    swarm = drawn(Random(seed))
    assert Swarm.parse(swarm.text) == swarm
    assert Swarm.parse("") == CALM
    assert Swarm.parse("deploy=rolling,loss=0.1") == Swarm(deploy=Deploy.ROLLING, loss=0.1)


@pytest.mark.parametrize("text", ["lost=1", "loss=much", "deploy=never", "queries=1.5"])
def test_what_a_swarm_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"lost|much|never|1\.5"):
        Swarm.parse(text)


def test_faults_to_plan_with_grow() -> None:
    measures = [sum(with_faults(CALM, each).faults.values()) for each in Faults]
    assert measures[0] == 0 < measures[1] < measures[2]


LARGE = Swarm(
    queries=4, partitions=6, crashes=5, loss=0.3, pauses=4, deploy=Deploy.ROLLING, batch_s=20.0
)


def test_shrinking_keeps_only_the_values_that_the_failure_needs() -> None:
    def fails(swarm: Swarm) -> Swarm | None:
        return swarm if swarm.crashes >= 2 and swarm.partitions >= 3 and swarm.loss > 0.1 else None

    found = shrunk(LARGE, fails)
    assert found is not None
    assert (found.queries, found.partitions, found.crashes, found.pauses) == (1, 3, 2, 0)
    assert 0.1 < found.loss < 0.2
    assert (found.deploy, found.batch_s, found.chaos_s) == (Deploy.NONE, 1.0, 10.0)
    assert (found.session_s, found.rebalance_s) == (LARGE.session_s, LARGE.rebalance_s)


def test_a_group_keeps_a_member_of_some_protocol_when_it_is_shrunk() -> None:
    swarm = Swarm(queries=2, classic=2, classic_protocol=GroupProtocol.CLASSIC_COOPERATIVE)
    classic = shrunk(swarm, lambda each: each if each.classic else None)
    assert classic is not None
    assert (classic.queries, classic.classic) == (0, 1)
    assert classic.classic_protocol is GroupProtocol.CLASSIC_EAGER
    queries = shrunk(swarm, lambda each: each if each.queries else None)
    assert queries is not None
    assert (queries.queries, queries.classic) == (1, 0)


def test_what_does_not_fail_is_not_shrunk() -> None:
    assert shrunk(LARGE, lambda _: None) is None


def test_the_smallest_stays_as_it_is() -> None:
    smallest = shrunk(LARGE, lambda swarm: swarm)
    assert smallest is not None
    assert shrunk(smallest, lambda swarm: swarm) == smallest
