"""When a partition will have caught up, from the rates of committing and writing in a window.

A query commits once per batch, so the window follows the time between its commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

WINDOW_S: Final = 120.0
"""How far back commits count, if these are at least `COMMITS_MIN`."""
COMMITS_MIN: Final = 3
"""Commits that count even if they are older than the window, up to `HISTORY_S`."""
HISTORY_S: Final = 3600.0
SILENT_INTERVALS: Final = 3
"""Without a commit for this many of its longest intervals, a query counts as stopped."""
SILENCE_S: Final = 1800.0
"""Without a commit for this time, any query counts as stopped."""
SAMPLES_MAX: Final = 40


class Outlook(Enum):
    """Whether a partition will catch up at its current rates.

    It keeps up if it has no lag, or if all records that were there at an earlier sample of the
    window are read: between two batches a query always lags a little.
    """

    KEEPS_UP = "keeps up"
    CATCHING_UP = "catching up"
    NEVER = "never catches up"
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
        catch_up_s: 0.0 if it keeps up; None: never, or unknown.
    """

    outlook: Outlook = Outlook.UNKNOWN
    catch_up_s: float | None = None


def catch_up(samples: Sequence[Progress]) -> CatchUp:
    """Return when a partition will have caught up.

    Args:
        samples: The oldest first.
    """
    known = [found for sample in samples if (found := _known(sample)) is not None]
    if samples and samples[-1].lag == 0:
        return CatchUp(Outlook.KEEPS_UP, 0.0)
    if len(known) < 2 or known[-1].at_s != samples[-1].at_s:
        return CatchUp()
    return _judge(known)


class RecentProgress:
    """The samples of one partition, of which polls between two commits take no room.

    It keeps the latest sample, and of each committed offset the first and the last without lag.
    """

    def __init__(self) -> None:
        self._samples: deque[Progress] = deque(maxlen=SAMPLES_MAX)

    def add(self, sample: Progress) -> None:
        """Add a sample that is newer than the others."""
        while self._samples and self._is_between(sample):
            self._samples.pop()
        self._samples.append(sample)

    def catch_up(self) -> CatchUp:
        """Return when the partition will have caught up."""
        return catch_up(self._samples)

    def _is_between(self, sample: Progress) -> bool:
        """Return whether the latest sample says nothing once there is a newer one."""
        latest = self._samples[-1]
        if _known(latest) is None:
            return True
        if len(self._samples) < 2 or latest.committed_offset != self._samples[-2].committed_offset:
            return False
        return latest.lag != 0 or sample.lag == 0


def slowest(found: Iterable[CatchUp]) -> CatchUp:
    """Return when the last of several partitions will have caught up."""
    listed = list(found)
    for outlook in (Outlook.NEVER, Outlook.UNKNOWN):
        if any(each.outlook is outlook for each in listed):
            return CatchUp(outlook)
    latest = max(listed, key=lambda each: each.catch_up_s or 0.0, default=None)
    return CatchUp(Outlook.KEEPS_UP, 0.0) if latest is None else latest


class _Known(NamedTuple):
    at_s: float
    lag: int
    committed_offset: int
    log_end_offset: int


def _known(sample: Progress) -> _Known | None:
    at_s, lag, committed, end = sample
    if lag is None or committed is None or end is None:
        return None
    return _Known(at_s, lag, committed, end)


def _judge(known: Sequence[_Known]) -> CatchUp:
    last, commits = known[-1], _recent_commits(known)
    if _is_silent(known, commits):
        return CatchUp(Outlook.NEVER)
    since_s = min((last.at_s - WINDOW_S, *(each.at_s for each in commits)))
    earlier = [each for each in known[:-1] if each.at_s >= since_s]
    if any(last.committed_offset >= each.log_end_offset for each in earlier):
        return CatchUp(Outlook.KEEPS_UP, 0.0)
    if len(commits) < 2 or commits[-1].at_s <= commits[0].at_s:
        return CatchUp()
    # From commit to commit: until now, the rate would be too high just after a commit, and too low
    # just before one.
    read = commits[-1].committed_offset - commits[0].committed_offset
    written = last.log_end_offset - commits[0].log_end_offset
    gain = read / (commits[-1].at_s - commits[0].at_s) - written / (last.at_s - commits[0].at_s)
    if gain <= 0:
        return CatchUp(Outlook.NEVER)
    return CatchUp(Outlook.CATCHING_UP, round(last.lag / gain, 3))


def _recent_commits(known: Sequence[_Known]) -> list[_Known]:
    """Return the first sample of each commit in the window, but at least `COMMITS_MIN`."""
    now_s = known[-1].at_s
    commits = [
        later
        for earlier, later in pairwise(known)
        if later.committed_offset != earlier.committed_offset and now_s - later.at_s <= HISTORY_S
    ]
    in_window = [each for each in commits if now_s - each.at_s <= WINDOW_S]
    return in_window if len(in_window) >= COMMITS_MIN else commits[-COMMITS_MIN:]


def _is_silent(known: Sequence[_Known], commits: Sequence[_Known]) -> bool:
    """Return whether a commit is overdue; without lag there is nothing to commit."""
    idle = [each for each in known if each.lag == 0]
    active_s = max(each.at_s for each in (known[0], *commits[-1:], *idle[-1:]))
    intervals_s = (later.at_s - earlier.at_s for earlier, later in pairwise(commits))
    overdue_s = SILENT_INTERVALS * max(intervals_s, default=SILENCE_S)
    return known[-1].at_s - active_s >= min(SILENCE_S, max(WINDOW_S, overdue_s))
