"""The list of groups, and what it can be limited to."""

from __future__ import annotations

import pytest

from spark_groups.errors import OptionsError
from spark_groups.ops.group_list import GROUP_STATES, GROUP_TYPES, parse_names, view_groups
from spark_groups.wire.groups import ListedGroup

LISTED = (
    ListedGroup(
        group_id="z", protocol_type="consumer", group_state="Stable", group_type="consumer"
    ),
    ListedGroup(group_id="a", protocol_type="", group_state="Empty", group_type="classic"),
    ListedGroup(group_id="m", protocol_type="x", group_state="New", group_type="newer"),
)


def test_groups_are_sorted_and_called_what_kafkas_tool_calls_them() -> None:
    rows = view_groups(LISTED).to_json()["groups"]
    assert [(each["group_id"], each["group_type"]) for each in rows] == [
        ("a", "classic"),
        ("m", "newer"),
        ("z", "consumer"),
    ]


def test_names_are_taken_in_any_case_between_commas_and_each_once() -> None:
    assert parse_names(["generic, CLASSIC", "share"], GROUP_TYPES, "types") == ("classic", "share")
    states = parse_names(["preparingrebalance", "NotReady"], GROUP_STATES, "states")
    assert states == ("PreparingRebalance", "NotReady")
    assert parse_names([], GROUP_STATES, "states") == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("consumers", "'consumers' is none of the types: did you mean consumer?"),
        ("?", "'?' is none of the types: valid types are classic, consumer, share, streams"),
    ],
)
def test_a_name_that_is_not_known_is_refused(given: str, said: str) -> None:
    with pytest.raises(OptionsError) as refused:
        parse_names(["classic", given], GROUP_TYPES, "types")
    assert str(refused.value) == said
