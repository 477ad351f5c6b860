"""The facts of a run as values, read from the notes of its processes.

Each process appends one JSON object per line to a file of its own: what it is about to do, and
what it did. A line reaches the kernel in one write, so a process that is killed has noted all that
it came to. Times are seconds of the machine's wall clock: the broker's are, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from workshop.chaos.faults.schedule import FaultClass

Partition = tuple[str, int]
"""A partition by the name of its topic: no topic is deleted in a run."""


class Note(str, Enum):
    """What processes note; the value is the field `what` of the line."""

    BEGINS = "begins"
    PLANNED = "planned"
    LOGGED = "logged"
    READS = "reads"
    READ = "read"
    WRITES = "writes"
    FINISHED = "finished"
    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
    GIVEN_UP = "given up"
    LATE = "late"
    SILENT = "silent"
    CRASHES = "crashes"
    GAP = "gap"
    FAILS = "fails"
    PROVEN = "proven"
    LEAVES = "leaves"
    LEFT = "left"
    REFUSED = "refused"
    KILLED = "killed"
    FROZE = "froze"
    THAWED = "thawed"
    SLOWED = "slowed"
    ENDED = "ended"
    RESTORED = "another checkpoint restored"
    GREW = "a topic gets partitions"


class RunKey(NamedTuple):
    """One process of a member, from its start to its end."""

    member: str
    number: int

    def __str__(self) -> str:
        return f"{self.member}.{self.number}"


class BatchKey(NamedTuple):
    """A batch of a member: a query's by its number and plan, a plain consumer's by its run too."""

    member: str
    number: int
    plan: str


class End(Enum):
    """How a process ended."""

    KILLED = "killed by SIGKILL"
    STOPPED = "ended on SIGTERM"
    FAILED = "ended by itself"
    NO_ROOM = "ended because a disk was full"
    REFUSED = "refused to start: committed offsets were deleted"
    LED_AWAY = "refused to start: its address led to another cluster"


class Departure(NamedTuple):
    """How a partition went away from a member."""

    at_s: float
    how: Note


class Span(NamedTuple):
    """A time, in seconds; `until_s` is None as long as it lasts."""

    from_s: float
    until_s: float | None


@dataclass(frozen=True, slots=True)
class Disruption:
    """A fault of a broker, as it was carried out.

    Args:
        kind: What went wrong.
        node: The node id.
        from_s: When it began.
        down_s: From when on the broker did not answer.
        up_s: When it ran again.
        in_sync_s: When all replicas were in sync again.
        led: The partitions that it led when it began.
        coordinated: Whether it coordinated the group when it began.
    """

    kind: str
    node: int
    from_s: float
    down_s: float
    up_s: float
    in_sync_s: float
    led: tuple[Partition, ...]
    coordinated: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault of the machine or the network of members, as it was carried out.

    Args:
        part: Its class.
        kind: What went wrong.
        members: The members that it concerned.
        from_s: When it began.
        until_s: When it ended.
        where: The part of the network; empty: it was the machine.
    """

    part: FaultClass
    kind: str
    members: tuple[str, ...]
    from_s: float
    until_s: float
    where: str = ""


@dataclass(frozen=True, slots=True)
class Deletion:
    """Records that were deleted as retention does.

    Args:
        at_s: When it began.
        partition: Their partition.
        before_offset: The first offset that stays.
    """

    at_s: float
    partition: Partition
    before_offset: int


@dataclass(slots=True)
class Run:
    """What became of one process of a member.

    Args:
        key: Which one.
        is_plain: Whether it is a plain consumer.
        reports_batches: Whether its member learns that a batch is finished as soon as it is.
        began_s: When it began; None: it never did.
        end: How it ended; None: it did not.
        ended_s: When.
        point: The crash point that it was killed at, if it was one.
        departures: When which partitions went away, in the order of time.
        frozen: When it stood still.
        slow: When a batch was made slow.
        late: When a heartbeat was found to be overdue, and by how many seconds.
        silent: When the coordinator had accepted no heartbeat for so many seconds.
        refused: Batches whose offset commit was refused for good, or not answered.
        failure: What it died of, if it failed.
        left_s: When it had left the group in good order; None: it did not.
        uncommitted: Partitions whose offset commits were not answered by then.
    """

    key: RunKey
    is_plain: bool = False
    reports_batches: bool = False
    began_s: float | None = None
    end: End | None = None
    ended_s: float | None = None
    point: str | None = None
    departures: dict[Partition, list[Departure]] = field(default_factory=dict)
    frozen: list[Span] = field(default_factory=list)
    slow: list[Span] = field(default_factory=list)
    late: list[tuple[float, float]] = field(default_factory=list)
    silent: list[tuple[float, float]] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)
    failure: str | None = None
    left_s: float | None = None
    uncommitted: frozenset[Partition] = frozenset()


