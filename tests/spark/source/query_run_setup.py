"""Shared by test_query_run.py and other tests."""

from __future__ import annotations

from spark_groups.group.ledger.plan_text import plan_from_json
from spark_groups.spark.source.query_run import Offset, QueryRun
from spark_groups.types import OffsetRange
from workshop.parts.waiting import wait_until


def spans(offset: Offset) -> list[tuple[int, int]]:
    plan = plan_from_json(offset)
    return [(each.from_offset, each.until_offset) for each in plan.ranges] if plan else []


def ranges(run: QueryRun, start: Offset, end: Offset) -> tuple[OffsetRange, ...]:
    plan = run.batch(start, end)
    return plan.ranges if plan else ()


def until_rows(run: QueryRun, start: Offset) -> Offset:
    def trigger() -> Offset | None:
        end = run.latest_offset(start)
        return end if spans(end) else None

    end = wait_until(trigger, what="a plan with ranges")
    assert end is not None
    return end
