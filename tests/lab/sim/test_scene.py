"""Facts are told to those who listen for their kind, in the order in which they came."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from tests.lab.sim.scenes import scene


def test_facts_reach_those_who_listen_for_them() -> None:
    found, seen = scene(), []
    found.listen([{facts.Forgotten: lambda fact: seen.append((1, fact.who))}])
    found.listen([{facts.Forgotten: lambda fact: seen.append((2, fact.who))}, {}])
    found.tell(facts.Forgotten("q1"))
    found.tell(facts.Incident("grows", ""))
    assert seen == [(1, "q1"), (2, "q1")]


def test_faults_are_over_when_the_network_says_so() -> None:
    found = scene()
    assert found.is_faulty
    found.network.is_faulty = False
    assert not found.is_faulty
    assert found.now == 0.0
