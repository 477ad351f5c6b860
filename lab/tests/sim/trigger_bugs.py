"""Bugs in triggers: each one is found by drawn schedules; test_drawn_mutations.py plays them."""

from __future__ import annotations

import pytest

from spark_groups.group import trigger as triggers
from spark_groups.group.batches.available_now import AvailableNowEnd
from spark_groups.group.client import GroupClient
from spark_groups.group.ledger.truncation import PositionValidator
from spark_groups.group.trigger import Trigger

Patch = pytest.MonkeyPatch


def compares_no_log_ends_with_positions(patch: Patch) -> None:
    patch.setattr(PositionValidator, "compare", lambda *_: False)


def plans_without_leader_epochs(patch: Patch) -> None:
    patch.setattr(triggers, "_leader_epochs", lambda _: {})


def ends_available_now_at_the_first_empty_look(patch: Patch) -> None:
    patch.setattr(AvailableNowEnd, "is_over", lambda *_, **__: True)


def ignores_every_failure(patch: Patch) -> None:
    patch.setattr(Trigger, "check", lambda *_: None)
    patch.setattr(GroupClient, "check", lambda *_: None)
