"""How far behind groups are, as text."""

from __future__ import annotations

from spark_groups.observation.views import view_group
from spark_groups.ops.lag_views import LagView, judge_group_lag, view_group_lag
from spark_groups.ops.render_lag import render_lag
from tests.observation.groups import ONE, member, read
from tests.ops.rendered import cells, lines

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
        ["* nothing is committed: lag counts from the log start"],
    ]


def test_what_is_judged_says_what_it_means() -> None:
    judged = judge_group_lag([(0.0, VIEW), (5.0, VIEW)])
    shown = lines(render_lag(LagView(groups=(judged,))))
    assert shown[0].endswith("(1 unknown)  ERR")
    assert shown[2].split() == ["flights", "0", "1,000", "3,500", "2,500", "+0", "STALL"]
    assert shown[4].split()[-2:] == ["—", "—"]
    assert shown[-2:] == [
        "STALL: The committed offset does not move, and there is lag.",
        "—: Too little is known to judge it.",
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
    assert shown[62] == "and 940 partitions that lag less: --all shows them"
    assert shown[63:65] == [
        "",
        "group flight-readers  Stable  total lag 2,502 in 3 partitions (1 unknown)",
    ]
    assert len(lines(render_lag(view))) > 1_000
