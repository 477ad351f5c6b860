"""How long partitions were not read, measured on runs written note by note."""

from __future__ import annotations

import pytest

from workshop.chaos.faults.schedule import MachineFaultKind
from workshop.chaos.results.facts import End, Note
from workshop.chaos.results.recovery import (
    FROZEN_BEYOND,
    FaultRecovery,
    Pause,
    Recovery,
    recoveries,
)
from workshop.tests.chaos.stories import Story

KILLED = "a broker: SIGKILL"
CUT = "network: connections are reset"


def whole(story: Story, number: int, run: str = "q1.1") -> None:
    """Run a batch in six seconds: it begins in the third, and writes in the fifth."""
    story.whole_batch(run, number, range(5 * number, 5 * number + 5))


def of(story: Story, kind: str) -> Recovery:
    (found,) = (each for each in recoveries(story.evidence()).by_kind if each.kind == kind)
    return found


def test_recovery_is_counted_from_the_fault_to_the_rows_that_were_read_after_it() -> None:
    story = Story()
    whole(story, 0)
    story.broker_fails(KILLED)
    whole(story, 1)
    # It began at 8 and was in sync at 11; the batch wrote at 16, and was committed at 18.
    assert of(story, KILLED) == Recovery(KILLED, 1, 0, 8.0, 8.0, 10.0, 10.0)
    faults = recoveries(story.evidence()).faults
    assert faults == (FaultRecovery(KILLED, "broker 2", 8.0, 8.0, 10.0),)


def test_recovery_from_a_full_disk_needs_a_batch_that_began_when_there_was_room() -> None:
    story = Story()
    whole(story, 0)
    full = MachineFaultKind.CHECKPOINT_FULL
    story.machine_fails(full, lambda: story.write("q1.1", 1, range(5, 10)))
    whole(story, 2)
    # It was full from 7 to 11; the batch that finished wrote at 16, and was committed at 18.
    assert of(story, full.value) == Recovery(full.value, 1, 0, 9.0, 9.0, 11.0, 11.0)


def test_batch_that_began_before_the_fault_proves_nothing() -> None:
    story = Story()
    whole(story, 0)
    story.plan("q1.1", 1)
    story.note("q1.1", Note.READS, batch=1, plan="plan 1 of q1.1", replay=False)
    story.broker_fails(KILLED)
    story.note("q1.1", Note.WRITES, batch=1)
    assert of(story, KILLED) == Recovery(KILLED, 0, 1, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("is_theirs", [True, False])
def test_end_of_a_process_counts_for_the_partitions_that_it_wrote_last(is_theirs: bool) -> None:
    story = Story()
    whole(story, 0, "q1.1")
    story.ends("q1.1" if is_theirs else "q3.1")
    whole(story, 1, "q2.1")
    found = recoveries(story.evidence()).by_kind
    expected = Recovery(End.KILLED.value, 1, 0, 5.0, 5.0, 7.0, 7.0)
    assert found == ((expected,) if is_theirs else ())


def test_process_that_stood_still_beyond_its_session() -> None:
    story = Story()
    whole(story, 0)
    story.note("q1.1", Note.FROZE)
    for number in (1, 2):
        whole(story, number, "q2.1")
    story.note("q1.1", Note.THAWED)
    assert of(story, FROZEN_BEYOND).reads_max_s == 5.0


def test_longest_pause_is_that_of_a_process_with_no_fault() -> None:
    story = Story()
    whole(story, 0)
    for _ in range(20):
        story.note("q2.1", Note.BEGINS)
    whole(story, 1)
    found = recoveries(story.evidence())
    assert found.unaffected == Pause(27.0, ("ants", 0), "q1.1", 5.0)
    assert found.neighbour == Pause()


@pytest.mark.parametrize("is_theirs", [True, False])
def test_fault_of_the_network_counts_for_the_partitions_of_its_members(is_theirs: bool) -> None:
    story = Story()
    whole(story, 0, "q1.1")
    story.network_fails("q1" if is_theirs else "q2", kind=CUT)
    whole(story, 1, "q2.1")
    found = recoveries(story.evidence()).by_kind
    # It began at 7; the batch wrote at 13, and was committed at 15.
    assert found == ((Recovery(CUT, 1, 0, 6.0, 6.0, 8.0, 8.0),) if is_theirs else ())


@pytest.mark.parametrize(
    "what", ["slow", "frozen", "cut off", "led by a broker with a fault", "gone"]
)
def test_pause_with_a_cause_is_not_counted(what: str) -> None:
    story = Story()
    whole(story, 0)
    match what:
        case "slow":
            story.note("q1.1", Note.SLOWED, takes_s=5.0)
        case "frozen":
            story.note("q1.1", Note.FROZE)
            story.note("q1.1", Note.THAWED)
        case "cut off":
            story.network_fails("q1")
        case "gone":
            story.note_partition("q1.1", Note.REVOKED)
        case _:
            story.broker_fails()
    whole(story, 1)
    assert recoveries(story.evidence()).unaffected == Pause()


def test_broker_that_led_nothing_of_the_batch_is_no_excuse() -> None:
    story = Story()
    whole(story, 0)
    story.broker_fails(leads=False)
    whole(story, 1)
    assert recoveries(story.evidence()).unaffected.takes_s == 11.0