@dataclass(slots=True)
class Execution:
    """One time that a batch was run.

    Args:
        name: What its rows are marked with in the sinks.
        batch: The batch.
        run: The process.
        is_replay: Whether Spark runs an old batch again.
        began_s: When it began.
        ranges: The first and the next offset of each partition that it reads.
        writes_s: When it began to write; None: it never did.
        digest: That of the rows it read; None: it did not read all of them.
    """

    name: str
    batch: BatchKey
    run: RunKey
    is_replay: bool
    began_s: float
    ranges: Mapping[Partition, tuple[int, int]]
    writes_s: float | None = None
    digest: str | None = None


@dataclass(slots=True)
class Batch:
    """A batch, however often it was run.

    Args:
        key: Which one.
        planned_by: The process that planned it.
        planned_s: When it was known where its ranges begin, by partition.
        executions: Each time that it was run, in the order of time.
        finished_s: When it was in Spark's commit log; None: it never was.
        proven_by: The processes whose member knew that it was finished, and began to commit it.
    """

    key: BatchKey
    planned_by: RunKey
    planned_s: dict[Partition, float]
    executions: list[Execution] = field(default_factory=list)
    finished_s: float | None = None
    proven_by: set[RunKey] = field(default_factory=set)


class Commit(NamedTuple):
    """An offset that Kafka accepted; `DELETED_OFFSET`: it was deleted."""

    at_s: float
    offset: int


DELETED_OFFSET: Final = -1
"""The offset of a `Commit` that is a deletion."""


@dataclass(slots=True)
class Facts:
    """All that processes noted.

    Args:
        runs: By key.
        batches: By key.
        executions: By what rows are marked with.
        changed_plans: Batches of which offsets/N was there, and another plan was run.
        gaps: What sinks refused, because rows before it are missing.
        restored_s: When members were given other checkpoints than they had, in order.
    """

    runs: dict[RunKey, Run] = field(default_factory=dict)
    batches: dict[BatchKey, Batch] = field(default_factory=dict)
    executions: dict[str, Execution] = field(default_factory=dict)
    changed_plans: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    restored_s: dict[str, list[float]] = field(default_factory=dict)

    def is_restored(self, member: str, after_s: float, until_s: float) -> bool:
        """Return whether a member was given another checkpoint in a time."""
        return any(after_s < each <= until_s for each in self.restored_s.get(member, ()))


def execution_name(run: RunKey, batch: int) -> str:
    """Return what the rows of one execution are marked with.

    Args:
        run: The process.
        batch: The batch's number.
    """
    return f"{run}.{batch}"


def read_facts(
    lines: Iterable[str],
    plain_consumers: Iterable[str] = (),
    finished_s: Mapping[tuple[str, int], float] = MappingProxyType({}),
) -> Facts:
    """Make facts of what all processes noted.

    Args:
        lines: The lines of all of them; each process's own in the order in which it wrote them.
        plain_consumers: The members that are plain consumers.
        finished_s: When batches of Spark applications were written to the commit log, by member
            and number: they cannot note it.
    """
    reader = _Reader(frozenset(plain_consumers))
    for each in read_notes(lines):
        if Note(each["what"]) is not Note.GREW:
            reader.take(each)
    for (member, number), at_s in finished_s.items():
        reader.finish(member, number, at_s)
    return reader.facts


