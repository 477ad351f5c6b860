"""`spark-groups watch`: a group as it changes.

A frame fits the height of the terminal: moving and unassigned partitions come first, and rows that
do not fit are counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated, Final, TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_groups.cli.connecting import (
    AlertHours,
    Brokers,
    GroupArgument,
    IsolationLevel,
    IsolationLevelOption,
    JsonFlag,
    connects,
)
from spark_groups.cli.output import (
    ALARM_STYLE,
    MOVING_STYLE,
    QUIET_STYLE,
    UNKNOWN,
    Column,
    behind_text,
    catch_up_text,
    console,
    number,
    plain,
    table_of,
)
from spark_groups.cli.render import (
    MemberNames,
    committed_text,
    first_of,
    group_header,
    lag_text,
    members_table,
    owner_columns,
    row_ranges,
    shared_rows,
)
from spark_groups.errors import printable
from spark_groups.observation.frames import Frame, GroupWatch
from spark_groups.observation.group_events import EventKind, GroupEvent
from spark_groups.observation.lag_times import (
    ALERT_HOURS,
    DeletionAlert,
    deletion_text,
    largest_behind_s,
)
from spark_groups.observation.lag_trends import LagTrend, sum_if_known
from spark_groups.observation.moves import GroupMove, folded
from spark_groups.observation.plain_values import duration_text, partition_ranges
from spark_groups.observation.revocations import Revocation
from spark_groups.observation.views import GroupView, PartitionView

INTERVAL_S: Final = 2.0
SUMMARY_EVERY_S: Final = 10.0


Show = Callable[[Frame], None]


class EventLines:
    """Event lines for logs and pipes, with a summary line every 10 s and after events."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._summary_at_s: float | None = None
        self._written_at_s: float | None = None

    def show(self, frame: Frame) -> None:
        """Write the new events of a frame."""
        for new_event in frame.new_events:
            self._write(frame.at_s, printable(new_event.text))
        last_s = self._summary_at_s
        if frame.new_events or last_s is None or frame.at_s - last_s >= SUMMARY_EVERY_S:
            self._summary_at_s = frame.at_s
            self._write(frame.at_s, summary_line(frame))

    def _write(self, at_s: float, text: str) -> None:
        before_s, self._written_at_s = self._written_at_s, at_s
        when = clock_time(at_s) if before_s is None else moment(at_s, before_s)
        self._console.print(f"{when}  {text}", soft_wrap=True)
        self._console.file.flush()


def write_frame(frame: Frame) -> None:
    """Write a frame as one JSON document on one line of standard output."""
    sys.stdout.write(json.dumps(frame.to_json(), separators=(",", ":")) + "\n")
    sys.stdout.flush()


@contextmanager
def drawing(screen: Console) -> Iterator[Show]:
    """Yield a function that redraws the terminal with a frame; the last frame stays."""
    shown: RenderableType = Text()

    def show(frame: Frame) -> None:
        nonlocal shown
        shown = render_frame(frame, width=screen.width, height=screen.height)
        live.update(shown, refresh=True)

    try:
        with Live(console=screen, auto_refresh=False, screen=True) as live:
            yield show
    finally:
        screen.print(shown)


@connects
def watch(  # noqa: PLR0917
    group: GroupArgument,
    brokers: Brokers,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between polls.")
    ] = INTERVAL_S,
    count: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Stop after this many polls.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Stop after this many seconds.")
    ] = None,
    alert_hours: AlertHours = ALERT_HOURS,
    isolation_level: IsolationLevelOption = IsolationLevel.READ_UNCOMMITTED,
    as_json: JsonFlag = False,
) -> None:
    """Show a group as it changes: members, partitions, lag in offsets and in time, and events.

    In a terminal the view is redrawn at each poll; in a pipe there is a line for each event. With
    --json each poll prints one line of JSON. While brokers do not answer, the last view is shown,
    marked stale. If the group does not exist yet, watch waits for it.

    Example: spark-groups watch flight-readers --interval 1

    Exit code 1 if the group was never read before --count or --duration ended; 130 after Ctrl-C.
    """
    has_seen = False
    observer = brokers.observer(isolation_level)
    looking = closing(GroupWatch(observer, group, alert_hours=alert_hours))
    with looking as group_watch, _showing(as_json=as_json) as show:
        for frame in _frames(group_watch, interval, count, duration):
            has_seen = has_seen or frame.view is not None
            show(frame)
    if not has_seen:
        raise typer.Exit(1)


