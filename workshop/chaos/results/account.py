"""Compares the sinks with the records produced: losses, duplicates, order, checksums.

A record may be in the append sink more than once for a documented reason: Spark runs a batch again
that is not in its commit log, and the next owner of a partition reads again the records whose
offsets Kafka has not committed. So each duplicate is traced to the batch that had the record
before, and to the end of the process that ran it. A duplicate without such a cause is a failure,
and so is one that was read after Kafka had accepted an offset beyond it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from workshop.chaos.faults.schedule import FaultClass
from workshop.chaos.results.commit_history import highest_so_far, is_within, overruled, went_back
from workshop.chaos.results.facts import (
    DELETED_OFFSET,
    Batch,
    Commit,
    Deletion,
    Disruption,
    End,
    Execution,
    Facts,
    Note,
    Partition,
    Run,
    Span,
    Trouble,
)

_NOTHING_DELETED: Final[Mapping[Partition, Set[int]]] = MappingProxyType({})
GIVEN_UP_AFTER: Final = 0.9
"""The share of the rebalance timeout after which a member gives partitions up, at least."""
EXAMPLES: Final = 5
"""How many failures of each kind are described."""


class Cause(Enum):
    """Why a record is in the append sink again; the value says it in a report."""

    REPLAYED_KILLED = "killed before commits/N was written: Spark ran the batch again"
    REPLAYED_STOPPED = "stopped before commits/N was written: Spark ran the batch again"
    REPLAYED_NO_ROOM = "a full disk before commits/N was written: Spark ran the batch again"
    REPLAYED_FAILED = "failed before commits/N was written: Spark ran the batch again"
    KILLED_IN_BATCH = "killed before commits/N was written, and the partition moved"
    KILLED_BEFORE_COMMIT = "killed between commits/N and Kafka's commit, and the partition moved"
    STOPPED = "stopped before the batch was known to be finished, and the partition moved"
    STOPPED_UNANSWERED = "stopped without an answer to its offset commit, and the partition moved"
    NO_ROOM = "a full disk with the batch in hand, and the partition moved"
    FAILED = "the query failed with the batch in hand, and the partition moved"
    RESET = "committed offsets were set back, or deleted, while no member ran"
    RESTORED = "an older checkpoint, or a copied one: Spark ran its last batch again"
    FENCED_FROZEN = "stood still beyond its session with the batch in hand"
    FENCED_BY_NETWORK = "lost its session to a fault of the network with the batch in hand"
    FENCED_BY_BROKER = "lost its session to a broker's fault with the batch in hand"
    FENCED_BY_LOAD = "lost its session to load with the batch in hand"
    GIVEN_UP = "the batch outlasted the rebalance timeout"
    PLAIN_KILLED = "plain consumer: killed between its write and its commit"
    PLAIN_FENCED = "plain consumer: stood still beyond its session before its commit"
    PLAIN_FENCED_BY_NETWORK = "plain consumer: lost its session to a fault of the network"
    PLAIN_FENCED_BY_BROKER = "plain consumer: lost its session to a broker's fault"
    PLAIN_FENCED_BY_LOAD = "plain consumer: lost its session to load before its commit"
    PLAIN_REFUSED = "plain consumer: its commit was refused for good, or not answered"
    PLAIN_NO_ROOM = "plain consumer: a full disk between its write and its commit"
    PLAIN_FAILED = "plain consumer: failed between its write and its commit"
    NONE = "NO CAUSE IS KNOWN"


class SessionLoss(Enum):
    """Why a process lost its session."""

    FROZEN = "it stood still"
    NETWORK = "its network had a fault"
    BROKER = "a broker had a fault"
    CLOCK = "its clock jumped"
    LOAD = "load: no fault hit the process, its network or a broker"


_FENCED: Final = {
    SessionLoss.FROZEN: Cause.FENCED_FROZEN,
    SessionLoss.NETWORK: Cause.FENCED_BY_NETWORK,
    SessionLoss.BROKER: Cause.FENCED_BY_BROKER,
    SessionLoss.CLOCK: Cause.FENCED_BY_LOAD,
    SessionLoss.LOAD: Cause.FENCED_BY_LOAD,
}
_REPLAYED: Final = {
    End.KILLED: Cause.REPLAYED_KILLED,
    End.STOPPED: Cause.REPLAYED_STOPPED,
    End.NO_ROOM: Cause.REPLAYED_NO_ROOM,
    End.FAILED: Cause.REPLAYED_FAILED,
    End.REFUSED: Cause.REPLAYED_FAILED,
    End.LED_AWAY: Cause.REPLAYED_FAILED,
}
_IN_HAND: Final = {
    End.STOPPED: Cause.STOPPED,
    End.NO_ROOM: Cause.NO_ROOM,
    End.FAILED: Cause.FAILED,
    End.REFUSED: Cause.FAILED,
    End.LED_AWAY: Cause.FAILED,
}
"""What the end of a process means for a batch that was not known to be finished."""
_PLAIN: Final = {
    Cause.KILLED_IN_BATCH: Cause.PLAIN_KILLED,
    Cause.FENCED_FROZEN: Cause.PLAIN_FENCED,
    Cause.FENCED_BY_NETWORK: Cause.PLAIN_FENCED_BY_NETWORK,
    Cause.FENCED_BY_BROKER: Cause.PLAIN_FENCED_BY_BROKER,
    Cause.FENCED_BY_LOAD: Cause.PLAIN_FENCED_BY_LOAD,
    Cause.NO_ROOM: Cause.PLAIN_NO_ROOM,
    Cause.FAILED: Cause.PLAIN_FAILED,
    Cause.PLAIN_REFUSED: Cause.PLAIN_REFUSED,
}
"""What a plain consumer's causes are called; it is not to lose a batch in any other way."""


