"""When a partition will have caught up, from the rates of committing and writing in a window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

WINDOW_S: Final = 120.0
"""How far back samples count."""
SILENCE_S: Final = 30.0
"""After this time with fewer than two commits, the rate is taken over the whole window."""


class Outlook(Enum):
    """Whether a partition will catch up at its current rates.

    It is caught up without lag, or if all records that were there at an earlier sample of the
    window are read: between two batches a query always lags a little.
    """

    CAUGHT_UP = "caught up"
    CATCHING_UP = "catching up"
    NEVER = "never"
    UNKNOWN = "unknown"


class Progress(NamedTuple):
    """A partition at one time; None: unknown.

    Args:
        at_s: Seconds of any clock.
        committed_offset: None also if no offset is committed.
    """

    at_s: float
    lag: int | None
    committed_offset: int | None
    log_end_offset: int | None


@dataclass(frozen=True, slots=True)
class CatchUp:
    """When a partition will have caught up.

    Args:
        catch_up_s: 0.0 if it is caught up; None: never, or unknown.
    """

    outlook: Outlook = Outlook.UNKNOWN
    catch_up_s: float | None = None


def catch_up(samples: Sequence[Progress]) -> CatchUp:
    """Return when a partition will have caught up.

    Args:
        samples: The oldest first.
    """
    since_s = samples[-1].at_s - WINDOW_S if samples else 0.0
    known = [
        _Known(each.at_s, each.lag, each.committed_offset, each.log_end_offset)
        for each in samples
        if each.at_s >= since_s
        and each.lag is not None
        and each.committed_offset is not None
        and each.log_end_offset is not None
    ]
    if samples and samples[-1].lag == 0:
        return CatchUp(Outlook.CAUGHT_UP, 0.0)
    if len(known) < 2 or known[-1].at_s != samples[-1].at_s:
        return CatchUp()
    first, last = known[0], known[-1]
    if any(last.committed_offset >= each.log_end_offset for each in known[:-1]):
        return CatchUp(Outlook.CAUGHT_UP, 0.0)
    read_rate = _commit_rate(known)
    if read_rate is None:
        return CatchUp()
    gain = read_rate - (last.log_end_offset - first.log_end_offset) / (last.at_s - first.at_s)
    if gain <= 0:
        return CatchUp(Outlook.NEVER)
    return CatchUp(Outlook.CATCHING_UP, round(last.lag / gain, 3))


def slowest(found: Iterable[CatchUp]) -> CatchUp:
    """Return when the last of several partitions will have caught up."""
    listed = list(found)
    for outlook in (Outlook.NEVER, Outlook.UNKNOWN):
        if any(each.outlook is outlook for each in listed):
            return CatchUp(outlook)
    latest = max(listed, key=lambda each: each.catch_up_s or 0.0, default=None)
    return CatchUp(Outlook.CAUGHT_UP, 0.0) if latest is None else latest


class _Known(NamedTuple):
    at_s: float
    lag: int
    committed_offset: int
    log_end_offset: int


def _commit_rate(known: Sequence[_Known]) -> float | None:
    """Return the rate from the first commit in the window to the last.

    A query commits once per batch: offsets divided by the time since the first sample would be too
    many just after a commit, and too few just before one.
    """
    commits = [
        later
        for earlier, later in pairwise(known)
        if later.committed_offset != earlier.committed_offset
    ]
    first, last = (commits[0], commits[-1]) if len(commits) > 1 else (known[0], known[-1])
    span_s = last.at_s - first.at_s
    if span_s <= 0 or (len(commits) < 2 and span_s < SILENCE_S):
        return None
    return (last.committed_offset - first.committed_offset) / span_s
