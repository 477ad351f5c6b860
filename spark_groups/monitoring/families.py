"""The snapshot of a member as Prometheus' metrics: one declaration for each.

Names are the attributes of Kafka's own consumer where it has them (`heartbeat-total`,
`last-poll-seconds-ago`, `assigned-partitions`), in Prometheus' units, behind `kafka_group_`. What
is unknown has no sample: it is never 0.
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

from spark_groups.client.health import Condition, View, assess
from spark_groups.client.metrics import WINDOW_S, Count, Took
from spark_groups.protocol.membership import MemberState
from spark_groups.types import sum_of_known

PREFIX: Final = "kafka_group_"
MAX_PARTITION_SERIES: Final = 500
"""With more partitions than this there are only sums: a series for each would be too many."""

Known = float | None


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that a snapshot has, or gives.

    Args:
        name: Without the prefix.
        value: Reads the number from a snapshot; None if unknown.
    """

    name: str
    meaning: str
    value: Callable[[View], Known]


def _lag(partition: View) -> int | None:
    """Return the lag as Kafka's tools have it: log end without what is committed."""
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


def _budget_used(view: View) -> Known:
    age_s, timeout_s = view.get("revocation_age_s"), view.get("revocation_timeout_s")
    return age_s / timeout_s if age_s is not None and timeout_s else None


GAUGES: Final = (
    Gauge("member_epoch", "The member's epoch; 0: it has not joined.", _of("member_epoch")),
    Gauge("group_epoch", "The group's epoch, as last described.", _of("group_epoch")),
    Gauge("assignment_epoch", "The assignment's epoch, as described.", _of("assignment_epoch")),
    Gauge("assigned_partitions", "Partitions that the member may use.", _number_of("assigned")),
    Gauge("pending_partitions", "Partitions that others still own.", _number_of("pending")),
    Gauge("revoking_partitions", "Partitions that it has to give up.", _number_of("revoking")),
    Gauge(
        "uncommitted_partitions",
        "Partitions with offsets that wait for being committed.",
        _number_of("uncommitted"),
    ),
    Gauge(
        "uncommitted_seconds",
        "For how long offsets have waited without any being accepted.",
        _of("uncommitted_age_s"),
    ),
    Gauge("session_timeout_seconds", "The session time-out.", _seconds("session_timeout_ms")),
    Gauge(
        "heartbeat_interval_seconds",
        "The heartbeat interval that the coordinator asks for.",
        _seconds("heartbeat_interval_ms"),
    ),
    Gauge(
        "rebalance_timeout_seconds",
        "The rebalance time-out that the member asks for.",
        _seconds("rebalance_timeout_ms"),
    ),
    Gauge(
        "last_heartbeat_seconds_ago",
        "Since the last heartbeat was sent that was accepted.",
        _of("last_heartbeat_age_s"),
    ),
    Gauge("last_poll_seconds_ago", "Since Spark last called.", _of("last_call_age_s")),
    Gauge(
        "last_rebalance_seconds_ago",
        "Since the last assignment was put in place.",
        lambda view: view["tally"].get("last_rebalance_age_s"),
    ),
    Gauge(
        "revocation_seconds",
        "Since it was told to give partitions up; absent: there are none.",
        _of("revocation_age_s"),
    ),
    Gauge(
        "revocation_budget_used_ratio",
        "How much of the rebalance time-out that has used up; at 1 the coordinator removes it.",
        _budget_used,
    ),
    Gauge("batch_seconds", "For how long the batch has been running.", _of("batch_age_s")),
    Gauge("idle_seconds", "Without a batch and without a call.", _of("idle_s")),
    Gauge("idle_limit_seconds", "When the member leaves because of that.", _of("idle_limit_s")),
    Gauge(
        "lag_sum",
        "Log ends, as of the last call, without what is committed; absent: none is known.",
        lambda view: sum_of_known(map(_lag, view["partitions"])),
    ),
    Gauge(
        "lag_max",
        "The largest lag of a partition; absent: none is known.",
        lambda view: max(_lags(view["partitions"]), default=None),
    ),
    Gauge(
        "pending_lag_sum",
        "The lag of partitions that others still own.",
        lambda view: sum(_lags(view["pending_ranges"])),
    ),
)
PARTITION_GAUGES: Final = (
    Gauge("lag", "Log end without what is committed, as Kafka's tools have it.", _lag),
    Gauge("committed_offset", "The next offset to read, as committed.", _of("committed_offset")),
    Gauge("position", "The next offset to plan.", _of("position")),
    Gauge("log_end_offset", "The log's end as of Spark's last call.", _of("log_end_offset")),
)
INFO: Final = ("member_id", "instance_id", "coordinator")


