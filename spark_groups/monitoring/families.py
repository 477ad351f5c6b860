"""The snapshot of a member as Prometheus metrics.

Names follow the attributes of Kafka's own consumer (`heartbeat-total`, `last-poll-seconds-ago`,
`assigned-partitions`) in Prometheus units, with the prefix `kafka_group_`. Unknown values have no
sample, rather than 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric

from spark_groups.group.health import Condition, View, assess
from spark_groups.group.member.membership import MemberState
from spark_groups.group.metrics import WINDOW_S, Count, Took
from spark_groups.types import sum_of_known

PREFIX: Final = "kafka_group_"
MAX_PARTITION_SERIES: Final = 500
"""With more partitions than this, only sums are exported."""

Known = float | None


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge that is read from a snapshot.

    Args:
        name: Without the prefix.
        value: Reads the number from a snapshot; None if unknown.
    """

    name: str
    meaning: str
    value: Callable[[View], Known]


def _lag(partition: View) -> int | None:
    """Return the lag as in Kafka's tools: log end minus committed offset."""
    committed, end = partition.get("committed_offset"), partition.get("log_end_offset")
    return None if committed is None or end is None else max(0, end - committed)


def _lags(partitions: Iterable[View]) -> list[int]:
    return [lag for lag in map(_lag, partitions) if lag is not None]


def _seconds(name: str) -> Callable[[View], Known]:
    def value(view: View) -> Known:
        milliseconds = view.get(name)
        return None if milliseconds is None else milliseconds / 1000

    return value


def _of(name: str) -> Callable[[View], Known]:
    return lambda view: view.get(name)


def _number_of(name: str) -> Callable[[View], Known]:
    return lambda view: len(view[name])


def _extreme(name: str, of: Callable[[list[float]], float]) -> Callable[[View], Known]:
    """Return what reads the largest or smallest known number of the partitions."""

    def value(view: View) -> Known:
        known = [each[name] for each in view["partitions"] if each.get(name) is not None]
        return of(known) if known else None

    return value


def _budget_used(view: View) -> Known:
    age_s, timeout_s = view.get("revocation_age_s"), view.get("revocation_timeout_s")
    return age_s / timeout_s if age_s is not None and timeout_s else None


GAUGES: Final = (
    Gauge("member_epoch", "Member epoch; 0 before the member has joined.", _of("member_epoch")),
    Gauge("group_epoch", "Group epoch, as last described.", _of("group_epoch")),
    Gauge("assignment_epoch", "Assignment epoch, as last described.", _of("assignment_epoch")),
    Gauge("assigned_partitions", "Partitions assigned to the member.", _number_of("assigned")),
    Gauge(
        "pending_partitions",
        "Partitions of the target assignment that other members still own.",
        _number_of("pending"),
    ),
    Gauge(
        "revoking_partitions", "Partitions that the member must release.", _number_of("revoking")
    ),
    Gauge(
        "uncommitted_partitions",
        "Partitions with finished offsets that are not committed yet.",
        _number_of("uncommitted"),
    ),
    Gauge(
        "uncommitted_seconds",
        "Time that finished offsets have waited without a successful commit.",
        _of("uncommitted_age_s"),
    ),
    Gauge("session_timeout_seconds", "Session timeout.", _seconds("session_timeout_ms")),
    Gauge(
        "heartbeat_interval_seconds",
        "Heartbeat interval set by the coordinator.",
        _seconds("heartbeat_interval_ms"),
    ),
    Gauge(
        "rebalance_timeout_seconds",
        "Rebalance timeout of the member.",
        _seconds("rebalance_timeout_ms"),
    ),
    Gauge(
        "last_heartbeat_seconds_ago",
        "Time since the last successful heartbeat was sent.",
        _of("last_heartbeat_age_s"),
    ),
    Gauge("last_poll_seconds_ago", "Time since Spark's last call.", _of("last_call_age_s")),
    Gauge(
        "last_rebalance_seconds_ago",
        "Time since the last assignment took effect.",
        lambda view: view["tally"].get("last_rebalance_age_s"),
    ),
    Gauge(
        "revocation_seconds",
        "Time since the coordinator requested a revocation; absent without one.",
        _of("revocation_age_s"),
    ),
    Gauge(
        "revocation_budget_used_ratio",
        "Revocation time by rebalance timeout; at 1 the coordinator fences the member.",
        _budget_used,
    ),
    Gauge("batch_seconds", "Time that the current batch has been running.", _of("batch_age_s")),
    Gauge("idle_seconds", "Time without a batch or a call from Spark.", _of("idle_s")),
    Gauge("idle_limit_seconds", "Idle time after which the member leaves.", _of("idle_limit_s")),
    Gauge(
        "lag_sum",
        "Sum of lags: log end as of Spark's last call minus committed offset; absent if unknown."
        " Transaction markers and compacted records count too.",
        lambda view: sum_of_known(map(_lag, view["partitions"])),
    ),
    Gauge(
        "lag_max",
        "Maximum lag of a partition; absent if unknown.",
        lambda view: max(_lags(view["partitions"]), default=None),
    ),
    Gauge(
        "behind_seconds_max",
        "Maximum age of the first unread record of a partition; absent if unknown.",
        _extreme("seconds_behind", max),
    ),
    Gauge(
        "catch_up_seconds_max",
        "Time until the last partition has caught up at current rates; +Inf: never.",
        _extreme("catch_up_s", max),
    ),
    Gauge(
        "deletion_seconds_min",
        "Time until retention may first delete an unread record; absent if unknown, or never.",
        _extreme("deletion_in_s", min),
    ),
    Gauge(
        "deleted_unread_offsets",
        "Unread offsets that retention has deleted already.",
        lambda view: sum_of_known(
            each.get("deleted_unread_offsets") for each in view["partitions"]
        ),
    ),
    Gauge(
        "pending_lag_sum",
        "Sum of lags of pending partitions.",
        lambda view: sum(_lags(view["pending_ranges"])),
    ),
)
PARTITION_GAUGES: Final = (
    Gauge("lag", "Log end minus committed offset, in offsets, as in Kafka's tools.", _lag),
    Gauge(
        "committed_offset", "Committed offset: the next offset to read.", _of("committed_offset")
    ),
    Gauge("position", "Next offset to plan.", _of("position")),
    Gauge("log_end_offset", "Log end as of Spark's last call.", _of("log_end_offset")),
    Gauge(
        "behind_seconds",
        "Age of the first unread record; 0 if no record is unread.",
        _of("seconds_behind"),
    ),
    Gauge(
        "catch_up_seconds",
        "Time until the partition has caught up at current rates; +Inf: never.",
        _of("catch_up_s"),
    ),
    Gauge(
        "deletion_seconds",
        "Time until retention may delete the first unread record; 0: at any time.",
        _of("deletion_in_s"),
    ),
)
INFO: Final = ("member_id", "instance_id", "coordinator")


