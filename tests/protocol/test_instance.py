"""How long an instance id is waited for, and how often that is said."""

from __future__ import annotations

from spark_groups.protocol.instance import EXPIRY_S, SAY_AGAIN_S, InstanceWait


def test_wait_is_said_at_once_and_then_now_and_again() -> None:
    wait = InstanceWait()
    said = [second for second in range(35) if wait.refused(100.0 + second)]
    assert said == [0, SAY_AGAIN_S, 2 * SAY_AGAIN_S, 3 * SAY_AGAIN_S]
    assert wait.began_at() == 100.0


def test_deadline_counts_from_the_first_refusal_and_ends_with_the_wait() -> None:
    wait = InstanceWait()
    assert (wait.is_waiting, wait.deadline(45_000)) == (False, None)
    wait.refused(5.0)
    wait.refused(9.0)
    assert wait.deadline(45_000) == 95.0 + EXPIRY_S
    wait.ended()
    assert (wait.is_waiting, wait.deadline(45_000)) == (False, None)
    assert wait.refused(70.0), "the next wait is said anew"
    assert wait.deadline(1_000) == 72.0 + EXPIRY_S
