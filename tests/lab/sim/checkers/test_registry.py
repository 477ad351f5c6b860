"""Every checker there is watches every run."""

from __future__ import annotations

from pathlib import Path

from spark_groups.lab.sim import checkers
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.checkers.registry import CHECKERS, all_checkers
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.swarm import Swarm
from tests.lab.sim.scenes import scene

ROOT = Path(__file__).parents[4]


def test_every_checker_is_in_use() -> None:
    assert set(CHECKERS) == set(Checker.__subclasses__())
    files = {path.stem for path in Path(str(checkers.__path__[0])).glob("*.py")}
    assert files - {"__init__", "checker", "registry"} == {
        each.__module__.rpartition(".")[2] for each in CHECKERS
    }


def test_every_checker_is_documented() -> None:
    text = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    names = [each.__module__.rpartition(".")[2] for each in CHECKERS]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_a_run_has_one_of_each_and_each_listens() -> None:
    found = all_checkers(scene(Swarm(available_now=1)), History())
    assert [type(each) for each in found] == list(CHECKERS)
    assert all(each.listeners() for each in found)
