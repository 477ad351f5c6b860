"""The timelines of the incremental proposal, and its matrix, played by whole members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from group_lab.assignors.incremental import Policy
from lab.tests.scenarios.incremental_groups import IncrementalGroup
from lab.tests.scenarios.members_in_time import STEP_S
from lab.tests.scenarios.scenarios_setup import compare
from spark_groups.types import TopicPartition
from tests.documents import ROOT

PAGE = ROOT / "docs" / "explanation" / "incremental_rebalancing.md"
TIMELINES = sorted((Path(__file__).parent / "incremental_rebalancing").glob("*.txt"))


@pytest.mark.parametrize("path", TIMELINES, ids=lambda path: path.stem)
def test_members_go_through_the_timelines_of_the_proposal(path: Path) -> None:
    compare(path, None, IncrementalGroup().play)


@dataclass(frozen=True)
class Effect:
    """What an event does to a group of four members with three partitions each.

    Args:
        rebalances: Generations after the first.
        moved: Partitions that another process owned at some time, or owns in the end.
        stopped_at_once: The most partitions without an owner at one time.
        longest_s: The longest time that a partition was without an owner.
    """

    rebalances: int
    moved: int
    stopped_at_once: int
    longest_s: float


EVENTS: Mapping[str, Sequence[str]] = {
    "process death": ("crash D", "run 15", "start D2", "run 60"),
    "rolling bounce": tuple(
        line for name in "ABCD" for line in (f"leave {name}", "run 5", f"start {name}2", "run 10")
    ),
    "scale up": ("start E F", "run 60"),
    "scale down": ("leave D", "run 60"),
    "leader exit": ("leave A", "run 60"),
}
MATRIX: Mapping[str, Mapping[Policy, Effect]] = {
    # I: the others get the partitions, and give them back. II, III: they wait for the process.
    "process death": {
        Policy.IMMEDIATE: Effect(3, moved=5, stopped_at_once=3, longest_s=9.5),
        Policy.DELAYED: Effect(2, moved=0, stopped_at_once=3, longest_s=15.7),
        Policy.INCREMENTAL: Effect(2, moved=0, stopped_at_once=3, longest_s=15.7),
    },
    # I: only the partitions of the process that bounces move. II, III: none moves.
    "rolling bounce": {
        Policy.IMMEDIATE: Effect(12, moved=12, stopped_at_once=3, longest_s=1.3),
        Policy.DELAYED: Effect(8, moved=0, stopped_at_once=3, longest_s=6.5),
        Policy.INCREMENTAL: Effect(8, moved=0, stopped_at_once=3, longest_s=6.5),
    },
    # Only what moves stops; III moves one partition at a time, every 10 s.
    "scale up": {
        Policy.IMMEDIATE: Effect(2, moved=4, stopped_at_once=4, longest_s=1.2),
        Policy.DELAYED: Effect(2, moved=4, stopped_at_once=4, longest_s=1.2),
        Policy.INCREMENTAL: Effect(8, moved=4, stopped_at_once=1, longest_s=1.2),
    },
    # II and III wait for the delay of 20 s first.
    "scale down": {
        Policy.IMMEDIATE: Effect(1, moved=3, stopped_at_once=3, longest_s=0.5),
        Policy.DELAYED: Effect(2, moved=3, stopped_at_once=3, longest_s=20.6),
        Policy.INCREMENTAL: Effect(2, moved=3, stopped_at_once=3, longest_s=20.6),
    },
    # As any other member that leaves: the new leader knows enough.
    "leader exit": {
        Policy.IMMEDIATE: Effect(1, moved=3, stopped_at_once=3, longest_s=0.5),
        Policy.DELAYED: Effect(2, moved=3, stopped_at_once=3, longest_s=20.8),
        Policy.INCREMENTAL: Effect(2, moved=3, stopped_at_once=3, longest_s=20.8),
    },
}


def effect_of(policy: Policy, event: str) -> Effect:
    """Play an event; a process that returns under another member id is the same process."""
    group = IncrementalGroup()
    for line in (f"design {policy.value} delay=20 interval=10", "topic T 12", "start A B C D"):
        group.play(line)
    group.play("run 5")
    owner_of = {key: name for name, own in group.owned.items() for key in own}
    assert sorted(map(len, group.owned.values())) == [3, 3, 3, 3]
    moved: set[TopicPartition] = set()
    unowned_s: Counter[TopicPartition] = Counter()
    rebalances, stopped_at_once, longest_s = 0, 0, 0.0
    for line in EVENTS[event]:
        command, _, words = line.partition(" ")
        steps = [f"run {STEP_S}"] * round(float(words) / STEP_S) if command == "run" else [line]
        for step in steps:
            rebalances += sum("generation" in each for each in group.play(step))
            owned, unowned = group.owned, group.unowned
            assert sum(map(len, owned.values())) + len(unowned) == 12, "a partition has two owners"
            moved |= {key for name, own in owned.items() for key in own if owner_of[key] != name[0]}
            stopped_at_once = max(stopped_at_once, len(unowned))
            for key in unowned_s.keys() - unowned:
                del unowned_s[key]
            unowned_s.update(unowned)
            longest_s = max(longest_s, STEP_S * max(unowned_s.values(), default=0))
    assert not group.unowned
    sizes = sorted(map(len, group.owned.values()))
    assert sizes[-1] - sizes[0] <= 1, "the group is balanced in the end"
    return Effect(rebalances, len(moved), stopped_at_once, round(longest_s, 1))


def test_the_page_has_the_matrix() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for event, effects in MATRIX.items():
        cells = (
            f"{each.rebalances} rebalance{'s' if each.rebalances > 1 else ''}, {each.moved} moved,"
            f" {each.stopped_at_once} at once, {each.longest_s} s"
            for each in effects.values()
        )
        assert f"| {event} | {' | '.join(cells)} |" in page


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("event", EVENTS)
def test_the_matrix_of_the_proposal(event: str, policy: Policy) -> None:
    assert effect_of(policy, event) == MATRIX[event][policy]
