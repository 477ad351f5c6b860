"""From a run that fails to a smaller one that fails alike."""

from __future__ import annotations

from spark_groups.lab.sim.shrink import shrunk
from spark_groups.lab.sim.swarm import Deploy, Swarm

LARGE = Swarm(
    queries=4, partitions=6, crashes=5, loss=0.3, pauses=4, deploy=Deploy.ROLLING, batch_s=20.0
)


def test_what_is_not_needed_goes_and_what_is_needed_stays() -> None:
    def fails(swarm: Swarm) -> Swarm | None:
        return swarm if swarm.crashes >= 2 and swarm.partitions >= 3 and swarm.loss > 0.1 else None

    found = shrunk(LARGE, fails)
    assert found is not None
    assert (found.queries, found.partitions, found.crashes, found.pauses) == (1, 3, 2, 0)
    assert 0.1 < found.loss < 0.2
    assert (found.deploy, found.batch_s, found.chaos_s) == (Deploy.NONE, 1.0, 10.0)
    assert (found.session_s, found.rebalance_s) == (LARGE.session_s, LARGE.rebalance_s)


def test_what_does_not_fail_is_not_shrunk() -> None:
    assert shrunk(LARGE, lambda _: None) is None


def test_the_smallest_stays_as_it_is() -> None:
    smallest = shrunk(LARGE, lambda swarm: swarm)
    assert smallest is not None
    assert shrunk(smallest, lambda swarm: swarm) == smallest