def read_notes(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the notes, in the order of time.

    Args:
        lines: The lines of all processes.
    """
    found = []
    for line in lines:
        try:
            note = json.loads(line)
        except ValueError:
            # A process was killed in the middle of its last line.
            continue
        if isinstance(note, dict) and "what" in note:
            found.append(note)
    return sorted(found, key=lambda each: float(each["at_s"]))


class _Reader:
    """Takes notes in the order of time."""

    def __init__(self, plain_consumers: frozenset[str]) -> None:
        self.facts = Facts()
        self._plain_consumers = plain_consumers
        self._planned: dict[tuple[str, int], BatchKey] = {}
        """The plan that offsets/N of a member may hold."""
        self._logged: dict[tuple[str, int], BatchKey] = {}
        """The plan that it does hold."""
        self._by_plan: dict[tuple[str, str], BatchKey] = {}
        self._assigned_s: dict[tuple[RunKey, Partition], float] = {}

    def take(self, note: Mapping[str, Any]) -> None:
        """Take one note."""
        kind, at_s = Note(note["what"]), float(note["at_s"])
        key = RunKey(note["member"], int(note["run"]))
        run = self.facts.runs.setdefault(
            key, Run(key, is_plain=key.member in self._plain_consumers)
        )
        if "batch" in note:
            self._of_batch(kind, at_s, run, note)
            return
        partitions = list(map(_partition, note.get("partitions", ())))
        if kind is Note.PROVEN:
            if proven := self._by_plan.get((key.member, note["plan"])):
                self.facts.batches[proven].proven_by.add(key)
            return
        if kind is Note.RESTORED:
            self._restored(key.member, at_s)
        if kind is Note.LEFT:
            run.left_s, run.uncommitted = at_s, frozenset(partitions)
            return
        for partition in partitions:
            if kind is Note.ASSIGNED:
                self._assigned_s[key, partition] = at_s
            else:
                run.departures.setdefault(partition, []).append(Departure(at_s, kind))
        self._of_run(kind, at_s, run, note)

    def finish(self, member: str, number: int, at_s: float) -> None:
        """Take note that a batch is in the commit log."""
        if key := self._logged.get((member, number)):
            self.facts.batches[key].finished_s = at_s

    def _of_run(self, kind: Note, at_s: float, run: Run, note: Mapping[str, Any]) -> None:
        match kind:
            case Note.BEGINS:
                run.began_s, run.reports_batches = at_s, bool(note.get("reports_batches"))
            case Note.LATE:
                run.late.append((at_s, float(note["overdue_s"])))
            case Note.SILENT:
                run.silent.append((at_s, float(note["silent_s"])))
            case Note.CRASHES:
                run.point, run.ended_s = note["point"], at_s
            case Note.LEAVES | Note.KILLED:
                run.ended_s = at_s
            case Note.FROZE:
                run.frozen.append(Span(at_s, None))
            case Note.THAWED if run.frozen:
                run.frozen[-1] = Span(run.frozen[-1].from_s, at_s)
            case Note.SLOWED:
                run.slow.append(Span(at_s, at_s + float(note["takes_s"])))
            case Note.FAILS:
                run.failure, run.ended_s = note["error"], at_s
            case Note.GAP:
                self.facts.gaps.append(f"{run.key}: {note['error']}")
            case Note.ENDED:
                # What the process said of it itself is more exact than when its end was noticed.
                run.end, run.ended_s = End(note["how"]), run.ended_s or at_s

    def _restored(self, member: str, at_s: float) -> None:
        """Forget the offset log of a member."""
        self.facts.restored_s.setdefault(member, []).append(at_s)
        for known in (self._planned, self._logged):
            for key in [each for each in known if each[0] == member]:
                del known[key]

    def _of_batch(self, what: Note, at_s: float, run: Run, note: Mapping[str, Any]) -> None:
        number = int(note["batch"])
        member = run.key.member
        name = execution_name(run.key, number)
        execution = self.facts.executions.get(name)
        match what:
            case Note.PLANNED:
                partitions = list(map(_partition, note["partitions"]))
                key = BatchKey(member, number, note["plan"])
                planned_s = {
                    partition: self._planned_s(run, partition, at_s) for partition in partitions
                }
                self.facts.batches.setdefault(key, Batch(key, run.key, planned_s))
                self._planned[member, number] = self._by_plan[member, key.plan] = key
            case Note.LOGGED:
                key = BatchKey(member, number, note["plan"])
                self._logged.setdefault((member, number), key)
            case Note.READS:
                self._begin(BatchKey(member, number, note["plan"]), run, name, at_s, note)
            case Note.READ if execution:
                execution.digest = note["digest"]
            case Note.WRITES if execution:
                execution.writes_s = at_s
            case Note.FINISHED if execution:
                self.facts.batches[execution.batch].finished_s = at_s
            case Note.REFUSED:
                run.refused.add(number)

    def _begin(
        self, key: BatchKey, run: Run, name: str, at_s: float, note: Mapping[str, Any]
    ) -> None:
        numbered = (key.member, key.number)
        expected = self._logged.get(numbered, self._planned.get(numbered))
        if expected is not None and expected != key:
            self.facts.changed_plans.append(f"batch {key.number} of {key.member}")
        batch = self.facts.batches.setdefault(key, Batch(key, run.key, {}))
        self._by_plan[key.member, key.plan] = key
        ranges = {(each[0], each[1]): (each[2], each[3]) for each in note.get("ranges", ())}
        execution = Execution(name, key, run.key, bool(note["replay"]), at_s, ranges)
        batch.executions.append(execution)
        self.facts.executions[name] = execution

    def _planned_s(self, run: Run, partition: Partition, at_s: float) -> float:
        """A plain consumer knows where it reads on from the moment it is assigned a partition."""
        return self._assigned_s.get((run.key, partition), at_s) if run.is_plain else at_s


def _partition(named: Any) -> Partition:
    topic, index = named
    return str(topic), int(index)
