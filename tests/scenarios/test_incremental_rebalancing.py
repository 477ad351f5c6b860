"""The timelines of the incremental proposal, and its matrix, played by whole members."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.incremental_groups import IncrementalGroup
from tests.scenarios.test_scenarios import compare

TIMELINES = sorted((Path(__file__).parent / "incremental_rebalancing").glob("*.txt"))


@pytest.mark.parametrize("path", TIMELINES, ids=lambda path: path.stem)
def test_members_go_through_the_timelines_of_the_proposal(path: Path) -> None:
    compare(path, None, IncrementalGroup().play)
