"""The first batches of a run: small, and larger each time."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.group.batches.first_batches import FirstBatches, FirstOffsets
from spark_groups.group.batches.plan_limit import PlanLimit, divide
from spark_groups.types import BatchPlan, OffsetRange


def batch(limit: PlanLimit, *backlogs: int) -> BatchPlan:
    """Return the plan of a batch on partitions with backlogs."""
    ends = dict(enumerate(backlogs))
    divided = divide(dict.fromkeys(ends, 0), ends, limit.max_offsets)
    topic_id = uuid.UUID(int=1)
    ranges = tuple(OffsetRange(topic_id, "t", key, *each) for key, each in divided.items())
    return BatchPlan("g", "m", 1, ranges)


def test_first_batches_grow_with_the_rate_until_one_has_the_whole_backlog() -> None:
    first, own, now, backlog, sizes = FirstOffsets(), PlanLimit(), 0.0, 1_000_000, []
    while backlog:
        limit = first.limited(own, 2, 0.0)
        plan = batch(limit, backlog // 2, backlog // 2)
        first.planned(plan, limit, now)
        sizes.append(sum(map(len, plan.ranges)))
        backlog -= sizes[-1]
        # The first batch has 10,000 rows a second, each later one 100,000.
        now += sizes[-1] / (10_000 if len(sizes) == 1 else 100_000)
        first.finished(0.0, now)
    assert sizes[:5] == [20_000, 40_000, 100_000, 200_000, 400_000]
    assert sum(sizes) == 1_000_000
    assert first.limited(own, 2, 0.0) is own, "the first batches are over"


def test_a_first_batch_fills_the_trigger_interval() -> None:
    first, own = FirstOffsets(), PlanLimit()
    limit = first.limited(own, 1, 4.0)
    first.planned(batch(limit, 10**9), limit, 0.0)
    first.finished(4.0, 0.1)
    assert first.limited(own, 1, 4.0).max_offsets == 400_000
    first.finished(4.0, 100.0)
    assert first.limited(own, 1, 4.0).max_offsets == 400_000, "a batch is finished once"


@pytest.mark.parametrize(
    ("own", "trigger_interval_s"),
    [
        (PlanLimit(), None),
        (PlanLimit(), 5.0),
        (PlanLimit(min_offsets=5), 0.0),
        (PlanLimit(max_offsets=15_000), 0.0),
    ],
)
def test_first_batches_are_not_limited_further(own: PlanLimit, trigger_interval_s: object) -> None:
    first = FirstOffsets()
    limit = first.limited(own, 2, trigger_interval_s)  # type: ignore[arg-type]
    assert limit is own
    first.planned(batch(PlanLimit(), 10**6), limit, 0.0)
    first.finished(0.0, 1.0)
    assert first.limited(PlanLimit(), 2, 0.0).max_offsets is None, "the first batch had no limit"


def test_first_batches_are_not_larger_than_the_option_allows() -> None:
    first, own = FirstOffsets(), PlanLimit(max_offsets=30_000)
    limit = first.limited(own, 2, 1.0)
    assert limit.max_offsets == 20_000
    first.planned(batch(limit, 10**6), limit, 0.0)
    first.finished(1.0, 1.0)
    assert first.limited(own, 2, 1.0) is own


def test_late_finish_of_the_batch_before_does_not_end_the_next_one() -> None:
    first, own = FirstBatches(), PlanLimit()
    first.planned(batch(first.limited(own, 1, 0.0), 10**6), None, 0.0)
    limit = first.limited(own, 1, 0.0)
    first.finished(5.0)
    first.planned(batch(limit, 10**6), None, 6.0)
    first.finished(16.0)
    assert first.limited(own, 1, 0.0).max_offsets == 20_000
