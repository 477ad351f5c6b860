"""A run as lanes over time: members, brokers and partitions, with what happened to each.

It is made of the notes of the processes and the report: what a page draws, without the page. Times
are seconds since the first member started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from workshop.chaos.results.account import Evidence, session_loss
from workshop.chaos.results.facts import (
    Disruption,
    End,
    Execution,
    Facts,
    Note,
    Partition,
    Run,
    RunKey,
)

PAUSE_S: Final = 5.0
"""A partition without a batch for so long, in seconds, has a gap."""
RUN_NOTES: Final = "ensemble"
"""Whose notes are about the whole run."""
OTHERS: Final = "topics and others"


class State(Enum):
    """What a bar stands for; the value is its class in the page."""

    RUNNING = "running"
    STOPPED = "stopped"
    DOWN = "down"
    SLOW = "slow"
    BATCH = "batch"
    REPLAY = "replay"
    BEHIND = "behind"
    FAULT = "fault"
    OWNED = "owned"
    UNREAD = "unread"
    LONGEST = "longest"


@dataclass(frozen=True, slots=True)
class Bar:
    """A time in a lane.

    Args:
        from_s: When it begins.
        until_s: When it ends.
        state: What it stands for.
        label: A word for it.
        title: All that is known of it.
        member: Whose colour it has; empty: none.
    """

    from_s: float
    until_s: float
    state: State
    label: str
    title: str
    member: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in a lane.

    Args:
        at_s: When it was.
        sign: A letter for it.
        title: All that is known of it.
    """

    at_s: float
    sign: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """What happened to one member, broker or partition.

    Args:
        name: Its name.
        bars: Its times; the later ones lie above.
        marks: Its moments.
    """

    name: str
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run.

    Args:
        ends_s: When the last process ended.
        members: A lane for each member.
        disrupted: A lane for each broker, and one for all else.
        partitions: A lane for each partition.
        disruptions: Faults that are not of members, from when to when all was well again.
        unread: The longest time that a partition was not read; None: there was no gap.
    """

    ends_s: float
    members: tuple[Lane, ...]
    disrupted: tuple[Lane, ...]
    partitions: tuple[Lane, ...]
    disruptions: tuple[Bar, ...]
    unread: tuple[str, Bar] | None


SIGNS: Final[Mapping[str, str]] = {
    Note.KILLED.value: "K",
    Note.CRASHES.value: "K",
    Note.FROZE.value: "S",
    Note.LEAVES.value: "T",
    Note.LOST.value: "L",
    Note.LATE.value: "h",
    Note.SLOWED.value: "w",
    Note.GIVEN_UP.value: "g",
    Note.REFUSED.value: "r",
    Note.FAILS.value: "!",
    Note.GAP.value: "!",
    Note.GREW.value: "+",
    Note.RESTORED.value: "c",
}
"""The letter of each note that is a moment of its own."""
MEANINGS: Final[Mapping[str, str]] = {
    "K": "SIGKILL",
    "S": "SIGSTOP",
    "T": "SIGTERM: it leaves the group",
    "L": "session lost",
    "h": "heartbeat late",
    "w": "a batch made slow",
    "g": "partitions given up",
    "r": "offset commit refused",
    "!": "failure",
    "+": "a topic gets partitions",
    "c": "another checkpoint",
    "*": "another fault",
}
_SILENT: Final = frozenset(each.value for each in Note) - set(SIGNS)
_FIELDS: Final = frozenset({"at_s", "member", "run", "what", "partitions"})


def read_timeline(
    evidence: Evidence, notes: Sequence[Mapping[str, Any]], report: Mapping[str, Any]
) -> Timeline:
    """Return the lanes of a run.

    Args:
        evidence: The facts of the notes, and the faults of brokers; rows are not needed.
        notes: All notes, in the order of time.
        report: The report as plain values.
    """
    zero_s = float(report["began_s"])
    ends_s = max((float(note["at_s"]) for note in notes), default=zero_s) - zero_s
    facts = evidence.facts
    marks = _marks(evidence, notes, zero_s)
    names = list(dict.fromkeys(run.member for run in facts.runs if run.member != RUN_NOTES))
    disruptions = _disruptions(report, zero_s, ends_s)
    partitions, unread = _partitions(facts, report, zero_s)
    return Timeline(
        ends_s=ends_s,
        members=tuple(
            Lane(name, tuple(_member(facts, name, zero_s, ends_s)), tuple(marks[name]))
            for name in sorted(names, key=lambda each: (len(each), each))
        ),
        disrupted=tuple(_disrupted(disruptions, report, marks)),
        partitions=partitions,
        disruptions=tuple(bar for _, bars in disruptions for bar in bars[-1:]),
        unread=unread,
    )


def _marks(
    evidence: Evidence, notes: Iterable[Mapping[str, Any]], zero_s: float
) -> dict[str, list[Mark]]:
    """Return the moments of each member; a kind of note that is unknown here keeps its name."""
    found: dict[str, list[Mark]] = defaultdict(list)
    for note in notes:
        what = str(note["what"])
        if what in _SILENT:
            continue
        at_s, key = float(note["at_s"]), RunKey(str(note["member"]), int(note["run"]))
        sign = SIGNS.get(what, "*")
        words = [MEANINGS[sign] if sign not in "!*" else what]
        run = evidence.facts.runs.get(key)
        if what == Note.LOST.value and run is not None:
            words = [f"session lost: {session_loss(evidence, run, at_s).value}"]
        words += [f"{name}: {value}" for name, value in note.items() if name not in _FIELDS]
        if named := note.get("partitions"):
            words.append(", ".join(f"{topic}-{index}" for topic, index in named))
        who = "" if key.member == RUN_NOTES else f"{key}, "
        title = f"{who}{at_s - zero_s:.1f} s: {'; '.join(words)}"
        found[key.member].append(Mark(at_s - zero_s, sign, title))
    return found


def _member(facts: Facts, name: str, zero_s: float, ends_s: float) -> Iterator[Bar]:
    runs = [each for key, each in facts.runs.items() if key.member == name]
    runs.sort(key=lambda each: each.key.number)
    down_from_s: float | None = None
    for run in runs:
        if run.began_s is None:
            continue
        from_s = run.began_s - zero_s
        if down_from_s is not None:
            yield _bar((down_from_s, from_s), State.DOWN, "down", f"{name} is down")
        until_s = ends_s if run.ended_s is None else run.ended_s - zero_s
        end = run.end.value if run.end else "it runs to the end"
        if run.end is End.FAILED:
            end = f"{end}: {run.failure or 'it left no word'}"
        yield _bar(
            (from_s, until_s), State.RUNNING, str(run.key), f"process {run.key}; {end}", name
        )
        for state, label, spans in (
            (State.SLOW, "slow", run.slow),
            (State.STOPPED, "stopped", run.frozen),
        ):
            for span in spans:
                to_s = until_s if span.until_s is None else span.until_s - zero_s
                title = f"{run.key} is {label}"
                yield _bar((span.from_s - zero_s, to_s), state, label, title)
        down_from_s = until_s
        yield from _batches(facts, run, zero_s)


def _batches(facts: Facts, run: Run, zero_s: float) -> Iterator[Bar]:
    for execution in facts.executions.values():
        if execution.run != run.key:
            continue
        batch = facts.batches[execution.batch]
        state = State.REPLAY if execution.is_replay else State.BATCH
        what = "batch, run again," if execution.is_replay else "batch"
        title = f"{what} {batch.key.number} of {run.key}: {len(batch.planned_s)} partitions"
        yield _bar(
            (execution.began_s - zero_s, _until_s(facts, execution) - zero_s), state, "", title
        )


def _until_s(facts: Facts, execution: Execution) -> float:
    """Return until when an execution is known to have worked."""
    finished_s = facts.batches[execution.batch].finished_s
    known = [execution.began_s, execution.writes_s or execution.began_s]
    run = facts.runs[execution.run]
    if finished_s is not None and (run.ended_s is None or finished_s <= run.ended_s):
        known.append(finished_s)
    return max(known)


def _bar(span: tuple[float, float], state: State, label: str, title: str, member: str = "") -> Bar:
    from_s, until_s = span
    times = f"{from_s:.1f} to {until_s:.1f} s ({until_s - from_s:.1f} s)"
    return Bar(from_s, until_s, state, label, f"{title}, {times}", member)


def _disruptions(
    report: Mapping[str, Any], zero_s: float, ends_s: float
) -> list[tuple[str, list[Bar]]]:
    """Return the bars of each fault that is not of a member, with its lane; the last is all of it.

    Every list of the report whose entries have a kind and a beginning holds such faults.
    """
    found = []
    for faults in report.values():
        for each in faults if isinstance(faults, list | tuple) else ():
            if isinstance(each, Mapping) and {"kind", "from_s"} <= set(each):
                bars = list(_disruption(each, zero_s, ends_s))
                found.append((_lane_of(each, int(report["brokers"])), bars))
    return found


def _lane_of(disruption: Mapping[str, Any], brokers: int) -> str:
    node = disruption.get("node")
    is_broker = isinstance(node, int) and 1 <= node <= brokers
    return f"broker {node}" if is_broker else OTHERS


def _disruption(each: Mapping[str, Any], zero_s: float, ends_s: float) -> Iterator[Bar]:
    times = {
        name: float(value) - zero_s
        for name, value in each.items()
        if name.endswith("_s") and isinstance(value, int | float)
    }
    from_s, kind = times["from_s"], str(each["kind"])
    until_s = max(times.values()) if len(times) > 1 else ends_s
    led = each.get("led") or ()
    words = [kind, *(["the coordinator"] if each.get("coordinated") else [])]
    words += [f"leader of {len(led)} partitions"] if led else []
    up_s = times.get("up_s")
    if up_s is not None:
        state = State.STOPPED if "SIGSTOP" in kind else State.DOWN
        yield _bar((from_s, up_s), state, kind.rpartition(": ")[2], "; ".join(words))
        title = f"{kind}: replicas are behind"
        yield _bar((up_s, until_s), State.BEHIND, "behind", title)
    else:
        yield _bar((from_s, until_s), State.FAULT, kind, "; ".join(words))
    yield _bar((from_s, until_s), State.FAULT, kind, "; ".join(words))


def _disrupted(
    disruptions: Sequence[tuple[str, list[Bar]]],
    report: Mapping[str, Any],
    marks: Mapping[str, Sequence[Mark]],
) -> Iterator[Lane]:
    names = [f"broker {node}" for node in range(1, int(report["brokers"]) + 1)]
    of_run = tuple(marks.get(RUN_NOTES, ()))
    for name in (*names, OTHERS):
        bars = tuple(bar for lane, found in disruptions if lane == name for bar in found[:-1])
        own = of_run if name == OTHERS else ()
        if name != OTHERS or bars or own:
            yield Lane(name, bars, own)


def _partitions(
    facts: Facts, report: Mapping[str, Any], zero_s: float
) -> tuple[tuple[Lane, ...], tuple[str, Bar] | None]:
    """Return the lanes of partitions, and the longest gap."""
    by_partition: dict[Partition, list[Execution]] = defaultdict(list)
    for execution in facts.executions.values():
        for partition in facts.batches[execution.batch].planned_s:
            by_partition[partition].append(execution)
    longest: tuple[str, Bar] | None = None
    lanes = []
    for partition, executions in sorted(by_partition.items()):
        name = f"{partition[0]}-{partition[1]}"
        executions.sort(key=lambda each: each.began_s)
        bars = list(_owners(facts, name, executions, zero_s))
        for bar in bars:
            is_gap = bar.state is State.UNREAD
            if is_gap and (longest is None or _takes_s(bar) > _takes_s(longest[1])):
                longest = (name, bar)
        bars += _longest_pauses(partition, report, zero_s)
        lanes.append(Lane(name, tuple(bars)))
    return tuple(lanes), longest


def _takes_s(bar: Bar) -> float:
    return bar.until_s - bar.from_s


def _owners(
    facts: Facts, name: str, executions: Sequence[Execution], zero_s: float
) -> Iterator[Bar]:
    """Yield who read a partition over time, and when no process did."""
    by_run: dict[RunKey, list[tuple[float, float]]] = defaultdict(list)
    for execution in executions:
        span = (execution.began_s - zero_s, _until_s(facts, execution) - zero_s)
        spans = by_run[execution.run]
        if spans and span[0] - spans[-1][1] <= PAUSE_S:
            spans[-1] = (spans[-1][0], max(span[1], spans[-1][1]))
        else:
            spans.append(span)
    owned = sorted((*span, run) for run, spans in by_run.items() for span in spans)
    last_s, last_run = owned[0][0], owned[0][2]
    for from_s, until_s, run in owned:
        if from_s - last_s > PAUSE_S:
            title = f"{name}: not read; before it {last_run}, after it {run}"
            yield _bar((last_s, from_s), State.UNREAD, f"{from_s - last_s:.0f} s", title)
        yield _bar((from_s, until_s), State.OWNED, str(run), f"{name}: {run} reads it", run.member)
        if until_s >= last_s:
            last_s, last_run = until_s, run


def _longest_pauses(
    partition: Partition, report: Mapping[str, Any], zero_s: float
) -> Iterator[Bar]:
    words = {
        "unaffected": "the longest pause of an unaffected partition",
        "neighbour": "the longest pause of a partition beside one whose leader had a fault",
    }
    for name, what in words.items():
        pause = report["recoveries"][name]
        if pause["partition"] is not None and tuple(pause["partition"]) == partition:
            from_s = pause["from_s"] - zero_s
            until_s = from_s + pause["takes_s"]
            yield _bar((from_s, until_s), State.LONGEST, "longest pause", f"{what}, {pause['run']}")


def disruptions_of(report: Mapping[str, Any]) -> tuple[Disruption, ...]:
    """Return the faults of brokers that a report holds.

    Args:
        report: The report as plain values.
    """
    return tuple(
        Disruption(**{**each, "led": tuple((topic, index) for topic, index in each["led"])})
        for each in report["disruptions"]
    )
