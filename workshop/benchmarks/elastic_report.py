"""The figures of `workshop.benchmarks.elastic`, computed from its samples, and their page; pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from workshop.benchmarks.noted import markdown_table

HOLD_S: Final = 15.0
"""For how long the lag has to stay within its target to count as recovered, in seconds."""
CLEAN_EXIT: Final = 143
"""The exit code of a job after SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The group at one time.

    Args:
        at_s: Seconds since the first record.
        written: The sum of the log ends.
        committed: The sum of the committed offsets.
        lag_s: The lag in time; None: unknown.
        applications: How many there are, those that start included.
        members: The members of the group.
        unowned: Partitions without an owner.
    """

    at_s: float
    written: int
    committed: int
    lag_s: float | None
    applications: int
    members: int
    unowned: int


class Pauses:
    """Notes for how long partitions have unread records and a committed offset that stays the same.

    Args:
        limit_s: Only a longer pause counts, except in `longest_s`.
    """

    def __init__(self, limit_s: float) -> None:
        self.longest_s = 0.0
        """The longest pause of a partition, in seconds, also one within the limit."""
        self.most = 0
        """The largest number of partitions that were in a pause at the same time."""
        self.count = 0
        """The number of pauses."""
        self.sum_s = 0.0
        """The length of all pauses together, in seconds."""
        self._limit_s = limit_s
        self._last: dict[int, tuple[int, float]] = {}

    def look(self, at_s: float, offsets: Mapping[int, tuple[int, int]]) -> None:
        """Note a reading.

        Args:
            at_s: The time of the reading, in seconds.
            offsets: The committed offset and the log end, by partition.
        """
        pausing = 0
        for partition, (committed, end) in offsets.items():
            before, since_s = self._last.get(partition, (committed, at_s))
            pause_s = at_s - since_s
            if committed == before and committed < end:
                self._last[partition] = before, since_s
                pausing += pause_s > self._limit_s
                self.longest_s = max(self.longest_s, pause_s)
                continue
            self._last[partition] = committed, at_s
            if committed != before:
                self.longest_s = max(self.longest_s, pause_s)
                if pause_s > self._limit_s:
                    self.count += 1
                    self.sum_s += pause_s
        self.most = max(self.most, pausing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The table compared with the topic.

    Args:
        acknowledged: Records that the broker acknowledged.
        in_topic: Records of the topic: the sum of its log ends.
        rows: Rows of the table.
        distinct: Different partitions and offsets of the topic among them.
    """

    acknowledged: int
    in_topic: int
    rows: int
    distinct: int

    @property
    def lost(self) -> int:
        """Records that the table does not have."""
        return max(self.acknowledged, self.in_topic) - self.distinct

    @property
    def doubled(self) -> int:
        """Rows whose record the table has already."""
        return self.rows - self.distinct


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """A run.

    Args:
        command: The command that made it.
        low_per_s: Records a second before and after the step.
        high_per_s: Records a second of the step.
        partitions: Of the topic.
        target_s: The lag in time above which applications are added.
        step_s: When the rate rose, in seconds since the first record.
        fall_s: When it fell again.
        samples: All looks at the group.
        pauses: Those of the partitions between the first look and the end of the load.
        verdict: The table compared with the topic.
        drained_s: The time from the last record until all were committed; None: they were not.
        exit_codes: Of all applications.
        starts_s: From the start of an application until it was a member.
        loads: Load averages of the machine.
        problems: What failed, in sentences.
    """

    command: str
    low_per_s: float
    high_per_s: float
    partitions: int
    target_s: float
    step_s: float
    fall_s: float
    samples: Sequence[Sample] = field(repr=False)
    pauses: Pauses = field(repr=False)
    verdict: Verdict
    drained_s: float | None
    exit_codes: Sequence[int | None]
    starts_s: Sequence[float]
    loads: Sequence[float]
    problems: Sequence[str] = ()

    @property
    def recovered_s(self) -> float | None:
        """The time from the step until the lag was within its target to stay; None: it was not."""
        return recovery_s(self.samples, self.target_s, self.step_s, self.fall_s)

    @property
    def is_good(self) -> bool:
        """Whether the run meets every condition of exit status 0."""
        is_complete = not (self.verdict.lost or self.verdict.doubled or self.problems)
        has_ended = all(each == CLEAN_EXIT for each in self.exit_codes)
        return (
            is_complete
            and has_ended
            and self.drained_s is not None
            and self.recovered_s is not None
        )


