"""Whether a series of a soak grows: a robust trend, its rise over the run, and a limit.

A series grows if its rise exceeds the limit and is no accident. The rise is the Theil-Sen slope
(the median of the slopes between all pairs of points) times the length: single outliers and a
regular sawtooth, such as a heap between two collections, hardly change it. Accident is excluded by
the Mann-Kendall test. Both look at medians of equal parts of the run, without its beginning: until
then code is compiled and pools are filled.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Final

WARM_UP_PART: Final = 0.3
"""The beginning of a run that does not count."""
POINTS: Final = 40
"""How many medians a trend looks at."""
POINTS_LEAST: Final = 8
Z_LEAST: Final = 2.33
"""Chance rises so steadily once in a hundred series without a trend."""

Sample = tuple[float, float]
"""Seconds since the start, and a value."""


class Kind(Enum):
    """The kinds of series; the value is the unit."""

    MEMORY = "MB"
    THREADS = "threads"
    DESCRIPTORS = "descriptors"
    CONNECTIONS = "connections"


LEAST_RISE: Final = {
    Kind.MEMORY: 5.0,
    Kind.THREADS: 2.0,
    Kind.DESCRIPTORS: 4.0,
    Kind.CONNECTIONS: 2.0,
}
"""The rise over a run that a series may have, however low its level."""
PART_OF_LEVEL: Final = 0.02
"""The rise of memory that a series may have, as a part of its level."""


class Verdict(Enum):
    """What a series does."""

    STEADY = "steady"
    GROWS = "**grows**"
    TOO_SHORT = "**too short**"


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of a series after its warm-up.

    Args:
        name: The series.
        kind: What it counts.
        first: The median of the first quarter.
        last: The median of the last quarter.
        rise: The Theil-Sen slope times the length.
        limit: The rise that is allowed.
        z: The Mann-Kendall statistic, in standard deviations.
        verdict: What follows from them.
    """

    name: str
    kind: Kind
    first: float
    last: float
    rise: float
    limit: float
    z: float
    verdict: Verdict


def trend(name: str, kind: Kind, samples: Sequence[Sample]) -> Trend:
    """Return the trend of a series.

    Args:
        name: The series.
        kind: What it counts.
        samples: In the order of their times.
    """
    points = _medians(samples)
    if len(points) < POINTS_LEAST:
        return Trend(name, kind, math.nan, math.nan, math.nan, math.nan, 0.0, Verdict.TOO_SHORT)
    values = [value for _, value in points]
    quarter = len(points) // 4
    slope = statistics.median(
        (later - earlier) / (until_s - since_s)
        for (since_s, earlier), (until_s, later) in combinations(points, 2)
    )
    rise = slope * (points[-1][0] - points[0][0])
    limit = LEAST_RISE[kind]
    if kind is Kind.MEMORY:
        limit = max(limit, PART_OF_LEVEL * statistics.median(values))
    z = _mann_kendall(values)
    first, last = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
    # The slope is a median: it does not see a leak that begins late.
    is_growing = max(rise, last - first) > limit and z > Z_LEAST
    verdict = Verdict.GROWS if is_growing else Verdict.STEADY
    return Trend(name, kind, first, last, rise, limit, z, verdict)


def after_warm_up(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples that count."""
    if not samples:
        return []
    began_s, ended_s = samples[0][0], samples[-1][0]
    since_s = began_s + WARM_UP_PART * (ended_s - began_s)
    return [sample for sample in samples if sample[0] >= since_s]


def _medians(samples: Sequence[Sample]) -> list[Sample]:
    """Return the medians of equal parts of the time after the warm-up."""
    counted = after_warm_up(samples)
    if len(counted) < POINTS_LEAST:
        return []
    since_s = counted[0][0]
    width_s = (counted[-1][0] - since_s) / POINTS
    parts: dict[int, list[Sample]] = {}
    for each in counted:
        parts.setdefault(min(POINTS - 1, int((each[0] - since_s) / width_s)), []).append(each)
    return [
        (statistics.fmean(at_s for at_s, _ in part), statistics.median(value for _, value in part))
        for _, part in sorted(parts.items())
    ]


def _mann_kendall(values: Sequence[float]) -> float:
    """Return in standard deviations how much more often a later value is the greater one."""
    score = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    count = len(values)
    ties = [values.count(each) for each in set(values)]
    variance = count * (count - 1) * (2 * count + 5)
    variance -= sum(tied * (tied - 1) * (2 * tied + 5) for tied in ties)
    if variance <= 0 or score == 0:
        return 0.0
    return (score - math.copysign(1, score)) / math.sqrt(variance / 18)
