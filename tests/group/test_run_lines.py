"""The lines of a run: one for its batches, while its start takes long, and at its end."""

from __future__ import annotations

import pytest

from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import BatchFinished, BatchPlanned, RangesLost
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import SHOWN
from spark_groups.group.requests.channels import Channel
from spark_groups.group.run_lines import (
    IN_MINUTES_S,
    LINE_EVERY_S,
    OFTEN_UNTIL_S,
    RunLines,
    awaited_at_start,
)
from spark_groups.types import BatchPlan, OffsetRange
from tests.group.harness import (
    TOPIC,
    ClientHarness,
    accepted,
    all_of,
    committed,
    described,
    ends,
    parts,
)


def ranges(*bounds: tuple[int, int, int]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(TOPIC, "orders", *each) for each in bounds)


def plan(*bounds: tuple[int, int, int], warm_up_tasks: int = 0) -> BatchPlan:
    return BatchPlan("g", "m1", 3, ranges(*bounds), warm_up_tasks=warm_up_tasks)


def ran(lines: RunLines, begins: float, ended: float, *bounds: tuple[int, int, int]) -> None:
    """Let a batch run."""
    lines.note(BatchPlanned(begins, plan(*bounds)))
    lines.note(BatchFinished(ended, plan(*bounds)))


def test_batch_has_a_line_once_its_offsets_are_committed() -> None:
    lines = RunLines(0.0)
    ran(lines, 1.0, 2.4, (0, 0, 602), (1, 5, 606))
    assert lines.due(2.4, is_committing=True) == []
    assert lines.due(2.5, is_committing=False) == [
        "committed a batch: 1,203 records of 2 partitions in 1.4 s: orders-0 [0, 602),"
        " orders-1 [5, 606)"
    ]
    assert lines.due(2.6, is_committing=False) == []


def test_line_sums_up_the_batches_since_the_last_one_ten_seconds_ago() -> None:
    lines = RunLines(0.0)
    ran(lines, 0.0, 1.0, (0, 0, 10))
    assert len(lines.due(1.0, is_committing=False)) == 1
    for number in range(1, 10):
        ran(lines, number, number + 0.5, (0, number * 10, number * 10 + 10))
        assert lines.due(number + 0.5, is_committing=False) == []
    ran(lines, 9.6, 10.4, (1, 7, 8))
    assert lines.due(1.0 + LINE_EVERY_S, is_committing=False) == [
        "committed 10 batches in the last 10 s: 91 records of 2 partitions, the longest took 0.8 s:"
        " orders-0 [10, 100), orders-1 [7, 8)"
    ]


def test_batch_after_a_pause_has_its_line_at_once() -> None:
    lines = RunLines(0.0)
    for at in (1.0, 3600.0):
        ran(lines, at, at, (0, int(at), int(at) + 1))
        assert lines.due(at, is_committing=False) == [
            f"committed a batch: 1 record of 1 partition in 0.0 s:"
            f" orders-0 [{int(at)}, {int(at) + 1})"
        ]


def test_batch_without_records_and_a_warm_up_have_no_line() -> None:
    lines = RunLines(0.0)
    for each in (plan(), plan(warm_up_tasks=2)):
        lines.note(BatchPlanned(0.0, each))
        lines.note(BatchFinished(1.0, each))
        assert lines.due(1.0, is_committing=False) == []
    assert lines.end(2.0, is_committed=True) == ("left the group after no batch in 2 s")


def test_line_names_the_first_of_many_partitions() -> None:
    lines = RunLines(0.0)
    ran(lines, 0.0, 1.0, *((each, 0, 1) for each in range(SHOWN + 40)))
    (line,) = lines.due(1.0, is_committing=False)
    assert line.endswith(" and 40 more")
    assert line.count("[0, 1)") == SHOWN


@pytest.mark.parametrize("is_lost_while_it_runs", [True, False])
def test_lost_ranges_do_not_count_as_committed(is_lost_while_it_runs: bool) -> None:
    lines = RunLines(0.0)
    lost = RangesLost(1.0, ranges((1, 0, 20)), "fenced")
    read = plan((0, 0, 10), (1, 0, 20))
    lines.note(BatchPlanned(0.0, read))
    if is_lost_while_it_runs:
        lines.note(lost)
    lines.note(BatchFinished(1.0, read))
    if not is_lost_while_it_runs:
        lines.note(lost)
    assert lines.due(1.0, is_committing=False) == [
        "committed a batch: 10 records of 1 partition in 1.0 s: orders-0 [0, 10)"
    ]


def test_batch_that_is_lost_as_a_whole_has_no_line() -> None:
    lines = RunLines(0.0)
    ran(lines, 0.0, 1.0, (0, 0, 10))
    lines.note(RangesLost(1.0, ranges((0, 0, 10)), "fenced"))
    assert lines.due(1.0, is_committing=False) == []


