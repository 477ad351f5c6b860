"""How long partitions were not read: after each fault, and where nothing was done to them.

A batch that began after a fault and has rows of a partition proves that the partition is read
again; an offset that Kafka accepted after it proves that it is committed again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from statistics import median

from workshop.chaos.faults.schedule import FaultClass
from workshop.chaos.results.account import Evidence
from workshop.chaos.results.facts import (
    Commit,
    Disruption,
    End,
    Execution,
    Partition,
    Run,
    RunKey,
    Span,
)

FROZEN_BEYOND = "SIGSTOP beyond the session"
FROZEN_WITHIN = "SIGSTOP within the session"


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long faults of a kind kept partitions from being read and committed, in seconds.

    Args:
        kind: What went wrong.
        faults: How many faults partitions recovered from.
        unseen: How many faults the run ended before.
        reads_median_s: The median time until every partition of a fault was read again.
        reads_max_s: The longest.
        commits_median_s: The median time until every partition of a fault was committed again.
        commits_max_s: The longest.
    """

    kind: str
    faults: int
    unseen: int
    reads_median_s: float
    reads_max_s: float
    commits_median_s: float
    commits_max_s: float


@dataclass(frozen=True, slots=True)
class FaultRecovery:
    """How long one fault kept its partitions from being read and committed.

    Args:
        kind: What went wrong.
        target: The process or the broker.
        from_s: When it began, in seconds of the wall clock.
        read_after_s: Seconds until all its partitions were read again; None: not seen.
        committed_after_s: Seconds until all of them were committed again; None: not seen.
    """

    kind: str
    target: str
    from_s: float
    read_after_s: float | None
    committed_after_s: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """The longest time between two writes of a partition by one process.

    Args:
        takes_s: How long it was, in seconds.
        partition: The partition; None: there was no pause.
        run: The process.
        from_s: When it began, in seconds of the wall clock.
    """

    takes_s: float = 0.0
    partition: Partition | None = None
    run: str = ""
    from_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Recoveries:
    """What faults cost, and what they cost others.

    Args:
        faults: Recovery from each fault that hit partitions, in the order of time.
        by_kind: Recovery by kind of fault.
        unaffected: The longest pause where no fault was: the process and its network had none, and
            no broker with a fault led a partition of its batches.
        neighbour: The longest pause of a partition that only shared its batches with one whose
            leader had a fault.
    """

    faults: tuple[FaultRecovery, ...]
    by_kind: tuple[Recovery, ...]
    unaffected: Pause
    neighbour: Pause


@dataclass(frozen=True, slots=True)
class _Hit:
    """A fault: its kind and target, when it began, from when a sign counts, and what it hit."""

    kind: str
    target: str
    from_s: float
    since_s: float
    partitions: frozenset[Partition]


def recoveries(evidence: Evidence) -> Recoveries:
    """Measure how long partitions were not read or committed.

    Args:
        evidence: All that is known.
    """
    written = _executions(evidence)
    reads = {each: _Later.of_reads(found) for each, found in written.items()}
    commits = {each: _Later.of_commits(found) for each, found in evidence.commits.items()}
    faults = [
        FaultRecovery(hit.kind, hit.target, hit.from_s, _took_s(hit, reads), _took_s(hit, commits))
        for hit in (
            *_of_brokers(evidence, written),
            *_of_members(evidence, written),
            *_of_troubles(evidence, written),
        )
    ]
    faults = [fault for fault in faults if not _was_stopped(evidence, fault)]
    by_kind: dict[str, list[FaultRecovery]] = defaultdict(list)
    for fault in faults:
        by_kind[fault.kind].append(fault)
    return Recoveries(
        tuple(sorted(faults, key=lambda each: each.from_s)),
        tuple(_recovery(kind, found) for kind, found in by_kind.items()),
        *_longest_pauses(evidence, written),
    )


