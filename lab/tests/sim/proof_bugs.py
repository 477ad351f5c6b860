"""Bugs in what proves a batch: drawn schedules find each; test_drawn_mutations.py plays them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from spark_groups.group.batches.proofs import BatchToRun, PlanJson, Proof, Proofs
from spark_groups.types import BatchPlan

Patch = pytest.MonkeyPatch


def finishes_the_last_plan_for_a_late_report_of_another(patch: Patch) -> None:
    def reported(self: Proofs, text: str, query_id: str) -> BatchPlan | None:
        self.query_id = query_id
        return self.unproven if self.is_own(text) else None

    patch.setattr(Proofs, "reported", reported)


def takes_a_batch_that_runs_again_for_a_finished_one(patch: Patch) -> None:
    ran = Proofs.batch_to_run

    def no_replay(self: Proofs, start: PlanJson, end: PlanJson) -> BatchToRun:
        return replace(ran(self, start, end), is_replay=False)

    patch.setattr(Proofs, "batch_to_run", no_replay)


def proves_only_the_first_batch(patch: Patch) -> None:
    asked = Proofs.asked

    def once(self: Proofs, start: PlanJson | None) -> Proof:
        return replace(asked(self, start), is_new=self._proven is None)

    patch.setattr(Proofs, "asked", once)


def keeps_the_first_plan_that_it_read(patch: Patch) -> None:
    plan_of = Proofs._plan_of
    kept: WeakKeyDictionary[Proofs, Any] = WeakKeyDictionary()

    def first(self: Proofs, offset: PlanJson) -> BatchPlan | None:
        plan = kept.get(self) or plan_of(self, offset)
        kept[self] = plan
        return plan

    patch.setattr(Proofs, "_plan_of", first)
