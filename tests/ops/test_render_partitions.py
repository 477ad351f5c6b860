"""What is withheld from a member, in tables and below them; test_render has the rest."""

from __future__ import annotations

from typing import Any

import pytest

from spark_groups.observation.views import GroupView, view_group
from tests.observation.groups import ONE, TWO, member, read
from tests.observation.test_local_members import SNAPSHOT
from tests.ops.test_render import row, shown


def waiting_for(*ranges: tuple[int, int | None, int | None]) -> dict[str, Any]:
    """Return the snapshot of a member that waits for ranges: partition, committed, end."""
    pending_ranges = [
        {
            "topic": "flights",
            "partition": partition,
            "committed_offset": committed_offset,
            "log_end_offset": log_end_offset,
        }
        for partition, committed_offset, log_end_offset in ranges
    ]
    return SNAPSHOT | {"member_id": TWO, "revoking": [], "pending_ranges": pending_ranges}


def moving(count: int, *ranges: tuple[int, int | None, int | None]) -> GroupView:
    """Return a group in which all partitions but the first are on their way to TWO."""
    reading = read(
        member(ONE, range(count), [0]), member(TWO, [], range(1, count)), partitions=count
    )
    return view_group(reading, [waiting_for(*ranges)])


def test_a_pending_partition_shows_what_is_withheld() -> None:
    text = shown(moving(3, (1, 1_000, 2_500), (2, None, 7)))
    assert row(text, "flights", "1")[-1] == "withheld [1,000, 2,500)"
    assert row(text, "flights", "2")[-1] == "withheld [—, 7)"
    assert text.count("withheld") == 2


@pytest.mark.parametrize("width", [80, 120])
def test_in_few_columns_it_stands_below_the_table(width: int) -> None:
    text = shown(moving(3, (1, 1_000, 2_500)), width)
    assert "flights-1: withheld [1,000, 2,500)" in text.splitlines()
    assert max(len(line) for line in text.splitlines()) <= width


def test_below_rows_that_are_shared_it_is_listed_up_to_a_limit() -> None:
    text = shown(moving(13, *((each, 0, each) for each in range(1, 13))), rows=5)
    assert "flights-1: withheld [0, 1)" in text
    assert text.count("withheld [") == 10
    assert "and ranges withheld of 2 more partitions" in text


def test_without_anything_withheld_there_is_no_column_for_it() -> None:
    assert "withheld" not in shown(moving(3))


def test_what_a_member_has_by_now_is_not_withheld_from_it() -> None:
    view = view_group(read(member(TWO, [0, 1])), [waiting_for((1, 5, 9))])
    assert "withheld" not in shown(view)
    assert view.partitions[1].withheld is None


def test_json_has_the_range_at_the_partition_and_at_the_member() -> None:
    plain = moving(3, (1, 1_000, 2_500)).to_json()
    withheld = {
        "topic": "flights",
        "partition": 1,
        "committed_offset": 1_000,
        "log_end_offset": 2_500,
    }
    assert [each["withheld"] for each in plain["partitions"]] == [None, withheld, None]
    (local,) = (each["local"] for each in plain["members"] if each["local"])
    assert local["withheld"] == [withheld]
