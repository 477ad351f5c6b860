"""How long an instance id is waited for, and how often that is said."""

from __future__ import annotations

from spark_groups.protocol.instance import EXPIRY_S, SAY_AGAIN_S, InstanceWait

HELD = "the instance id is owned by a member."


def test_wait_is_said_at_once_and_then_now_and_again() -> None:
    wait = InstanceWait()
    said = [second for second in range(35) if wait.refused(HELD, 100.0 + second)]
    assert said == [0, SAY_AGAIN_S, 2 * SAY_AGAIN_S, 3 * SAY_AGAIN_S]
    assert wait.began_at() == 100.0


def test_deadline_counts_from_the_first_refusal_and_ends_with_the_wait() -> None:
    wait = InstanceWait()
    assert (wait.is_waiting, wait.deadline(45_000)) == (False, None)
    wait.refused(HELD, 5.0)
    wait.refused(HELD, 9.0)
    assert wait.deadline(45_000) == 50.0 + EXPIRY_S
    wait.ended()
    assert (wait.is_waiting, wait.deadline(45_000)) == (False, None)
    assert wait.refused(HELD, 70.0), "the next wait is said anew"
    assert wait.deadline(1_000) == 71.0 + EXPIRY_S


def test_another_holder_is_waited_for_once_more_and_no_third_one() -> None:
    wait = InstanceWait()
    assert wait.refused("owned by a", 0.0)
    assert wait.refused("owned by b", 4.0), "a new deadline is said"
    assert wait.deadline(10_000) == 14.0 + EXPIRY_S
    assert not wait.refused("owned by c", 5.0)
    assert not wait.refused("owned by a", 6.0)
    assert wait.deadline(10_000) == 14.0 + EXPIRY_S
