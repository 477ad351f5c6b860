"""The safety case names constraints that are kept: its checkers, bugs, tests and modules exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from group_lab.sim.checkers.registry import CHECKERS
from group_lab.sim.history import History
from lab.tests.seeds_page_setup import names_of
from lab.tests.sim.drawn_mutations_setup import DRAWN
from lab.tests.sim.mutations_setup import PLANTED
from lab.tests.sim.scenes import scene
from tests.documents import ROOT, TREES_OF_TESTS
from workshop.chaos.plants import Plant

TEXT = (ROOT / "docs/explanation/guarantees.md").read_text(encoding="utf-8")
CHECKER_NAMES = frozenset(checker(scene(), History()).name for checker in CHECKERS)
PROMISES_OF: dict[str, set[str]] = {}
"""The checkers that find each planted bug."""
for planted in (*PLANTED, *DRAWN):
    PROMISES_OF.setdefault(planted.plant.__name__, set()).add(planted.promise)


@dataclass(frozen=True)
class Constraint:
    """A row of the table of constraints.

    Args:
        name: Its number, such as C1.
        hazards: The numbers of the hazards that it prevents.
        modules: The modules that keep it, below spark_groups/.
        guards: The names in its last column: checkers, bugs, tests.
    """

    name: str
    hazards: tuple[str, ...]
    modules: tuple[str, ...]
    guards: tuple[str, ...]

    def __str__(self) -> str:
        return self.name

    def checkers(self) -> set[str]:
        return {guard for guard in self.guards if " " in guard}

    def tests(self) -> set[str]:
        return {guard for guard in self.guards if "::" in guard}

    def plants(self) -> set[str]:
        return {guard for guard in self.guards if re.fullmatch(r"[a-z]+(-[a-z]+)+", guard)}

    def bugs(self) -> set[str]:
        return set(self.guards) - self.checkers() - self.tests() - self.plants()


def rows(letter: str) -> Iterator[list[str]]:
    """Yield the cells of rows whose first cell is a number of this kind, such as H1."""
    for line in re.findall(rf"^\| ({letter}\d+\b.*) \|$", TEXT, re.MULTILINE):
        yield [cell.strip() for cell in line.split("|")]


def codes(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


def constraints() -> Iterator[Constraint]:
    for which, _, _, modules, guards in rows("C"):
        name, hazards = which.split(": ")
        yield Constraint(name, tuple(hazards.split(", ")), codes(modules), codes(guards))


CONSTRAINTS = tuple(constraints())


def numbered(letter: str) -> list[str]:
    return [cells[0].split(":")[0] for cells in rows(letter)]


@pytest.mark.parametrize("letter", "LHC")
def test_numbers_follow_each_other(letter: str) -> None:
    found = numbered(letter)
    assert found == [f"{letter}{number}" for number in range(1, len(found) + 1)]
    assert len(found) >= 7


def test_hazards_lead_to_losses_and_each_is_prevented() -> None:
    named = {each for cells in rows("H") for each in cells[2].split(", ")} - {"all"}
    assert named == set(numbered("L"))
    assert {hazard for row in CONSTRAINTS for hazard in row.hazards} == set(numbered("H"))
    referred = set(re.findall(r"\b[LHC]\d+\b", TEXT))
    assert referred == {*numbered("L"), *numbered("H"), *numbered("C")}


@pytest.mark.parametrize("row", CONSTRAINTS, ids=str)
def test_constraint_is_kept_by_modules_and_has_a_guard(row: Constraint) -> None:
    assert row.modules
    roots = (ROOT / "spark_groups", ROOT / "lab")
    missing = [
        module for module in row.modules if not any((root / module).is_file() for root in roots)
    ]
    assert missing == []
    assert row.checkers() | row.tests()


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`([\w/]+\.py::\w+)`", TEXT))))
def test_test_that_the_page_names_exists(named: str) -> None:
    path, name = named.split("::")
    assert name.startswith("test_")
    assert any(name in names_of(ROOT / tree / path) for tree in TREES_OF_TESTS)


@pytest.mark.parametrize("row", CONSTRAINTS, ids=str)
def test_names_of_guards_are_those_of_tests_and_plants(row: Constraint) -> None:
    assert all(re.fullmatch(r"[\w/]+\.py::\w+", each) for each in row.tests())
    assert row.plants() <= {each.value for each in Plant}


@pytest.mark.parametrize("row", CONSTRAINTS, ids=str)
def test_checkers_of_a_constraint_exist_and_find_its_bugs(row: Constraint) -> None:
    assert row.checkers() <= CHECKER_NAMES
    assert row.bugs() <= PROMISES_OF.keys()
    found = {promise for each in row.bugs() for promise in PROMISES_OF[each]}
    assert found == row.checkers()


def test_each_checker_guards_a_constraint() -> None:
    assert {each for row in CONSTRAINTS for each in row.checkers()} == CHECKER_NAMES


def test_constraints_without_a_planted_bug_are_named() -> None:
    (text,) = re.findall(r"^Without a planted bug are (.+?):", TEXT, re.MULTILINE)
    named = set()
    for first, last in re.findall(r"C(\d+)(?: to C(\d+))?", text):
        named |= {f"C{number}" for number in range(int(first), int(last or first) + 1)}
    assert named == {row.name for row in CONSTRAINTS if not row.bugs() | row.plants()}
