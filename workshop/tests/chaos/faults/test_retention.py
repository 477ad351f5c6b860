"""Deletions of unread records: of the partition that has most, and of no committed one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from workshop.chaos.faults.retention import SHORT_LIVED, Retention
from workshop.chaos.faults.schedule import (
    OVERTAKEN,
    RETENTION_GAP_S,
    Overtaking,
    RetentionFaultKind,
    draw_overtakings,
)
from workshop.chaos.members.ensemble import Outcome
from workshop.chaos.results.facts import Partition
from workshop.chaos.systems.cluster import ClusterError
from workshop.parts.waiting import wait_until

FIRST, SECOND = (("wasps", index) for index in range(2))


class StandIn:
    """A broker with two partitions of a hundred records."""

    def __init__(self, committed: dict[Partition, int]) -> None:
        self._committed = committed
        self.deleted: list[tuple[Partition, int]] = []
        self.error: Exception | None = None

    def ends(self, topics: dict[str, int]) -> dict[Partition, int]:
        assert topics == SHORT_LIVED
        return {FIRST: 100, SECOND: 100}

    def committed(self, _: str) -> dict[Partition, int]:
        return self._committed

    def delete_before(self, partition: Partition, before_offset: int) -> None:
        if self.error is not None:
            raise self.error
        self.deleted.append((partition, before_offset))


def deleted_by(broker: Any, share: float) -> Retention:
    retention = Retention(broker, "g", lambda _: None)
    retention.carry_out(Overtaking(0.0, share))
    wait_until(lambda: not retention.is_busy, what="the deletion")
    return retention


@pytest.mark.parametrize(("share", "before"), [(0.9, 92), (0.25, 40)])
def test_a_share_is_deleted_where_most_is_unread(share: float, before: int) -> None:
    broker = StandIn({FIRST: 80, SECOND: 20})
    retention = deleted_by(broker, share)
    assert broker.deleted == [(SECOND, before)]
    assert retention.outcomes == {(RetentionFaultKind.OVERTAKE, Outcome.DONE): 1}
    (found,) = retention.deletions
    assert (found.partition, found.before_offset) == (SECOND, before)


@pytest.mark.parametrize("is_late", [True, False])
def test_nothing_is_deleted_where_readers_are_near_the_end(
    is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_late:
        monkeypatch.setattr("workshop.chaos.faults.retention.AWAITED_S", 0.0)
    retention = Retention(StandIn({FIRST: 100, SECOND: 75}), "g", print)  # type: ignore[arg-type]
    retention.carry_out(Overtaking(0.0, 0.9))
    if not is_late:
        retention.settle()
    wait_until(lambda: not retention.is_busy, what="the end of the deletion")
    assert (retention.deletions, retention.outcomes) == (
        [],
        {(RetentionFaultKind.OVERTAKE, Outcome.SKIPPED): 1},
    )


@pytest.mark.parametrize("error", [ClusterError("no answer"), TimeoutError()])
def test_deletion_without_an_answer_may_have_happened(error: Exception) -> None:
    broker = StandIn({})
    broker.error = error
    retention = deleted_by(broker, 0.5)
    assert retention.problems == []
    assert retention.outcomes == {(RetentionFaultKind.OVERTAKE, Outcome.SKIPPED): 1}
    assert [deletion.before_offset for deletion in retention.deletions] == [50]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_that_dies_is_a_problem() -> None:
    broker = StandIn({})
    broker.error = ValueError("unexpected")
    expected = "retention overtakes readers: its thread died: ValueError('unexpected')"
    assert deleted_by(broker, 0.5).problems == [expected]


def test_same_seed_draws_the_same_deletions_in_order() -> None:
    found, again, other = (
        draw_overtakings(random.Random(seed), duration_s=600.0) for seed in (7, 7, 8)
    )
    assert found == again != other
    assert [each.at_s for each in found] == sorted(each.at_s for each in found)
    assert len(found) > 600.0 / RETENTION_GAP_S / 2
    assert all(OVERTAKEN[0] <= each.share <= OVERTAKEN[1] for each in found)
