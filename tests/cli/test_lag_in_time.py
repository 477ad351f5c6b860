"""Lag in time on a real broker: within a second on idle, bursty and transactional topics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.lag_cli import LagView, judge_group_lag, render_lag, view_group_lag
from spark_groups.cli.lag_rules import Verdict
from spark_groups.observation.catch_up import CatchUp, Outlook
from spark_groups.observation.lag_times import NO_UNREAD_RECORD, Deletion, LagTime
from spark_groups.observation.plain_values import duration_text
from spark_groups.observation.views import view_group
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.cli.commands import invoke
from tests.cli.rendered import lines
from tests.observation.groups import ONE, member, read
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import ANSWER_S, Row, admin, create_topic, produce
from workshop.parts.waiting import wait_until

HOUR_S = 3600
FOREVER = {"retention.ms": "-1"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Watched:
    """A group without members, and the command that reads its lag."""

    cluster: Cluster
    servers: str
    topic: str
    group_id: str

    def commit(self, offsets: Mapping[int, int]) -> None:
        identity = topic_id(self.cluster, self.topic)
        keyed = {TopicIdPartition(identity, key): each for key, each in offsets.items()}
        assert not set(commit_outside(self.cluster, self.group_id, keyed).errors.values()) - {0}

    def read(self, *options: str) -> dict[str, Any]:
        """Return the group as `lag --json` has it; every age is known."""

        def known() -> dict[str, Any] | None:
            done = self.run(*options, "--json")
            assert done.exit_code == 0, done.output
            (group,) = json.loads(done.stdout)["groups"]
            late = "did not answer in time"
            return None if any(late in e["remark"] for e in group["partitions"]) else group

        return wait_until(known, what="ages of all partitions")

    def run(self, *options: str) -> Any:
        return invoke("lag", self.group_id, "--bootstrap-server", self.servers, *options)

    def assert_behind(self, *written_ms: int | None, options: tuple[str, ...] = ()) -> None:
        """Check that partitions are as far behind as records of these times are old.

        Args:
            written_ms: By partition; None: no record is unread.
        """
        before = now_ms()
        group = self.read(*options)
        after = now_ms()
        for each, at_ms in zip(group["partitions"], written_ms, strict=True):
            behind_s = each["time"]["seconds_behind"]
            if at_ms is None:
                assert behind_s == 0.0
            else:
                # Far stricter than the second that is promised.
                assert (before - at_ms) / 1000 - 0.01 <= behind_s <= (after - at_ms) / 1000 + 0.01


@pytest.fixture
def watched(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> Iterator[Watched]:
    with Cluster(kafka.bootstrap_servers) as cluster:
        yield Watched(cluster, kafka.bootstrap_servers, topic_name, group_id)


@pytest.mark.broker
def test_an_idle_topic_is_not_behind_and_an_unread_record_is_as_old_as_it_is(
    watched: Watched,
) -> None:
    create_topic(watched.servers, watched.topic, 3, FOREVER)
    long_ago_ms = now_ms() - 90 * 24 * HOUR_S * 1000
    rows = [Row(b"x", partition=each, timestamp_ms=long_ago_ms) for each in (0, 0, 1)]
    produce(watched.servers, watched.topic, rows)
    watched.commit({0: 2, 1: 0, 2: 0})
    watched.assert_behind(None, long_ago_ms, None)
    watched.commit({1: 1})
    watched.assert_behind(None, None, None)
    assert watched.read()["seconds_behind"] == 0.0


@pytest.mark.broker
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_burst_is_not_interpolated(watched: Watched, codec: str) -> None:
    # A thousand records of one day in one batch, then hours without any, then one record.
    create_topic(watched.servers, watched.topic, 1, FOREVER)
    begin_ms = now_ms() - 48 * HOUR_S * 1000
    times = [begin_ms + each * 86_400 for each in range(1000)] + [now_ms() - 1_500]
    rows = [Row(b"x", partition=0, timestamp_ms=each) for each in times]
    produce(watched.servers, watched.topic, rows, {"linger.ms": 500, "compression.type": codec})
    for offset in (0, 1, 500, 999, 1000):
        watched.commit({0: offset})
        watched.assert_behind(times[offset])


@pytest.mark.broker
def test_aborted_records_are_not_behind_for_members_that_skip_them(watched: Watched) -> None:
    create_topic(watched.servers, watched.topic, 1, FOREVER)
    producer = Producer({"bootstrap.servers": watched.servers, "transactional.id": watched.topic})
    producer.init_transactions(ANSWER_S)
    aborted_ms, committed_ms = now_ms() - 50_000, now_ms() - 20_000
    for at_ms, end in (
        (aborted_ms, producer.abort_transaction),
        (committed_ms, producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(watched.topic, b"x", partition=0, timestamp=at_ms)
        assert producer.flush(ANSWER_S) == 0
        end(ANSWER_S)
    # Record and marker of each transaction: offsets 0 to 3.
    committed_only = ("--isolation-level", "read_committed")
    watched.commit({0: 0})
    watched.assert_behind(aborted_ms)
    wait_until(
        lambda: watched.read(*committed_only)["partitions"][0]["time"]["first_unread_offset"] == 2,
        what="the marker of the last transaction",
    )
    watched.assert_behind(committed_ms, options=committed_only)
    # Only a marker is left: a lag of 1, but no record.
    watched.commit({0: 3})
    watched.assert_behind(None)
    (partition,) = watched.read()["partitions"]
    assert (partition["lag"], partition["remark"]) == (1, NO_UNREAD_RECORD)
    checked = watched.run("--check", "--samples", "3", "--interval", "0.1", "--json")
    assert checked.exit_code == 0, checked.output
    (group,) = json.loads(checked.stdout)["groups"]
    (partition,) = group["partitions"]
    assert (group["verdict"], partition["status"], partition["lag"]) == ("OK", "OK", 1)
    assert partition["catch_up"]["outlook"] == "keeps up"


@pytest.mark.broker
def test_a_timestamp_from_the_future_is_unknown(watched: Watched) -> None:
    create_topic(watched.servers, watched.topic, 1)
    ahead_ms = now_ms() + 60_000
    produce(watched.servers, watched.topic, [Row(b"x", partition=0, timestamp_ms=ahead_ms)])
    watched.commit({0: 0})
    group = watched.read()
    assert (group["seconds_behind"], group["unknown_time_partitions"]) == (None, 1)
    assert "the timestamp of the record at 0 is" in group["partitions"][0]["remark"]


@pytest.mark.broker
def test_there_is_an_alert_before_retention_deletes_unread_records(watched: Watched) -> None:
    servers, topic = watched.servers, watched.topic
    create_topic(servers, topic, 2, {"retention.ms": str(100 * HOUR_S * 1000)})
    old_ms, new_ms = (now_ms() - hours * HOUR_S * 1000 for hours in (80, 10))
    produce(
        servers,
        topic,
        [Row(b"x", partition=0, timestamp_ms=old_ms), Row(b"x", partition=1, timestamp_ms=new_ms)],
    )
    watched.commit({0: 0, 1: 0})
    group = watched.read()
    assert [round(each["time"]["deletion_in_s"] / HOUR_S) for each in group["partitions"]] == [
        20,
        90,
    ]
    assert [(each["partition"], each["kind"]) for each in group["alerts"]] == [
        (0, "unread records may be deleted soon")
    ]
    assert watched.read("--alert-hours", "1")["alerts"] == []
    checked = watched.run("--check", "--samples", "2", "--interval", "0", "--allowed-lag", "9")
    assert checked.exit_code == Verdict.ERR.value
    assert f"{topic}-0: unread records may be deleted in 19 h 5" in checked.stdout
    assert f"raise retention.ms of {topic} until the group has caught up" in checked.stdout
    # Records that are deleted already are lost.
    gone = TopicPartition(topic, 0, 1)
    client = admin(servers)
    client.delete_records([gone])[gone].result(ANSWER_S)
    produce(servers, topic, [Row(b"x", partition=0)])
    (lost,) = watched.read()["alerts"]
    assert lost["kind"] == "unread records were deleted"
    assert lost["text"].startswith(f"{topic}-0: offsets deleted before the group read them: 1;")


@pytest.mark.broker
def test_a_compacted_topic_loses_nothing_by_age(watched: Watched) -> None:
    create_topic(watched.servers, watched.topic, 1, {"cleanup.policy": "compact"})
    old_ms = now_ms() - 1000 * HOUR_S * 1000
    rows = [Row(b"x", b"key", partition=0, timestamp_ms=old_ms)]
    produce(watched.servers, watched.topic, rows)
    watched.commit({0: 0})
    group = watched.read()
    assert group["alerts"] == []
    assert group["partitions"][0]["time"]["deletion"] == Deletion.NEVER.value
    watched.assert_behind(old_ms)


def view_of(committed: int, time: LagTime) -> Any:
    view = view_group(
        read(member(ONE, [0]), partitions=1, committed={0: committed}, starts={0: 0}, ends={0: 900})
    )
    partition = replace_time(view.partitions[0], time)
    return replace_partitions(view, partition)


def replace_time(partition: Any, time: LagTime) -> Any:
    from dataclasses import replace

    return replace(partition, time=time)


def replace_partitions(view: Any, partition: Any) -> Any:
    from dataclasses import replace

    totals = replace(view.totals, seconds_behind=partition.time.seconds_behind)
    return replace(view, partitions=(partition,), totals=totals)


EXPIRING = LagTime(
    seconds_behind=90.0 * HOUR_S,
    first_unread_offset=10,
    deletion=Deletion.BY_AGE,
    retention_ms=100 * HOUR_S * 1000,
    deletion_in_s=10.0 * HOUR_S,
)


def test_an_alert_is_a_warning_while_the_partition_catches_up() -> None:
    moving = [(float(each), view_of(each * 100, EXPIRING)) for each in range(4)]
    stalled = [(each * 600.0, view_of(10, EXPIRING)) for each in range(4)]
    judged = judge_group_lag(moving)
    assert judged.catch_up == CatchUp(Outlook.CATCHING_UP, 6.0)
    assert judged.verdict is Verdict.WARN
    assert judge_group_lag(moving, alert_hours=1.0).verdict is Verdict.OK
    assert judge_group_lag(stalled).verdict is Verdict.ERR
    assert judge_group_lag(stalled).catch_up == CatchUp(Outlook.NEVER)


def test_times_have_columns_and_alerts_have_lines() -> None:
    judged = judge_group_lag([(float(each), view_of(each * 100, EXPIRING)) for each in range(4)])
    shown = lines(render_lag(LagView(groups=(judged,))))
    assert shown[0].endswith(
        "total lag 600 in 1 partitions  3 d 18 h behind  catches up in 6.0 s  WARN"
    )
    assert shown[1].split() == [
        *("TOPIC", "PARTITION", "COMMITTED", "LOG", "END", "LAG", "BEHIND", "OUTLOOK"),
        *("RECORDS", "EXPIRE", "CHANGE", "STATUS"),
    ]
    assert " 3 d 18 h  catches up in 6.0 s  in 10 h" in shown[2]
    assert shown[3].startswith("flights-0: unread records may be deleted in 10 h")
    unknown = view_group_lag(view_of(5, LagTime(remark="its age is unknown: no leader")))
    assert lines(render_lag(LagView(groups=(unknown,))))[2].endswith(
        "its age is unknown: no leader"
    )
    assert duration_text(EXPIRING.seconds_behind or 0) == "3 d 18 h"
