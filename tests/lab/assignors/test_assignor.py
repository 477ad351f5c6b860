"""What an assignor is given is a value: it can be kept, compared and changed by replacing."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from tests.lab.assignors.groups import group, has, member


def test_groups_are_equal_if_what_an_assignor_sees_is() -> None:
    spec = group({"a": member("t", target=has(t=[0]))}, t=1)
    assert spec == group({"a": member("t", target=has(t=[0]))}, t=1)
    assert spec != group({"a": member("t")}, t=1)
    assert spec != replace(spec, is_homogeneous=False)


def test_nobody_changes_a_member_that_is_being_assigned_to() -> None:
    with pytest.raises(FrozenInstanceError):
        member("t").target = has(t=[0])  # type: ignore[misc]
