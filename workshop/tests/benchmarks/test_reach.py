"""The file of played schedules: seeds are never played twice, and a broken one is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from group_lab.commands.simulation import Break, Run
from group_lab.coordinator.profile import PROFILES
from group_lab.sim.swarm import GroupProtocol
from workshop.benchmarks import reach

CONSUMER = (GroupProtocol.CONSUMER,)


def test_a_piece_plays_each_seed_on_every_profile() -> None:
    piece = reach.piece_of(7, 8, CONSUMER)
    assert piece == [Run(seed, name) for seed in (7, 8) for name in PROFILES]


def test_the_design_with_its_own_coordinator_is_played_once_a_seed() -> None:
    piece = reach.piece_of(7, 3, (GroupProtocol.DESIGN_0_9,))
    assert [each.seed for each in piece] == [7, 8, 9]


def test_pieces_follow_each_other_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "reach.csv"
    assert reach.next_seed(reach.rows(path)) == reach.FIRST_SEED
    for protocols in (CONSUMER, (GroupProtocol.DESIGN_0_9,)):
        first = reach.next_seed(reach.rows(path))
        line = reach.play(reach.piece_of(first, 2, protocols), jobs=1)
        assert not line["broken_seeds"]
        reach.note(line, path)
    written = reach.rows(path)
    assert [each["protocols"] for each in written] == ["consumer", "design-0.9"]
    assert [each["schedules"] for each in written] == ["6", "2"]
    assert int(written[1]["first_seed"]) == int(written[0]["last_seed"]) + 1
    assert reach.next_seed(written) == int(written[1]["last_seed"]) + 1


def test_a_piece_names_the_seeds_that_broke_a_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hunt(runs: Sequence[Run], *, jobs: int) -> list[Break]:
        assert jobs == 2
        return [Break(runs[0], "no gap", "a record was skipped", ())]

    monkeypatch.setattr(reach, "hunt", hunt)
    line = reach.play(reach.piece_of(7, 12, CONSUMER), jobs=2)
    assert line["broken_seeds"] == "7"
    assert "repeat: spark-groups simulate --profile kip-848 --seed 7" in capsys.readouterr().err


def test_the_page_sums_up_the_file() -> None:
    assert reach.PAGE.read_text(encoding="utf-8") == reach.page()


def test_the_table_has_a_line_for_each_set_of_protocols() -> None:
    first = {"protocols": "consumer", "first_seed": "1", "last_seed": "500", "schedules": "3000"}
    rest = {"broken_seeds": "", "seconds": "1800"}
    second = {**first, "first_seed": "501", "last_seed": "1000", **rest, "broken_seeds": "777"}
    design = {**first, "protocols": "design-0.9+delayed", "schedules": "10", **rest}
    lines = reach.table([{**first, **rest}, second, design])
    assert lines[2] == "| consumer | 1 to 1000 | 6,000 | 1.0 | 777 |"
    assert lines[3] == "| design-0.9, delayed | 1 to 500 | 10 | 0.5 | none |"
