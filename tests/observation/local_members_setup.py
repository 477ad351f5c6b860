"""Shared by test_local_members.py and other tests."""

from __future__ import annotations

from typing import Any

from tests.observation.groups import ONE

SNAPSHOT: dict[str, Any] = {
    "group": "flight-readers",
    "member_id": ONE,
    "state": "RECONCILING",
    "failure": None,
    "last_heartbeat_age_s": 0.3,
    "last_call_age_s": 4.5,
    "revocation_age_s": 2.0,
    "revocation_timeout_s": 300.0,
    "revoking": ["old-flights-10", "flights-1"],
    "in_flight": [
        {"topic": "flights", "partition": 1, "from_offset": 10, "until_offset": 25},
        {"topic": "flights", "partition": 2, "from_offset": 0, "until_offset": 5},
    ],
    "commits_refused": 2,
    "session_timeout_ms": 45_000,
    "batch_age_s": 12.3,
    "idle_limit_s": 600.0,
    "left_because_idle": False,
}


PENDING_RANGES = [
    {"topic": "flights", "partition": 1, "committed_offset": 10, "log_end_offset": 25},
    {"topic": "orders", "partition": 7, "committed_offset": None, "log_end_offset": None},
]
