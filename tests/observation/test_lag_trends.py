"""How lag moves: rates over a window, and never a number where nothing is known."""

from __future__ import annotations

import pytest

from spark_groups.observation.catch_up import SAMPLES_MAX, CatchUp, Outlook
from spark_groups.observation.lag_trends import (
    HISTORY_STEPS_MAX,
    RATE_WINDOW_S,
    RECENT_S,
    RECENT_STEP_S,
    LagHistory,
    LagTrend,
    LagTrends,
)
from spark_groups.observation.views import GroupView, view_group
from spark_groups.types import topic_id_text
from tests.observation.groups import FLIGHTS, ONE, member, read

KEY = topic_id_text(FLIGHTS), 0


def group(committed: int | None, end: int | None, partitions: int = 1) -> GroupView:
    known = {} if committed is None else {0: committed}
    ends = {} if end is None else {0: end}
    return view_group(read(member(ONE, [0]), partitions=partitions, committed=known, ends=ends))


def looked(*looks: tuple[float, GroupView]) -> LagTrends:
    trends = LagTrends()
    for at_s, view in looks:
        trends.look(view, at_s)
    return trends


def test_rates_are_offsets_a_second() -> None:
    trends = looked((0.0, group(10, 100)), (5.0, group(20, 100)), (10.0, group(40, 150)))
    expected = LagTrend(
        lag_rate=2.0,
        read_rate=3.0,
        written_rate=5.0,
        recent_lags=(90, 80, 110),
        catch_up=CatchUp(Outlook.NEVER),
    )
    assert trends.trend(KEY) == trends.total() == expected


@pytest.mark.parametrize(
    "looks",
    [
        [(0.0, group(10, 100))],
        [(0.0, group(10, 100)), (1.0, group(10, None))],
        [(0.0, group(10, None)), (1.0, group(10, 100))],
        # Nothing was seen of the last half minute.
        [(0.0, group(10, 100)), (RATE_WINDOW_S + 1, group(20, 100))],
    ],
)
def test_an_unknown_lag_has_no_rate(looks: list[tuple[float, GroupView]]) -> None:
    assert looked(*looks).trend(KEY).lag_rate is None
    assert looked(*looks).total().lag_rate is None


def test_an_unknown_lag_is_a_gap_and_rates_continue_across_it() -> None:
    trends = looked((0.0, group(0, 10)), (1.0, group(0, None)), (2.0, group(0, 14)))
    assert trends.trend(KEY).recent_lags == (10, None, 14)
    assert trends.trend(KEY).lag_rate == 2.0


def test_rates_follow_the_last_half_minute() -> None:
    trends = looked(
        (0.0, group(0, 9_000)), (10.0, group(0, 100)), (RATE_WINDOW_S + 10, group(0, 130))
    )
    assert trends.trend(KEY).lag_rate == 1.0


def test_a_sum_without_some_partitions_is_no_sum() -> None:
    trends = looked((0.0, group(0, 10, partitions=2)), (1.0, group(0, 20, partitions=2)))
    assert trends.trend(KEY).lag_rate == 10.0
    assert trends.total().lag_rate is None
    assert trends.total().recent_lags == (None, None)


def test_kept_lags_have_a_limit_and_deleted_partitions_are_forgotten() -> None:
    looks = [(float(each), group(0, each)) for each in range(SAMPLES_MAX + 5)]
    trends = looked(*looks)
    assert len(trends.trend(KEY).recent_lags) == len(trends.total().recent_lags) == SAMPLES_MAX
    trends.look(view_group(read(partitions=0)), 100.0)
    assert trends.trend(KEY) == LagTrend()


def test_a_trigger_may_be_slower_than_the_polls_that_are_kept() -> None:
    trends = LagTrends()
    outlooks = []
    for at_s in range(10 * SAMPLES_MAX):
        trends.look(group(at_s // 100 * 200, 1_000), float(at_s))
        outlooks.append(trends.total().catch_up.outlook)
    assert set(outlooks[:200]) == {Outlook.UNKNOWN}
    assert set(outlooks[200:]) == {Outlook.CATCHING_UP}


def test_a_day_has_the_greatest_lag_of_each_minute() -> None:
    assert looked().history() == LagHistory()
    looks = [(600.0, 5), (620.0, 9), (659.0, 2), (661.0, 4), (850.0, 1)]
    trends = looked(*((at_s, group(0, end)) for at_s, end in looks))
    found = trends.history()
    assert (found.from_s, found.lags) == (600.0, (9, 4, None, None, 1))
    trends.look(group(0, None), 910.0)
    assert trends.history().lags[-2:] == (1, None)
    trends.look(group(0, 3), 911.0)
    assert trends.history().lags[-2:] == (1, 3)


def test_the_last_minutes_have_the_greatest_lag_of_each_few_seconds() -> None:
    looks = [(0.0, 3), (600.0, 5), (602.0, 9), (604.0, 2), (606.0, 4), (898.0, 1)]
    trends = looked(*((at_s, group(0, end)) for at_s, end in looks))
    assert trends.history().recent == ((0.0, 3), (600.0, 9), (606.0, 4), (898.0, 1))
    trends.look(group(0, None), RECENT_S + 5.0)
    assert trends.history().recent == ((600.0, 9), (606.0, 4), (898.0, 1), (905.0, None))


def test_the_last_minutes_have_a_limit() -> None:
    trends = looked(*((float(at_s), group(0, 7)) for at_s in range(0, 1_200, 2)))
    recent = trends.history().recent
    assert recent[-1].at_s - recent[0].at_s <= RECENT_S
    assert 100 < len(recent) <= RECENT_S / RECENT_STEP_S


def test_a_day_has_a_limit() -> None:
    trends = looked((0.0, group(0, 7)), (60.0 * HISTORY_STEPS_MAX, group(0, 8)))
    history = trends.history()
    assert (history.from_s, len(history.lags)) == (60.0, HISTORY_STEPS_MAX)
    assert (history.lags[0], history.lags[-1]) == (None, 8)
    trends.look(group(0, 9), 1e9)
    assert trends.history().lags == (*(None,) * (HISTORY_STEPS_MAX - 1), 9)