def recovery_s(
    samples: Sequence[Sample], target_s: float, step_s: float, until_s: float
) -> float | None:
    """Return how long after the step the lag was within its target, and stayed for `HOLD_S`.

    Args:
        samples: All looks, the oldest first; those without a lag do not count.
        target_s: The target of the lag in time.
        step_s: When the rate rose.
        until_s: Looks after that do not count.

    Returns:
        0.0 if the lag was never above its target; None if it did not come back.
    """
    known = [
        (sample.at_s, sample.lag_s)
        for sample in samples
        if step_s <= sample.at_s <= until_s and sample.lag_s is not None
    ]
    outside = [number for number, (_, lag_s) in enumerate(known) if lag_s > target_s]
    if not outside:
        return 0.0 if known else None
    for number in outside:
        within = known[number + 1 :]
        if not within or within[0][1] > target_s:
            continue
        left_s = next((at_s for at_s, lag_s in within if lag_s > target_s), within[-1][0])
        if left_s - within[0][0] >= HOLD_S:
            return within[0][0] - step_s
    return None


def rate_between(
    samples: Sequence[Sample],
    from_s: float,
    until_s: float,
    count: Callable[[Sample], int] = lambda each: each.written,
) -> float | None:
    """Return how many records were written in a second; None: too few samples.

    Args:
        samples: All looks, the oldest first.
        from_s: Earlier looks do not count.
        until_s: Later ones do not count.
        count: What else than the written records of a look is counted.
    """
    inside = [sample for sample in samples if from_s <= sample.at_s <= until_s]
    if len(inside) < 2 or inside[-1].at_s <= inside[0].at_s:
        return None
    first, last = inside[0], inside[-1]
    return (count(last) - count(first)) / (last.at_s - first.at_s)


def unowned_s(samples: Sequence[Sample]) -> float:
    """Return the seconds without an owner, of all partitions together."""
    return sum(before.unowned * (after.at_s - before.at_s) for before, after in pairwise(samples))


def figures(run: Elastic) -> Iterator[tuple[str, str]]:
    """Yield the figures of a run, each with its name."""
    written = rate_between(run.samples, run.step_s, run.fall_s)
    since = [sample for sample in run.samples if sample.at_s >= run.step_s]
    lags = [each.lag_s for each in since if each.lag_s is not None]
    loads = run.loads or (0.0,)
    moved = [sample.applications for sample in run.samples]
    after = [sample for sample in run.samples if sample.at_s >= run.fall_s]
    least = min((each.applications for each in after), default=0)
    removed_s = next((e.at_s - run.fall_s for e in after if e.applications == least), None)
    low, high = f"{run.low_per_s:,.0f}", f"{run.high_per_s:,.0f}"
    yield "records a second, asked", f"{low}, then {high}, then {low}"
    yield (
        "records a second during the step, written",
        "unknown" if written is None else f"{written:,.0f}",
    )
    yield (
        "from the step until the lag in time is within its target",
        f"**{_seconds(run.recovered_s)}**",
    )
    yield (
        "highest lag in time since the step",
        f"{_seconds(max(lags, default=None))} (target {run.target_s:g} s)",
    )
    yield "applications", f"{moved[0] if moved else 0}, then {max(moved, default=0)}, then {least}"
    if run.starts_s:
        median_s, longest_s = statistics.median(run.starts_s), max(run.starts_s)
        yield (
            "from the start of an application until it is a member",
            f"{median_s:.0f} s (at most {longest_s:.0f} s)",
        )
    yield "from the fall of the rate until the last removal", _seconds(removed_s)
    yield (
        f"partitions in a pause at the same time, of {run.partitions}",
        f"{run.pauses.most} at most; {run.pauses.count} pauses, {run.pauses.sum_s:.0f} s together",
    )
    yield "longest pause of a partition", f"{run.pauses.longest_s:.1f} s"
    yield (
        "partitions without an owner",
        f"{max((e.unowned for e in run.samples), default=0)} at most;"
        f" {unowned_s(run.samples):.0f} s of all together",
    )
    yield "from the last record until all were committed", _seconds(run.drained_s)
    yield "records produced", f"{run.verdict.acknowledged:,}"
    yield "rows lost", f"**{run.verdict.lost:,}**"
    yield "rows doubled", f"**{run.verdict.doubled:,}**"
    clean = sum(each == CLEAN_EXIT for each in run.exit_codes)
    yield "applications that ended cleanly after SIGTERM", f"{clean} of {len(run.exit_codes)}"
    yield "load average", f"{statistics.fmean(loads):.1f}, at most {max(loads):.1f}"


def section(run: Elastic, circumstances: str, picture: str) -> Iterator[str]:
    """Yield the lines of the page.

    Args:
        run: The run.
        circumstances: The versions and the machine, as a sentence.
        picture: The name of the picture's file.
    """
    yield f"Command: `{run.command}`. {circumstances}"
    yield ""
    yield from markdown_table(("figure", "measured"), figures(run))
    for problem in run.problems:
        yield f"- {problem}"
    if run.problems:
        yield ""
    yield f"![Rate, lag in time and applications over time]({picture})"


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.0f} s"
