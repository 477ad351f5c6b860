"""A snapshot as Prometheus' metrics, read back by Prometheus' own parsers."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.registry import Collector

from spark_groups.group.counts import Count
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.metrics import Took
from spark_groups.group.snapshot import LagTimes, MemberSnapshot, take_snapshot
from spark_groups.monitoring.families import (
    GAUGES,
    INFO,
    MAX_PARTITION_SERIES,
    PARTITION_GAUGES,
    PREFIX,
    families,
    sentence,
)
from spark_groups.monitoring.health import Condition
from tests.group.harness import ClientHarness
from tests.monitoring.scraping import Scrape
from tests.monitoring.views import busy_view

DOCS = Path(__file__).parents[2] / "docs" / "monitoring.md"


class _Of(Collector):
    def __init__(self, view: MemberSnapshot) -> None:
        self._view = view

    def collect(self) -> list[Metric]:
        return list(families(self._view))


def registry(view: MemberSnapshot) -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(_Of(view))
    return found


def scraped(view: MemberSnapshot) -> Scrape:
    return Scrape(generate_latest(registry(view)).decode("utf-8"))


def metric_table() -> str:
    """Return the Markdown table of all metrics in docs/monitoring.md."""
    by_partition = "group, topic, partition"
    rows = [
        (
            "state",
            "gauge",
            "group, state",
            "1 for the member's state, as named in KIP-848, else 0.",
        ),
        ("condition", "gauge", "group, condition", "1 for the result of the health check, else 0."),
        ("live", "gauge", "group", "1 if `/live` returns 200, else 0."),
        ("ready", "gauge", "group", "1 if `/ready` returns 200, else 0."),
        ("member_info", "gauge", f"group, {', '.join(INFO)}", "Identity of the member; always 1."),
        *((each.name, "gauge", "group", each.meaning) for each in GAUGES),
        *((each.name, "gauge", by_partition, each.meaning) for each in PARTITION_GAUGES),
        *(
            (f"{each.name.lower()}_total", "counter", "group", sentence(each.value))
            for each in Count
        ),
        ("request_errors_total", "counter", "group, request, error", "Error responses by request."),
        *(
            (f"{each.name.lower()}_seconds", "histogram", "group", sentence(each.value))
            for each in Took
        ),
        *(
            (
                f"{each.name.lower()}_max_seconds",
                "gauge",
                "group",
                "Maximum over the last 30 to 60 s.",
            )
            for each in Took
        ),
    ]
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    lines += [f"| `{PREFIX}{name}` | {kind} | {at} | {why} |" for name, kind, at, why in rows]
    return "\n".join(lines)


def test_lag_in_time_is_exported_as_far_as_it_is_known() -> None:
    view = busy_view()
    assert scraped(view).value("behind_seconds_max") is None
    partition = view.partitions[0]
    times = (
        LagTimes(float("inf"), 3.5, 600.0, 0),
        LagTimes(0.0, 0.0, None, 7),
        LagTimes(None, None, 90.0, None),
    )
    measured = tuple(
        replace(partition, partition=index, times=each) for index, each in enumerate(times)
    )
    found = scraped(replace(view, partitions=measured))
    assert found.by_partition("behind_seconds") == {0: 3.5, 1: 0.0}
    assert found.by_partition("catch_up_seconds") == {0: float("inf"), 1: 0.0}
    assert found.by_partition("deletion_seconds") == {0: 600.0, 2: 90.0}
    assert found.value("behind_seconds_max") == 3.5
    assert found.value("catch_up_seconds_max") == float("inf")
    assert found.value("deletion_seconds_min") == 90.0
    assert found.value("deleted_unread_offsets") == 7


def test_busy_member_is_exported_in_full() -> None:
    found = scraped(busy_view())
    assert found.value("assigned_partitions", group="g") == 1
    assert found.value("revoking_partitions") == 1
    assert found.value("member_epoch") == 3
    assert found.value("state", state="RECONCILING") == 1
    assert found.value("state", state="STABLE") == 0
    assert found.value("condition", condition=Condition.READING.name) == 1
    assert (found.value("live"), found.value("ready")) == (1, 1)
    assert found.value("member_info", member_id="m1", instance_id="i1") == 1
    assert found.value("batches_planned_total") == 2
    assert found.value("batches_finished_total") == 1
    assert found.value("offsets_finished_total") == 8
    assert found.value("commit_total") == 2
    assert found.value("commit_fenced_total") == 1
    labels = {"request": "OffsetCommit", "error": "STALE_MEMBER_EPOCH"}
    assert found.value("request_errors_total", **labels) == 1
    assert found.value("heartbeat_response_time_seconds_count") == found.value("heartbeat_total")
    assert found.value("revocation_seconds") == 2.5
    assert found.value("revocation_budget_used_ratio") == pytest.approx(2.5 / 300)
    assert found.value("batch_seconds") is not None


def test_lag_is_what_kafkas_tools_call_lag() -> None:
    found = scraped(busy_view())
    assert found.by_partition("committed_offset") == {0: 9, 1: 4}
    assert found.by_partition("log_end_offset") == {0: 20, 1: 4}
    assert found.by_partition("position") == {0: 20, 1: 4}
    assert found.by_partition("lag") == {0: 11, 1: 0}
    assert (found.value("lag_sum"), found.value("lag_max")) == (11, 11)


def test_unknown_has_no_sample() -> None:
    found = scraped(take_snapshot(ClientHarness().client, 0.0))
    for name in (
        *("last_heartbeat_seconds_ago", "last_poll_seconds_ago", "last_rebalance_seconds_ago"),
        *("revocation_seconds", "revocation_budget_used_ratio", "batch_seconds", "lag_max"),
        *("heartbeat_response_time_max_seconds", "session_timeout_seconds"),
    ):
        assert found.value(name) is None, name
    assert found.value("heartbeat_total") == 0
    assert found.value("ready") == 0


def test_lag_of_which_nothing_is_known_is_not_none() -> None:
    view = busy_view()
    unknown = tuple(replace(each, committed_offset=None) for each in view.partitions)
    found = scraped(replace(view, partitions=unknown))
    assert (found.value("lag_sum"), found.value("lag_max")) == (None, None)
    assert scraped(replace(view, partitions=())).value("lag_sum") == 0
    half = (unknown[0], *view.partitions[1:])
    assert scraped(replace(view, partitions=half)).value("lag_sum") == 0


def test_member_to_be_has_its_state_only() -> None:
    found = scraped(MemberSnapshot(group="g", state=MemberState.UNSUBSCRIBED))
    assert found.value("state", state="UNSUBSCRIBED") == 1
    assert found.value("assigned_partitions") is None


def test_above_the_limit_there_are_sums_only() -> None:
    view = busy_view()
    one = view.partitions[0]
    many = tuple(replace(one, partition=each) for each in range(MAX_PARTITION_SERIES + 1))
    found = scraped(replace(view, partitions=many))
    assert found.by_partition("lag") == {}
    assert found.value("lag_sum") == 11 * len(many)
    found = scraped(replace(view, partitions=many[:-1]))
    assert len(found.by_partition("lag")) == MAX_PARTITION_SERIES


def test_recreated_topic_makes_no_series_twice() -> None:
    view = busy_view()
    first, *others = view.partitions
    found = scraped(
        replace(view, partitions=(first, replace(first, topic_id=uuid.uuid4()), *others))
    )
    assert len(found.by_partition("lag")) == 2


@pytest.mark.parametrize("view", [busy_view(), take_snapshot(ClientHarness().client, 0.0)])
def test_openmetrics_takes_it_too(view: MemberSnapshot) -> None:
    text = openmetrics.generate_latest(registry(view)).decode("utf-8")
    found = {each.name for each in openmetrics_parser.text_string_to_metric_families(text)}
    assert "kafka_group_heartbeat" in found


def test_states_and_counts_are_all_there() -> None:
    found = scraped(busy_view())
    assert all(found.value("state", state=each.name) is not None for each in MemberState)
    assert all(found.value(f"{each.name.lower()}_total") is not None for each in Count)
    assert all(found.value(f"{each.name.lower()}_seconds_sum") is not None for each in Took)


def test_the_table_names_every_exported_metric_and_stands_in_the_docs() -> None:
    named = set(re.findall(r"^\| `(\w+)`", metric_table(), re.MULTILINE))
    suffix = {"counter": "_total", "info": "_info"}
    exported = {each.name + suffix.get(each.type, "") for each in families(busy_view())}
    assert named == exported
    shown = re.search(
        r"<!-- metrics -->\n(.*?)<!-- /metrics -->", DOCS.read_text("utf-8"), re.DOTALL
    )
    assert shown, "the page has no place for the table"
    assert shown[1].strip() == metric_table().strip()
