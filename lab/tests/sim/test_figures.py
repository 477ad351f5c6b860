"""What a deployment costs, counted: by hand, and in runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_lab.sim import facts
from group_lab.sim.figures import FigureCounter, Figures, Moves, Reading, Usual, mean, quantile
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import Assignor, Deploy, Swarm
from lab.tests.sim.scenes import world

PLANNED = Swarm(
    queries=4,
    partitions=12,
    batch_s=5.0,
    trigger_s=1.0,
    rate=10.0,
    heartbeat_s=5.0,
    session_s=45.0,
    rebalance_s=300.0,
    listener=1,
    planned=1,
    restart_s=15.0,
)


def counted(swarm: Swarm) -> Figures:
    counters = []

    def listen(scene: Scene) -> Listeners:
        counters.append(FigureCounter(scene))
        return counters[0].listeners()

    world(swarm, "kafka-4.3", 2, listen).run()
    return counters[0].figures


# Who waits for records.


def every_second(from_record: int, until_record: int) -> list[tuple[int, float]]:
    """Return records of which one was written in each second."""
    return [(each, float(each)) for each in range(from_record, until_record)]


def test_a_partition_is_not_read_from_the_end_of_a_batch_until_the_next_begins() -> None:
    reading: Reading[str] = Reading(10.0, Usual(2.0, 30.0))
    reading.finished(11.0, 13.0, {"a": every_second(0, 11), "b": every_second(0, 11)})
    reading.finished(14.0, 16.0, {"a": every_second(11, 14)})
    reading.finished(20.0, 21.0, {"a": every_second(14, 20), "b": every_second(11, 20)})
    assert reading.pauses == {"a": [4.0], "b": [7.0]}
    figures = reading.figures()
    assert (figures["pauses"], figures["not_read_s"], figures["longest_not_read_s"]) == (2, 11, 7)


def test_without_rows_to_read_no_member_waits() -> None:
    reading: Reading[str] = Reading(0.0, Usual(2.0, 30.0))
    reading.finished(1.0, 2.0, {"a": every_second(0, 1)})
    reading.finished(40.0, 41.0, {"a": [(1, 39.5)]})
    reading.finished(60.0, 61.0, {"a": []})
    reading.finished(80.0, 81.0, {"a": [(2, 70.0)]})
    assert reading.pauses == {"a": [10.0]}


def test_records_before_and_after_the_measured_time_do_not_count() -> None:
    reading: Reading[str] = Reading(20.0, Usual(2.0, 5.0), 40.0)
    reading.finished(1.0, 2.0, {"a": every_second(0, 1)})
    reading.finished(25.0, 26.0, {"a": every_second(1, 25)})
    reading.finished(50.0, 51.0, {"a": every_second(25, 50)})
    assert reading.pauses == {"a": [5.0, 14.0]}
    figures = reading.figures()
    assert figures["records"] == 20
    assert figures["delay_max_s"] == 26.0
    assert figures["batches"] == 1


def test_delays_are_counted_to_the_end_of_the_first_batch_that_finished() -> None:
    reading: Reading[str] = Reading(0.0, Usual(1.0, 5.0))
    reading.finished(4.0, 5.0, {"a": every_second(0, 4)})
    reading.finished(10.0, 12.0, {"a": every_second(2, 10)})
    figures = reading.figures()
    assert figures["read_twice"] == 2
    assert figures["records"] == 10
    assert sorted(reading.delays) == [2, 3, 3, 4, 4, 5, 5, 6, 7, 8]
    assert (figures["delay_p50_s"], figures["delay_max_s"]) == (4.0, 8.0)
    assert figures["records_delayed"] == 3, "those over 5 s"


def test_quantiles_are_values_that_occurred() -> None:
    ordered = [float(each) for each in range(1, 101)]
    assert [quantile(ordered, part) for part in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert quantile([3.0], 0.99) == 3.0
    assert quantile([], 0.5) == 0.0


def test_a_record_just_missed_by_a_batch_waits_as_long_as_is_usual() -> None:
    usual = Usual.of(20.0, 2.0)
    assert (usual.pause_s, usual.delay_s) == (3.0, 41.0)
    usual = Usual.of(2.0, 10.0)
    assert (usual.pause_s, usual.delay_s) == (11.0, 13.0)


# What moves.


def test_moves_after_a_leave_and_a_join_are_needed_and_others_are_not() -> None:
    moves: Moves[int] = Moves()
    moves.seen(["q1", "q2"], {1: "q1", 2: "q1", 3: "q2"}, is_stable=True)
    moves.seen(["q2"], {3: "q2"}, is_stable=False)
    moves.seen(["q2"], {1: "q2", 2: "q2", 3: "q2"}, is_stable=True)
    assert (moves.needed, moves.not_needed) == (2, 0)
    moves.seen(["q2", "q3"], {1: "q2", 2: "q2"}, is_stable=False)
    moves.seen(["q2", "q3"], {1: "q2", 2: "q2", 3: "q3"}, is_stable=True)
    assert (moves.needed, moves.not_needed) == (3, 0)
    moves.seen(["q2", "q3"], {1: "q3", 2: "q2", 3: "q2"}, is_stable=True)
    assert (moves.needed, moves.not_needed) == (3, 2)


def test_what_waits_for_its_application_and_returns_to_it_did_not_move() -> None:
    moves: Moves[int] = Moves()
    moves.seen(["q1", "q2"], {1: "q1", 2: "q2"}, is_stable=True)
    moves.seen(["q2"], {2: "q2"}, is_stable=False)
    moves.seen(["q1", "q2"], {1: "q1", 2: "q2"}, is_stable=True)
    assert moves.figures()["partitions_moved"] == 0


# Runs.


@pytest.mark.parametrize("static", [0, 4])
def test_where_nothing_is_deployed_nothing_waits_and_nothing_moves(static: int) -> None:
    figures = counted(replace(PLANNED, static=static, chaos_s=60.0))
    assert figures.counted_s == pytest.approx(60.0, abs=0.1)
    assert figures.records == pytest.approx(12 * 10 * 60, rel=0.02)
    assert (figures.pauses, figures.records_delayed, figures.read_twice) == (0, 0, 0)
    assert figures.partitions_moved == 0
    assert figures.unstable_s == 0.0


@pytest.mark.parametrize("deploy", [Deploy.ROLLING, Deploy.ALL_AT_ONCE])
def test_a_static_member_moves_nothing_and_reads_nothing_while_it_is_away(deploy: Deploy) -> None:
    figures = counted(replace(PLANNED, static=4, deploy=deploy))
    assert figures.partitions_moved == 0
    assert figures.read_twice == 0
    assert figures.pauses == 12
    assert figures.not_read_s == pytest.approx(12 * 15.0, rel=0.05)
    assert figures.longest_not_read_s == pytest.approx(15.0, rel=0.1)
    # Written when it left, read by its first batch.
    assert figures.delay_max_s > 15.0 + 0.8 * 5.0


def test_a_static_member_that_is_away_for_longer_than_its_session_loses_its_partitions() -> None:
    figures = counted(
        replace(PLANNED, static=4, deploy=Deploy.ROLLING, session_s=10.0, heartbeat_s=2.0)
    )
    assert figures.partitions_moved >= 12
    assert figures.longest_not_read_s >= 10.0


def test_partitions_of_dynamic_members_move_there_and_back_and_wait_for_less_time() -> None:
    figures = counted(replace(PLANNED, deploy=Deploy.ROLLING))
    assert figures.partitions_moved == figures.moves_needed == 24
    assert 1.0 < figures.longest_not_read_s < 15.0
    assert figures.read_twice == 0
    assert 0.0 < figures.longest_unstable_s <= figures.unstable_s


def test_restart_of_all_at_once_has_no_takeover_and_costs_the_restart_time() -> None:
    short, long = (
        counted(replace(PLANNED, deploy=Deploy.ALL_AT_ONCE, restart_s=each)) for each in (5.0, 30.0)
    )
    assert short.longest_not_read_s < 15.0
    assert long.longest_not_read_s > 29.0


def test_range_moves_more_than_is_needed() -> None:
    figures = counted(replace(PLANNED, deploy=Deploy.ROLLING, assignor=Assignor.RANGE))
    assert figures.moves_not_needed > 0
    assert figures.partitions_moved == figures.moves_needed + figures.moves_not_needed


def test_crashes_without_a_checkpoint_and_long_triggers_repeat_records() -> None:
    figures = counted(
        replace(PLANNED, listener=0, crashes=12, forgetting=1.0, session_s=12.0, trigger_s=10.0)
    )
    assert figures.read_twice > 0
    assert figures.records_delayed > 0


def test_several_runs_are_their_mean_and_their_longest_times() -> None:
    runs = [
        Figures(unstable_s=2.0, longest_unstable_s=1.0, batches=3),
        Figures(unstable_s=4.0, longest_unstable_s=4.0, batches=4),
    ]
    assert mean(runs) == Figures(unstable_s=3.0, longest_unstable_s=4.0, batches=4)


def test_nothing_is_counted_after_the_end() -> None:
    found = world(PLANNED, "kafka-4.3", 2)
    found.queries[0].start()
    found.scene.schedule.run_until(30.0)
    stable = found.scene.coordination.group
    assert stable.metadata is not None
    unstable = replace(
        stable, metadata=replace(stable.metadata, group_epoch=stable.group_epoch + 1)
    )
    counter = FigureCounter(found.scene)
    listeners = counter.listeners()
    listeners[facts.CountingBegins](facts.CountingBegins())
    listeners[facts.GroupChanged](facts.GroupChanged(unstable))
    found.scene.schedule.run_until(34.0)
    listeners[facts.CountingEnds](facts.CountingEnds())
    found.scene.schedule.run_until(39.0)
    listeners[facts.GroupChanged](facts.GroupChanged(stable))
    assert counter.figures.unstable_s == 4.0
