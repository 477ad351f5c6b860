"""Resets between runs explain records that are read again from there, and no others."""

from __future__ import annotations

import pytest

from workshop.chaos.results.account import Cause
from workshop.chaos.results.facts import DELETED_OFFSET, End
from workshop.tests.chaos.stories import TABLE, Story


def stopped() -> Story:
    """A query has finished and committed a batch, and was stopped."""
    story = Story()
    story.whole_batch("q1.1", 0, range(5))
    story.ends("q1.1", End.STOPPED)
    return story


@pytest.mark.parametrize("offset", [0, DELETED_OFFSET])
def test_rows_are_read_again_after_a_reset_and_after_a_deletion(offset: int) -> None:
    story = stopped()
    story.between_runs(offset)
    story.whole_batch("q2.1", 0, range(5))
    found = story.account()
    assert found.problems() == []
    assert found.causes == {Cause.RESET: 5}
    assert found.tables[TABLE].rows == 5


def test_reset_does_not_explain_a_second_read_after_the_commit() -> None:
    story = stopped()
    story.between_runs(0)
    story.whole_batch("q2.1", 0, range(5))
    story.whole_batch("q1.2", 1, range(5))
    found = story.account()
    assert found.causes == {Cause.RESET: 5, Cause.NONE: 5}


def test_reset_that_is_overruled_is_a_problem() -> None:
    story = stopped()
    story.between_runs(2)
    story.whole_batch("q2.1", 0, range(5, 9))
    found = story.account()
    assert found.overruled == ["ants-0: reset to 2, but [2, 9) was not read as a whole"]
    assert found.problems() == ["1 resets that were overruled"]


@pytest.mark.parametrize("restored", ["q1.1", ""])
def test_older_checkpoint_runs_a_finished_batch_again(restored: str) -> None:
    story = stopped()
    story.between_runs(restored=restored)
    story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True)
    assert story.account().causes == {Cause.RESTORED if restored else Cause.NONE: 5}


@pytest.mark.parametrize("restored", ["q2.1", ""])
def test_copied_checkpoint_runs_the_batch_of_another_query(restored: str) -> None:
    story = stopped()
    story.plan("q2.1", 0)
    story.between_runs(restored=restored)
    story.write("q2.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True)
    found = story.account()
    assert found.causes == {Cause.RESTORED if restored else Cause.NONE: 5}
    assert len(found.replays_differ) == (0 if restored else 1), "the log has another plan"


def test_batch_numbers_come_again_after_an_older_checkpoint_only() -> None:
    for restored, cause in (("q1.1", Cause.KILLED_IN_BATCH), ("", Cause.NONE)):
        story = Story()
        story.plan("q1.1", 0)
        story.write("q1.1", 0, range(5))
        story.ends("q1.1")
        story.between_runs(restored=restored)
        story.whole_batch("q1.2", 0, range(5))
        assert story.account().causes == {cause: 5}


def test_query_refuses_to_start_only_if_offsets_were_deleted() -> None:
    for offset, problems in ((DELETED_OFFSET, 0), (5, 1)):
        story = stopped()
        story.between_runs(offset)
        story.begins("q1.2")
        story.ends("q1.2", End.REFUSED)
        assert len(story.account().failures) == problems
