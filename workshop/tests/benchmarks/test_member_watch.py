"""How late heartbeats are, from snapshots: only intervals that are known count."""

from __future__ import annotations

from math import inf

import pytest

from workshop.benchmarks.member_watch import MemberWatch


def seen(
    watch: MemberWatch,
    at: float,
    heartbeats: int,
    sent_at: float,
    *,
    error_s: float = 0.0,
    epoch: int = 1,
    rebalanced_at: float | None = None,
) -> None:
    """Note a snapshot after so many heartbeats, of which the last one was sent at a moment."""
    age_s = None if rebalanced_at is None else at - rebalanced_at
    watch._note(
        {
            "last_heartbeat_age_s": at - sent_at,
            "heartbeat_interval_ms": 5_000,
            "member_epoch": epoch,
            "tally": {"counts": {"heartbeat": heartbeats}, "last_rebalance_age_s": age_s},
        },
        at,
        error_s,
    )


def test_intervals_are_compared_with_that_of_the_broker(group_id: str) -> None:
    with MemberWatch(group_id) as watch:
        for at, heartbeats, sent_at in (
            (100.0, 4, 99.0),
            (103.0, 4, 99.0),
            # 5 s after the one before, and 0.5 s late.
            (105.0, 5, 104.0),
            (110.0, 6, 109.5),
            # Two within less than an interval: neither was due at the interval.
            (112.0, 8, 111.5),
            # Two in 6.5 s: one is late by 1.5 s at most.
            (119.0, 10, 118.0),
            # An acknowledgement, at once.
            (119.5, 11, 119.4),
        ):
            seen(watch, at, heartbeats, sent_at)
        assert list(watch.late_s(0, inf)) == pytest.approx([0.0, 0.5])
        assert watch.at_most_s == pytest.approx([1.5])
        assert watch.first_seen_at == 100.0
        assert list(watch.late_s(105, 110)) == pytest.approx([0.5])


def test_heartbeat_is_at_the_interval_as_far_as_the_time_of_a_snapshot_is_known(
    group_id: str,
) -> None:
    with MemberWatch(group_id) as watch:
        seen(watch, 100.0, 4, 99.0, error_s=0.2)
        seen(watch, 105.0, 5, 103.7, error_s=0.2)
        seen(watch, 110.0, 6, 108.4)
        assert list(watch.late_s(0, inf)) == [0.0], "0.3 s early may be none, 0.3 s is more"


def test_watch_knows_since_when_a_member_is_what_it_is(group_id: str) -> None:
    with MemberWatch(group_id) as watch:
        seen(watch, 100.0, 4, 99.0)
        assert watch.changed_at == 99.0, "with that heartbeat it got its member epoch"
        seen(watch, 105.0, 5, 104.0, rebalanced_at=99.5)
        assert watch.changed_at == 99.5
        seen(watch, 110.0, 6, 109.0, epoch=2, rebalanced_at=99.5)
        assert (watch.changed_at, watch.member_epoch) == (109.0, 2)
        seen(watch, 111.0, 7, 110.0, epoch=2, rebalanced_at=110.1)
        assert watch.changed_at == pytest.approx(110.1)


def test_a_member_that_has_not_joined_has_no_heartbeats(group_id: str) -> None:
    with MemberWatch(group_id) as watch:
        watch._note({"last_heartbeat_age_s": None, "state": "JOINING"}, 1.0)
        assert not watch.is_stable
        assert list(watch.late_s(0, inf)) == []
