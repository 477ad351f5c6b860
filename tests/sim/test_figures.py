"""What a run costs, counted."""

from __future__ import annotations

from spark_groups.sim.figures import FigureCounter, Figures, mean
from spark_groups.sim.scene import Listeners, Scene
from spark_groups.sim.swarm import Deploy, Swarm
from tests.sim.scenes import world


def counted(swarm: Swarm) -> Figures:
    counters = []

    def listen(scene: Scene) -> Listeners:
        counters.append(FigureCounter(scene))
        return counters[0].listeners()

    world(swarm, "kafka-4.3", 2, listen).run()
    return counters[0].figures


def test_one_query_alone_moves_nothing_and_repeats_nothing() -> None:
    figures = counted(Swarm(queries=1, from_latest=0, chaos_s=40.0))
    assert (figures.partitions_moved, figures.pauses, figures.duplicates) == (0, 0, 0)
    assert figures.records > 100
    assert figures.batches > 5


def test_a_rolling_deployment_moves_partitions_and_a_crash_repeats_records() -> None:
    rolling = counted(Swarm(queries=3, deploy=Deploy.ROLLING, chaos_s=60.0))
    assert rolling.partitions_moved > 4
    assert 0 < rolling.longest_unstable_s <= rolling.unstable_s
    assert rolling.duplicates == 0
    crashes = counted(
        Swarm(queries=3, partitions=8, batch_s=5.0, crashes=8, forgetting=1.0, rate=30.0, pauses=4)
    )
    assert crashes.duplicates > 0
    assert crashes.pauses > 0
    assert crashes.longest_pause_s > 5.0
    assert 0 < crashes.records_delayed < crashes.records


def test_several_runs_are_their_mean_and_their_longest_times() -> None:
    runs = [
        Figures(unstable_s=2.0, longest_unstable_s=1.0, batches=3),
        Figures(unstable_s=4.0, longest_unstable_s=4.0, batches=4),
    ]
    assert mean(runs) == Figures(unstable_s=3.0, longest_unstable_s=4.0, batches=4)
