"""How far behind groups are, of views made up by hand."""

from __future__ import annotations

import json

from spark_groups.observation.views import GroupView, view_group
from spark_groups.ops.lag_rules import PartitionStatus, Verdict
from spark_groups.ops.lag_views import LagView, judge_group_lag, view_group_lag
from tests.observation.groups import ONE, member, read
from tests.observation.test_local_members import SNAPSHOT


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
        "a batch is under way for 2.0 s",
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
