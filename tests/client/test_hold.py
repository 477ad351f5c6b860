"""What a rebalance listener may hold, and for how long."""

from __future__ import annotations

import pytest

from spark_groups.client import Lane
from spark_groups.client.hold import RevocationHold
from spark_groups.offsets.events import PartitionsGivenUp, RevocationHeld
from spark_groups.offsets.planning import PlanLimit
from spark_groups.protocol import messages as m
from spark_groups.protocol.events import PartitionsRevoked
from spark_groups.protocol.membership import MemberState
from tests.client.hands import Hands, accepted, all_of, ends, key, parts


def test_nothing_is_held_for_nobody() -> None:
    hold = RevocationHold()
    assert hold.begin(parts(1), 9.0, 0.0) is None
    assert not hold.holds()


def test_a_revocation_is_held_until_it_is_released() -> None:
    hold = RevocationHold()
    hold.is_wanted = True
    held = hold.begin(parts(1, 2), 9.0, 1.0)
    assert held == RevocationHeld(1.0, 1, (key(1), key(2)), 9.0)
    assert hold.begin(parts(1, 2), 9.0, 2.0) is None, "told once"
    hold.release(7)
    assert hold.holds()
    hold.release(1)
    assert not hold.holds()


def test_more_to_give_up_is_another_revocation() -> None:
    hold = RevocationHold()
    hold.is_wanted = True
    hold.begin(parts(1), 9.0, 0.0)
    held = hold.begin(parts(1, 2), 9.0, 1.0)
    assert held is not None
    assert held.number == 2
    hold.release(1)
    assert hold.holds()


def test_a_listener_that_is_gone_holds_nothing() -> None:
    hold = RevocationHold()
    hold.is_wanted = True
    hold.begin(parts(1), 9.0, 0.0)
    hold.is_wanted = False
    assert not hold.holds()


def test_the_same_partitions_can_be_revoked_again() -> None:
    hold = RevocationHold()
    hold.is_wanted = True
    hold.begin(parts(1), 9.0, 0.0)
    hold.forget()
    assert not hold.holds()
    assert hold.begin(parts(1), 19.0, 10.0) is not None


def revoking(rebalance_timeout_ms: int = 10_000) -> Hands:
    """A client that is to give up partition 1, which no batch reads, and for which one listens."""
    hands = Hands(rebalance_timeout_ms=rebalance_timeout_ms)
    hands.own(0, 1)
    hands.client.hold_revocations(True, hands.now)
    hands.beat(accepted(2, parts(0)))
    return hands


def test_the_acknowledgement_waits_for_the_listener() -> None:
    hands = revoking()
    hands.wait(5.0)
    assert hands.client.member.state is MemberState.RECONCILING
    (held,) = hands.find(RevocationHeld)
    assert isinstance(held, RevocationHeld)
    assert (held.partitions, held.release_by - held.at) == ((key(1),), pytest.approx(9.0))
    hands.client.release_revocation(held.number, hands.now)
    assert hands.client.member.state is MemberState.ACKNOWLEDGING
    hands.pump()
    assert len(hands.find(PartitionsRevoked)) == 1


def test_the_acknowledgement_waits_no_longer_than_its_budget() -> None:
    hands = revoking()
    (held,) = hands.find(RevocationHeld)
    while not hands.find(PartitionsRevoked):
        hands.until(m.HeartbeatRequest)
        hands.wait(0.05)
        if Lane.HEARTBEAT in hands.under_way and not hands.find(PartitionsRevoked):
            hands.answer(Lane.HEARTBEAT, accepted(2))
    (revoked,) = hands.find(PartitionsRevoked)
    assert isinstance(held, RevocationHeld)
    assert revoked.at == pytest.approx(held.release_by)
    assert not hands.find(PartitionsGivenUp), "nothing uncommitted was in it"


def test_the_acknowledgement_follows_at_once_when_the_listener_dies() -> None:
    hands = revoking()
    hands.client.hold_revocations(False, hands.now)
    assert hands.client.member.state is MemberState.ACKNOWLEDGING


def test_the_listener_is_told_only_when_the_batch_is_committed() -> None:
    hands = Hands()
    hands.own(0, 1)
    hands.client.hold_revocations(True, hands.now)
    plan = hands.client.plan(PlanLimit(), ends({0: 5, 1: 5}), hands.now)
    assert plan is not None
    hands.pump()
    hands.beat(accepted(2, parts(0)))
    assert not hands.find(RevocationHeld)
    hands.client.finish(plan, hands.now)
    hands.pump()
    assert not hands.find(RevocationHeld)
    hands.answer(Lane.OFFSETS, all_of(hands.until(m.OffsetCommitRequest)))
    assert len(hands.find(RevocationHeld)) == 1
    assert hands.client.member.state is MemberState.RECONCILING
