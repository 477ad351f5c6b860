"""Each exception of a checker is limited to its member and its time."""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from group_lab.coordinator.topic_images import TopicImage
from group_lab.sim import facts
from group_lab.sim.checkers.checker import BrokenInvariantError
from group_lab.sim.checkers.failures import ABSENCE_AGE_S, FullHeartbeats, NoFinalFailure
from group_lab.sim.checkers.ownership import OnlyAssigned, SingleOwner
from group_lab.sim.history import History
from lab.tests.sim.scenes import scene
from spark_groups.group.member.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import Assignment, BatchPlan, OffsetRange, TopicIdPartition

KEY = TopicIdPartition(uuid.UUID(int=1), 0)
CLIENT: Any = SimpleNamespace()


def beat(**said: Any) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", member_id="q1.1.1", member_epoch=1, **said)


def test_a_full_heartbeat_also_has_topics_and_a_rebalance_timeout() -> None:
    owned = Assignment(frozenset())
    full = beat(topic_partitions=owned, subscribed_topic_names=("a",), rebalance_timeout_ms=1000)
    listeners = FullHeartbeats(scene(), History()).listeners()
    for request in (full, beat(topic_partitions=owned)):
        listeners[facts.Unanswered](facts.Unanswered("q1.1", beat()))
        sent = facts.Sent("q1.1", Outgoing(Channel.HEARTBEAT, request))
        if request.is_full:
            listeners[facts.Sent](sent)
            continue
        with pytest.raises(BrokenInvariantError, match="sends no full one"):
            listeners[facts.Sent](sent)


def test_only_the_last_assignment_is_planned() -> None:
    listeners = OnlyAssigned(scene(), History()).listeners()
    plan = BatchPlan("g", "q1.1.1", 1, (OffsetRange(KEY.topic_id, "a", 0, 0, 5),))
    triggered = facts.Triggered("q1", CLIENT, plan)

    def answer(assignment: Assignment | None) -> None:
        response = HeartbeatResponse(assignment=assignment)
        listeners[facts.Answered](facts.Answered("q1.1", beat(), response))

    answer(Assignment(frozenset({KEY})))
    answer(None)
    listeners[facts.Triggered](triggered)
    answer(Assignment(frozenset()))
    with pytest.raises(BrokenInvariantError, match="which it is not assigned"):
        listeners[facts.Triggered](triggered)


def test_a_recreated_topic_does_not_count_as_missing_for_ever() -> None:
    found = scene()
    listeners = NoFinalFailure(found, History()).listeners()
    name = sorted(found.storage.image.by_name)[0]
    listeners[facts.Deleted](facts.Deleted(TopicImage(KEY.topic_id, name, 1)))
    unavailable = facts.Unavailable("q1", f"there is no {name}")
    listeners[facts.Unavailable](unavailable)
    listeners[facts.Triggered](facts.Triggered("q1", CLIENT, None))
    found.schedule.run_until(2 * ABSENCE_AGE_S)
    # No plan was made meanwhile: the member reports an old answer.
    listeners[facts.Unavailable](unavailable)
    listeners[facts.Triggered](facts.Triggered("q1", CLIENT, None))
    with pytest.raises(BrokenInvariantError, match="no topic was missing"):
        listeners[facts.Unavailable](unavailable)


def test_a_member_that_a_copy_of_its_checkpoint_removed_may_plan_until_its_next_answer() -> None:
    found = scene()
    listeners = SingleOwner(found, History()).listeners()
    plan = BatchPlan("g", "q1.1.1", 1, (OffsetRange(KEY.topic_id, "a", 0, 0, 5),))
    triggered = facts.Triggered("q1", CLIENT, plan)
    with pytest.raises(BrokenInvariantError, match="but None holds it"):
        listeners[facts.Triggered](triggered)
    found.late.copied_member_ids.add("q1.1.1")
    listeners[facts.Triggered](triggered)
    other = facts.Triggered("q2", CLIENT, replace(plan, member_id="q2.1.1"))
    with pytest.raises(BrokenInvariantError, match=r"as q2\.1\.1"):
        listeners[facts.Triggered](other)
