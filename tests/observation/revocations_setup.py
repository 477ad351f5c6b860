"""Shared by test_revocations.py and other tests."""

from __future__ import annotations

from typing import Any

from spark_groups.observation.views import GroupView, view_group
from tests.observation.groups import ONE, TWO, member, read

GIVES_UP = read(member(ONE, [0, 1], [0]), member(TWO, [], [1]))


def revoking_group(age_s: float, timeout_s: float | None = 20.0) -> GroupView:
    """Return a group whose member on this machine reports the age of its revocation."""
    snapshot: dict[str, Any] = {
        "group": "flight-readers",
        "member_id": ONE,
        "state": "RECONCILING",
        "revoking": ["flights-1"],
        "revocation_age_s": age_s,
        "revocation_timeout_s": timeout_s,
    }
    return view_group(GIVES_UP, [snapshot])
