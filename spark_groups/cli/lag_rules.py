"""Whether a group keeps up: Burrow's rules over several samples of each partition.

Burrow's window holds commits with their times (github.com/linkedin/Burrow,
core/internal/evaluator/caching.go). A coordinator does not report commit times: here a committed
offset that differs from the previous sample counts as a commit, and so does the start of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final


class PartitionStatus(Enum):
    """The state of a partition, judged by its samples."""

    OK = "OK"
    WARN = "WARN"
    STOP = "STOP"
    STALL = "STALL"
    REWIND = "REWIND"


class Verdict(Enum):
    """The state of a group, by exit code."""

    OK = 0
    WARN = 1
    ERR = 2


STATUS_MEANINGS: Final = {
    PartitionStatus.OK: "The partition keeps up.",
    PartitionStatus.WARN: "Offsets are committed, but the lag never falls.",
    PartitionStatus.STOP: "Offsets are no longer committed.",
    PartitionStatus.STALL: "There is lag, and the committed offset does not move.",
    PartitionStatus.REWIND: "The committed offset went back, and has not caught up since.",
}
_VERDICTS: Final = {PartitionStatus.OK: Verdict.OK, PartitionStatus.WARN: Verdict.WARN}


@dataclass(frozen=True, slots=True)
class LagSample:
    """A partition at one time.

    Args:
        at_s: Seconds of any clock.
        committed_offset: None: no offset is committed.
        lag: 0 if no record is unread, however many offsets are left; None: unknown.
        batch_began_at_s: When the batch that reads it began; None: no batch, or unknown.
        log_end_offset: None: unknown; the rules do not use it.
    """

    at_s: float
    committed_offset: int | None
    lag: int | None
    batch_began_at_s: float | None = None
    log_end_offset: int | None = None


def judge_partition(
    samples: Sequence[LagSample], now_s: float, allowed_lag: int = 0
) -> PartitionStatus | None:
    """Return the status of a partition; None: too few samples are known.

    The first matching rule decides.

    Args:
        samples: The oldest first; samples without a lag are ignored.
        now_s: The current time, on the clock of the samples.
        allowed_lag: The largest lag with which a partition keeps up.
    """
    known = [sample for sample in samples if sample.lag is not None]
    lags = [each.lag for each in known if each.lag is not None]
    if not lags or (len(lags) < 2 and lags[-1] > allowed_lag):
        return None
    signs = _signs_of_life(known)
    rules = (
        (lags[-1] <= allowed_lag, PartitionStatus.OK),
        (_has_stopped(known, signs, now_s, allowed_lag), PartitionStatus.STOP),
        (_went_back(known), PartitionStatus.REWIND),
        (min(lags) <= allowed_lag, PartitionStatus.OK),
        (not signs, PartitionStatus.STALL),
        (all(later >= earlier for earlier, later in pairwise(lags)), PartitionStatus.WARN),
    )
    return next((status for holds, status in rules if holds), PartitionStatus.OK)


def judge_group(statuses: Iterable[PartitionStatus | None]) -> Verdict:
    """Return the worst verdict of the partitions; an unknown status is a warning."""
    return worst(
        Verdict.WARN if each is None else _VERDICTS.get(each, Verdict.ERR) for each in statuses
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict; OK if there is none."""
    return max(verdicts, key=lambda verdict: verdict.value, default=Verdict.OK)


def _signs_of_life(samples: Sequence[LagSample]) -> list[float]:
    """Return the times of commits and batch starts within the window."""
    first_s = samples[0].at_s
    commits = [
        later.at_s
        for earlier, later in pairwise(samples)
        if later.committed_offset != earlier.committed_offset
    ]
    batches = {sample.batch_began_at_s for sample in samples if sample.batch_began_at_s is not None}
    return sorted([*commits, *(batch for batch in batches if batch > first_s)])


def _has_stopped(
    samples: Sequence[LagSample], signs: Sequence[float], now_s: float, allowed_lag: int
) -> bool:
    """Return whether it has been silent for longer than it was active in the window."""
    if not signs or now_s - signs[-1] <= signs[-1] - samples[0].at_s:
        return False
    since = (sample.lag for sample in samples if sample.at_s >= signs[-1])
    return all(lag is not None and lag > allowed_lag for lag in since)


def _went_back(samples: Sequence[LagSample]) -> bool:
    """Return whether the committed offset went back or was deleted, and has not caught up."""
    offsets = [
        -1 if sample.committed_offset is None else sample.committed_offset for sample in samples
    ]
    return offsets[-1] < max(offsets)
