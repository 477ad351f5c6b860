"""ListGroups: filters by state and by type."""

from __future__ import annotations

import pytest

from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.listing import list_groups
from spark_groups.lab.coordinator.messages import ListGroupsRequest
from spark_groups.lab.coordinator.records import Record
from tests.lab.coordinator.driving import group_of

GROUPS = (
    group_of("empty", Record(r.GroupMetadataKey("empty"), r.GroupMetadataValue(1))),
    group_of(
        "assigning",
        Record(r.GroupMetadataKey("assigning"), r.GroupMetadataValue(1)),
        Record(r.MemberMetadataKey("assigning", "m"), r.MemberMetadataValue()),
    ),
    group_of("offsets", Record(r.OffsetCommitKey("offsets", "t", 0), r.OffsetCommitValue(1))),
)


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ((), (), ["empty", "assigning", "offsets"]),
        (("Empty",), (), ["empty", "offsets"]),
        ((" ASSIGNING ",), (), ["assigning"]),
        ((), ("Consumer",), ["empty", "assigning"]),
        ((), ("classic",), ["offsets"]),
        ((), ("Generic",), ["offsets"]),
        ((), ("bogus",), []),
        ((), ("share", "bogus"), []),
        (("stable",), ("consumer",), []),
        (("empty",), ("consumer", "bogus"), ["empty"]),
    ],
)
def test_filters(states: tuple[str, ...], types: tuple[str, ...], expected: list[str]) -> None:
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    assert [each.group_id for each in list_groups(GROUPS, request).groups] == expected