def families(view: View) -> Iterator[Metric]:
    """Yield all metrics of a snapshot, which has only `group` and `state` at first."""
    group = str(view["group"])
    yield from _states(group, view)
    if "tally" not in view:
        return
    info = InfoMetricFamily(
        f"{PREFIX}member", "Identity of the member; always 1.", labels=["group"]
    )
    info.add_metric([group], {name: str(view.get(name) or "") for name in INFO})
    yield info
    for gauge in GAUGES:
        yield _gauge(gauge, ["group"], {(group,): view})
    yield from _partitions(group, view)
    yield from _counted(group, view["tally"])


def _states(group: str, view: View) -> Iterator[Metric]:
    health = assess(view)
    for name, meaning, found, choices in (
        ("state", "State of the member.", view["state"], MemberState),
        ("condition", "Result of the health check.", health.condition.name, Condition),
    ):
        family = GaugeMetricFamily(PREFIX + name, meaning, labels=["group", name])
        for each in choices:
            family.add_metric([group, each.name], each.name == found)
        yield family
    for name, is_so in (("live", health.is_live), ("ready", health.is_ready)):
        family = GaugeMetricFamily(
            PREFIX + name, f"1 if /{name} returns 200, else 0.", labels=["group"]
        )
        family.add_metric([group], is_so)
        yield family


def _partitions(group: str, view: View) -> Iterator[Metric]:
    partitions = view["partitions"]
    if len(partitions) > MAX_PARTITION_SERIES:
        return
    # A topic that was deleted and created again may appear twice under one name.
    labelled: dict[tuple[str, ...], View] = {
        (group, str(each["topic"] or each["topic_id"]), str(each["partition"])): each
        for each in partitions
    }
    for gauge in PARTITION_GAUGES:
        yield _gauge(gauge, ["group", "topic", "partition"], labelled)


def _gauge(gauge: Gauge, names: list[str], labelled: Mapping[tuple[str, ...], View]) -> Metric:
    family = GaugeMetricFamily(PREFIX + gauge.name, gauge.meaning, labels=names)
    for labels, view in labelled.items():
        value = gauge.value(view)
        if value is not None:
            family.add_metric(list(labels), value)
    return family


def _counted(group: str, counted: View) -> Iterator[Metric]:
    for count in Count:
        name = count.name.lower()
        counter = CounterMetricFamily(PREFIX + name, sentence(count.value), labels=["group"])
        counter.add_metric([group], counted["counts"][name])
        yield counter
    errors = CounterMetricFamily(
        f"{PREFIX}request_errors",
        "Error responses by request.",
        labels=["group", "request", "error"],
    )
    for request, error, number in counted["errors"]:
        errors.add_metric([group, request, error], number)
    yield errors
    for took in Took:
        yield from _timed(group, took, counted["took"][took.name.lower()])


def _timed(group: str, took: Took, spread: View) -> Iterator[Metric]:
    name, meaning = PREFIX + took.name.lower(), sentence(took.value)
    bounds = [*map(str, spread["bounds_s"]), "+Inf"]
    buckets = list(zip(bounds, spread["buckets"], strict=True))
    histogram = HistogramMetricFamily(f"{name}_seconds", meaning, labels=["group"])
    histogram.add_metric([group], buckets, spread["sum_s"])
    yield histogram
    longest = GaugeMetricFamily(
        f"{name}_max_seconds",
        f"{meaning} Maximum over the last {WINDOW_S:.0f} to {2 * WINDOW_S:.0f} s.",
        labels=["group"],
    )
    if spread["max_s"] is not None:
        longest.add_metric([group], spread["max_s"])
    yield longest


def sentence(words: str) -> str:
    """Return words with a capital letter and a full stop."""
    return f"{words[0].upper()}{words[1:]}."
