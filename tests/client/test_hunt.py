"""The hunt for seeds that break a promise finds them, and ends."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.client import hunt
from tests.client.hunt import BREAKS_SHOWN, SEEDS_EACH, Break, Run


def broken_from_seed_30(runs: Iterable[Run]) -> list[Break]:
    return [Break(seed, profile, "a story") for seed, profile in runs if seed >= 30]


def test_seeds_that_break_nothing_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert hunt.main(["2", "--first", "3", "--jobs", "2"]) == 0
    assert f"{2 * len(hunt.PROFILES)} runs kept every promise" in capsys.readouterr().out


def test_the_hunt_ends_soon_after_some_seeds_broke_a_promise() -> None:
    told: list[int] = []
    runs = [(seed, "4.3") for seed in range(100 * SEEDS_EACH)]
    found = hunt.hunt(runs, jobs=1, played=told.append, play=broken_from_seed_30)
    assert found[0] == Break(30, "4.3", "a story")
    assert len(found) >= BREAKS_SHOWN
    assert sum(told) < len(runs) / 2


def test_a_broken_promise_is_told_with_the_way_to_see_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hunt, "hunt", lambda runs, **_: broken_from_seed_30(runs))
    assert hunt.main(["1", "--first", "31", "--profile", "4.2"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "a story" in said
    assert "again: python -m tests.client.hunt 1 --first 31 --profile 4.2" in said
    with pytest.raises(SystemExit):
        hunt.main(["1", "--profile", "3.9"])


def test_a_run_that_raises_is_a_break_with_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(hunt.World):
        def run(self) -> None:
            self.say("once upon a time")
            raise AssertionError("a promise")

    monkeypatch.setattr(hunt, "World", Broken)
    (only,) = hunt.play([(5, "4.0")])
    assert (only.seed, only.profile) == (5, "4.0")
    assert "once upon a time" in only.story
    assert "a promise" in only.story
