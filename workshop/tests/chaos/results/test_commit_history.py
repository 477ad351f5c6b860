"""Committed offsets go back only by a reset, and then records are read again from there."""

from __future__ import annotations

from workshop.chaos.results.commit_history import highest_so_far, overruled, went_back
from workshop.chaos.results.facts import DELETED_OFFSET, BatchKey, Commit, Execution, RunKey, Span

ANTS = ("ants", 0)
RESETS = (Span(10.0, 11.0), Span(20.0, 21.0))
"""When no member ran."""


def history(*commits: tuple[float, int]) -> list[Commit]:
    return [Commit(at_s, offset) for at_s, offset in commits]


def batch(began_s: float, first: int, following: int) -> Execution:
    run, key = RunKey("q1", 1), BatchKey("q1", 0, "plan")
    return Execution("q1.1.0", key, run, False, began_s, {ANTS: (first, following)})


def test_offset_goes_back_only_by_a_reset() -> None:
    set_back = history((5.0, 100), (10.5, 40), (12.0, 60))
    assert went_back({ANTS: set_back}, RESETS) == []
    assert went_back({ANTS: set_back}, ()) == ["ants-0: from 100 to 40"]
    late = history((5.0, 100), (10.5, DELETED_OFFSET), (12.0, 0), (13.0, 50), (14.0, 40))
    assert went_back({ANTS: late}, RESETS) == ["ants-0: from 50 to 40"]


def test_highest_offset_begins_again_with_each_reset() -> None:
    commits = history((5.0, 100), (6.0, 90), (10.5, 40), (12.0, 60), (20.5, DELETED_OFFSET))
    assert highest_so_far(commits, RESETS) == [100, 100, 40, 60, DELETED_OFFSET]


def found(*executions: Execution, commits: list[Commit], end: int = 100) -> list[str]:
    return overruled({ANTS: commits}, RESETS, executions, {ANTS: end})


def test_reset_after_which_all_was_read_again_was_respected() -> None:
    commits = history((5.0, 100), (10.5, 40), (12.0, 60), (13.0, 100))
    before = batch(4.0, 0, 100)
    assert found(before, batch(11.5, 40, 60), batch(12.5, 60, 100), commits=commits) == []
    # A batch that was planned before the reset is run again first, and counts for what it reads.
    assert found(before, batch(11.2, 80, 100), batch(11.5, 40, 80), commits=commits) == []


def test_reset_that_a_checkpoint_overrules_is_found() -> None:
    commits = history((5.0, 100), (10.5, 40), (12.0, 100))
    expected = ["ants-0: reset to 40, but [40, 100) was not read as a whole"]
    assert found(batch(4.0, 0, 100), commits=commits) == expected
    commits = history((5.0, 100), (10.5, 40), (12.0, 60), (13.0, 100))
    expected = ["ants-0: reset to 40, but [60, 100) was not read as a whole"]
    assert found(batch(4.0, 0, 100), batch(11.5, 40, 60), commits=commits) == expected


def test_offsets_uncommitted_before_the_next_reset_need_not_be_read() -> None:
    commits = history((5.0, 100), (10.5, 40), (12.0, 60), (20.5, 90), (22.0, 100))
    read = (batch(4.0, 0, 100), batch(11.5, 40, 60), batch(21.5, 90, 100))
    assert found(*read, commits=commits) == []
    assert found(*read[:2], commits=commits) == [
        "ants-0: reset to 90, but [90, 100) was not read as a whole"
    ]


def test_offset_that_is_deleted_asks_for_nothing_of_its_own() -> None:
    commits = history((5.0, 100), (10.5, DELETED_OFFSET), (12.0, 100))
    assert found(batch(4.0, 0, 100), commits=commits) == []
    commits = history((5.0, 100), (10.2, 40), (10.5, DELETED_OFFSET), (12.0, 100))
    assert found(batch(4.0, 0, 100), commits=commits) == [], "a query continues at its checkpoint"
