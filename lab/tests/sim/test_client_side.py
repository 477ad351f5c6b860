"""Members compute the target of their group: Prepare and Install, and the failures of both."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from group_lab.assignors.partition_assignor import (
    DIFFERENT_TOPOLOGIES,
    NO_ERROR,
    MemberAssignment,
    TopologyAssignor,
)
from group_lab.commands.simulation import Run, play
from group_lab.sim import facts
from group_lab.sim.client_side import ComputingNetwork
from group_lab.sim.swarm import Swarm, drawn
from group_lab.sim.world import World
from lab.tests.sim.scenes import Facts, world
from spark_groups.errors import ErrorCode

KIP = "kip-848"
TWO = Swarm(queries=0, consumers=2, partitions=4, from_latest=0, computing=1, rebalance_s=10.0)
"""Without queries: plain consumers release partitions at once."""


def computing(swarm: Swarm, *, slow: bool = False, redeployed: bool = False) -> tuple[World, Facts]:
    seen = Facts(facts.Computed)
    found = world(swarm, KIP, 1, seen)
    network = found.scene.network
    assert isinstance(network, ComputingNetwork)
    network.slow_share = 1.0 if slow else 0.0
    network.is_redeployed = redeployed
    return found, seen


def results(seen: Facts) -> list[tuple[int, int, int]]:
    return [
        (each.group_epoch, each.error, each.error_code)
        for each in seen.seen
        if isinstance(each, facts.Computed)
    ]


def loads(found: World) -> list[int]:
    members = found.scene.coordination.group.members.values()
    return sorted(len(each.assigned) for each in members)


def test_a_member_computes_the_target_of_each_epoch() -> None:
    found, seen = computing(TWO)
    found.consumers[0].start()
    found.scene.schedule.run_until(8.0)
    assert loads(found) == [4]
    found.consumers[1].start()
    found.scene.schedule.run_until(20.0)
    assert loads(found) == [2, 2]
    assert results(seen) == [(1, NO_ERROR, 0), (2, NO_ERROR, 0)]
    assert found.scene.coordination.group.assignment_epoch == 2


def test_the_assignor_gets_the_whole_target_once_in_each_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[tuple[int, int]] = []

    def on_assignment(
        _: TopologyAssignor, _error: int, assignment: MemberAssignment, member_epoch: int
    ) -> None:
        given.append((member_epoch, len(assignment.target)))

    monkeypatch.setattr(TopologyAssignor, "on_assignment", on_assignment)
    found, _ = computing(TWO)
    found.consumers[0].start()
    found.scene.schedule.run_until(8.0)
    found.consumers[1].start()
    found.scene.schedule.run_until(20.0)
    assert loads(found) == [2, 2]
    # The second member has no target of epoch 1. In epoch 2 it is given two partitions that are not
    # released yet.
    assert given == [(1, 4), (1, 0), (2, 2), (2, 2)]


def test_queries_compute_as_well() -> None:
    found, seen = computing(Swarm(queries=2, partitions=4, computing=1))
    for each in found.queries:
        each.start()
    found.scene.schedule.run_until(30.0)
    assert loads(found) == [2, 2]
    assert results(seen)[-1] == (found.scene.coordination.group.group_epoch, NO_ERROR, 0)


def test_another_member_is_chosen_after_a_timeout_and_the_late_result_is_refused() -> None:
    found, seen = computing(TWO, slow=True)
    network = found.scene.network
    assert isinstance(network, ComputingNetwork)
    for each in found.consumers:
        each.start()
    found.scene.schedule.run_until(8.0)
    assert loads(found) == [0, 0]
    network.slow_share = 0.0
    found.scene.schedule.run_until(40.0)
    assert loads(found) == [2, 2]
    who = [each.who for each in seen.seen if isinstance(each, facts.Computed)]
    codes = [code for _, _, code in results(seen)]
    assert len(set(who)) == 2
    assert codes.count(ErrorCode.UNKNOWN_MEMBER_ID) == 1


def test_members_with_different_topologies_keep_their_targets_until_all_have_the_new_one() -> None:
    found, seen = computing(TWO, redeployed=True)
    for each in found.consumers:
        each.start()
    found.scene.schedule.run_until(TWO.chaos_s + 20.0)
    assert {code for _, _, code in results(seen)} == {0}
    errors = [error for _, error, _ in results(seen)]
    assert DIFFERENT_TOPOLOGIES in errors
    assert errors[-1] == NO_ERROR
    network = found.scene.network
    assert isinstance(network, ComputingNetwork)
    for each in network.applications.values():
        assert DIFFERENT_TOPOLOGIES in each.assignor.errors
        assert each.assignor.errors[-1] == NO_ERROR
    assert loads(found) == [2, 2]


def test_new_metadata_with_a_reason_triggers_a_computation() -> None:
    found, seen = computing(Swarm(queries=0, consumers=1, computing=1), redeployed=True)
    found.consumers[0].start()
    found.scene.schedule.run_until(80.0)
    # The join, the new version and the new topology.
    assert [error for _, error, _ in results(seen)] == [NO_ERROR] * 3
    (member,) = found.scene.coordination.group.members.values()
    (assignor,) = member.client_assignors
    assert (assignor.maximum_version, assignor.metadata) == (1, b"2")
    assert assignor.reason


def test_kafka_has_no_client_side_assignors() -> None:
    assert not isinstance(world(TWO, "kafka-4.3").scene.network, ComputingNetwork)


def test_some_drawn_runs_compute() -> None:
    seeds = [seed for seed in range(40) if drawn(Random(seed)).computing]
    assert 2 < len(seeds) < 20


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_a_run_with_faults_keeps_its_promises(seed: int) -> None:
    swarm = Swarm(
        queries=2,
        consumers=1,
        computing=1,
        loss=0.1,
        duplicates=0.1,
        moves=2,
        coordinator_crashes=2,
        crashes=2,
        growth=1,
    )
    seen = Facts(facts.Computed)
    broken = play(Run(seed, KIP, swarm), [seen])
    assert broken is None, broken
    assert seen.seen


def test_a_late_heartbeat_does_not_shorten_a_revocation_that_has_begun() -> None:
    """The seed of a hunt: the coordinator waits as long as the member said when it began."""
    assert play(Run(2296, KIP, replace(drawn(Random(2296)), computing=1))) is None
