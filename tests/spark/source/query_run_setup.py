"""Shared by test_query_run.py and other tests."""

from __future__ import annotations

from spark_groups.group.batches.proofs import PlanJson
from spark_groups.group.ledger.plan_text import plan_from_json
from spark_groups.spark.source.query_run import QueryRun
from spark_groups.types import OffsetRange
from workshop.parts.waiting import wait_until


def spans(offset: PlanJson) -> list[tuple[int, int]]:
    plan = plan_from_json(offset)
    return [(each.from_offset, each.until_offset) for each in plan.ranges] if plan else []


def ranges(run: QueryRun, start: PlanJson, end: PlanJson) -> tuple[OffsetRange, ...]:
    plan = run.batch(start, end)
    return plan.ranges if plan else ()


def until_rows(run: QueryRun, start: PlanJson) -> PlanJson:
    def trigger() -> PlanJson | None:
        end = run.latest_offset(start)
        return end if spans(end) else None

    end = wait_until(trigger, what="a plan with ranges")
    assert end is not None
    return end
