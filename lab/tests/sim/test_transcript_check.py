"""The model answers what real brokers answered: every transcript, field by field."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from group_lab.coordinator.profile import PROFILES
from group_lab.sim.transcript_check import (
    DRAWS,
    DRAWS_IN_A_ROW,
    SAME_ENDS,
    Answered,
    Draw,
    Redrawn,
    play_transcript,
)
from group_lab.sim.transcripts import Step, read_transcript

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
PATHS = sorted(TRANSCRIPTS.glob("*/*.jsonl"))


def profile_of(path: Path) -> str:
    return "kafka-" + path.parent.name.rpartition(".")[0]


def played(steps: tuple[Step, ...], path: Path, draws: int = DRAWS) -> tuple[Answered, ...]:
    return play_transcript(steps, PROFILES[profile_of(path)], map(random.Random, range(draws)))


def test_recordings_are_here() -> None:
    assert len(PATHS) == 71


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_model_agrees_with_the_recording(path: Path) -> None:
    steps = read_transcript(path.read_text(encoding="utf-8"))
    answered = played(steps, path)
    differing = [difference for each in answered for difference in each.differences]
    assert not differing, "\n".join(map(repr, differing))
    compared = sum(each.is_compared for each in answered)
    spoken = sum(step.operation not in ("note", "sleep") for step in steps)
    assert compared == spoken


def recording(name: str) -> tuple[Path, list[dict[str, Any]]]:
    path = TRANSCRIPTS / name
    return path, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("name", "number", "change", "field"),
    [
        ("4.3.1/s02_handover.jsonl", 4, {"resp": {"hb_ms": 501}}, "hb_ms"),
        ("4.3.1/s02_handover.jsonl", 22, {"resp": {"asg": {"foo": [3, 4]}}}, "asg.foo"),
        ("4.3.1/s02_handover.jsonl", 22, {"resp": {"asg": None}}, "asg"),
        ("4.3.1/s02_handover.jsonl", 5, {"resp": {"group_epoch": 2}}, "group_epoch"),
        ("4.3.1/s02_handover.jsonl", 5, {"resp": {"members": []}}, "members"),
        ("4.3.1/s02_handover.jsonl", 30, {"resp": {"foo-3": "NONE"}}, "foo-3"),
        ("4.3.1/s02_handover.jsonl", 34, {"resp": {"offsets": {"foo-0": 22}}}, "offsets.foo-3"),
        ("4.3.1/s02_handover.jsonl", 25, {"resp": {"msg": "Fenced."}}, "msg"),
        ("4.3.1/s01_first_join.jsonl", 9, {"resp": {"groups": []}}, "groups"),
        ("4.3.1/s05_session_timeout.jsonl", 11, {"_t": 4.3}, "epoch"),
        ("4.3.1/s05_session_timeout.jsonl", 11, {"_t": 5.0}, "asg"),
        ("4.3.1/s04_rebalance_timeout.jsonl", 6, {"_t": 1.9}, "err"),
        ("4.3.1/s12_batching.jsonl", 8, {"_t": 1.7}, "asg"),
        ("4.3.1/s11_group_config.jsonl", 10, {"resp": {"err": "NONE"}}, "err"),
    ],
)
def test_changed_recording_differs_where_it_was_changed(
    name: str, number: int, change: dict[str, Any], field: str
) -> None:
    path, lines = recording(name)
    changed = copy.deepcopy(lines)
    line = changed[number - 1]
    line["resp"] |= change.pop("resp", {})
    line |= change
    answered = played(read_transcript("\n".join(map(json.dumps, changed))), path, draws=20)
    first = next(each for each in answered if each.differences)
    assert first.step.number == number
    assert field in {each.field for each in first.differences}


def test_order_of_members_is_looked_for() -> None:
    """Two members and three partitions: who has two of them follows from ids that are lost."""
    join = {"epoch": 0, "topics": ["foo"], "owned": {}, "rebal": 30_000}
    lines: list[dict[str, Any]] = [
        {"op": "create-topics", "req": {"foo": 3}},
        {"op": "hb", "req": {"member": "m1", **join}},
        {"op": "hb", "req": {"member": "m2", **join}},
        {"op": "describe"},
    ]
    steps = read_transcript("\n".join(map(json.dumps, lines)))
    found = {}
    for seed in range(20):
        *_, described = play_transcript(steps, PROFILES["kafka-4.0"], [random.Random(seed)])
        assert isinstance(described.answer, dict)
        first, second = described.answer["members"]
        sizes = len(first["target"]["foo"]), len(second["target"]["foo"])
        found[sizes] = json.dumps(described.answer)
    assert set(found) == {(2, 1), (1, 2)}
    for answer in found.values():
        asked = [*lines[:-1], {"op": "describe", "resp": json.loads(answer)}]
        steps = read_transcript("\n".join(map(json.dumps, asked)))
        answered = played(steps, TRANSCRIPTS / "4.0.0" / "any", draws=50)
        assert not any(each.differences for each in answered)


def test_search_ends_where_it_ends_again_and_again() -> None:
    """A search reports differences that no draw explains, and finds draws that explain the rest."""
    _, lines = recording("4.3.1/s02_handover.jsonl")
    lines[20]["resp"]["epoch"] = 9
    chances = iter([random.Random(seed) for seed in range(DRAWS)])
    steps = read_transcript("\n".join(map(json.dumps, lines)))
    answered = play_transcript(steps, PROFILES["kafka-4.3"], chances)
    assert [each.step.number for each in answered if each.differences] == [21]
    assert len(list(chances)) == DRAWS - SAME_ENDS * DRAWS_IN_A_ROW - 1


def test_answer_that_leaves_fields_out_is_compared_as_far_as_it_goes() -> None:
    line = {"op": "hb", "req": {"member": "m1", "epoch": 1}, "resp": {"err": "GROUP_ID_NOT_FOUND"}}
    (answered,) = played(read_transcript(json.dumps(line)), TRANSCRIPTS / "4.3.1" / "any")
    assert answered.is_compared
    assert not answered.differences


def draw(*differing: tuple[int, int], drawn: int = 6) -> Draw:
    """Return a draw that differs at some places, each after so many numbers."""
    made = Draw(Redrawn(random.Random(0)))
    for place, before in (*differing, (-1, drawn)):
        while len(made.numbers.drawn) < before:
            made.numbers.getrandbits(64)
        if place >= 0:
            made.note_difference(place)
    return made


def test_kept_numbers_come_back() -> None:
    numbers = Redrawn(random.Random(0), kept=(7, 8, 9), redrawn=frozenset({1}))
    fresh = random.Random(0)
    seen = [numbers.getrandbits(64) for _ in range(4)]
    assert seen == [7, fresh.getrandbits(64), 9, fresh.getrandbits(64)]
    assert numbers.drawn == seen


@pytest.mark.parametrize(
    ("mine", "its", "is_behind"),
    [
        ([3], [5], True),
        ([5], [3], False),
        ([3, 4], [3, 9], True),
        ([3, 9], [3, 4], False),
        ([3, 4], [3], True),
        ([3], [3, 4], False),
        ([3], [3], False),
        ([], [3], False),
        ([0], [], True),
    ],
)
def test_who_agrees_longer_is_ahead(mine: list[int], its: list[int], is_behind: bool) -> None:
    first, second = (draw(*((place, 0) for place in places)) for places in (mine, its))
    assert first.is_behind(second) is is_behind


def test_only_draws_before_a_difference_are_redrawn() -> None:
    before = draw((4, 3))
    changed, restarts = set(), 0
    for seed in range(200):
        redrawn = before.changed(random.Random(seed)).numbers
        restarts += not redrawn.kept
        if redrawn.kept:
            assert redrawn.kept == before.numbers.drawn
            assert 1 <= len(redrawn.redrawn) <= 2
            changed |= redrawn.redrawn
    assert changed == {0, 1, 2}
    assert 0 < restarts < 50


def test_a_difference_before_anything_was_drawn_stays() -> None:
    assert not draw((0, 0)).can_be_better
    assert draw((0, 0), (1, 2)).can_be_better
    assert not draw().can_be_better
