"""The section of docs/benchmarks/load.md that `workshop.benchmarks.load` writes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark_groups.group.ledger.commits import MAX_PARTITIONS_PER_COMMIT
from workshop.benchmarks.figures import percentile
from workshop.benchmarks.noted import markdown_table
from workshop.benchmarks.report import NOT_MEASURED

Part = Mapping[str, Any]


def section(results: Mapping[str, Part]) -> list[str]:
    """Return the lines of all parts."""
    titles = {
        "members": ("Many members in one group", _members),
        "partitions": ("Many partitions in one member", _partitions),
        "page": ("Many groups on one page", _page),
    }
    lines = []
    for name, (title, write) in titles.items():
        lines += [f"### {title}", ""]
        if name in results:
            lines += [*_where(results[name]), *write(results[name]), ""]
        else:
            lines += [NOT_MEASURED, ""]
    return lines


def _where(part: Part) -> Iterator[str]:
    before, after = part["load_average"]
    yield (
        f"{part['measured_at']}, Kafka {part['kafka']}, Spark {part['spark']}, Python"
        f" {part['python']}, {part['processors']} processors. Load average"
        f" {before:.1f} before, {after:.1f} after."
    )
    yield ""


def _members(part: Part) -> Iterator[str]:
    yield (
        f"{part['members']:,} light members and one Spark member share {part['partitions']:,}"
        " partitions. A rebalance lasts until the last response that changes a member; then each"
        " member has its whole target assignment, and the coordinator describes the group as"
        " stable. A heartbeat is late if it comes more than one interval (5 s) after the one"
        " before; joins and acknowledgements, which are sent at once, do not count."
    )
    yield ""
    yield from markdown_table(
        (
            "step",
            "until stable, s",
            "heartbeats",
            "late, light members: median, p99, greatest, ms",
            "late, Spark member: median, p99, greatest, ms",
            "load average",
        ),
        (
            (
                each["what"],
                "-" if each["took_s"] is None else f"{each['took_s']:.1f}",
                f"{each['light_late_ms']['count']:,} + {each['spark_late_ms']['count']}",
                _late(each["light_late_ms"]),
                _late(each["spark_late_ms"]),
                f"{each['load_average']:.1f}",
            )
            for each in part["steps"]
        ),
    )
    yield from markdown_table(
        ("describing this group", "median", "greatest"),
        (
            _seconds_row("ConsumerGroupDescribe alone", part["describe_request_s"]),
            _seconds_row(
                "with offsets, log ends and view (`spark_groups.describe`)",
                part["describe_view_s"],
            ),
            (
                "`spark-groups describe --json`, the whole process",
                f"{part['describe_command_s']:.2f} s",
                f"{part['describe_command_mb']:.0f} MB of memory,"
                f" {part['describe_command_bytes'] / 1e6:.1f} MB of JSON",
            ),
        ),
    )
    yield _memory(part["memory_mb"])


def _late(late_ms: Part) -> str:
    if not late_ms["count"]:
        return "-"
    return ", ".join(f"{late_ms[name]:.0f}" for name in ("p50", "p99", "max"))


def _seconds_row(what: str, seconds: Sequence[float]) -> tuple[str, str, str]:
    return what, f"{statistics.median(seconds):.2f} s", f"{max(seconds):.2f} s"


def _memory(memory_mb: Mapping[str, float]) -> str:
    found = ", ".join(f"{role} {used_mb:,.0f}" for role, used_mb in memory_mb.items())
    return f"Resident memory in MB: {found}. Pages that workers share count in each of them."


def _partitions(part: Part) -> Iterator[str]:
    phases = part["phases_ms"]
    late_ms = sorted(each * 1000 for each in part["heartbeats_late_s"]) or [float("nan")]
    at_most_ms = [each * 1000 for each in part["heartbeats_at_most_s"]]
    failed = part["failed"]
    yield (
        f"One Spark member owns all {part['partitions']:,} partitions of a topic. Each of"
        f" {part['batches']} batches after the first reads one record of each partition; times"
        " are medians."
    )
    yield ""
    yield from markdown_table(
        ("figure", ""),
        (
            ("from the start of the member to all partitions", f"{part['assigned_s']:.1f} s"),
            ("plan of a batch (`latestOffset`)", f"{phases['latestOffset']:,.0f} ms"),
            ("its ranges for Spark (`queryPlanning`)", f"{phases['queryPlanning']:,.0f} ms"),
            ("its entry in the offset log (`walCommit`)", f"{phases['walCommit']:,.0f} ms"),
            ("the whole trigger", f"{phases['triggerExecution']:,.0f} ms"),
            ("size of the entry", f"{part['offset_log_entry_bytes'] / 1e3:,.0f} kB"),
            (
                "a plan: to text, from text, memory at most",
                f"{part['plan_written_ms']:.0f} ms, {part['plan_parsed_ms']:.0f} ms,"
                f" {part['plan_peak_mb']:.1f} MB",
            ),
            (
                f"a commit request of at most {MAX_PARTITIONS_PER_COMMIT:,} partitions"
                f" ({part['commits']} requests): mean, greatest in the last minute",
                _answers(part["commit"]),
            ),
            (
                f"heartbeats at the interval ({len(part['heartbeats_late_s'])}), later than 5 s"
                " after the one before: median, p99, greatest",
                f"{statistics.median(late_ms):.0f}, {percentile(late_ms, 99):.0f},"
                f" {late_ms[-1]:.0f} ms",
            ),
            (
                "two heartbeats between two snapshots of the member: how often, late by at most",
                f"{len(at_most_ms)}, {max(at_most_ms, default=0):.0f} ms",
            ),
            (
                "response to a heartbeat: mean, greatest in the last minute",
                _answers(part["heartbeat_answers"]),
            ),
            (
                "failed heartbeats, failed commits, lost memberships",
                f"{failed['heartbeat_failed']}, {failed['commit_failed']},"
                f" {failed['memberships_lost']}",
            ),
        ),
    )
    yield _memory(part["memory_mb"])


def _answers(spread: Part) -> str:
    """Return the mean of a timer of the member, and its maximum in the last 30 to 60 s."""
    mean_s = spread["sum_s"] / max(1, spread["buckets"][-1])
    return f"{mean_s * 1000:.0f}, {(spread['max_s'] or 0) * 1000:.0f} ms"


def _page(part: Part) -> Iterator[str]:
    looks_ms = [each * 1000 for each in part["look_s"]]
    memory_mb, documents = part["served_memory_mb"], part["document_bytes"]
    twentieth = min(20, len(memory_mb) - 1)
    yield (
        f"{part['groups']} groups with one member, {part['partitions_each']} partitions and"
        " committed offsets each, in the list of `spark-groups serve`. A refresh lists all groups,"
        " and reads members and lag of five groups in turn; by default there is one every 2 s."
    )
    yield ""
    yield from markdown_table(
        ("figure", ""),
        (
            (
                "one refresh: median, p99, greatest",
                f"{statistics.median(looks_ms):.0f}, {percentile(looks_ms, 99):.0f},"
                f" {max(looks_ms):.0f} ms",
            ),
            (
                "requests to brokers in a refresh: median, most",
                f"{statistics.median(part['look_requests']):.0f}, {max(part['look_requests'])}",
            ),
            (
                f"groups with details after {len(looks_ms)} refreshes",
                f"{part['detailed']} of {part['groups']}",
            ),
            (
                "document of a refresh: first, last",
                f"{documents[0] / 1e3:.1f} kB, {documents[-1] / 1e3:.1f} kB",
            ),
            (
                f"memory of the process: first, after {twentieth} refreshes,"
                f" after {len(memory_mb) - 1}",
                f"{memory_mb[0]:.1f}, {memory_mb[twentieth]:.1f}, {memory_mb[-1]:.1f} MB",
            ),
        ),
    )
