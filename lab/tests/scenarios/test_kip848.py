"""KIP-848's case studies, state by state, on the model as the KIP has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_lab.coordinator.profile import KIP_848
from lab.tests.scenarios.kip_states import KipStates, KipWorld
from lab.tests.scenarios.scenarios_setup import compare
from lab.tests.scenarios.scene import Scene
from lab.tests.scenarios.stage import Stage
from lab.tests.scenarios.streams_members import StreamsMembers

CASE_STUDIES = sorted((Path(__file__).parent / "kip848").glob("*.txt"))


def test_case_studies_are_here() -> None:
    stems = [each.stem for each in CASE_STUDIES]
    assert stems == ["basic", "failure", "incremental", "migration", "partition_added", "streams"]


@pytest.mark.parametrize("path", CASE_STUDIES, ids=lambda path: path.stem)
def test_model_goes_through_the_states_of_the_kip(path: Path) -> None:
    world = KipWorld(KIP_848)
    scene = Scene(world, path.stem, shown_as=path.stem)
    stage = Stage(scene)
    stage.commands |= KipStates(scene, world).commands | StreamsMembers(scene, world).commands
    compare(path, None, stage.play)
