"""What the Kafka 0.9 Consumer Rewrite Design says of consumers, played by whole consumers."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_lab.sim import design_0_9_membership
from group_lab.sim.design_0_9_membership import (
    TRANSITIONS,
    ConsumerInput,
    ConsumerState,
    next_state,
)
from lab.tests.scenarios.design_0_9_consumers import DesignConsumers
from lab.tests.scenarios.scenarios_setup import compare

FOLDER = Path(__file__).parent / "design_0_9_consumers"
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))
NEVER_SEEN = {
    # Only a JoinGroup can be refused for good, and only one with an id is answered UnknownConsumer.
    (ConsumerState.PART_OF_GROUP, ConsumerInput.REFUSED),
    (ConsumerState.REDISCOVER, ConsumerInput.REFUSED),
    (ConsumerState.STARTUP, ConsumerInput.MUST_JOIN),
}
"""Transitions to which the coordinator of the model gives no cause."""


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_whole_consumers_do_what_the_design_says(path: Path) -> None:
    compare(path, None, DesignConsumers().play)


def test_each_transition_of_a_consumer_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def noted(state: ConsumerState, consumer_input: ConsumerInput) -> ConsumerState:
        seen.add((state, consumer_input))
        return next_state(state, consumer_input)

    monkeypatch.setattr(design_0_9_membership, "next_state", noted)
    compare(FOLDER / "consumer_states.txt", None, DesignConsumers().play)
    every = {(state, each) for state, inputs in TRANSITIONS.items() for each in inputs}
    assert every - seen == NEVER_SEEN
