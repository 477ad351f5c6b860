"""The offset log and the commit log, as Spark keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from workshop.chaos.members.checkpoint import KEPT, ChangedPlanError, Checkpoint


def test_new_checkpoint_has_nothing(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.last_planned() is None
    assert checkpoint.last_committed() is None
    assert checkpoint.offset(0) is None


def test_a_checkpoint_that_is_opened_again_has_its_last_plan(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for number in range(12):
        checkpoint.plan(number, f'{{"end": {number}}}')
        if number < 11:
            checkpoint.finish(number)
    again = Checkpoint(tmp_path)
    assert (again.last_planned(), again.last_committed()) == (11, 10)
    assert again.offset(11) == {"end": 11}


def planned(directory: Path, batches: int) -> Checkpoint:
    """Return a checkpoint with finished batches, and the checksums that Hadoop adds."""
    checkpoint = Checkpoint(directory)
    for number in range(batches):
        checkpoint.plan(number, f'{{"end": {number}}}')
        checkpoint.finish(number)
        for log in ("offsets", "commits"):
            (directory / log / f".{number}.crc").write_bytes(b"crc")
    return checkpoint


@pytest.mark.parametrize(("is_finished", "committed"), [(True, 5), (False, 4)])
def test_older_copy_has_the_earlier_batches(
    tmp_path: Path, is_finished: bool, committed: int
) -> None:
    checkpoint = planned(tmp_path, 12)
    checkpoint.go_back(5, is_finished=is_finished)
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (5, committed)
    assert not (tmp_path / "offsets" / ".6.crc").exists()
    assert (tmp_path / "offsets" / ".5.crc").exists()


def test_copy_keeps_nothing_of_the_former_checkpoint(tmp_path: Path) -> None:
    planned(tmp_path / "q1", 3)
    copy = planned(tmp_path / "q2", 9)
    copy.copy_from(tmp_path / "q1")
    assert (copy.last_planned(), copy.last_committed()) == (2, 2)
    assert planned(tmp_path / "q1", 0).offset(2) == {"end": 2}


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