def families(view: View) -> Iterator[Metric]:
    """Yield all metrics of a member."""
    group = str(view["group"])
    yield from _states(group, view)
    if "tally" not in view:
        return
    info = InfoMetricFamily(f"{PREFIX}member", "Who the member is; always 1.", labels=["group"])
    info.add_metric([group], {name: str(view.get(name) or "") for name in INFO})
    yield info
    for gauge in GAUGES:
        yield _gauge(gauge, ["group"], {(group,): view})
    yield from _partitions(group, view)
    yield from _counted(group, view["tally"])


def metric_table() -> str:
    """Return the table of all metrics as Markdown."""
    by_partition = "group, topic, partition"
    rows = [
        ("state", "gauge", "group, state", "1 for the state of the member (KIP-848's names)."),
        ("condition", "gauge", "group, condition", "1 for what the health check finds."),
        ("live", "gauge", "group", "What `/live` says: 1 or 0."),
        ("ready", "gauge", "group", "What `/ready` says: 1 or 0."),
        ("member_info", "gauge", f"group, {', '.join(INFO)}", "Who the member is; always 1."),
        *((each.name, "gauge", "group", each.meaning) for each in GAUGES),
        *((each.name, "gauge", by_partition, each.meaning) for each in PARTITION_GAUGES),
        *(
            (f"{each.name.lower()}_total", "counter", "group", _sentence(each.value))
            for each in Count
        ),
        ("request_errors_total", "counter", "group, request, error", "Errors of these requests."),
        *(
            (f"{each.name.lower()}_seconds", "histogram", "group", _sentence(each.value))
            for each in Took
        ),
        *(
            (f"{each.name.lower()}_max_seconds", "gauge", "group", "The longest of these of late.")
            for each in Took
        ),
    ]
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    lines += [f"| `{PREFIX}{name}` | {kind} | {at} | {why} |" for name, kind, at, why in rows]
    return "\n".join(lines)


def _states(group: str, view: View) -> Iterator[Metric]:
    health = assess(view)
    for name, meaning, found, choices in (
        ("state", "The state of the member.", view["state"], MemberState),
        ("condition", "What the health check finds.", health.condition.name, Condition),
    ):
        family = GaugeMetricFamily(PREFIX + name, meaning, labels=["group", name])
        for each in choices:
            family.add_metric([group, each.name], each.name == found)
        yield family
    for name, is_so in (("live", health.is_live), ("ready", health.is_ready)):
        family = GaugeMetricFamily(PREFIX + name, f"What /{name} says.", labels=["group"])
        family.add_metric([group], is_so)
        yield family


def _partitions(group: str, view: View) -> Iterator[Metric]:
    partitions = view["partitions"]
    if len(partitions) > MAX_PARTITION_SERIES:
        return
    # A topic that was created anew may be there twice, under one name: no series may be.
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


def _counted(group: str, tally: View) -> Iterator[Metric]:
    for count in Count:
        name = count.name.lower()
        counter = CounterMetricFamily(PREFIX + name, _sentence(count.value), labels=["group"])
        counter.add_metric([group], tally["counts"][name])
        yield counter
    errors = CounterMetricFamily(
        f"{PREFIX}request_errors",
        "Errors that requests were answered with.",
        labels=["group", "request", "error"],
    )
    for request, error, number in tally["errors"]:
        errors.add_metric([group, request, error], number)
    yield errors
    for took in Took:
        yield from _timed(group, took, tally["took"][took.name.lower()])


def _timed(group: str, took: Took, spread: View) -> Iterator[Metric]:
    name, meaning = PREFIX + took.name.lower(), _sentence(took.value)
    bounds = [*map(str, spread["bounds_s"]), "+Inf"]
    buckets = list(zip(bounds, spread["buckets"], strict=True))
    histogram = HistogramMetricFamily(f"{name}_seconds", meaning, labels=["group"])
    histogram.add_metric([group], buckets, spread["sum_s"])
    yield histogram
    longest = GaugeMetricFamily(
        f"{name}_max_seconds",
        f"{meaning} The longest of the last {WINDOW_S:.0f} to {2 * WINDOW_S:.0f} s.",
        labels=["group"],
    )
    if spread["max_s"] is not None:
        longest.add_metric([group], spread["max_s"])
    yield longest


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
