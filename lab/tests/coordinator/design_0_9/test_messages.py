"""The messages of the 0.9 design have the fields of its section "Request formats"."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from group_lab.coordinator.design_0_9.messages import (
    DesignHeartbeatRequest,
    DesignHeartbeatResponse,
    DesignJoinGroupRequest,
    DesignJoinGroupResponse,
)


@pytest.mark.parametrize(
    ("message", "written"),
    [
        (
            DesignJoinGroupRequest,
            "GroupId SessionTimeout Topics ConsumerId PartitionAssignmentStrategy",
        ),
        (DesignJoinGroupResponse, "ErrorCode GroupGenerationId ConsumerId PartitionsToOwn"),
        (DesignHeartbeatRequest, "GroupId GroupGenerationId ConsumerId"),
        (DesignHeartbeatResponse, "ErrorCode"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_messages_have_the_fields_of_the_design(message: type, written: str) -> None:
    found = [each.name.removesuffix("_ms") for each in fields(message)]
    assert found == [re.sub(r"\B([A-Z])", r"_\1", each).lower() for each in written.split()]
