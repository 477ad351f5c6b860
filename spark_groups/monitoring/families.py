"""The snapshot of a member as Prometheus metrics.

Names follow the attributes of Kafka's own consumer (`heartbeat-total`, `last-poll-seconds-ago`,
`assigned-partitions`) in Prometheus units, with the prefix `kafka_group_`. Unknown values have no
sample, rather than 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric

from spark_groups.group.counts import Count
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.metrics import WINDOW_S, Durations, MetricsSnapshot, Took
from spark_groups.group.snapshot import LagTimes, MemberSnapshot, PartitionSnapshot
from spark_groups.monitoring.health import Condition, assess
from spark_groups.types import sum_of_known, topic_id_text

PREFIX: Final = "kafka_group_"
MAX_PARTITION_SERIES: Final = 500
"""With more partitions than this, only sums are exported."""

Known = float | None
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Gauge(Generic[Read]):
    """A gauge that is read from a snapshot.

    Args:
        name: Without the prefix.
        value: Reads the number from a snapshot; None if unknown.
    """

    name: str
    meaning: str
    value: Callable[[Read], Known]


def _known(numbers: Iterable[Known]) -> list[float]:
    return [number for number in numbers if number is not None]


def _seconds(milliseconds: int | None) -> Known:
    return None if milliseconds is None else milliseconds / 1000


def _extreme(
    of: Callable[[list[float]], float], read: Callable[[LagTimes], Known]
) -> Callable[[MemberSnapshot], Known]:
    """Return what reads the largest or smallest known number of the partitions."""

    def value(member: MemberSnapshot) -> Known:
        known = _known(read(partition.times) for partition in member.partitions)
        return of(known) if known else None

    return value


def _budget_used(member: MemberSnapshot) -> Known:
    age_s, timeout_s = member.revocation_age_s, member.revocation_timeout_s
    return age_s / timeout_s if age_s is not None and timeout_s else None


GAUGES: Final[tuple[Gauge[MemberSnapshot], ...]] = (
    Gauge(
        "member_epoch",
        "Member epoch; 0 before the member has joined.",
        lambda member: member.member_epoch,
    ),
    Gauge("group_epoch", "Group epoch, as last described.", lambda member: member.group_epoch),
    Gauge(
        "assignment_epoch",
        "Assignment epoch, as last described.",
        lambda member: member.assignment_epoch,
    ),
    Gauge(
        "assigned_partitions",
        "Partitions assigned to the member.",
        lambda member: len(member.assigned),
    ),
    Gauge(
        "pending_partitions",
        "Partitions of the target assignment that other members still own.",
        lambda member: len(member.pending),
    ),
    Gauge(
        "revoking_partitions",
        "Partitions that the member must release.",
        lambda member: len(member.revoking),
    ),
    Gauge(
        "uncommitted_partitions",
        "Partitions with finished offsets that are not committed yet.",
        lambda member: len(member.uncommitted),
    ),
    Gauge(
        "uncommitted_seconds",
        "Time that finished offsets have waited without a successful commit.",
        lambda member: member.uncommitted_age_s,
    ),
    Gauge(
        "session_timeout_seconds",
        "Session timeout.",
        lambda member: _seconds(member.session_timeout_ms),
    ),
    Gauge(
        "heartbeat_interval_seconds",
        "Heartbeat interval set by the coordinator.",
        lambda member: _seconds(member.heartbeat_interval_ms),
    ),
    Gauge(
        "rebalance_timeout_seconds",
        "Rebalance timeout of the member.",
        lambda member: _seconds(member.rebalance_timeout_ms),
    ),
    Gauge(
        "last_heartbeat_seconds_ago",
        "Time since the last successful heartbeat was sent.",
        lambda member: member.last_heartbeat_age_s,
    ),
    Gauge(
        "last_poll_seconds_ago",
        "Time since Spark's last call.",
        lambda member: member.last_call_age_s,
    ),
    Gauge(
        "last_rebalance_seconds_ago",
        "Time since the last assignment took effect.",
        lambda member: member.tally.last_rebalance_age_s if member.tally else None,
    ),
    Gauge(
        "revocation_seconds",
        "Time since the coordinator requested a revocation; absent without one.",
        lambda member: member.revocation_age_s,
    ),
    Gauge(
        "revocation_budget_used_ratio",
        "Revocation time by rebalance timeout; at 1 the coordinator fences the member.",
        _budget_used,
    ),
    Gauge(
        "batch_seconds",
        "Time that the current batch has been running.",
        lambda member: member.batch_age_s,
    ),
    Gauge(
        "idle_seconds", "Time without a batch or a call from Spark.", lambda member: member.idle_s
    ),
    Gauge(
        "idle_limit_seconds",
        "Idle time after which the member leaves.",
        lambda member: member.idle_limit_s,
    ),
    Gauge(
        "lag_sum",
        "Sum of lags: log end as of Spark's last call minus committed offset; absent if unknown."
        " Transaction markers and compacted records count too.",
        lambda member: sum_of_known(partition.lag for partition in member.partitions),
    ),
    Gauge(
        "lag_max",
        "Maximum lag of a partition; absent if unknown.",
        lambda member: max(_known(partition.lag for partition in member.partitions), default=None),
    ),
    Gauge(
        "behind_seconds_max",
        "Maximum age of the first unread record of a partition; absent if unknown.",
        _extreme(max, lambda times: times.seconds_behind),
    ),
    Gauge(
        "catch_up_seconds_max",
        "Time until the last partition has caught up at current rates; +Inf: never.",
        _extreme(max, lambda times: times.catch_up_s),
    ),
    Gauge(
        "deletion_seconds_min",
        "Time until retention may first delete an unread record; absent if unknown, or never.",
        _extreme(min, lambda times: times.deletion_in_s),
    ),
    Gauge(
        "deleted_unread_offsets",
        "Unread offsets that retention has deleted already.",
        lambda member: sum_of_known(
            partition.times.deleted_unread_offsets for partition in member.partitions
        ),
    ),
    Gauge(
        "pending_lag_sum",
        "Sum of lags of pending partitions.",
        lambda member: sum(_known(pending_range.rows for pending_range in member.pending_ranges)),
    ),
)
PARTITION_GAUGES: Final[tuple[Gauge[PartitionSnapshot], ...]] = (
    Gauge(
        "lag",
        "Log end minus committed offset, in offsets, as in Kafka's tools.",
        lambda each: each.lag,
    ),
    Gauge(
        "committed_offset",
        "Committed offset: the next offset to read.",
        lambda each: each.committed_offset,
    ),
    Gauge("position", "Next offset to plan.", lambda each: each.position),
    Gauge("log_end_offset", "Log end as of Spark's last call.", lambda each: each.log_end_offset),
    Gauge(
        "behind_seconds",
        "Age of the first unread record; 0 if no record is unread.",
        lambda each: each.times.seconds_behind,
    ),
    Gauge(
        "catch_up_seconds",
        "Time until the partition has caught up at current rates; +Inf: never.",
        lambda each: each.times.catch_up_s,
    ),
    Gauge(
        "deletion_seconds",
        "Time until retention may delete the first unread record; 0: at any time.",
        lambda each: each.times.deletion_in_s,
    ),
)
INFO: Final = ("member_id", "instance_id", "coordinator")


def families(member: MemberSnapshot) -> Iterator[Metric]:
    """Yield all metrics of a snapshot, which has only `group` and `state` at first."""
    group = member.group
    yield from _states(member)
    if member.tally is None:
        return
    info = InfoMetricFamily(
        f"{PREFIX}member", "Identity of the member; always 1.", labels=["group"]
    )
    info.add_metric([group], {name: str(getattr(member, name) or "") for name in INFO})
    yield info
    for gauge in GAUGES:
        yield _gauge(gauge, ["group"], {(group,): member})
    yield from _partitions(member)
    yield from _counted(group, member.tally)


def _states(member: MemberSnapshot) -> Iterator[Metric]:
    group, health = member.group, assess(member)
    for name, meaning, found, choices in (
        ("state", "State of the member.", member.state.name, MemberState),
        ("condition", "Result of the health check.", health.condition.name, Condition),
    ):
        family = GaugeMetricFamily(PREFIX + name, meaning, labels=["group", name])
        for choice in choices:
            family.add_metric([group, choice.name], choice.name == found)
        yield family
    for name, is_so in (("live", health.is_live), ("ready", health.is_ready)):
        family = GaugeMetricFamily(
            PREFIX + name, f"1 if /{name} returns 200, else 0.", labels=["group"]
        )
        family.add_metric([group], is_so)
        yield family


def _partitions(member: MemberSnapshot) -> Iterator[Metric]:
    group, partitions = member.group, member.partitions
    if len(partitions) > MAX_PARTITION_SERIES:
        return
    # A topic that was deleted and created again may appear twice under one name.
    labelled: dict[tuple[str, ...], PartitionSnapshot] = {
        (group, each.topic or topic_id_text(each.topic_id), str(each.partition)): each
        for each in partitions
    }
    for gauge in PARTITION_GAUGES:
        yield _gauge(gauge, ["group", "topic", "partition"], labelled)


def _gauge(
    gauge: Gauge[Read], names: list[str], labelled: Mapping[tuple[str, ...], Read]
) -> Metric:
    family = GaugeMetricFamily(PREFIX + gauge.name, gauge.meaning, labels=names)
    for labels, read in labelled.items():
        value = gauge.value(read)
        if value is not None:
            family.add_metric(list(labels), value)
    return family


def _counted(group: str, tally: MetricsSnapshot) -> Iterator[Metric]:
    for count in Count:
        name = PREFIX + count.name.lower()
        counter = CounterMetricFamily(name, sentence(count.value), labels=["group"])
        counter.add_metric([group], tally.counts[count])
        yield counter
    errors = CounterMetricFamily(
        f"{PREFIX}request_errors",
        "Error responses by request.",
        labels=["group", "request", "error"],
    )
    for request, error, number in tally.errors:
        errors.add_metric([group, request, error], number)
    yield errors
    for took in Took:
        yield from _timed(group, took, tally.took[took])


def _timed(group: str, took: Took, durations: Durations) -> Iterator[Metric]:
    name, meaning = PREFIX + took.name.lower(), sentence(took.value)
    bounds = [*map(str, durations.bounds_s), "+Inf"]
    buckets = list(zip(bounds, durations.buckets, strict=True))
    histogram = HistogramMetricFamily(f"{name}_seconds", meaning, labels=["group"])
    histogram.add_metric([group], buckets, durations.sum_s)
    yield histogram
    longest = GaugeMetricFamily(
        f"{name}_max_seconds",
        f"{meaning} Maximum over the last {WINDOW_S:.0f} to {2 * WINDOW_S:.0f} s.",
        labels=["group"],
    )
    if durations.max_s is not None:
        longest.add_metric([group], durations.max_s)
    yield longest


def sentence(words: str) -> str:
    """Return words with a capital letter and a full stop."""
    return f"{words[0].upper()}{words[1:]}."
