"""The list of groups as text."""

from __future__ import annotations

from spark_groups.ops.group_list import GroupListView, view_groups
from spark_groups.ops.render_group_list import render_groups
from tests.ops.rendered import cells, lines
from tests.ops.test_group_list import LISTED


def test_each_group_has_a_row() -> None:
    assert cells(render_groups(view_groups(LISTED))) == [
        ["GROUP", "TYPE", "PROTOCOL", "STATE"],
        ["a", "Classic", "—", "Empty"],
        ["m", "Newer", "x", "New"],
        ["z", "Consumer", "consumer", "Stable"],
    ]


def test_an_empty_list_says_so() -> None:
    assert lines(render_groups(GroupListView(groups=()))) == ["no such groups"]
