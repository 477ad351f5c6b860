"""The offset log and the commit log, as Spark keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.members.checkpoint import KEPT, ChangedPlanError, Checkpoint


def test_new_checkpoint_has_nothing(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.last_planned() is None
    assert checkpoint.last_committed() is None
    assert checkpoint.offset(0) is None


def test_what_was_planned_is_found_again(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for number in range(12):
        checkpoint.plan(number, f'{{"end": {number}}}')
        if number < 11:
            checkpoint.finish(number)
    again = Checkpoint(tmp_path)
    assert (again.last_planned(), again.last_committed()) == (11, 10)
    assert again.offset(11) == {"end": 11}


def test_plan_is_never_replaced_by_another(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.plan(0, "{}")
    checkpoint.plan(0, "{}")
    with pytest.raises(ChangedPlanError, match="offsets/0"):
        checkpoint.plan(0, '{"end": 1}')


def test_file_that_was_cut_off_is_no_batch(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    (tmp_path / "offsets" / ".0.tmp").write_text("{")
    assert checkpoint.last_planned() is None


def test_old_batches_are_forgotten(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for number in range(KEPT + 5):
        checkpoint.plan(number, "{}")
        checkpoint.finish(number)
    assert len(list((tmp_path / "offsets").iterdir())) == KEPT
    assert checkpoint.offset(4) is None
    assert checkpoint.offset(5) == {}