class SinkRow(NamedTuple):
    """A row of a sink.

    Args:
        execution: Which execution of a batch wrote it.
        topic: Its topic.
        partition: The index of its partition.
        offset: Its offset.
        is_right: Whether its checksum is right, and it belongs where it was read.
    """

    execution: str
    topic: str
    partition: int
    offset: int
    is_right: bool


@dataclass(frozen=True, slots=True)
class TableEvidence:
    """A table that is to hold each record once.

    Args:
        rows: Its rows, in any order; read once.
        entries: The first and the next offset of each partition, as its fence has them.
    """

    rows: Iterable[SinkRow]
    entries: Mapping[Partition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an account is made of.

    Args:
        ends: The next offset to be written of each partition: all below it was produced.
        append: Rows of the append sink, those of one execution in the order of the file.
        tables: The tables, by name.
        facts: What the processes noted.
        commits: What Kafka accepted, by partition, in its order.
        session_s: The group's session timeout, in seconds.
        rebalance_timeout_s: The rebalance timeout of its members, in seconds.
        disruptions: Faults of brokers.
        troubles: Faults of the machine and the network of members.
        deletions: Deletions of records, read or not, which may have failed.
        starts: The first offsets of partitions that have deletions.
        short_lived: The topics that have deletions; they are not in the tables.
    """

    ends: Mapping[Partition, int]
    append: Sequence[SinkRow]
    tables: Mapping[str, TableEvidence]
    facts: Facts
    commits: Mapping[Partition, Sequence[Commit]]
    session_s: float
    rebalance_timeout_s: float
    disruptions: tuple[Disruption, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    starts: Mapping[Partition, int] = field(default_factory=dict)
    short_lived: frozenset[str] = frozenset()

    @property
    def resets(self) -> tuple[Span, ...]:
        """When no member ran, and an operator changed something."""
        found = (trouble for trouble in self.troubles if trouble.part is FaultClass.RESETS)
        return tuple(Span(each.from_s, each.until_s) for each in found)


@dataclass(slots=True)
class SinkAccount:
    """The result of one sink.

    Args:
        rows: How many rows it holds.
        lost: Produced records that it does not hold, and should.
        deleted: Records that it does not hold because they were deleted before they were read.
        doubled: Rows beyond the first of each record.
        disordered: Rows that came before their predecessor.
        wrong: Rows with a wrong checksum, or in a wrong place.
        foreign: Rows of records that were never produced.
        misfenced: Partitions of a table whose entry is not that of its rows.
    """

    rows: int = 0
    lost: int = 0
    deleted: int = 0
    doubled: int = 0
    disordered: int = 0
    wrong: int = 0
    foreign: int = 0
    misfenced: int = 0


@dataclass(slots=True)
class Account:
    """The result.

    Args:
        produced: How many records were produced.
        append: The append sink.
        tables: The tables, by name.
        causes: How many doubled rows of the append sink have which cause.
        table_causes: How many doubled rows of each table that has some have which cause.
        replays: How often Spark ran a batch again.
        replays_differ: Batches that had other rows, or another plan, when they were run again.
        gaps: What tables refused because rows before it were missing.
        went_back: Committed offsets that went back, without a reset.
        overruled: Resets after which a record was not read again.
        sessions_lost: How many sessions were lost for which reason.
        late_heartbeats: Heartbeats that were found overdue though nothing was done to any of them.
        latest_heartbeat_s: By how many seconds the worst of them was.
        failures: What processes died of that ended by themselves.
        examples: Descriptions of some failures.
    """

    produced: int
    append: SinkAccount
    tables: dict[str, SinkAccount]
    causes: Counter[Cause] = field(default_factory=Counter)
    table_causes: dict[str, Counter[Cause]] = field(default_factory=dict)
    replays: int = 0
    replays_differ: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    went_back: list[str] = field(default_factory=list)
    overruled: list[str] = field(default_factory=list)
    sessions_lost: Counter[SessionLoss] = field(default_factory=Counter)
    late_heartbeats: int = 0
    latest_heartbeat_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Return what must not be, in words; empty: the run is good."""
        sinks = [self.append, *self.tables.values()]
        found = {
            "records lost in the append sink": self.append.lost,
            **{f"records lost in {name}": table.lost for name, table in self.tables.items()},
            **{f"rows doubled in {name}": table.doubled for name, table in self.tables.items()},
            **{
                f"partitions of {name} whose entry is not that of its rows": table.misfenced
                for name, table in self.tables.items()
            },
            "doubled rows of the append sink without a cause": self.causes[Cause.NONE],
            "rows out of order in the append sink": self.append.disordered,
            "rows with a wrong checksum or place": sum(sink.wrong for sink in sinks),
            "rows of records that were never produced": sum(sink.foreign for sink in sinks),
            "replays that differ": len(self.replays_differ),
            "gaps refused by a table": len(self.gaps),
            "committed offsets that went back": len(self.went_back),
            "resets that were overruled": len(self.overruled),
            "processes that ended by themselves": len(self.failures),
            "sessions lost to jumps of a clock": self.sessions_lost[SessionLoss.CLOCK],
        }
        return [f"{count:,} {what}" for what, count in found.items() if count]


def account(evidence: Evidence) -> Account:
    """Compare the sinks with the records produced.

    Args:
        evidence: All that is known.
    """
    facts = evidence.facts
    executions = facts.executions

    def wrote_at_s(row: SinkRow) -> float:
        execution = executions.get(row.execution)
        return execution.writes_s or execution.began_s if execution else 0.0

    append = sorted(evidence.append, key=wrote_at_s)
    examples: list[str] = []
    in_tables = {
        each: end for each, end in evidence.ends.items() if each[0] not in evidence.short_lived
    }
    result = Account(
        produced=sum(evidence.ends.values()),
        append=sink_account("append", append, evidence.ends, examples, deleted=_deleted(evidence)),
        tables={},
        gaps=list(facts.gaps),
        went_back=went_back(evidence.commits, evidence.resets),
        overruled=overruled(evidence.commits, evidence.resets, executions.values(), in_tables),
        failures=[
            f"{run.key}: {run.failure or 'it left no word'}"
            for run in facts.runs.values()
            if _has_failed(evidence, run)
        ],
        examples=examples,
    )
    _account_replays(evidence, result)
    _account_sessions(evidence, result)
    doubles = _Doubles(evidence, result)
    result.causes = doubles.account(append)
    for name, table in evidence.tables.items():
        rows = list(table.rows)
        found = sink_account(name, rows, in_tables, examples, entries=table.entries)
        result.tables[name] = found
        if found.doubled:
            result.table_causes[name] = doubles.account(rows, name)
    return result


def sink_account(
    name: str,
    rows: Iterable[SinkRow],
    ends: Mapping[Partition, int],
    examples: list[str],
    *,
    entries: Mapping[Partition, tuple[int, int]] | None = None,
    deleted: Mapping[Partition, Set[int]] = _NOTHING_DELETED,
) -> SinkAccount:
    """Compare the rows of a sink with the records produced; those of a table have no order."""
    found = SinkAccount()
    seen: dict[Partition, set[int]] = defaultdict(set)
    last: dict[tuple[str, Partition], int] = {}
    described: Counter[str] = Counter()

    def describe(kind: str, row: SinkRow) -> None:
        described[kind] += 1
        if described[kind] <= EXAMPLES:
            place = f"{row.topic}-{row.partition} at {row.offset}"
            examples.append(f"{name}: {kind}: {place}, written by {row.execution}")

    for row in rows:
        partition = (row.topic, row.partition)
        found.rows += 1
        if not row.is_right:
            found.wrong += 1
            describe("wrong checksum or place", row)
        if row.offset >= ends.get(partition, 0):
            found.foreign += 1
            describe("never produced", row)
            continue
        offsets = seen[partition]
        is_new = row.offset not in offsets
        # The first of each record comes after its predecessor, and no execution goes back.
        before = row.offset - 1
        is_there = before < 0 or before in offsets or before in deleted.get(partition, ())
        too_early = is_new and not is_there
        goes_back = row.offset <= last.get((row.execution, partition), -1)
        if entries is None and (too_early or goes_back):
            found.disordered += 1
            describe("out of order", row)
        last[row.execution, partition] = row.offset
        if not is_new:
            found.doubled += 1
            if entries is not None:
                describe("doubled", row)
        offsets.add(row.offset)
    for partition, end in sorted(ends.items()):
        missing = set(range(end)) - seen[partition]
        found.deleted += len(missing & deleted.get(partition, frozenset()))
        missing -= deleted.get(partition, frozenset())
        if missing:
            where = f"{partition[0]}-{partition[1]}, the first at {min(missing)}"
            examples.append(f"{name}: lost: {len(missing)} of {where}")
        found.lost += len(missing)
    if entries is not None:
        _account_fence(name, seen, entries, found, examples)
    return found


def _deleted(evidence: Evidence) -> dict[Partition, frozenset[int]]:
    """Return what may have been deleted before it was read: it was not committed by then."""
    found: dict[Partition, frozenset[int]] = {}
    for deletion in evidence.deletions:
        history = evidence.commits.get(deletion.partition, ())
        committed = max((one.offset for one in history if one.at_s <= deletion.at_s), default=0)
        gone = min(deletion.before_offset, evidence.starts.get(deletion.partition, 0))
        unread = frozenset(range(committed, gone))
        found[deletion.partition] = found.get(deletion.partition, frozenset()) | unread
    return found


def _account_fence(
    name: str,
    seen: Mapping[Partition, set[int]],
    entries: Mapping[Partition, tuple[int, int]],
    found: SinkAccount,
    examples: list[str],
) -> None:
    """Compare the entries of a table with its rows."""
    for partition in sorted({*seen, *entries}):
        first, following = entries.get(partition, (0, 0))
        offsets = seen.get(partition, set())
        if offsets != set(range(first, following)):
            found.misfenced += 1
            where = f"{partition[0]}-{partition[1]}: the entry is [{first}, {following})"
            least, most = min(offsets, default=0), max(offsets, default=-1) + 1
            examples.append(f"{name}: {where}, the rows are {len(offsets)} of [{least}, {most})")


def _account_replays(evidence: Evidence, result: Account) -> None:
    facts = evidence.facts
    result.replays_differ += facts.changed_plans
    for batch in facts.batches.values():
        result.replays += sum(execution.is_replay for execution in batch.executions)
        digests = {
            execution.digest for execution in batch.executions if execution.digest is not None
        }
        if len(digests) > 1:
            result.replays_differ.append(f"batch {batch.key.number} of {batch.key.member}")


def _account_sessions(evidence: Evidence, result: Account) -> None:
    for run in evidence.facts.runs.values():
        lost_s = {
            departure.at_s
            for departures in run.departures.values()
            for departure in departures
            if departure.how is Note.LOST
        }
        for at_s in lost_s:
            result.sessions_lost[session_loss(evidence, run, at_s)] += 1
        for at_s, overdue_s in run.late:
            if session_loss(evidence, run, at_s) in (SessionLoss.CLOCK, SessionLoss.LOAD):
                result.late_heartbeats += 1
                result.latest_heartbeat_s = max(result.latest_heartbeat_s, overdue_s)


def session_loss(evidence: Evidence, run: Run, at_s: float) -> SessionLoss:
    """Return why a process lost its session.

    A fault is a cause only if it lasted when the coordinator accepted the last heartbeat, or
    began in the first half of a session after that. What lasts for less, or began later, hit a
    member that was silent already.

    Args:
        evidence: All that is known.
        run: The process.
        at_s: When it learned of that, in seconds of the wall clock.
    """
    is_clock = _is_hit(evidence, run, at_s, _spans(evidence, run, FaultClass.CLOCK))
    # Where a clock jumped, too, the other brokers are no excuse: they do not answer heartbeats.
    disrupted = [
        Span(disruption.from_s, disruption.in_sync_s)
        for disruption in evidence.disruptions
        if disruption.coordinated or not is_clock
    ]
    faults = {
        SessionLoss.FROZEN: run.frozen,
        SessionLoss.NETWORK: _spans(evidence, run, FaultClass.NETWORK),
        SessionLoss.BROKER: disrupted,
    }
    causes = (loss for loss, spans in faults.items() if _is_hit(evidence, run, at_s, spans))
    return next(causes, SessionLoss.CLOCK if is_clock else SessionLoss.LOAD)


def _is_hit(evidence: Evidence, run: Run, at_s: float, spans: Iterable[Span]) -> bool:
    """Whether one of these faults can be why the coordinator accepted no heartbeat."""
    session_s = evidence.session_s
    silence = _silence(run, at_s, session_s)
    # A plain consumer does not tell when its heartbeats were accepted.
    after_s = session_s if run.is_plain else session_s / 2
    first_s, last_s = (at_s, at_s - after_s) if silence is None else silence
    return any(
        span.from_s <= first_s and (span.until_s is None or span.until_s >= last_s)
        for span in spans
    )


def _silence(run: Run, at_s: float, session_s: float) -> tuple[float, float] | None:
    """Return until when a fault must have begun, and from when on it must have lasted.

    None: the coordinator accepted heartbeats, or the process does not tell.
    """
    began_s = [
        noted_s - silent_s
        for noted_s, silent_s in run.silent
        if noted_s - silent_s <= at_s <= noted_s + session_s
    ]
    return (began_s[-1] + session_s / 2, began_s[-1]) if began_s else None


def _spans(evidence: Evidence, run: Run, part: FaultClass) -> list[Span]:
    """Return when the process's own machine or network had faults of a class."""
    return [
        Span(trouble.from_s, trouble.until_s)
        for trouble in evidence.troubles
        if trouble.part is part and run.key.member in trouble.members
    ]


def _has_failed(evidence: Evidence, run: Run) -> bool:
    """Whether a process failed, perhaps before a fault ended it; not for want of room on a disk."""
    if run.end is End.REFUSED:
        began_s = run.began_s or 0.0
        deleted = (each for history in evidence.commits.values() for each in history)
        return not any(e.offset == DELETED_OFFSET and e.at_s <= began_s for e in deleted)
    if run.end is End.FAILED:
        return True
    ended_s = run.ended_s or 0.0
    if run.end is End.LED_AWAY:
        spans = _spans(evidence, run, FaultClass.NETWORK)
        return not any(
            span.from_s <= ended_s <= (span.until_s or ended_s) + evidence.session_s
            for span in spans
        )
    is_full = any(
        each.from_s <= ended_s and (each.until_s or 0.0) + evidence.session_s >= ended_s
        for each in _spans(evidence, run, FaultClass.DISK)
    )
    return not is_full and (run.end is End.NO_ROOM or run.failure is not None)


class _Doubles:
    """Determines why records are in a sink again.

    Args:
        evidence: All that is known.
        result: Where doubles without a cause are described.
    """

    def __init__(self, evidence: Evidence, result: Account) -> None:
        self._facts = evidence.facts
        self._evidence = evidence
        self._session_s = evidence.session_s
        self._result = result
        self._commits = {
            partition: (
                [each.at_s for each in history],
                highest_so_far(history, evidence.resets),
            )
            for partition, history in evidence.commits.items()
        }

    def account(self, rows: Iterable[SinkRow], sink: str = "append") -> Counter[Cause]:
        """Return how many doubles of a sink have which cause."""
        found: Counter[Cause] = Counter()
        written: dict[tuple[Partition, int], list[str]] = defaultdict(list)
        for row in rows:
            written[(row.topic, row.partition), row.offset].append(row.execution)
        for (partition, offset), names in written.items():
            if len(names) > 1:
                for cause, why in self._causes(partition, offset, names):
                    found[cause] += 1
                    if cause is Cause.NONE and found[cause] <= EXAMPLES:
                        topic, index = partition
                        place = f"{topic}-{index} at {offset}"
                        self._result.examples.append(f"{sink}: doubled: {place}: {why}")
        return found

    def _causes(
        self, partition: Partition, offset: int, names: Sequence[str]
    ) -> Iterable[tuple[Cause, str]]:
        by_batch: dict[int, tuple[Batch, list[Execution]]] = {}
        for name in names:
            execution = self._facts.executions.get(name)
            if execution is None:
                yield Cause.NONE, f"the journals lack the execution {name}"
                continue
            first, following = execution.ranges.get(partition, (0, 0))
            if not first <= offset < following:
                yield Cause.NONE, f"{name} wrote it, whose plan does not have it"
                continue
            batch = self._facts.batches[execution.batch]
            by_batch.setdefault(id(batch), (batch, []))[1].append(execution)
        ordered = sorted(by_batch.values(), key=lambda each: _planned_s(each[0], partition))
        for batch, executions in ordered:
            executions.sort(key=lambda each: each.began_s)
            for earlier, later in pairwise(executions):
                yield self._why_replayed(batch, earlier, later), f"{later.name} ran it again"
        for (earlier_batch, _), (later_batch, _) in pairwise(ordered):
            yield self._why_read_again(partition, offset, earlier_batch, later_batch)

    def _why_replayed(self, batch: Batch, earlier: Execution, later: Execution) -> Cause:
        run = self._facts.runs[earlier.run]
        finished_s = batch.finished_s
        was_finished = finished_s is not None and finished_s < later.began_s
        # Spark runs the batch of the last plan again, with the ranges that the plan has.
        is_same = later.is_replay and later.ranges == earlier.ranges
        if is_same and self._is_restored(batch, earlier.began_s, later.began_s):
            return Cause.RESTORED
        if earlier.run == later.run or not is_same or was_finished or run.end is None:
            return Cause.NONE
        return _REPLAYED[run.end]

    def _why_read_again(
        self, partition: Partition, offset: int, earlier: Batch, later: Batch
    ) -> tuple[Cause, str]:
        planned_s = _planned_s(later, partition)
        committed = self._committed(partition, planned_s)
        names = f"{later.executions[0].name} read it after {earlier.executions[0].name}"
        had_s = _planned_s(earlier, partition)
        is_restored = self._is_restored(later, had_s, later.executions[0].began_s)
        if is_restored and later.executions[0].is_replay:
            return Cause.RESTORED, names
        if committed > offset:
            return Cause.NONE, f"{names}, though {committed} was committed"
        if self._is_reset(partition, had_s, planned_s):
            return Cause.RESET, names
        is_same = later.key[:2] == earlier.key[:2] and not is_restored
        if is_same and not self._is_plain(earlier):
            return Cause.NONE, f"{names}, with another plan"
        run = self._facts.runs[earlier.planned_by]
        cause = self._why_uncommitted(run, partition, earlier, planned_s)
        return (_PLAIN.get(cause, Cause.NONE) if run.is_plain else cause), names

    def _why_uncommitted(
        self, run: Run, partition: Partition, batch: Batch, planned_again_s: float
    ) -> Cause:
        """Return why a process did not commit a batch before the partition was planned again."""
        if batch.key.number in run.refused:
            return Cause.PLAIN_REFUSED
        had_s = _planned_s(batch, partition)
        departures = run.departures.get(partition, [])
        departure = next((each for each in departures if each.at_s >= had_s), None)
        if departure is not None and run.failure is not None and run.ended_s is not None:
            # What it gives up after its failure belongs to its end.
            departure = departure if departure.at_s < run.ended_s else None
        if departure is None:
            return self._of_end(run, batch, partition, planned_again_s)
        if departure.how is Note.LOST:
            return self._fenced(run, departure.at_s)
        # If it was revoked in good order, everything was committed before.
        is_late = departure.at_s - had_s >= self._evidence.rebalance_timeout_s * GIVEN_UP_AFTER
        return Cause.GIVEN_UP if departure.how is Note.GIVEN_UP and is_late else Cause.NONE

    def _of_end(
        self, run: Run, batch: Batch, partition: Partition, planned_again_s: float
    ) -> Cause:
        """Return what the end of a process explains that had a batch in hand until then."""
        if run.end is None or run.ended_s is None:
            return Cause.NONE
        if run.ended_s > planned_again_s:
            # The coordinator had removed it already; it never learned of that.
            return self._fenced(run, planned_again_s)
        if run.end is End.STOPPED and run.left_s is not None:
            return self._of_stop(run, batch, partition, run.left_s)
        if run.end is not End.KILLED:
            return _IN_HAND[run.end]
        finished_s = batch.finished_s
        is_finished = finished_s is not None and finished_s <= run.ended_s
        return Cause.KILLED_BEFORE_COMMIT if is_finished else Cause.KILLED_IN_BATCH

    def _of_stop(self, run: Run, batch: Batch, partition: Partition, left_s: float) -> Cause:
        """Return what a stop in good order explains: it commits all known to be finished."""
        finished_s = batch.finished_s
        is_reported = run.reports_batches and finished_s is not None and finished_s <= left_s
        if run.key not in batch.proven_by and not is_reported:
            return Cause.STOPPED
        if partition not in run.uncommitted:
            return Cause.NONE
        why = session_loss(self._evidence, run, left_s)
        is_late = any(left_s - self._session_s <= at_s <= left_s for at_s, _ in run.late)
        has_cause = is_late if why is SessionLoss.LOAD else why is not SessionLoss.CLOCK
        return Cause.STOPPED_UNANSWERED if has_cause else Cause.NONE

    def _is_restored(self, batch: Batch, after_s: float, until_s: float) -> bool:
        return self._facts.is_restored(batch.key.member, after_s, until_s)

    def _is_reset(self, partition: Partition, after_s: float, until_s: float) -> bool:
        """Return whether a committed offset was set, or deleted, while no member ran."""
        times, _ = self._commits.get(partition, ([], []))
        within = times[bisect_left(times, after_s) : bisect_left(times, until_s)]
        return any(is_within(each, self._evidence.resets) for each in within)

    def _is_plain(self, batch: Batch) -> bool:
        return self._facts.runs[batch.planned_by].is_plain

    def _fenced(self, run: Run, at_s: float) -> Cause:
        """Return why a session was lost; it was not if the coordinator accepted heartbeats."""
        cause = _FENCED[session_loss(self._evidence, run, at_s)]
        was_silent = _silence(run, at_s, self._session_s) is not None
        # A plain consumer does not tell when its heartbeats were accepted.
        is_known = run.is_plain or cause is Cause.FENCED_FROZEN or was_silent
        return cause if is_known else Cause.NONE

    def _committed(self, partition: Partition, before_s: float) -> int:
        """Return the highest offset that was committed before a time."""
        times, highest = self._commits.get(partition, ([], []))
        known = bisect_left(times, before_s)
        return highest[known - 1] if known else -1


def _planned_s(batch: Batch, partition: Partition) -> float:
    return batch.planned_s.get(partition, batch.executions[0].began_s)
