"""The report of a run: as tables for people, as plain values for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from workshop.chaos.faults.schedule import Point
from workshop.chaos.results.account import Account, Cause, SessionLoss, SinkAccount
from workshop.chaos.results.facts import Deletion, Disruption, Trouble
from workshop.chaos.results.recovery import Pause, Recoveries

INCOMPLETE = 2
"""The exit status of a run that could not complete, or does not count."""
EXAMPLES_SHOWN = 20
SLOWEST = 5
"""How many faults are named that partitions recovered from most slowly."""

SINK_WORDS = {
    "rows": "rows",
    "lost": "lost",
    "deleted": "deleted before they were read",
    "doubled": "doubled",
    "disordered": "out of order in their partition",
    "wrong": "wrong checksum or place",
    "foreign": "never produced",
    "misfenced": "partitions whose entry is not that of their rows",
}
"""What the counts of a sink are called."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a run was, beside what came of it.

    Args:
        command: The command that repeats the run.
        seed: The seed of the run.
        began_s: When the members started, in seconds of the wall clock; times count from here.
        faults_from_s: When the faults began, in seconds of the wall clock.
        minutes: For how long there were faults.
        kafka_version: The broker.
        session_s: The group's session timeout, in seconds.
        cores: How many the machine has.
        load_mean: The mean of the load average of one minute, as looked at all the time.
        load_max: The highest.
        partitions_first: How many partitions there were at the beginning.
        partitions_last: How many at the end.
        processes: How many processes of members were started.
        batches: How many batches were planned.
        faults: How many faults of a kind had which outcome.
        brokers: How many brokers there were.
        disruptions: Each fault of a broker, as it was carried out.
        troubles: Each fault of the machine or the network of members.
        deletions: Each time that retention deleted unread records.
        recoveries: How long partitions were not read.
        points: How often a process was killed, or stood still, at which point.
        drained_s: How long it took until everything was committed; None: it was not.
        problems: Problems beside those in the sinks.
        shortfalls: Why the run does not count, though no promise may be broken.
        connections: How many connections members made over the network of the run, and the most on
            one link in a minute.
        named_waits: How often members logged what they wait for.
        schemas: With how many schemas values were written.
        keys: How many rows the table with one row for each key has.
    """

    command: str
    seed: int
    began_s: float
    faults_from_s: float
    minutes: float
    kafka_version: str
    session_s: float
    cores: int
    load_mean: float
    load_max: float
    partitions_first: int
    partitions_last: int
    processes: int
    batches: int
    faults: Mapping[str, Mapping[str, int]]
    brokers: int
    disruptions: tuple[Disruption, ...]
    troubles: tuple[Trouble, ...]
    deletions: tuple[Deletion, ...]
    recoveries: Recoveries
    points: Counter[Point]
    drained_s: float | None
    problems: tuple[str, ...]
    shortfalls: tuple[str, ...] = ()
    connections: tuple[int, int] = (0, 0)
    named_waits: int = 0
    schemas: int = 0
    keys: int = 0


def all_problems(circumstances: Circumstances, account: Account) -> list[str]:
    """Return all broken promises; empty: the run is good, if it counts.

    Args:
        circumstances: What the run was.
        account: What came of it.
    """
    return [*account.problems(), *circumstances.problems]


def exit_status(circumstances: Circumstances, account: Account) -> int:
    """Return 0 for a good run, 1 for a broken promise, 2 for a run that does not count.

    Args:
        circumstances: What the run was.
        account: What came of it.
    """
    if all_problems(circumstances, account):
        return 1
    return INCOMPLETE if circumstances.shortfalls else 0


def as_plain(circumstances: Circumstances, account: Account) -> dict[str, Any]:
    """Return a report as plain values, for JSON.

    Args:
        circumstances: What the run was.
        account: What came of it.
    """
    problems = all_problems(circumstances, account)
    return {
        **asdict(circumstances),
        "points": {point.value: count for point, count in circumstances.points.items()},
        **asdict(account),
        "causes": {cause.value: count for cause, count in account.causes.items()},
        "sessions_lost": {each.value: account.sessions_lost[each] for each in SessionLoss},
        "table_causes": {
            name: {cause.value: count for cause, count in causes.items()}
            for name, causes in account.table_causes.items()
        },
        "problems": problems,
        "is_good": exit_status(circumstances, account) == 0,
    }


def as_tables(circumstances: Circumstances, account: Account) -> RenderableType:
    """Return a report as tables.

    Args:
        circumstances: What the run was.
        account: What came of it.
    """
    parts: list[RenderableType] = [
        _table("the run", _run_rows(circumstances, account)),
        _fault_table(circumstances),
        _recovery_table(circumstances.recoveries),
        _table(f"the {SLOWEST} slowest recoveries", _slowest_rows(circumstances)),
        _table("longest pauses of a partition", _pause_rows(circumstances)),
        _table("processes killed, or standing still, at a point", _point_rows(circumstances)),
        _sink_table(account),
        _table("why rows are in the append sink again", _cause_rows(account.causes)),
        *(
            _table(f"why rows are in {name} again", _cause_rows(causes))
            for name, causes in account.table_causes.items()
        ),
        _table("what else must not be", _other_rows(account)),
    ]
    problems = all_problems(circumstances, account)
    details = [*account.examples, *account.replays_differ, *account.gaps, *account.went_back]
    details += [*account.overruled, *account.failures]
    parts += [Text(f"  {line}") for line in details[:EXAMPLES_SHOWN]]
    parts += [Text(f"NOT GOOD: {problem}", style="bold red") for problem in problems]
    parts += [
        Text(f"DOES NOT COUNT: {shortfall}", style="bold red")
        for shortfall in circumstances.shortfalls
    ]
    if exit_status(circumstances, account) == 0:
        parts.append(Text("GOOD: nothing is lost, and every double has a cause", style="green"))
    return Group(*parts)


def _run_rows(circumstances: Circumstances, account: Account) -> Iterable[tuple[str, str]]:
    c = circumstances
    drained = "NO" if c.drained_s is None else f"{c.drained_s:.0f} s"
    yield "command", c.command
    yield "seed", str(c.seed)
    yield "minutes of faults", f"{c.minutes:g}"
    yield "Apache Kafka, session timeout", f"{c.kafka_version}, {c.session_s:g} s"
    yield "brokers", str(c.brokers)
    yield f"load average, {c.cores} cores: mean, highest", f"{c.load_mean:.1f}, {c.load_max:.1f}"
    yield "records produced", f"{account.produced:,}"
    yield "partitions, first and last", f"{c.partitions_first}, {c.partitions_last}"
    yield "processes of members", f"{c.processes:,}"
    yield "batches, run again", f"{c.batches:,}, {account.replays:,}"
    for each in SessionLoss:
        yield f"sessions lost: {each.value}", f"{account.sessions_lost[each]:,}"
    yield (
        "heartbeats late by load: how many, the latest",
        f"{account.late_heartbeats:,}, {account.latest_heartbeat_s:.1f} s",
    )
    if c.connections[0]:
        most = f"{c.connections[0]:,}, {c.connections[1]:,}"
        yield "connections of members: all, the most to a broker in a minute", most
        yield "waits that members named in their logs", f"{c.named_waits:,}"
    if c.schemas:
        yield "schemas of the writers, one after the other", f"{c.schemas:,}"
    if c.keys:
        yield "rows of the table with one for each key", f"{c.keys:,}"
    yield "everything committed after the faults", drained


def _fault_table(circumstances: Circumstances) -> Table:
    table = Table(title="faults", title_justify="left")
    outcomes = sorted({each for found in circumstances.faults.values() for each in found})
    table.add_column("kind")
    for outcome in outcomes:
        table.add_column(outcome, justify="right")
    for kind, found in circumstances.faults.items():
        table.add_row(kind, *(f"{found.get(each, 0):,}" for each in outcomes))
    return table


def _recovery_table(recoveries: Recoveries) -> Table:
    table = Table(
        title="median seconds until all partitions of a fault were back", title_justify="left"
    )
    table.add_column("kind", no_wrap=True)
    for column in ("faults", "read", "at most", "committed", "at most", "not seen"):
        table.add_column(column, justify="right")
    for each in recoveries.by_kind:
        times_s = (
            each.reads_median_s,
            each.reads_max_s,
            each.commits_median_s,
            each.commits_max_s,
        )
        shown = (f"{time_s:.1f}" for time_s in times_s)
        table.add_row(each.kind, f"{each.faults:,}", *shown, f"{each.unseen:,}")
    return table


def _slowest_rows(circumstances: Circumstances) -> Iterable[tuple[str, str]]:
    known = [
        (fault.read_after_s, fault)
        for fault in circumstances.recoveries.faults
        if fault.read_after_s is not None
    ]
    known.sort(key=lambda each: -each[0])
    for takes_s, each in known[:SLOWEST]:
        at_s = each.from_s - circumstances.began_s
        yield f"{each.target}, {at_s:.0f} s: {each.kind}", f"read again after {takes_s:.1f} s"


def _pause_rows(circumstances: Circumstances) -> Iterable[tuple[str, str]]:
    pauses = {
        "with no fault at all": circumstances.recoveries.unaffected,
        "in batches with one whose leader had a fault": circumstances.recoveries.neighbour,
    }
    for name, pause in pauses.items():
        yield name, pause_text(pause, circumstances.began_s)


def pause_text(pause: Pause, began_s: float) -> str:
    """Return how long a pause was, and where.

    Args:
        pause: The pause.
        began_s: From when on seconds are counted, in seconds of the wall clock.
    """
    if pause.partition is None:
        return "none"
    topic, index = pause.partition
    at_s = pause.from_s - began_s
    return f"{pause.takes_s:.1f} s: {topic}-{index}, {pause.run}, at {at_s:.0f} s"


def _point_rows(circumstances: Circumstances) -> Iterable[tuple[str, str]]:
    for point in Point:
        yield point.value, f"{circumstances.points[point]:,}"


def _sink_table(account: Account) -> Table:
    table = Table(title="the sinks", title_justify="left")
    table.add_column("")
    sinks: dict[str, SinkAccount] = {"append": account.append, **account.tables}
    for name in sinks:
        table.add_column(name, justify="right")
    for field, shown in SINK_WORDS.items():
        table.add_row(shown, *(f"{getattr(sink, field):,}" for sink in sinks.values()))
    return table


def _cause_rows(causes: Mapping[Cause, int]) -> Iterable[tuple[str, str]]:
    for cause in Cause:
        count = causes.get(cause, 0)
        if count or cause is Cause.NONE:
            yield cause.value, f"{count:,}"


def _other_rows(account: Account) -> Iterable[tuple[str, str]]:
    yield "replays that differ", f"{len(account.replays_differ):,}"
    yield "gaps refused by a table", f"{len(account.gaps):,}"
    yield "committed offsets that went back", f"{len(account.went_back):,}"
    yield "resets that were overruled", f"{len(account.overruled):,}"
    yield "processes that ended by themselves", f"{len(account.failures):,}"


def _table(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table
