"""Whether a group keeps up: Burrow's rules over several samples of each partition.

Burrow's window holds commits, with the time of each (github.com/linkedin/Burrow,
core/internal/evaluator/caching.go). A coordinator does not tell when an offset was committed: here
a commit is seen where the committed offset differs from the sample before, and a batch that began
within the window is a sign of life as a commit is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final


class PartitionStatus(Enum):
    """What samples of a partition say."""

    OK = "OK"
    WARN = "WARN"
    STOP = "STOP"
    STALL = "STALL"
    REWIND = "REWIND"


class Verdict(Enum):
    """What a group comes to, by the exit code that says so."""

    OK = 0
    WARN = 1
    ERR = 2


STATUS_MEANINGS: Final = {
    PartitionStatus.OK: "It keeps up.",
    PartitionStatus.WARN: "Offsets are committed, and the lag never falls.",
    PartitionStatus.STOP: "Offsets were committed, and are not any more.",
    PartitionStatus.STALL: "The committed offset does not move, and there is lag.",
    PartitionStatus.REWIND: "The committed offset went back, and has not come back since.",
}
_VERDICTS: Final = {PartitionStatus.OK: Verdict.OK, PartitionStatus.WARN: Verdict.WARN}


@dataclass(frozen=True, slots=True)
class LagSample:
    """A partition at one moment.

    Args:
        at_s: When, in seconds of any clock.
        committed_offset: The next offset to read; None: none is committed.
        lag: Offsets between that (or the log start) and the end; None: unknown.
        batch_began_at_s: When a batch that reads it began; None: none does, or it is not known.
    """

    at_s: float
    committed_offset: int | None
    lag: int | None
    batch_began_at_s: float | None = None


def judge_partition(
    samples: Sequence[LagSample], now_s: float, allowed_lag: int = 0
) -> PartitionStatus | None:
    """Return what samples of a partition say; None: too little is known.

    The rules are tried in this order; the first that holds decides.

    Args:
        samples: The oldest first; those without a lag are left out.
        now_s: The time now, on the clock of the samples.
        allowed_lag: Up to which lag a partition keeps up.
    """
    known = [each for each in samples if each.lag is not None]
    lags = [each.lag for each in known if each.lag is not None]
    if not lags or (len(lags) < 2 and lags[-1] > allowed_lag):
        return None
    signs = _signs_of_life(known)
    rules = (
        (lags[-1] <= allowed_lag, PartitionStatus.OK),
        (_has_stopped(known, signs, now_s, allowed_lag), PartitionStatus.STOP),
        (_is_behind_itself(known), PartitionStatus.REWIND),
        (min(lags) <= allowed_lag, PartitionStatus.OK),
        (not signs, PartitionStatus.STALL),
        (all(later >= earlier for earlier, later in pairwise(lags)), PartitionStatus.WARN),
    )
    return next((status for holds, status in rules if holds), PartitionStatus.OK)


def judge_group(statuses: Iterable[PartitionStatus | None]) -> Verdict:
    """Return the worst of the partitions; what is not known is at least a warning."""
    return worst(
        Verdict.WARN if each is None else _VERDICTS.get(each, Verdict.ERR) for each in statuses
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict; none at all is good."""
    return max(verdicts, key=lambda verdict: verdict.value, default=Verdict.OK)


def _signs_of_life(samples: Sequence[LagSample]) -> list[float]:
    """Return when something was done: commits, and beginnings of batches, within the window."""
    first_s = samples[0].at_s
    commits = [
        later.at_s
        for earlier, later in pairwise(samples)
        if later.committed_offset != earlier.committed_offset
    ]
    batches = {each.batch_began_at_s for each in samples if each.batch_began_at_s is not None}
    return sorted([*commits, *(each for each in batches if each > first_s)])


def _has_stopped(
    samples: Sequence[LagSample], signs: Sequence[float], now_s: float, allowed_lag: int
) -> bool:
    """Say whether it has been silent for longer than it was active in the window."""
    if not signs or now_s - signs[-1] <= signs[-1] - samples[0].at_s:
        return False
    since = (each.lag for each in samples if each.at_s >= signs[-1])
    return all(lag is not None and lag > allowed_lag for lag in since)


def _is_behind_itself(samples: Sequence[LagSample]) -> bool:
    """Say whether the committed offset went back, or was deleted, and has not come back."""
    offsets = [-1 if each.committed_offset is None else each.committed_offset for each in samples]
    return offsets[-1] < max(offsets)
