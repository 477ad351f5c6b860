"""When a partition will have caught up: never a number where nothing is known."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from spark_groups.observation.catch_up import (
    HISTORY_S,
    SAMPLES_MAX,
    SILENCE_S,
    WINDOW_S,
    CatchUp,
    Outlook,
    Progress,
    RecentProgress,
    catch_up,
    slowest,
)

UNKNOWN = CatchUp()
NEVER = CatchUp(Outlook.NEVER)
KEEPS_UP = CatchUp(Outlook.KEEPS_UP, 0.0)


def seen(at_s: float, committed: int | None, end: int | None) -> Progress:
    lag = None if committed is None or end is None else end - committed
    return Progress(at_s, lag, committed, end)


def catching_up(seconds: float) -> CatchUp:
    return CatchUp(Outlook.CATCHING_UP, seconds)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ((), UNKNOWN),
        (((0, 5, 9),), UNKNOWN),
        (((0, 9, 9),), KEEPS_UP),
        (((0, None, 9), (5, None, 9)), UNKNOWN),
        (((0, 0, 900), (5, 10, None)), UNKNOWN),
        # 10 commits per second more than records: 880 are left.
        (((0, 0, 900), (1, 10, 900), (2, 20, 900)), catching_up(88.0)),
        # An idle topic, and a growing one.
        (((0, 0, 900), (10, 100, 950), (20, 200, 1000)), catching_up(160.0)),
        (((0, 0, 900), (10, 100, 1000), (20, 200, 1100)), NEVER),
        (((0, 0, 900), (10, 100, 1100), (20, 200, 1300)), NEVER),
        # A query of one batch per 10 s lags by the records since its last one: it keeps up.
        (((0, 100, 140), (5, 100, 160), (10, 140, 180), (15, 140, 200)), KEEPS_UP),
        # Too few commits to have a rate; after a while the query counts as stopped.
        (((0, 0, 900), (2, 0, 910)), UNKNOWN),
        (((0, 0, 900), (2, 50, 910)), UNKNOWN),
        (((0, 0, 900), (SILENCE_S - 1, 0, 910)), UNKNOWN),
        (((0, 0, 900), (SILENCE_S, 0, 910)), NEVER),
        (((0, 0, 900), (SILENCE_S, 0, 900)), NEVER),
        (((0, 0, 900), (10, 300, 900), (SILENCE_S, 300, 900)), UNKNOWN),
        (((0, 0, 900), (10, 300, 900), (SILENCE_S + 10, 300, 900)), NEVER),
        # A query that commits every 300 s, between commits, and after three of its intervals.
        (((0, 0, 900), (300, 150, 900), (600, 300, 900)), catching_up(1200.0)),
        (((0, 0, 900), (300, 150, 900), (600, 300, 900), (1499, 300, 900)), catching_up(1200.0)),
        (((0, 0, 900), (300, 150, 900), (600, 300, 900), (1500, 300, 900)), NEVER),
        (((0, 50, 90), (300, 90, 150), (600, 150, 200), (890, 150, 250)), KEEPS_UP),
        # Of quick batches the window has many: one slow batch is no end.
        (((0, 0, 900), (1, 10, 900), (2, 20, 900), (WINDOW_S + 1, 20, 900)), catching_up(88.0)),
        (((0, 0, 900), (1, 10, 900), (2, 20, 900), (WINDOW_S + 2, 20, 900)), NEVER),
        # A time without lag is no silence.
        (((0, 0, 10), (5, 10, 20), (10, 20, 20), (400, 20, 20), (405, 20, 21)), KEEPS_UP),
        # A rate is from commit to commit, not from the first sample.
        (((0, 0, 900), (9, 100, 900), (10, 100, 900), (19, 200, 900)), catching_up(70.0)),
        # A reset goes back.
        (((0, 500, 900), (10, 510, 900), (20, 0, 900)), NEVER),
        # Commits before the window do not count if it has enough, and very old ones never.
        (
            ((-9, 0, 900), (0, 800, 900), *((WINDOW_S + i, 810 + 10 * i, 900) for i in range(3))),
            catching_up(7.0),
        ),
        (((0, 0, 900), (1, 10, 900), (HISTORY_S + 1, 20, 900), (HISTORY_S + 2, 20, 900)), UNKNOWN),
        (((5, 0, 900), (5, 0, 900)), UNKNOWN),
        (((5, 0, 900), (5, 10, 900), (5, 20, 900)), UNKNOWN),
    ],
)
def test_when_a_partition_will_have_caught_up(
    samples: tuple[tuple[float, int | None, int | None], ...], expected: CatchUp
) -> None:
    assert catch_up([seen(*each) for each in samples]) == expected


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ((), KEEPS_UP),
        ((KEEPS_UP, catching_up(5.0), catching_up(7.0)), catching_up(7.0)),
        ((KEEPS_UP, KEEPS_UP), KEEPS_UP),
        ((catching_up(5.0), UNKNOWN), UNKNOWN),
        ((catching_up(5.0), UNKNOWN, NEVER), NEVER),
    ],
)
def test_a_group_has_caught_up_with_its_last_partition(
    partitions: tuple[CatchUp, ...], expected: CatchUp
) -> None:
    assert slowest(partitions) == expected


@pytest.mark.parametrize("poll_s", [1, 2, 15, 60])
@pytest.mark.parametrize("trigger_s", [60, 300, 900])
def test_a_slow_trigger_is_not_taken_for_a_stop(trigger_s: int, poll_s: int) -> None:
    behind, level = RecentProgress(), RecentProgress()
    outlooks: dict[RecentProgress, list[Outlook]] = {behind: [], level: []}
    for at_s in range(0, 4 * trigger_s, poll_s):
        batch, end = at_s // trigger_s, 100_000 + 10 * at_s
        behind.add(seen(at_s, batch * trigger_s * 20, end))
        level.add(seen(at_s, 100_000 + 10 * (batch - 1) * trigger_s, end))
        for each, found in outlooks.items():
            found.append(each.catch_up().outlook)
    commits_s = 2 * trigger_s // poll_s
    assert set(outlooks[behind][:commits_s]) == {Outlook.UNKNOWN}
    assert set(outlooks[behind][commits_s:]) == {Outlook.CATCHING_UP}
    assert set(outlooks[level][:commits_s]) <= {Outlook.UNKNOWN, Outlook.KEEPS_UP}
    assert set(outlooks[level][commits_s:]) == {Outlook.KEEPS_UP}


STEPS = st.tuples(st.integers(1, 6), st.integers(0, 9), st.integers(0, 9), st.booleans())


@given(st.lists(STEPS, max_size=SAMPLES_MAX // 2))
def test_polls_between_commits_need_not_be_kept(steps: list[tuple[int, int, int, bool]]) -> None:
    samples: list[Progress] = []
    recent = RecentProgress()
    at_s, committed, end = 0, 0, 20
    for after_s, read, written, is_known in steps:
        end += written
        at_s, committed = at_s + after_s, min(committed + read, end)
        samples.append(seen(at_s, committed, end if is_known else None))
        recent.add(samples[-1])
        assert recent.catch_up() == catch_up(samples)
