"""Lag in time: ages, retention and alerts, and a reason where something is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.observation.lag_times import (
    AlertKind,
    Deletion,
    LagTime,
    Retention,
    UnreadReading,
    deletion_alert,
    lag_time,
    largest_behind_s,
    retention_of,
    soonest_deletion_s,
)
from spark_groups.observation.plain_values import duration_text
from spark_groups.observation.views import view_group
from spark_groups.wire.fetch.first_records import FirstRecords
from spark_groups.wire.fetch.first_unread import FirstRecord
from tests.observation.groups import FLIGHTS, ONE, key, member, read

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
WEEK = Retention(deletion=Deletion.BY_AGE, retention_ms=7 * 24 * HOUR_MS)


def unread(age_ms: int, offset: int = 17) -> FirstRecord:
    return FirstRecord(offset, NOW_MS - age_ms)


@pytest.mark.parametrize(
    ("record", "seconds", "remark"),
    [
        (None, 0.0, ""),
        (unread(0), 0.0, ""),
        (unread(1_234), 1.234, ""),
        (unread(90 * 24 * HOUR_MS), 7_776_000.0, ""),
        # Clocks differ a little, which is no news from the future.
        (unread(-1_000), 0.0, ""),
        (unread(-1_001), None, "the timestamp of the record at 17 is 1.0 s ahead"),
        (unread(-2 * HOUR_MS), None, "the timestamp of the record at 17 is 2 h ahead"),
        (FirstRecord(17, -1), None, "the record at 17 has no timestamp"),
    ],
)
def test_a_partition_is_as_far_behind_as_its_first_unread_record_is_old(
    record: FirstRecord | None, seconds: float | None, remark: str
) -> None:
    found = lag_time(record, NOW_MS, committed_offset=17, log_start_offset=0)
    assert found.seconds_behind == seconds
    assert found.remark.removeprefix("its age is unknown: ") == remark


def test_a_failure_is_unknown_and_never_zero() -> None:
    found = lag_time(None, NOW_MS, WEEK, reason="NOT_LEADER_OR_FOLLOWER")
    assert (found.seconds_behind, found.deletion_in_s) == (None, None)
    assert found.remark == "its age is unknown: NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("delete", "604800000", "-1"), WEEK),
        (("compact,delete", "604800000", "-1"), WEEK),
        (("compact", "604800000", "-1"), Retention(deletion=Deletion.NEVER)),
        (("delete", "-1", "-1"), Retention(deletion=Deletion.NEVER)),
        (("delete", "-1", "1000"), Retention(deletion=Deletion.BY_SIZE)),
        (
            ("delete, compact", "604800000", "1000"),
            replace(WEEK, deletion=Deletion.BY_AGE_OR_SIZE),
        ),
        ((None, "604800000", "-1"), Retention(reason="the topic's settings lack cleanup.policy")),
        (("delete", "soon", "-1"), Retention(reason="the topic's settings lack numbers")),
    ],
)
def test_retention_is_what_the_settings_of_a_topic_say(
    settings: tuple[str | None, ...], expected: Retention
) -> None:
    names = ("cleanup.policy", "retention.ms", "retention.bytes")
    assert retention_of(dict(zip(names, settings, strict=True))) == expected


@pytest.mark.parametrize(
    ("record", "retention", "committed", "left_s"),
    [
        (unread(24 * HOUR_MS), WEEK, 17, 6 * 24 * 3600.0),
        (unread(9 * 24 * HOUR_MS), WEEK, 17, 0.0),
        # A record from the future lives the longer.
        (unread(-HOUR_MS), WEEK, 17, 7 * 24 * 3600.0 + 3600),
        (unread(HOUR_MS), Retention(deletion=Deletion.BY_SIZE), 17, None),
        (unread(HOUR_MS), Retention(deletion=Deletion.NEVER), 17, None),
        (unread(HOUR_MS), Retention(), 17, None),
        (FirstRecord(17, -1), WEEK, 17, None),
        (None, WEEK, 17, None),
        (unread(HOUR_MS), WEEK, None, None),
    ],
)
def test_retention_may_delete_a_record_once_it_is_old_enough(
    record: FirstRecord | None, retention: Retention, committed: int | None, left_s: float | None
) -> None:
    found = lag_time(record, NOW_MS, retention, committed_offset=committed, log_start_offset=0)
    assert (found.deletion_in_s, found.deletion) == (left_s, retention.deletion)


def test_an_unknown_retention_has_its_reason() -> None:
    refused = Retention(reason="TOPIC_AUTHORIZATION_FAILED")
    found = lag_time(unread(5_000), NOW_MS, refused, committed_offset=17, log_start_offset=0)
    assert (found.seconds_behind, found.deletion) == (5.0, Deletion.UNKNOWN)
    assert found.remark == "its retention is unknown: TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize(
    ("retention_hours", "left_hours", "alert_hours", "is_alert"),
    [
        (168, 24.1, 24, False),
        (168, 24.0, 24, True),
        (168, 47.0, 48, True),
        # Of a short retention half is left before there is an alert.
        (10, 5.1, 24, False),
        (10, 4.9, 24, True),
        (168, 0.5, 0, False),
        (168, 0.0, 0, True),
    ],
)
def test_an_alert_comes_before_records_are_deleted(
    retention_hours: int, left_hours: float, alert_hours: float, *, is_alert: bool
) -> None:
    time = LagTime(
        retention_ms=retention_hours * HOUR_MS,
        deletion=Deletion.BY_AGE,
        deletion_in_s=left_hours * 3600,
    )
    alert = deletion_alert("flights", 3, time, alert_hours)
    assert (alert is not None) == is_alert
    if alert is not None:
        assert alert.kind is AlertKind.EXPIRING
        assert alert.text.startswith("flights-3: unread records may be deleted ")
        assert "raise retention.ms of flights" in alert.text


def test_deleted_unread_offsets_are_lost() -> None:
    lost = lag_time(unread(HOUR_MS, 50), NOW_MS, WEEK, committed_offset=5, log_start_offset=50)
    assert lost.lost_offsets == 45
    alert = deletion_alert("flights", 0, lost)
    assert alert is not None
    assert alert.kind is AlertKind.LOST
    assert alert.text.startswith("flights-0: offsets deleted before the group read them: 45;")
    uncommitted = lag_time(unread(HOUR_MS, 50), NOW_MS, WEEK, log_start_offset=50)
    assert uncommitted.lost_offsets == 0
    assert deletion_alert("flights", 0, uncommitted) is None
    assert deletion_alert("flights", 0, LagTime()) is None


def test_of_a_group_the_worst_known_value_counts() -> None:
    times = [LagTime(seconds_behind=3.0, deletion_in_s=9.0), LagTime(), LagTime(deletion_in_s=7.0)]
    assert largest_behind_s(times) == 3.0
    assert soonest_deletion_s(times) == 7.0
    assert (largest_behind_s([]), largest_behind_s([LagTime()])) == (0.0, None)
    assert soonest_deletion_s([LagTime()]) is None


def test_a_partition_whose_whole_log_is_deleted_has_lost_records_and_nothing_to_read() -> None:
    reading = read(partitions=1, committed={0: 5}, starts={0: 50}, ends={0: 50}, state="Empty")
    assert reading.unread_offsets() == {}
    view = view_group(replace(reading, unread=UnreadReading(now_ms=NOW_MS)))
    time = view.partitions[0].time
    assert (time.seconds_behind, time.lost_offsets, time.remark) == (0.0, 45, "")


def test_a_view_has_the_time_of_each_partition() -> None:
    reading = read(
        member(ONE, range(6)),
        partitions=6,
        committed={0: 10, 1: 40, 2: 5, 4: 10, 5: 90},
        starts={0: 0, 1: 0, 2: 50, 3: 7, 4: 0, 5: 0},
        ends={0: 100, 1: 40, 2: 100, 3: 9, 4: 100, 5: 20},
    )
    assert reading.unread_offsets() == {key(0): 10, key(2): 50, key(4): 10, key(3): 7}
    first = FirstRecords(
        {key(0): unread(5_000), key(2): unread(7_000), key(3): unread(9_000)},
        {key(4): "NOT_LEADER_OR_FOLLOWER"},
    )
    answered = UnreadReading(now_ms=NOW_MS, first=first, retention={FLIGHTS: WEEK})
    view = view_group(replace(reading, unread=answered))
    assert [each.time.seconds_behind for each in view.partitions] == [5, 0, 7, 9, None, None]
    assert [each.time.lost_offsets for each in view.partitions] == [0, 0, 45, 0, 0, 0]
    left_s = 7 * 24 * 3600.0
    assert [each.time.deletion_in_s for each in view.partitions] == [
        *(left_s - 5, None, left_s - 7, None, None, None)
    ]
    assert view.totals.seconds_behind == 9
    assert view.totals.unknown_time_partitions == 2
    assert view.totals.deletion_in_s == left_s - 7


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3_725, "1 h 2 min"),
        (7 * 86_400, "7 d"),
        (400 * 86_400 + 7_200, "400 d 2 h"),
        (2_000 * 86_400, "2,000 d"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
