"""`spark-groups lag`: the lag of groups, and whether they keep up."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.cli.connecting import (
    AlertHours,
    Brokers,
    EveryPartitionFlag,
    GroupArguments,
    IsolationLevel,
    IsolationLevelOption,
    JsonFlag,
    connects,
    end_if_refused,
    read_each,
)
from spark_groups.cli.lag_rules import (
    STATUS_MEANINGS,
    LagSample,
    PartitionStatus,
    Verdict,
    judge_group,
    judge_partition,
    worst,
)
from spark_groups.cli.output import (
    ALARM_STYLE,
    UNKNOWN,
    Column,
    behind_text,
    catch_up_text,
    number,
    partition_rows_max,
    show,
    table_of,
)
from spark_groups.errors import SparkGroupsError, printable
from spark_groups.observation.catch_up import CatchUp, Outlook, Progress, catch_up, slowest
from spark_groups.observation.frames import deletion_alerts
from spark_groups.observation.lag_times import (
    ALERT_HOURS,
    AlertKind,
    DeletionAlert,
    LagTime,
    deletion_text,
)
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.plain_values import View, duration_text
from spark_groups.observation.views import GroupView, LagOrigin, PartitionView


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The lag of a group in one partition.

    Args:
        committed_offset: None: unknown, or no offset is committed.
        log_end_offset: None: unknown.
        lag: Log end offset minus committed offset (or log start offset); None: unknown.
        lag_origin: The offset from which lag is counted; None: unknown.
        time: The lag in time.
        lag_change: The growth of the lag since the first sample, as the rules count it (0 without
            an unread record); None: unknown.
        catch_up: When it will have caught up, at the rates between the samples.
        status: None: not checked, or too few samples are known.
        remark: Anything unusual; empty if there is nothing.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    lag: int | None
    lag_origin: LagOrigin | None
    time: LagTime = field(default_factory=LagTime)
    lag_change: int | None = None
    catch_up: CatchUp = field(default_factory=CatchUp)
    status: PartitionStatus | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """The lag of a group.

    Args:
        lag: The sum of all known lags; None if none is known.
        unknown_lag_partitions: The number of partitions whose lag is unknown.
        partitions: Sorted by topic and index.
        seconds_behind: The age of the oldest first unread record; 0.0 if no record is unread; None
            if no age is known.
        unknown_time_partitions: The number of partitions for which that age is unknown.
        deletion_in_s: When retention may first delete an unread record; None: unknown, or never.
        catch_up: When the last partition will have caught up.
        alerts: Partitions whose unread records are, or may soon be, deleted.
        verdict: None: not checked.
    """

    group_id: str
    group_state: str
    lag: int | None
    unknown_lag_partitions: int
    partitions: tuple[PartitionLag, ...]
    seconds_behind: float | None = None
    unknown_time_partitions: int = 0
    deletion_in_s: float | None = None
    catch_up: CatchUp = field(default_factory=CatchUp)
    alerts: tuple[DeletionAlert, ...] = ()
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagView(View):
    """The lag of groups.

    Args:
        groups: In the order of the arguments.
        window_s: Seconds between the first sample and the last.
    """

    groups: tuple[GroupLag, ...]
    window_s: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the groups."""
        return worst(group.verdict or Verdict.OK for group in self.groups)

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain values."""
        document = super(LagView, self).to_json()
        for group, shown in zip(self.groups, document["groups"], strict=True):
            shown["verdict"] = group.verdict and group.verdict.name
        return document


def view_group_lag(view: GroupView, alert_hours: float = ALERT_HOURS) -> GroupLag:
    """Return the current lag of a group.

    Args:
        alert_hours: As `deletion_alert` has it.
    """
    return _group_lag(
        view,
        [_partition_lag(partition) for partition in view.partitions],
        deletion_alerts(view, alert_hours),
    )


def judge_group_lag(
    samples: Sequence[tuple[float, GroupView]],
    allowed_lag: int = 0,
    alert_hours: float = ALERT_HOURS,
) -> GroupLag:
    """Return the lag of a group, and whether the group keeps up.

    Args:
        samples: The time in seconds and the group at that time, the oldest first; at least one.
        allowed_lag: The largest lag with which a partition keeps up.
        alert_hours: As `deletion_alert` has it.
    """
    now_s, view = samples[-1]
    seen: dict[tuple[str, int], list[LagSample]] = {}
    for at_s, each in samples:
        batches = _batch_beginnings(each, at_s)
        for partition in each.partitions:
            seen.setdefault((partition.topic_id, partition.partition), []).append(
                LagSample(
                    at_s,
                    partition.committed_offset,
                    partition.unread_lag,
                    batches.get(partition.owner or ""),
                    partition.log_end_offset,
                )
            )
    latest = _batch_beginnings(view, now_s)
    partitions = []
    for partition in view.partitions:
        known = seen[partition.topic_id, partition.partition]
        status = judge_partition(known, now_s, allowed_lag)
        batch_began_at_s = latest.get(partition.owner or "")
        batch_age_s = None if batch_began_at_s is None else now_s - batch_began_at_s
        partitions.append(_partition_lag(partition, known, status, batch_age_s))
    alerts = deletion_alerts(view, alert_hours)
    outlooks = {(each.topic, each.partition): each.catch_up.outlook for each in partitions}
    verdict = worst(
        (
            judge_group(each.status for each in partitions),
            *(_judge_alert(alert, outlooks[alert.topic, alert.partition]) for alert in alerts),
        )
    )
    return _group_lag(view, partitions, alerts, verdict)


def _judge_alert(alert: DeletionAlert, outlook: Outlook) -> Verdict:
    """Return WARN if the partition may still be read in time, else ERR."""
    reads_on = outlook in (Outlook.KEEPS_UP, Outlook.CATCHING_UP)
    return Verdict.WARN if alert.kind is AlertKind.EXPIRING and reads_on else Verdict.ERR


def _group_lag(
    view: GroupView,
    partitions: Sequence[PartitionLag],
    alerts: tuple[DeletionAlert, ...],
    verdict: Verdict | None = None,
) -> GroupLag:
    return GroupLag(
        group_id=view.group_id,
        group_state=view.group_state,
        lag=view.totals.lag,
        unknown_lag_partitions=view.totals.unknown_lag_partitions,
        partitions=tuple(partitions),
        seconds_behind=view.totals.seconds_behind,
        unknown_time_partitions=view.totals.unknown_time_partitions,
        deletion_in_s=view.totals.deletion_in_s,
        catch_up=slowest(partition.catch_up for partition in partitions),
        alerts=alerts,
        verdict=verdict,
    )


def _batch_beginnings(view: GroupView, at_s: float) -> Mapping[str, float]:
    return {
        member.member_id: at_s - member.local.batch_age_s
        for member in view.members
        if member.local is not None
        and member.local.in_flight_partitions
        and member.local.batch_age_s is not None
    }


def _partition_lag(
    partition: PartitionView,
    samples: Sequence[LagSample] = (),
    status: PartitionStatus | None = None,
    batch_age_s: float | None = None,
) -> PartitionLag:
    first, unread = samples[0].lag if samples else None, partition.unread_lag
    remark = partition.remark
    if not remark and status not in (None, PartitionStatus.OK) and batch_age_s is not None:
        remark = f"a batch has been running for {batch_age_s:.1f} s"
    progress = [
        Progress(each.at_s, each.lag, each.committed_offset, each.log_end_offset)
        for each in samples
    ]
    return PartitionLag(
        topic=partition.topic,
        partition=partition.partition,
        committed_offset=partition.committed_offset,
        log_end_offset=partition.log_end_offset,
        lag=partition.lag,
        lag_origin=partition.lag_origin,
        time=partition.time,
        lag_change=None if first is None or unread is None else unread - first,
        catch_up=catch_up(progress),
        status=status,
        remark=remark or partition.time.remark,
    )


SAMPLES: Final = 6
INTERVAL_S: Final = 5.0
ALERTS_SHOWN: Final = 10


@connects
def lag(  # noqa: PLR0917
    groups: GroupArguments,
    brokers: Brokers,
    check: Annotated[
        bool,
        typer.Option("--check", help="Take several samples, and judge whether the groups keep up."),
    ] = False,
    samples: Annotated[
        int, typer.Option(metavar="NUMBER", min=2, help="The number of samples for --check.")
    ] = SAMPLES,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Seconds between samples.")
    ] = INTERVAL_S,
    allowed_lag: Annotated[
        int,
        typer.Option(
            metavar="OFFSETS", min=0, help="The largest lag with which a partition keeps up."
        ),
    ] = 0,
    alert_hours: AlertHours = ALERT_HOURS,
    isolation_level: IsolationLevelOption = IsolationLevel.READ_UNCOMMITTED,
    as_json: JsonFlag = False,
    every_partition: EveryPartitionFlag = False,
) -> None:
    """Show the lag of groups, in each partition and in total: in offsets and in time.

    A partition is as far behind as its first unread record is old. If retention may soon delete
    unread records, an alert names the partition.

    --check applies the rules of Burrow: a lagging partition is an error if its committed offset
    never moved, stopped moving or went back, and a warning if its lag never falls. A partition
    whose lag holds no record, only transaction markers or compacted records, keeps up. Samples
    must span several commits; a query commits once per batch. An alert is an error, and a warning
    if its partition is catching up.

    Example: spark-groups lag flight-readers --check --interval 10

    Exit codes of --check: 0 OK, 1 WARN (also if too little is known), 2 ERR (also if a group
    cannot be read). Without --check: 1 if a group cannot be read. stderr says why, and the other
    groups are shown.
    """
    rows_max = partition_rows_max(every_partition=every_partition)
    refused: list[SparkGroupsError]
    with brokers.observer(isolation_level) as observer:
        if check:
            taken, refused = _take_samples(observer, groups, samples, interval)
            window_s = max((each[-1][0] - each[0][0] for each in taken), default=0.0)
            judged = [judge_group_lag(each, allowed_lag, alert_hours) for each in taken]
            view = LagView(groups=tuple(judged), window_s=round(window_s, 3))
        else:
            seen, refused = read_each(groups, observer.view)
            listed = (view_group_lag(each, alert_hours) for each in seen.values())
            view = LagView(groups=tuple(listed))
    if view.groups or not refused:
        show(view, lambda view: render_lag(view, rows_max), as_json=as_json)
    end_if_refused(refused, Verdict.ERR.value if check else 1)
    if check:
        raise typer.Exit(view.verdict.value)


def _take_samples(
    observer: GroupObserver, group_ids: list[str], samples: int, interval_s: float
) -> tuple[list[list[tuple[float, GroupView]]], list[SparkGroupsError]]:
    """Return the samples of each group, with their times, and why other groups have none."""

    def sample(group_id: str) -> tuple[float, GroupView]:
        return time.monotonic(), observer.view(group_id)

    taken: dict[str, list[tuple[float, GroupView]]] = {each: [] for each in group_ids}
    refused: list[SparkGroupsError] = []
    began_s = time.monotonic()
    for turn in range(samples):
        time.sleep(max(0.0, began_s + turn * interval_s - time.monotonic()) if taken else 0.0)
        seen, failed = read_each(taken, sample)
        refused += failed
        taken = {group_id: [*taken[group_id], each] for group_id, each in seen.items()}
    return list(taken.values()), refused


_STYLES: Final[Mapping[Verdict, str]] = {
    Verdict.OK: "green",
    Verdict.WARN: "yellow",
    Verdict.ERR: "red",
}


def render_lag(view: LagView, max_partition_rows: int | None = None) -> RenderableType:
    """Return a line for each group, and a row for each partition.

    Args:
        max_partition_rows: The most partitions to show for each group, those with the largest
            lag first; None shows all.
    """
    parts: list[RenderableType] = []
    for group in view.groups:
        parts += [Text()] if parts else []
        parts.append(_line(group))
        parts += _partitions(group, max_partition_rows)
    return Group(*parts)


def _line(group: GroupLag) -> Text:
    unknown = group.unknown_lag_partitions
    line = Text.assemble(
        "group ",
        (printable(group.group_id), "bold"),
        f"  {printable(group.group_state) or UNKNOWN}  total lag {number(group.lag)}",
        f" in {len(group.partitions):,} partitions",
        f" ({unknown:,} unknown)" if unknown else "",
        "" if group.seconds_behind is None else f"  {duration_text(group.seconds_behind)} behind",
        _catching_up(group),
    )
    if group.verdict is not None:
        line.append("  ").append(group.verdict.name, _STYLES[group.verdict])
    return line


def _catching_up(group: GroupLag) -> str:
    is_told = group.catch_up.outlook in (Outlook.CATCHING_UP, Outlook.NEVER)
    return f"  {catch_up_text(group.catch_up)}" if is_told else ""


def _partitions(group: GroupLag, max_partition_rows: int | None) -> list[RenderableType]:
    shown = group.partitions
    if not shown:
        return []
    rest = 0
    if max_partition_rows is not None and len(shown) > max_partition_rows:
        rest = len(shown) - max_partition_rows
        by_lag = sorted(shown, key=lambda each: -1 if each.lag is None else each.lag, reverse=True)
        shown = tuple(by_lag[:max_partition_rows])
    notes = [Text(f"and {rest:,} partitions with less lag: use --all")] if rest else []
    if any(_counts_from_log_start(each) for each in shown):
        notes.append(Text("* no committed offset: lag counts from the log start"))
    notes += [Text(printable(alert.text), ALARM_STYLE) for alert in group.alerts[:ALERTS_SHOWN]]
    if len(group.alerts) > ALERTS_SHOWN:
        notes.append(Text(f"and alerts of {len(group.alerts) - ALERTS_SHOWN:,} more partitions"))
    found = {each.status for each in shown} - {None, PartitionStatus.OK}
    notes += [
        Text(f"{status.value}: {meaning}")
        for status, meaning in STATUS_MEANINGS.items()
        if status in found
    ]
    if group.verdict is not None and any(each.status is None for each in shown):
        notes.append(Text(f"{UNKNOWN}: Too few samples to judge it."))
    return [_table(shown, judged=group.verdict is not None), *notes]


def _table(partitions: tuple[PartitionLag, ...], *, judged: bool) -> Table:
    return table_of(
        partitions,
        Column("TOPIC", lambda each: each.topic),
        Column("PARTITION", lambda each: str(each.partition), is_number=True),
        Column("COMMITTED", _committed, is_number=True),
        Column("LOG END", lambda each: number(each.log_end_offset), is_number=True),
        Column("LAG", _lag, is_number=True),
        Column(
            "BEHIND",
            lambda each: behind_text(each.time.seconds_behind),
            is_number=True,
            is_optional=True,
        ),
        Column("OUTLOOK", lambda each: catch_up_text(each.catch_up), True, judged),
        Column("RECORDS EXPIRE", lambda each: deletion_text(each.time), is_optional=True),
        Column("CHANGE", _change, is_number=True, is_shown=judged),
        Column(
            "STATUS", lambda each: each.status.value if each.status else UNKNOWN, is_shown=judged
        ),
        Column("REMARK", lambda each: each.remark, is_optional=True),
    )


def _committed(partition: PartitionLag) -> str:
    return "none" if _counts_from_log_start(partition) else number(partition.committed_offset)


def _lag(partition: PartitionLag) -> str:
    is_marked = _counts_from_log_start(partition) and partition.lag is not None
    return number(partition.lag) + "*" * is_marked


def _counts_from_log_start(partition: PartitionLag) -> bool:
    return partition.lag_origin is LagOrigin.LOG_START_OFFSET


def _change(partition: PartitionLag) -> str:
    return UNKNOWN if partition.lag_change is None else f"{partition.lag_change:+,}"
