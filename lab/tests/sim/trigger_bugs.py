"""Bugs in triggers: each one is found by drawn schedules; test_drawn_mutations.py plays them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_groups.group import trigger as triggers
from spark_groups.group.client import GroupClient
from spark_groups.group.trigger import Trigger

Patch = pytest.MonkeyPatch


def ends_available_now_at_the_first_empty_look(patch: Patch) -> None:
    patch.setattr(GroupClient, "knows_all_ends", lambda *_: True)
    patch.setattr(GroupClient, "is_available_now_over", lambda *_: True)


def compares_no_log_ends_with_positions(patch: Patch) -> None:
    patch.setattr(GroupClient, "listed", lambda *_: False)


def plans_without_leader_epochs(patch: Patch) -> None:
    patch.setattr(triggers, "_leader_epochs", lambda _: {})


def waits_for_the_first_answer_of_a_member_that_warms_up(patch: Patch) -> None:
    until: Callable[..., Any] = Trigger._until

    def forever(self: Trigger, is_met: Callable[[], bool], wait_s: float) -> object:
        if self._client.is_warming_up and not self._has_begun:
            return until(self, lambda: False, 1e6)
        return until(self, is_met, wait_s)

    patch.setattr(Trigger, "_until", forever)


def ignores_every_failure(patch: Patch) -> None:
    patch.setattr(Trigger, "check", lambda *_: None)
    patch.setattr(GroupClient, "check", lambda *_: None)


def uses_the_log_ends_of_the_trigger_before(patch: Patch) -> None:
    listed = Trigger.listed

    def older(self: Trigger, ends: Any, problem: str, now: float) -> None:
        kept = getattr(self, "_kept", {})
        patch.setattr(self, "_kept", ends, raising=False)
        listed(self, {**ends, **kept}, problem, now)

    patch.setattr(Trigger, "listed", older)
