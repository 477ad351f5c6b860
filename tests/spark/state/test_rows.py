"""A group as rows: every partition once, every member at least once, unknown is null."""

from __future__ import annotations

import pytest

from spark_groups.observation.views import view_group
from spark_groups.spark.state.rows import STATE_COLUMNS, StateRow, state_rows
from tests.observation.groups import ONE, TWO, member, read


def test_columns_are_the_fields_of_a_row() -> None:
    columns = [each.split()[0] for each in STATE_COLUMNS.split(",")]
    assert tuple(columns) == StateRow._fields


def test_partition_has_its_owner_and_where_it_goes() -> None:
    group = read(
        member(ONE, [0, 1], [0], instance_id="gate-1"),
        member(TWO, [], [1]),
        committed={0: 4},
        starts={0: 0},
        ends={0: 10},
    )
    first, second, waiting = state_rows(view_group(group))
    assert (first.group_id, first.group_state, first.group_epoch) == ("flight-readers", "Stable", 7)
    assert (first.topic, first.partition, first.member_id) == ("flights", 0, ONE)
    assert (first.instance_id, first.member_epoch, first.moves_to) == ("gate-1", 7, None)
    assert (first.client_id, first.client_host) == ("app-1", "127.0.0.1")
    assert (first.committed_offset, first.log_end_offset, first.lag) == (4, 10, 6)
    assert (second.partition, second.member_id, second.moves_to) == (1, ONE, TWO)
    assert second[-5:-1] == (None, None, None, None), "what is not known is never 0"
    assert (waiting.member_id, waiting.topic, waiting.lag) == (TWO, None, None)


@pytest.mark.parametrize("state", ["Empty", "Dead"])
def test_group_without_anything_has_a_row_of_its_own(state: str) -> None:
    (row,) = state_rows(view_group(read(partitions=0, state=state)))
    assert (row.group_id, row.group_state) == ("flight-readers", state)
    assert set(row[6:]) == {None}


def test_partition_without_an_owner_is_a_row_without_a_member() -> None:
    (row,) = state_rows(view_group(read(partitions=1, committed={0: 3}, state="Empty")))
    assert (row.partition, row.committed_offset, row.member_id) == (0, 3, None)
