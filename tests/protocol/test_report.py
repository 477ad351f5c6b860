"""What a heartbeat says next to what the coordinator knows."""

from __future__ import annotations

from spark_groups.protocol.messages import HeartbeatRequest
from spark_groups.protocol.report import Report
from spark_groups.types import Assignment
from tests.protocol.members import parts

EVERYTHING = HeartbeatRequest(
    group_id="g",
    member_id="",
    member_epoch=0,
    instance_id="i1",
    rack_id="r1",
    subscribed_topic_names=("orders",),
    server_assignor="range",
)
BARE = HeartbeatRequest(group_id="g", member_id="m1", member_epoch=3, instance_id="i1")


def beat(report: Report, owned: Assignment, *, acknowledge: bool = False) -> HeartbeatRequest:
    return report.next_heartbeat(
        "m1", 3, owned=owned, rebalance_timeout_ms=5_000, acknowledge=acknowledge
    )


def test_first_says_everything_and_is_repeated_until_it_is_accepted() -> None:
    report = Report(EVERYTHING)
    first = beat(report, parts(0))
    assert beat(report, parts(0)) == first
    assert (first.rack_id, first.server_assignor, first.instance_id) == ("r1", "range", "i1")
    assert (first.topic_partitions, first.rebalance_timeout_ms) == (parts(0), 5_000)
    report.accepted(first)
    assert beat(report, parts(0)) == BARE
    report.forget()
    assert beat(report, parts(0)) == first


def test_only_changes_are_said() -> None:
    report = Report(EVERYTHING)
    report.accepted(beat(report, parts(0)))
    assert report.knows(parts(0))
    assert not report.knows(parts(1))
    assert beat(report, parts(0, 1)).topic_partitions == parts(0, 1)
    assert beat(report, parts(0), acknowledge=True).topic_partitions == parts(0)
    longer = report.next_heartbeat(
        "m1", 3, owned=parts(0), rebalance_timeout_ms=9_000, acknowledge=False
    )
    assert (longer.rebalance_timeout_ms, longer.topic_partitions) == (9_000, None)
