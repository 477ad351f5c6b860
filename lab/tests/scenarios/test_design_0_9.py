"""The scenarios of the Kafka 0.9 Consumer Rewrite Design, on the model of its coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_lab.coordinator.design_0_9.group import DesignGroup
from lab.tests.scenarios.design_0_9 import DesignStage
from lab.tests.scenarios.scenarios_setup import compare

FOLDER = Path(__file__).parent / "design_0_9"
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


def test_every_scenario_of_the_design_is_here() -> None:
    stems = {each.stem for each in TRANSCRIPTS}
    assert stems == {
        "commits_during_rebalance",
        "consumer_id_assignment",
        "coordinator",
        "coordinator_failover",
        "failure_detection",
        *(f"failure_in_phase_{number}" for number in range(1, 6)),
        "heartbeats_during_rebalance",
        "join_errors",
        "partition_changes",
        "slow_consumers",
    }


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_model_answers_as_the_design_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = DesignStage(DesignGroup.moved)
    monkeypatch.setattr(DesignGroup, "moved", stage.moved())
    compare(path, None, stage.play)
