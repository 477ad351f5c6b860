"""`spark-groups lag`: verdicts, output, and a real broker."""

from __future__ import annotations

import json

import pytest

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.cli.lag_cli import LagView, judge_group_lag, render_lag, view_group_lag
from spark_groups.cli.lag_rules import PartitionStatus, Verdict
from spark_groups.observation.views import GroupView, view_group
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.cli.cli_setup import kafkas_own
from tests.cli.commands import invoke
from tests.cli.rendered import cells, lines
from tests.observation.groups import ONE, member, read
from tests.observation.local_members_setup import SNAPSHOT
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import Row, create_topic, produce


@pytest.mark.broker
def test_lag_is_that_of_kafkas_own_tool_and_the_exit_code_says_whether_it_is_too_much(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce(servers, topic_name, [Row(b"x", partition=each % 2) for each in range(20)])
    asked = ("lag", group_id, "--bootstrap-server", servers)
    checked = (*asked, "--check", "--samples", "2", "--interval", "0.1")
    with Cluster(servers) as cluster:
        keys = [TopicIdPartition(topic_id(cluster, topic_name), each) for each in range(2)]
        commit_outside(cluster, group_id, {keys[0]: 4, keys[1]: 10})
        plain = json.loads(invoke(*asked, "--json").stdout)
        expected = kafkas_own(kafka, group_id)
        behind = invoke(*checked)
        tolerated = invoke(*checked, "--allowed-lag", "6")
        commit_outside(cluster, group_id, {keys[0]: 10})
        caught_up = invoke(*checked, "--json")
    (group,) = plain["groups"]
    assert {
        each["partition"]: tuple(
            str(each[name]) for name in ("committed_offset", "log_end_offset", "lag")
        )
        for each in group["partitions"]
    } == {partition: values[:3] for partition, values in expected.items()}
    assert (group["lag"], group["verdict"]) == (6, None)
    assert (behind.exit_code, tolerated.exit_code, caught_up.exit_code) == (2, 0, 0)
    assert "STALL: There is lag, and the committed offset does not move." in behind.stdout
    assert json.loads(caught_up.stdout)["groups"][0]["verdict"] == "OK"


def test_what_cannot_be_read_is_no_ok() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = invoke("lag", "g", "--check", "--bootstrap-server", address, "--timeout", "0.5")
    assert (done.exit_code, done.stdout) == (2, "")
    assert address in done.stderr


VIEW = view_group(
    read(
        member(ONE, [0, 1, 2]),
        partitions=3,
        committed={0: 1_000},
        starts={0: 0, 1: 7},
        ends={0: 3_500, 1: 9},
    )
)


def test_each_partition_has_a_row_and_the_group_a_sum() -> None:
    shown = cells(render_lag(LagView(groups=(view_group_lag(VIEW),))))
    assert shown == [
        ["group flight-readers", "Stable", "total lag 2,502 in 3 partitions (1 unknown)"],
        ["TOPIC", "PARTITION", "COMMITTED", "LOG END", "LAG"],
        ["flights", "0", "1,000", "3,500", "2,500"],
        ["flights", "1", "none", "9", "2*"],
        ["flights", "2", "none", "—", "—"],
        ["* no committed offset: lag counts from the log start"],
    ]


def test_a_judged_lag_explains_its_words() -> None:
    judged = judge_group_lag([(0.0, VIEW), (5.0, VIEW)])
    shown = lines(render_lag(LagView(groups=(judged,))))
    assert shown[0].endswith("(1 unknown)  ERR")
    assert shown[2].split() == ["flights", "0", "1,000", "3,500", "2,500", "—", "+0", "STALL"]
    assert shown[4].split()[-3:] == ["—", "—", "—"]
    assert shown[-2:] == [
        "STALL: There is lag, and the committed offset does not move.",
        "—: Too few samples to judge it.",
    ]


def test_of_many_partitions_those_that_lag_most_are_shown() -> None:
    many = view_group(
        read(
            member(ONE, range(1_000)),
            partitions=1_000,
            committed=dict.fromkeys(range(1_000), 0),
            starts=dict.fromkeys(range(1_000), 0),
            ends={each: each for each in range(1_000)},
        )
    )
    view = LagView(groups=(view_group_lag(many), view_group_lag(VIEW)))
    shown = lines(render_lag(view, max_partition_rows=60))
    assert shown[2].split() == ["flights", "999", "0", "999", "999"]
    assert shown[62] == "and 940 partitions with less lag: use --all"
    assert shown[63:65] == [
        "",
        "group flight-readers  Stable  total lag 2,502 in 3 partitions (1 unknown)",
    ]
    assert len(lines(render_lag(view))) > 1_000


def seen(committed: int, end: int, *snapshots: dict) -> GroupView:
    reading = read(
        member(ONE, [0, 1]), committed={0: committed}, starts={0: 0, 1: 0}, ends={0: end, 1: 0}
    )
    return view_group(reading, snapshots)


def test_without_samples_nothing_is_judged() -> None:
    group = view_group_lag(seen(4, 10))
    assert (group.lag, group.unknown_lag_partitions, group.verdict) == (6, 0, None)
    assert [(each.lag, each.status) for each in group.partitions] == [(6, None), (0, None)]


def test_samples_are_judged_partition_by_partition() -> None:
    group = judge_group_lag([(0.0, seen(4, 10)), (5.0, seen(4, 12))])
    first, second = group.partitions
    assert (first.lag, first.lag_change, first.status) == (8, 2, PartitionStatus.STALL)
    assert (second.lag, second.lag_change, second.status) == (0, 0, PartitionStatus.OK)
    assert group.verdict is Verdict.ERR
    assert judge_group_lag([(0.0, seen(4, 10)), (5.0, seen(4, 12))], 8).verdict is Verdict.OK


def test_a_lag_that_is_not_known_is_no_zero() -> None:
    reading = read(member(ONE, [0]), partitions=1, committed={0: 3})
    view = view_group(reading)
    group = judge_group_lag([(0.0, view), (1.0, view)])
    (only,) = group.partitions
    assert (only.lag, only.lag_change, only.status) == (None, None, None)
    assert (group.lag, group.verdict) == (None, Verdict.WARN)


def test_a_batch_on_this_machine_is_a_sign_of_life_and_said() -> None:
    busy = SNAPSHOT | {"batch_age_s": 2.0}
    samples = [
        (0.0, seen(4, 10)),
        (5.0, seen(4, 12)),
        (10.0, seen(4, 12, busy)),
    ]
    (first, _) = judge_group_lag(samples).partitions
    assert (first.status, first.remark) == (
        PartitionStatus.WARN,
        "a batch has been running for 2.0 s",
    )


def test_json_is_the_same_view_and_the_worst_group_decides() -> None:
    samples = [(0.0, seen(4, 10)), (5.0, seen(4, 12))]
    view = LagView(groups=(view_group_lag(seen(4, 4)), judge_group_lag(samples)), window_s=5.0)
    plain = view.to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert view.verdict is Verdict.ERR
    assert [each["verdict"] for each in plain["groups"]] == [None, "ERR"]
    row = plain["groups"][1]["partitions"][0]
    assert (row["status"], row["lag_origin"], row["lag"]) == ("STALL", "committed offset", 8)
    assert LagView(groups=()).verdict is Verdict.OK