@contextmanager
def _showing(*, as_json: bool) -> Iterator[Show]:
    screen = console()
    if as_json:
        yield write_frame
    elif screen.is_terminal:
        with drawing(screen) as show:
            yield show
    else:
        yield EventLines(screen).show


def _frames(
    group_watch: GroupWatch, interval_s: float, count: int | None, duration_s: float | None
) -> Iterator[Frame]:
    began_s = time.monotonic()
    looks = 0
    while True:
        due_s = time.monotonic() + interval_s
        yield group_watch.look()
        looks += 1
        if looks == count or (duration_s is not None and due_s - began_s > duration_s):
            return
        time.sleep(max(0.0, due_s - time.monotonic()))


Shown = TypeVar("Shown")

BARS: Final = "▁▂▃▄▅▆▇█"
SPARKLINE_COLUMNS: Final = 12
REVOCATIONS_SHOWN: Final = 3
ALERTS_SHOWN: Final = 3
_ALARMING: Final = frozenset(
    {EventKind.NOT_READABLE, EventKind.COMMITS_REFUSED, EventKind.DELETION_ALERT}
)


def clock_time(at_s: float) -> str:
    """Return a time as local HH:MM:SS."""
    return _local(at_s).strftime("%H:%M:%S")


def moment(at_s: float, now_s: float) -> str:
    """Return a time as `clock_time` does, with the date if it is of another day than `now_s`."""
    at = _local(at_s)
    if at.date() == _local(now_s).date():
        return clock_time(at_s)
    return f"{at.day} {at:%b} {clock_time(at_s)}"


def _local(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=timezone.utc).astimezone()


@dataclass(frozen=True, slots=True)
class Lines:
    """The maximum number of rows in each part of a frame."""

    members: int
    partitions: int
    events: int


