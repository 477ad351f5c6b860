"""How late heartbeats are, from snapshots: only intervals that are known count."""

from __future__ import annotations

from math import inf

import pytest

from benchmarks.member_watch import MemberWatch


def seen(watch: MemberWatch, at: float, heartbeats: int, sent_at: float) -> None:
    """Note a snapshot after so many heartbeats, of which the last one was sent at a moment."""
    watch._note(
        {
            "last_heartbeat_age_s": at - sent_at,
            "heartbeat_interval_ms": 5_000,
            "tally": {"counts": {"heartbeat": heartbeats}},
        },
        at,
    )


def test_intervals_are_compared_with_that_of_the_broker(group_id: str) -> None:
    with MemberWatch(group_id) as watch:
        for at, heartbeats, sent_at in (
            (100.0, 4, 99.0),
            (103.0, 4, 99.0),
            # 5 s after the one before, and 0.5 s late.
            (105.0, 5, 104.0),
            (110.0, 6, 109.5),
            # Two within less than an interval: neither is late.
            (112.0, 8, 111.5),
            # Two in 6.5 s: one is late by 1.5 s at most.
            (119.0, 10, 118.0),
        ):
            seen(watch, at, heartbeats, sent_at)
        assert list(watch.late_s(0, inf)) == pytest.approx([0.0, 0.5, 0.0, 0.0])
        assert watch.at_most_s == pytest.approx([1.5])
        assert watch.first_seen_at == 100.0
        assert list(watch.late_s(105, 110)) == pytest.approx([0.5])


def test_a_member_that_has_not_joined_has_no_heartbeats(group_id: str) -> None:
    with MemberWatch(group_id) as watch:
        watch._note({"last_heartbeat_age_s": None, "state": "JOINING"}, 1.0)
        assert not watch.is_stable
        assert list(watch.late_s(0, inf)) == []
