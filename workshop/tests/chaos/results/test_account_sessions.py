"""Why a session was lost where faults overlap: only what hit the member excuses it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workshop.chaos.faults.schedule import MachineFaultKind
from workshop.chaos.results.account import SessionLoss
from workshop.chaos.results.facts import Note
from workshop.tests.chaos.stories import SESSION_S, Story


def jumped(story: Story, between: Callable[[], None]) -> Story:
    """A clock jumps, the session is lost, and the other faults are as they are."""
    story.machine_fails(MachineFaultKind.JUMP, between)
    return story


def silent(story: Story, silent_s: float) -> None:
    """Lose the session when no heartbeat was accepted for so many seconds."""
    for _ in range(int(silent_s)):
        story.note("q1.1", Note.BEGINS)
    story.note("q1.1", Note.SILENT, silent_s=silent_s)
    story.note_partition("q1.1", Note.LOST)


def test_fault_that_began_in_a_long_silence_does_not_excuse_a_jump_of_the_clock() -> None:
    for late_fault in (lambda s: s.network_fails("q1"), lambda s: s.broker_fails()):
        story = Story()

        def lost(story: Story = story, fault: Callable[[Story], None] = late_fault) -> None:
            silent(story, SESSION_S)
            fault(story)
            story.note("q1.1", Note.SILENT, silent_s=2 * SESSION_S)
            story.note_partition("q1.1", Note.LOST)

        assert jumped(story, lost).account().sessions_lost == {SessionLoss.CLOCK: 2}


def test_fault_that_was_over_when_a_heartbeat_was_accepted_excuses_nothing() -> None:
    story = Story()
    story.network_fails("q1")
    story.note("q1.1", Note.BEGINS)
    jumped(story, lambda: silent(story, SESSION_S / 2))
    assert story.account().sessions_lost == {SessionLoss.CLOCK: 1}


@pytest.mark.parametrize(
    ("fault", "loss"),
    [
        (lambda story: story.network_fails("q1"), SessionLoss.NETWORK),
        (lambda story: story.network_fails("q2"), SessionLoss.CLOCK),
        (lambda story: story.broker_fails(), SessionLoss.BROKER),
        (lambda story: story.broker_fails(coordinates=False), SessionLoss.CLOCK),
    ],
)
def test_fault_beside_a_jump_of_the_clock_is_a_cause_if_it_hit_the_member(
    fault: Callable[[Story], None], loss: SessionLoss
) -> None:
    story = Story()

    def lost() -> None:
        fault(story)
        story.note("q1.1", Note.SILENT, silent_s=SESSION_S / 2)
        story.note_partition("q1.1", Note.LOST)

    assert jumped(story, lost).account().sessions_lost == {loss: 1}