def test_end_sums_up_the_run() -> None:
    lines = RunLines(0.0)
    ran(lines, 1.0, 2.0, (0, 0, 1_000))
    lines.due(2.0, is_committing=False)
    ran(lines, 2.0, 3.0, (0, 1_000, 1_203))
    assert lines.end(45.0, is_committed=True) == (
        "committed, left the group after 2 batches, 1,203 records in 45 s"
    )


def test_end_of_a_static_member_says_what_becomes_of_its_partitions() -> None:
    lines = RunLines(0.0)
    ran(lines, 1.0, 2.0, (0, 0, 1))
    assert lines.end(IN_MINUTES_S, is_committed=True, kept_s=45.0) == (
        "committed, left the group after 1 batch, 1 record in 10 min; it keeps the partitions of"
        " this static member for 45 s"
    )


def test_end_without_an_answer_says_that_the_group_may_keep_the_member() -> None:
    lines = RunLines(0.0)
    assert lines.end(3.0, is_committed=True, kept_s=45.0, is_answered=False) == (
        "left the group after no batch in 3 s; the coordinator has not answered, so the group may"
        " keep this member until its session ends"
    )


def test_end_claims_no_commit_that_is_missing() -> None:
    lines = RunLines(0.0)
    ran(lines, 1.0, 2.0, (0, 0, 1))
    assert lines.end(3.0, is_committed=False) == (
        "left the group after no batch in 3 s; the last batch is not committed and may be read"
        " again"
    )


def started(lines: RunLines, until_s: float, awaited: str = "partitions") -> list[str]:
    """Return the lines of a start that waits for so long."""
    found: list[str] = []
    for now in range(int(until_s) + 1):
        found += lines.due(float(now), is_committing=False, awaited=lambda: awaited)
    return found


def test_start_says_every_ten_seconds_what_it_waits_for() -> None:
    assert started(RunLines(0.0), 25.0) == [
        "the start has taken 10 s; waiting for partitions",
        "the start has taken 20 s; waiting for partitions",
    ]


def test_lines_of_a_start_of_minutes_become_rare() -> None:
    found = started(RunLines(0.0), 60 * OFTEN_UNTIL_S)
    assert len(found) == OFTEN_UNTIL_S / LINE_EVERY_S + 5, "then after 2, 4, 8, 16 and 32 minutes"


def test_start_is_over_with_its_first_records_or_when_it_waits_for_nothing() -> None:
    lines = RunLines(0.0)
    ran(lines, 1.0, 2.0, (0, 0, 1))
    lines.due(2.0, is_committing=False)
    assert started(lines, 60.0) == []
    lines = RunLines(0.0)
    assert lines.due(LINE_EVERY_S, is_committing=False) == []
    assert lines.due(2 * LINE_EVERY_S, is_committing=False, awaited=lambda: "more") == []


def test_each_step_of_a_start_has_a_text() -> None:
    harness = ClientHarness()
    client = harness.client.parts
    assert awaited_at_start(client) == "the coordinator of group 'g'"
    harness.fail(Channel.SEARCH)
    assert awaited_at_start(client).endswith("(the last attempt: no answer)")
    harness.until(m.FindCoordinatorRequest)
    harness.cluster()
    assert awaited_at_start(client) == "the coordinator to let this member join"
    harness.describes = False
    harness.beat(accepted(2, parts()))
    harness.cluster()
    assert awaited_at_start(client) == "the coordinator to assign partitions"
    harness.until(m.DescribeGroupRequest)
    harness.answer(Channel.OFFSETS, described("m1", 2, parts(0, 1), parts()))
    assert awaited_at_start(client) == "other members to release orders-0, orders-1"
    harness.beat(accepted(3, parts(0, 1)))
    harness.cluster()
    harness.beat(accepted(3))
    harness.until(m.OffsetFetchRequest)
    assert awaited_at_start(client) == "the committed offsets of orders-0, orders-1"
    # The first was asked for before the assignment, for partitions that are pending.
    for _ in range(2):
        harness.until(m.OffsetFetchRequest)
        harness.answer(Channel.OFFSETS, committed({0: 0, 1: 0}))
    assert awaited_at_start(client) == ""


def test_first_batch_is_a_step_of_the_start() -> None:
    harness = ClientHarness()
    harness.own(0)
    read = harness.plan(PlanLimit(), ends({0: 10}), {})
    assert read is not None
    waits = "Spark to run the first batch, which starts its Python workers"
    assert awaited_at_start(harness.client.parts) == waits
    harness.client.finish(read, harness.now)
    harness.pump()
    request = harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(request))
    assert awaited_at_start(harness.client.parts) == ""