def divide(height: int, frame: Frame) -> Lines:
    """Divide the height of the terminal; each part has some rows, however small it is."""
    members = 0 if frame.view is None else len(frame.view.members)
    # Header and trend, two table headers, three empty lines, and one free line.
    left = height - 10 - min(len(frame.revocations), REVOCATIONS_SHOWN) - 2 * bool(frame.stale)
    left -= min(len(frame.alerts), ALERTS_SHOWN + 1)
    events = max(3, min(len(folded(frame.events, frame.moves)), left // 4))
    members = max(2, min(members, (left - events) // 3))
    return Lines(members, max(3, left - events - members), events)


def render_frame(
    frame: Frame, *, width: int, height: int, clock: Callable[[float], str] | None = None
) -> RenderableType:
    """Return a frame as text and tables.

    Args:
        clock: Writes times; None: as `moment`, at the time of the frame.
    """
    clock = clock or (lambda at_s: moment(at_s, frame.at_s))
    lines = divide(height, frame)
    parts: list[RenderableType] = _stale_lines(frame, clock)
    view = frame.view
    if view is None:
        parts.append(Text(f"no data yet for group {printable(frame.group_id)}"))
    else:
        names = MemberNames(view.members, width)
        parts += [group_header(view, width), _trend_line(frame.trend)]
        parts += _members(view, names, width, lines.members)
        revocations = frame.revocations[:REVOCATIONS_SHOWN]
        parts += [Text(_revocation(revocation), MOVING_STYLE) for revocation in revocations]
        parts += _alerts(frame.alerts)
        parts += [Text(), *_partitions(frame, view, names, lines.partitions)]
    if frame.events:
        parts.append(Text())
        shown = folded(frame.events, frame.moves)
        parts += [_event_line(each, clock) for each in shown[: -lines.events - 1 : -1]]
    return Group(*parts)


def summary_line(frame: Frame) -> str:
    """Return a frame as one line of numbers."""
    view = frame.view
    if view is None or frame.stale is not None:
        reason = UNKNOWN if frame.stale is None else printable(frame.stale.reason)
        known = "no data yet" if view is None else "stale"
        return f"{known}: {reason}"
    totals = view.totals
    unsettled = [
        f"{name} {count:,}"
        for name, count in (
            ("moving", totals.moving_partitions),
            ("unassigned", totals.unassigned_partitions),
            ("unknown lag", totals.unknown_lag_partitions),
        )
        if count
    ]
    return "  ".join(
        (
            view.group_state or UNKNOWN,
            f"lag {number(totals.lag)} ({rate_text(frame.trend.lag_rate)})",
            *(f"behind {duration_text(behind)}" for behind in [totals.seconds_behind] if behind),
            f"members {totals.members:,}",
            f"partitions {totals.partitions:,}" + (f" ({', '.join(unsettled)})" * bool(unsettled)),
            f"group epoch {plain(view.group_epoch)}",
        )
    )


def rate_text(rate: float | None) -> str:
    """Return a rate as `+1,234/s`; an unknown one as "—"."""
    if rate is None:
        return UNKNOWN
    return "0/s" if not rate else f"{rate:+,.{0 if abs(rate) >= 100 else 1}f}/s"


def sparkline(values: Sequence[int | None], columns: int = SPARKLINE_COLUMNS) -> str:
    """Return non-negative numbers as bars, the latest last; unknown ones as blanks."""
    shown = values[-columns:]
    top = max((each for each in shown if each is not None), default=0)
    steps = len(BARS) - 1
    return "".join(
        " " if each is None else BARS[round(each / top * steps) if top else 0] for each in shown
    )


def _stale_lines(frame: Frame, clock: Callable[[float], str]) -> list[RenderableType]:
    if frame.stale is None:
        return []
    read = "never read" if frame.seen_at_s is None else f"last read {clock(frame.seen_at_s)}"
    title = f" STALE since {clock(frame.stale.since_s)}, {read} "
    return [
        Text(title, f"{ALARM_STYLE} reverse"),
        Text(printable(frame.stale.reason), ALARM_STYLE, no_wrap=True, overflow="ellipsis"),
    ]


def _trend_line(trend: LagTrend) -> Text:
    rates = (
        ("lag", trend.lag_rate),
        ("committed", trend.read_rate),
        ("written", trend.written_rate),
    )
    line = Text("  ".join(f"{name} {rate_text(rate)}" for name, rate in rates), QUIET_STYLE)
    line.append(f"  {sparkline(trend.recent_lags, 2 * SPARKLINE_COLUMNS)}")
    return line.append(f"  outlook: {catch_up_text(trend.catch_up)}", QUIET_STYLE)


def _members(view: GroupView, names: MemberNames, width: int, rows: int) -> list[RenderableType]:
    if not view.members:
        return []
    ordered = sorted(view.members, key=lambda each: not (each.pending or each.revoking))
    shown, more = _fit(ordered, rows)
    table = _one_line_each(members_table(tuple(shown), names, width))
    return [Text(), table, *([_more(len(more), "members")] if more else [])]


def _alerts(alerts: Sequence[DeletionAlert]) -> list[RenderableType]:
    shown = [
        Text(printable(alert.text), ALARM_STYLE, no_wrap=True, overflow="ellipsis")
        for alert in alerts[:ALERTS_SHOWN]
    ]
    rest = len(alerts) - ALERTS_SHOWN
    return [*shown, _more(rest, "partitions with an alert")] if rest > 0 else [*shown]


def _revocation(revocation: Revocation) -> str:
    text = f"{printable(revocation.label)} revoking {partition_ranges(revocation.partitions)}"
    if revocation.age_s is None:
        return f"{text}: {UNKNOWN} of its rebalance timeout"
    if revocation.budget_used is None:
        return f"{text}: since {revocation.age_s:.1f} s"
    used = f"{revocation.age_s:.1f} of {revocation.rebalance_timeout_s:g} s"
    return f"{text}: {used} ({revocation.budget_used:.0%})"


def _partitions(
    frame: Frame, view: GroupView, names: MemberNames, rows: int
) -> list[RenderableType]:
    """Return a row for each partition; if there are many, partitions share rows by owner."""
    trends = {(each.topic, each.partition): each.trend for each in frame.partitions}
    if not view.partitions:
        return [Text("no partitions: no assignment and no committed offsets")]
    if len(view.partitions) <= rows:
        found = [[partition] for partition in view.partitions]
    else:
        found = sorted(shared_rows(view), key=lambda row: _is_stable(row[0]))
    shown, more = _fit(found, rows)
    single = all(len(row) == 1 for row in shown)

    def lag_change(row: list[PartitionView]) -> str:
        return rate_text(sum_if_known(trends[e.topic, e.partition].lag_rate for e in row))

    def trend(row: list[PartitionView]) -> Text:
        return Text(sparkline(_summed([trends[e.topic, e.partition].recent_lags for e in row])))

    table = table_of(
        shown,
        Column("PARTITIONS", row_ranges),
        *owner_columns(view, names, first_of),
        Column("COMMITTED", lambda row: committed_text(row[0]), True, single),
        Column("LOG END", lambda row: number(row[0].log_end_offset), True, single),
        Column("COUNT", lambda row: number(len(row)), True, not single),
        Column("LAG", lambda row: lag_text(row[0]) if single else _shared_lag(row), True),
        Column("BEHIND", _behind, is_number=True, is_shown=bool(view.totals.seconds_behind)),
        Column(
            "RECORDS EXPIRE",
            lambda row: deletion_text(row[0].time),
            is_shown=single and bool(frame.alerts),
        ),
        Column("LAG CHANGE", lag_change, is_number=True),
        Column("TREND", trend),
    )
    rest = sum(map(len, more))
    return [_one_line_each(table), *([_more(rest, "partitions")] if rest else [])]


def _behind(row: list[PartitionView]) -> str:
    return behind_text(largest_behind_s(each.time for each in row))


def _is_stable(partition: PartitionView) -> bool:
    return partition.owner is not None and partition.moves_to is None


def _shared_lag(row: Sequence[PartitionView]) -> str:
    known = [each.lag for each in row if each.lag is not None]
    unknown = len(row) - len(known)
    lag = number(sum(known) if known else None)
    return f"{lag} ({unknown:,} unknown)" if unknown and known else lag


def _summed(lags: Sequence[Sequence[int | None]]) -> list[int | None]:
    """Return the sums of the partitions' lags, aligned at the latest."""
    looks = min(SPARKLINE_COLUMNS, *map(len, lags)) if len(lags) > 1 else len(lags[0])
    columns = zip(*(each[len(each) - looks :] for each in lags), strict=True)
    return [sum_if_known(column) for column in columns]


def _fit(found: Sequence[Shown], rows: int) -> tuple[Sequence[Shown], Sequence[Shown]]:
    return (found, ()) if len(found) <= rows else (found[: rows - 1], found[rows - 1 :])


def _more(count: int, what: str) -> Text:
    return Text(f"and {count:,} more {what}", QUIET_STYLE)


def _one_line_each(table: Table) -> Table:
    """Prevent rows from wrapping, so that each takes one line."""
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    return table


def _event_line(shown: GroupEvent | GroupMove, clock: Callable[[float], str]) -> Text:
    if isinstance(shown, GroupMove):
        at_s, is_alarming = shown.from_s, False
        text = f"{shown.text} ({shown.event_count:,} events)"
    else:
        at_s, is_alarming, text = shown.at_s, shown.kind in _ALARMING, shown.text
    return Text.assemble(
        (f"{clock(at_s)}  ", QUIET_STYLE),
        (printable(text), ALARM_STYLE if is_alarming else ""),
        no_wrap=True,
        overflow="ellipsis",
    )
