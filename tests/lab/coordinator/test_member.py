"""A member as the coordinator has it."""

from __future__ import annotations

import pytest

from spark_groups.lab.coordinator.member import GroupMember, ReconciliationState
from spark_groups.types import Assignment, TopicId, TopicIdPartition

KEY = TopicIdPartition(TopicId(int=1), 0)


@pytest.mark.parametrize(
    ("state", "member_epoch", "is_reconciled"),
    [
        (ReconciliationState.STABLE, 3, True),
        (ReconciliationState.STABLE, 2, False),
        (ReconciliationState.UNREVOKED_PARTITIONS, 3, False),
        (ReconciliationState.UNRELEASED_PARTITIONS, 3, False),
        (ReconciliationState.UNKNOWN, 3, False),
    ],
)
def test_a_member_is_reconciled_once_it_is_stable_at_the_epoch(
    state: ReconciliationState, member_epoch: int, is_reconciled: bool
) -> None:
    member = GroupMember(member_id="m", member_epoch=member_epoch, state=state)
    assert member.is_reconciled_to(3) == is_reconciled


def test_only_epoch_minus_two_is_away() -> None:
    away = [each for each in range(-2, 3) if GroupMember(member_id="m", member_epoch=each).is_away]
    assert away == [-2]


def test_what_it_may_use_is_not_what_it_has_to_give_up() -> None:
    member = GroupMember(
        member_id="m",
        assigned={KEY: 1},
        pending_revocation={TopicIdPartition(KEY.topic_id, 1): 1},
    )
    assert member.assignment == Assignment(frozenset({KEY}))
