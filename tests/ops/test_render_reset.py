"""A plan of new offsets as text."""

from __future__ import annotations

from dataclasses import replace

from spark_groups.ops.render_reset import NOT_EXECUTED, render_reset
from spark_groups.ops.reset_plan import ResetRow, ResetView
from tests.ops.rendered import cells, lines

PLAN = ResetView(
    group_id="g",
    group_state="Empty",
    rows=(
        ResetRow(topic="flights", partition=0, committed_offset=7, new_offset=5),
        ResetRow(topic="gone", partition=None, remark="there is no such topic"),
    ),
)
HEADER = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"]


def test_a_plan_says_that_nothing_was_done() -> None:
    shown = cells(render_reset(PLAN))
    assert (shown[:3], shown[-1]) == (
        [
            [*HEADER, "REMARK"],
            ["g", "flights", "0", "7", "5"],
            ["g", "gone", "—", "—", "—", "there is no such topic"],
        ],
        [NOT_EXECUTED],
    )


def test_what_the_next_start_does_is_told_before_and_after() -> None:
    for is_executed, first in ((False, "With --execute the next"), (True, "The next")):
        text = " ".join(lines(render_reset(replace(PLAN, is_executed=is_executed))))
        assert f"{first} start of a query reads on from NEW-OFFSET, whatever its checkpoint" in text
        assert "2 offsets are read again." in text


def test_a_refusal_stands_below_the_plan() -> None:
    assert cells(render_reset(replace(PLAN, refusal="no")))[-1] == ["Error: no"]


def test_what_failed_says_why() -> None:
    done = replace(PLAN, rows=PLAN.rows[:1], is_executed=True)
    assert cells(render_reset(done))[:2] == [HEADER, ["g", "flights", "0", "7", "5"]]
    failed = replace(done, rows=(replace(PLAN.rows[0], error="UNKNOWN_MEMBER_ID"),))
    assert cells(render_reset(failed))[1][-1] == "Error: UNKNOWN_MEMBER_ID"
