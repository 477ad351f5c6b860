"""Frames: current view, history, and the stale frame after a failed poll."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import replace

from spark_groups.broker.embedded import free_ports
from spark_groups.observation.frames import (
    EVENTS_MAX,
    GroupHistory,
    GroupWatch,
    Staleness,
    steady_clock,
)
from spark_groups.observation.group_events import EventKind
from spark_groups.observation.lag_times import Deletion, LagTime
from spark_groups.observation.lag_trends import LagHistory
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.views import GroupView, view_group
from spark_groups.types import TopicPartition
from tests.observation.groups import ONE, TWO, member, read

ALONE = view_group(read(member(ONE, [0, 1]), committed={0: 5}, ends={0: 10, 1: 3}))
SHARED = view_group(read(member(ONE, [0]), member(TWO, [1]), committed={0: 9}, ends={0: 10}))


def test_a_frame_has_the_current_view_and_the_events_that_led_to_it() -> None:
    history = GroupHistory("flight-readers")
    first = history.seen(ALONE, 1.0)
    assert (first.view, first.seen_at_s, first.stale, first.events) == (ALONE, 1.0, None, ())
    frame = history.seen(SHARED, 3.0)
    assert [each.kind for each in frame.new_events] == [
        EventKind.MEMBER_JOINED,
        EventKind.PARTITIONS_MOVED,
    ]
    assert [each.trend.lag_rate for each in frame.partitions] == [-2.0, None]
    assert [len(each.ownership) for each in frame.partitions] == [1, 2]
    assert [each.partition for each in frame.partitions] == [0, 1]


def test_where_a_look_fails_the_last_good_frame_stays_marked_stale() -> None:
    history = GroupHistory("flight-readers")
    good = history.seen(ALONE, 1.0)
    first = history.failed("b:9092: refused", 2.0)
    assert (first.view, first.seen_at_s, first.partitions) == (ALONE, 1.0, good.partitions)
    assert first.stale == Staleness("b:9092: refused", 2.0)
    assert [each.text for each in first.new_events] == ["not readable: b:9092: refused"]
    second = history.failed("b:9092: timed out", 5.0)
    assert second.stale == Staleness("b:9092: timed out", 2.0)
    assert second.new_events == ()
    again = history.seen(ALONE, 8.0)
    assert again.stale is None
    assert [each.text for each in again.new_events] == ["readable again after 6.0 s"]


def test_a_group_that_is_missing_is_not_one_that_cannot_be_read() -> None:
    history = GroupHistory("flight-readers")
    good = history.seen(ALONE, 1.0)
    missing = history.failed("there is no group", 2.0, is_missing=True)
    assert missing.stale == Staleness("there is no group", 2.0, is_missing=True)
    assert (missing.view, missing.partitions) == (ALONE, good.partitions)
    assert [(each.kind, each.text) for each in missing.new_events] == [
        (EventKind.GROUP_MISSING, "there is no group")
    ]
    assert history.failed("there is no group", 3.0, is_missing=True).new_events == ()
    lost = history.failed("b:9092: refused", 4.0)
    assert lost.stale == Staleness("b:9092: refused", 4.0)
    assert [each.kind for each in lost.new_events] == [EventKind.NOT_READABLE]
    history.failed("there is no group", 5.0, is_missing=True)
    again = history.seen(ALONE, 8.0)
    assert [each.text for each in again.new_events] == ["there again after 3.0 s"]


def test_a_frame_has_the_lag_of_a_day() -> None:
    history = GroupHistory("flight-readers")
    assert history.failed("b:9092: refused", 30.0).lag_history == LagHistory()
    history.seen(view_group(read(partitions=1, committed={0: 5}, ends={0: 13})), 61.0)
    frame = history.seen(view_group(read(partitions=1, committed={0: 12}, ends={0: 13})), 130.0)
    assert frame.to_json()["lag_history"] == {
        "from_s": 60.0,
        "step_s": 60.0,
        "lags": [8, 1],
        "recent": [[61.0, 8], [130.0, 1]],
    }
    assert history.failed("b:9092: refused", 140.0).lag_history == frame.lag_history


def test_before_the_first_good_look_nothing_is_known() -> None:
    history = GroupHistory("flight-readers")
    frame = history.failed("there is no group 'flight-readers'", 1.0)
    assert (frame.view, frame.seen_at_s) == (None, None)
    assert frame.to_json()["group"] is None
    assert history.seen(ALONE, 2.0).new_events == ()


def test_an_alert_begins_and_ends_once_even_if_a_poll_does_not_read_it() -> None:
    soon = LagTime(
        seconds_behind=600_000.0,
        first_unread_offset=3,
        deletion=Deletion.BY_AGE,
        retention_ms=604_800_000,
        deletion_in_s=4_800.0,
    )
    view = view_group(
        read(member(ONE, [0, 1, 2]), partitions=3, committed={0: 3, 1: 3, 2: 3}, ends={0: 9, 1: 9})
    )

    def timed(*times: LagTime) -> GroupView:
        partitions = tuple(
            replace(each, time=time) for each, time in zip(view.partitions, times, strict=True)
        )
        return replace(view, partitions=partitions)

    safe, unread = LagTime(seconds_behind=0.0), LagTime()
    history = GroupHistory("flight-readers")
    frames = [
        history.seen(timed(*each), float(at_s))
        for at_s, each in enumerate(
            (
                (safe, safe, safe),
                (soon, soon, safe),
                (soon, unread, safe),
                (soon, soon, safe),
                (safe, soon, safe),
            )
        )
    ]
    assert [[each.partition for each in frame.alerts] for frame in frames] == [
        *([], [0, 1], [0, 1], [0, 1], [1])
    ]
    events = [(each.at_s, each.kind, each.partitions) for each in frames[-1].events]
    first, second = (TopicPartition("flights", each) for each in (0, 1))
    assert events == [
        (1.0, EventKind.DELETION_ALERT, (first, second)),
        (4.0, EventKind.DELETION_ALERT_ENDED, (first,)),
    ]
    assert frames[-1].events[0].text.endswith("(and 1 more partitions)")
    assert frames[-1].events[1].text == "alert ended: flights 0"
    assert frames[1].to_json()["alerts"][0]["kind"] == "unread records may be deleted soon"


def test_events_have_a_limit() -> None:
    history = GroupHistory("flight-readers")
    for look in range(EVENTS_MAX + 10):
        frame = history.seen(replace(ALONE, group_epoch=look), float(look))
    assert len(frame.events) == EVENTS_MAX
    assert frame.events[-1].text == f"group epoch {look - 1} → {look}"


def test_json_is_what_describe_has_with_the_rest_beside_it() -> None:
    history = GroupHistory("flight-readers")
    history.seen(ALONE, 1.0)
    frame = history.seen(SHARED, 3.0)
    plain = json.loads(json.dumps(frame.to_json()))
    assert plain == frame.to_json()
    assert plain["group"] == SHARED.to_json()
    assert (plain["at_s"], plain["seen_at_s"], plain["stale"]) == (3.0, 3.0, None)
    moved = plain["events"][-1]
    assert (moved["kind"], moved["partitions"]) == ("partitions moved", {"flights": [1]})
    assert plain["partitions"][0]["trend"]["recent_lags"] == [5, 1]
    assert plain["partitions"][1]["ownership"][-1]["member_id"] == TWO
    assert history.failed("gone", 4.0).to_json()["stale"] == {
        "reason": "gone",
        "since_s": 4.0,
        "is_missing": False,
    }


def test_the_clock_begins_at_the_system_time_and_never_steps_back() -> None:
    now = steady_clock()
    first = now()
    assert abs(first - time.time()) < 60.0
    assert now() >= first


def test_a_broker_that_is_not_there_is_part_of_the_frame() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    observer = GroupObserver(address, timeout_s=0.3)
    times = iter((1.0, 2.0))
    with closing(GroupWatch(observer, "flight-readers", lambda: next(times))) as watch:
        watch.look()
        frame = watch.look()
    assert (frame.at_s, frame.view) == (2.0, None)
    assert frame.stale is not None
    assert frame.stale.since_s == 1.0
    assert address in frame.stale.reason
