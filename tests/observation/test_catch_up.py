"""When a partition will have caught up: never a number where nothing is known."""

from __future__ import annotations

import pytest

from spark_groups.observation.catch_up import (
    SILENCE_S,
    WINDOW_S,
    CatchUp,
    Outlook,
    Progress,
    catch_up,
    slowest,
)

UNKNOWN = CatchUp()
NEVER = CatchUp(Outlook.NEVER)
CAUGHT_UP = CatchUp(Outlook.CAUGHT_UP, 0.0)


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
        (((0, 9, 9),), CAUGHT_UP),
        (((0, None, 9), (5, None, 9)), UNKNOWN),
        (((0, 0, 900), (5, 10, None)), UNKNOWN),
        # 10 commits per second more than records: 880 are left.
        (((0, 0, 900), (1, 10, 900), (2, 20, 900)), catching_up(88.0)),
        # An idle topic, and a growing one.
        (((0, 0, 900), (10, 100, 950), (20, 200, 1000)), catching_up(160.0)),
        (((0, 0, 900), (10, 100, 1000), (20, 200, 1100)), NEVER),
        (((0, 0, 900), (10, 100, 1100), (20, 200, 1300)), NEVER),
        # A query of one batch per 10 s lags by the records since its last one: it keeps up.
        (((0, 100, 140), (5, 100, 160), (10, 140, 180), (15, 140, 200)), CAUGHT_UP),
        # Too few commits to have a rate; after a while silence is one.
        (((0, 0, 900), (2, 0, 910)), UNKNOWN),
        (((0, 0, 900), (2, 50, 910)), UNKNOWN),
        (((0, 0, 900), (SILENCE_S, 0, 910)), NEVER),
        (((0, 0, 900), (SILENCE_S, 0, 900)), NEVER),
        (((0, 0, 900), (10, 300, 900), (SILENCE_S, 300, 900)), catching_up(60.0)),
        # A rate is from commit to commit, not from the first sample.
        (((0, 0, 900), (9, 100, 900), (10, 100, 900), (19, 200, 900)), catching_up(70.0)),
        # A reset goes back.
        (((0, 500, 900), (10, 510, 900), (20, 0, 900)), NEVER),
        # Samples before the window do not count.
        (((0, 0, 900), (WINDOW_S + 1, 10, 2000), (WINDOW_S + 2, 20, 2000)), UNKNOWN),
        (((5, 0, 900), (5, 0, 900)), UNKNOWN),
    ],
)
def test_when_a_partition_will_have_caught_up(
    samples: tuple[tuple[float, int | None, int | None], ...], expected: CatchUp
) -> None:
    assert catch_up([seen(*each) for each in samples]) == expected


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ((), CAUGHT_UP),
        ((CAUGHT_UP, catching_up(5.0), catching_up(7.0)), catching_up(7.0)),
        ((CAUGHT_UP, CAUGHT_UP), CAUGHT_UP),
        ((catching_up(5.0), UNKNOWN), UNKNOWN),
        ((catching_up(5.0), UNKNOWN, NEVER), NEVER),
    ],
)
def test_a_group_has_caught_up_with_its_last_partition(
    partitions: tuple[CatchUp, ...], expected: CatchUp
) -> None:
    assert slowest(partitions) == expected