def _was_stopped(evidence: Evidence, fault: FaultRecovery) -> bool:
    """Whether all members were stopped before they had recovered from a fault."""
    took_s = max(fault.read_after_s or inf, fault.committed_after_s or inf)
    return any(0 <= reset.from_s - fault.from_s <= took_s for reset in evidence.resets)


class _Later:
    """Finds the first sign of life that was sought from a time on."""

    def __init__(self, signs: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(signs)
        self._began_s = [began_s for began_s, _ in ordered]
        # The earliest of all signs from here on: one that began later may be done sooner.
        self._done_s = list(accumulate((done_s for _, done_s in reversed(ordered)), min))[::-1]

    @classmethod
    def of_reads(cls, executions: Iterable[Execution]) -> _Later:
        return cls((execution.began_s, _written_s(execution)) for execution in executions)

    @classmethod
    def of_commits(cls, history: Iterable[Commit]) -> _Later:
        return cls((each.at_s, each.at_s) for each in history)

    def first_s(self, since_s: float) -> float | None:
        """Return when the first one was done that began at a time or later; None: none did."""
        place = bisect_left(self._began_s, since_s)
        return self._done_s[place] if place < len(self._done_s) else None


def _written_s(execution: Execution) -> float:
    return execution.writes_s or execution.began_s


def _executions(evidence: Evidence) -> dict[Partition, list[Execution]]:
    """Return the executions that wrote rows of each partition, in the order of their writes."""
    names: dict[Partition, set[str]] = defaultdict(set)
    for row in evidence.append:
        names[row.topic, row.partition].add(row.execution)
    known = evidence.facts.executions
    return {
        partition: sorted(
            (known[each] for each in found if each in known),
            key=_written_s,
        )
        for partition, found in names.items()
    }


def _of_brokers(
    evidence: Evidence, written: Mapping[Partition, Sequence[Execution]]
) -> Iterable[_Hit]:
    for disruption in evidence.disruptions:
        there = {p for p, found in written.items() if found[0].began_s < disruption.from_s}
        yield _Hit(
            disruption.kind,
            f"broker {disruption.node}",
            disruption.from_s,
            disruption.down_s,
            frozenset(there),
        )


def _of_members(
    evidence: Evidence, written: Mapping[Partition, Sequence[Execution]]
) -> Iterable[_Hit]:
    """Return what happened to processes: a partition was theirs if they wrote it last.

    The ends of all members, when everything was read, are no faults.
    """
    last_s = max((_written_s(found[-1]) for found in written.values()), default=0.0)
    for run in evidence.facts.runs.values():
        for kind, at_s in _faults_of(run, evidence.session_s):
            if at_s > last_s:
                continue
            owners = _last_writers(written, at_s)
            theirs = {partition for partition, owner in owners.items() if owner == run.key}
            if theirs:
                yield _Hit(kind, str(run.key), at_s, at_s, frozenset(theirs))


def _last_writers(
    written: Mapping[Partition, Sequence[Execution]], at_s: float
) -> dict[Partition, RunKey]:
    """Return which process wrote each partition last before a time."""
    before = {
        partition: [each.run for each in found if _written_s(each) < at_s]
        for partition, found in written.items()
    }
    return {partition: runs[-1] for partition, runs in before.items() if runs}


def _of_troubles(
    evidence: Evidence, written: Mapping[Partition, Sequence[Execution]]
) -> Iterable[_Hit]:
    """Return faults of networks and disks: a partition was hit if a member there wrote it last."""
    for trouble in evidence.troubles:
        if trouble.part in (FaultClass.CLOCK, FaultClass.RESETS):
            continue
        owners = _last_writers(written, trouble.from_s)
        theirs = {
            partition for partition, owner in owners.items() if owner.member in trouble.members
        }
        if theirs:
            # What a member reads while its disk is full it does not finish.
            after_s = trouble.until_s if trouble.part is FaultClass.DISK else trouble.from_s
            target = ", ".join(trouble.members)
            yield _Hit(trouble.kind, target, trouble.from_s, after_s, frozenset(theirs))


def _faults_of(run: Run, session_s: float) -> Iterable[tuple[str, float]]:
    for span in run.frozen:
        is_beyond = span.until_s is None or span.until_s - span.from_s > session_s
        yield FROZEN_BEYOND if is_beyond else FROZEN_WITHIN, span.from_s
    if run.ended_s is not None and run.end in (End.KILLED, End.STOPPED):
        yield run.end.value, run.ended_s


def _recovery(kind: str, faults: Sequence[FaultRecovery]) -> Recovery:
    known = [fault.read_after_s for fault in faults if fault.read_after_s is not None]
    committed = [fault.committed_after_s for fault in faults if fault.committed_after_s is not None]
    return Recovery(
        kind=kind,
        faults=len(known),
        unseen=len(faults) - len(known),
        reads_median_s=median(known or [0.0]),
        reads_max_s=max(known, default=0.0),
        commits_median_s=median(committed or [0.0]),
        commits_max_s=max(committed, default=0.0),
    )


def _took_s(hit: _Hit, signs: Mapping[Partition, _Later]) -> float | None:
    """Return how long it took until all partitions had a sign of life; None: some had none."""
    latest_s = hit.from_s
    for partition in hit.partitions:
        first_s = signs[partition].first_s(hit.since_s) if partition in signs else None
        if first_s is None:
            return None
        latest_s = max(latest_s, first_s)
    return latest_s - hit.from_s


def _longest_pauses(
    evidence: Evidence, written: Mapping[Partition, Sequence[Execution]]
) -> tuple[Pause, Pause]:
    """Return the longest pause without any fault, and the longest beside a fault."""
    beside: dict[str, set[Partition]] = defaultdict(set)
    for partition, found in written.items():
        for each in found:
            beside[each.name].add(partition)
    unaffected = neighbour = Pause()
    for partition, found in written.items():
        for earlier, later in pairwise(found):
            from_s, until_s = _written_s(earlier), _written_s(later)
            takes_s = until_s - from_s
            if takes_s <= min(unaffected.takes_s, neighbour.takes_s):
                continue
            if not _is_of_one_process(evidence, partition, earlier, later):
                continue
            hit = _led_by_hit(evidence.disruptions, from_s, until_s)
            if partition in hit:
                continue
            pause = Pause(takes_s, partition, str(earlier.run), from_s)
            if hit & (beside[earlier.name] | beside[later.name]):
                neighbour = max(neighbour, pause, key=lambda each: each.takes_s)
            else:
                unaffected = max(unaffected, pause, key=lambda each: each.takes_s)
    return unaffected, neighbour


def _is_of_one_process(
    evidence: Evidence, partition: Partition, earlier: Execution, later: Execution
) -> bool:
    """Whether one process had the partition all the time, and no fault hit it or what it uses."""
    if earlier.run != later.run:
        return False
    run, until_s = evidence.facts.runs[earlier.run], _written_s(later)
    gone = any(
        earlier.began_s <= departure.at_s <= until_s
        for departure in run.departures.get(partition, ())
    )
    hit = any(
        span.from_s <= until_s and (span.until_s is None or span.until_s >= earlier.began_s)
        for span in (*run.frozen, *run.slow, *_cut_off(evidence, run))
    )
    return not gone and not hit


def _cut_off(evidence: Evidence, run: Run) -> Iterable[Span]:
    """Return when its network or disk had faults, with the time that a process needs to recover."""
    for trouble in evidence.troubles:
        is_other = trouble.part in (FaultClass.CLOCK, FaultClass.RESETS)
        if run.key.member in trouble.members and not is_other:
            yield Span(trouble.from_s, trouble.until_s + evidence.session_s)


def _led_by_hit(
    disruptions: Iterable[Disruption], from_s: float, until_s: float
) -> frozenset[Partition]:
    """Return the partitions whose leader had a fault in a time."""
    return frozenset(
        partition
        for disruption in disruptions
        if disruption.from_s <= until_s and disruption.in_sync_s >= from_s
        for partition in disruption.led
    )
