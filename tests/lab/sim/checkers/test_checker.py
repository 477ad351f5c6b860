"""What a checker says when its promise is broken."""

from __future__ import annotations

import pytest

from spark_groups.lab.sim.checkers.checker import BrokenInvariantError, Checker
from spark_groups.lab.sim.checkers.committed_never_back import CommittedNeverBack
from spark_groups.lab.sim.history import History
from tests.lab.sim.scenes import scene


def test_a_broken_promise_names_its_checker() -> None:
    checker = CommittedNeverBack(scene(), History())
    with pytest.raises(BrokenInvariantError, match="committed never back: it did") as caught:
        checker.fail("it did")
    assert (caught.value.checker, caught.value.text) == ("committed never back", "it did")


def test_a_checker_listens_to_something() -> None:
    with pytest.raises(NotImplementedError):
        Checker(scene(), History()).listeners()
