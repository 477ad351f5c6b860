"""What ConsumerGroupDescribe tells about what is still to come, and when it is asked."""

from __future__ import annotations

import pytest

from spark_groups.client.target import (
    DESCRIBE_AGAIN_S,
    DESCRIBE_SPACING_S,
    NOTHING_AGAIN_S,
    NOTHING_BELIEVED_S,
    REFUSED_AGAIN_S,
    TargetWatch,
)
from spark_groups.errors import ErrorCode
from spark_groups.protocol.messages import DescribedMember, DescribeGroupResponse
from spark_groups.types import NO_PARTITIONS, Assignment
from tests.client.hands import parts


def described(
    *, target: Assignment, group_epoch: int = 5, assignment_epoch: int = 5, member_epoch: int = 5
) -> DescribeGroupResponse:
    member = DescribedMember(
        member_id="m1", member_epoch=member_epoch, assignment=target, target_assignment=target
    )
    other = DescribedMember(member_id="m2", member_epoch=9, target_assignment=parts(3))
    return DescribeGroupResponse(
        group_state="Reconciling",
        group_epoch=group_epoch,
        assignment_epoch=assignment_epoch,
        members=(other, member),
    )


def take(
    watch: TargetWatch,
    response: DescribeGroupResponse,
    *,
    owned: Assignment = NO_PARTITIONS,
    now: float = 1.0,
) -> bool | None:
    return watch.handle_response(response, member_id="m1", member_epoch=5, owned=owned, now=now)


def test_nothing_is_asked_before_something_changed() -> None:
    assert TargetWatch().due_at() is None


def test_changes_are_asked_about_soon_but_not_in_a_crowd() -> None:
    watch = TargetWatch()
    watch.changed(1.0)
    assert watch.due_at() == 1.0
    watch.asked(1.0)
    assert watch.due_at() is None
    watch.changed(1.1)
    assert watch.due_at() == pytest.approx(1.0 + DESCRIBE_SPACING_S)


def test_refusal_for_good_is_remembered_and_seldom_asked_about_until_there_is_a_description() -> (
    None
):
    watch = TargetWatch()
    for code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.REQUEST_TIMED_OUT):
        assert take(watch, DescribeGroupResponse(error_code=code)) is None
        assert watch.is_refused
        assert not watch.settled(5)
    watch = TargetWatch()
    take(watch, DescribeGroupResponse(error_code=9999))
    assert watch.due_at() == 1.0 + REFUSED_AGAIN_S
    take(watch, described(target=NO_PARTITIONS))
    assert not watch.is_refused


def test_nothing_is_not_believed_at_once() -> None:
    watch = TargetWatch()
    assert take(watch, described(target=NO_PARTITIONS), now=1.0) is True
    assert not watch.settled(5)
    assert watch.due_at() == 1.0 + NOTHING_AGAIN_S
    assert take(watch, described(target=NO_PARTITIONS), now=1.5) is True
    assert take(watch, described(target=NO_PARTITIONS), now=1.0 + NOTHING_BELIEVED_S) is False
    assert watch.settled(5)


def test_a_share_begins_the_doubt_anew() -> None:
    watch = TargetWatch()
    take(watch, described(target=NO_PARTITIONS), now=1.0)
    assert take(watch, described(target=parts(0)), owned=parts(0), now=1.5) is False
    assert take(watch, described(target=NO_PARTITIONS), now=9.0) is True


def test_pending_is_the_target_without_what_is_owned() -> None:
    watch = TargetWatch()
    assert take(watch, described(target=parts(0, 1)), owned=parts(0)) is True
    assert watch.pending == parts(1)
    assert not watch.settled(5)
    assert watch.due_at() == 1.0 + DESCRIBE_AGAIN_S
    assert (watch.group_epoch, watch.assignment_epoch) == (5, 5)
    assert watch.group_state == "Reconciling"


@pytest.mark.parametrize(("group_epoch", "assignment_epoch"), [(6, 5), (6, 6)])
def test_epoch_that_is_behind_means_more_is_to_come(
    group_epoch: int, assignment_epoch: int
) -> None:
    watch = TargetWatch()
    answer = described(target=parts(0), group_epoch=group_epoch, assignment_epoch=assignment_epoch)
    assert take(watch, answer, owned=parts(0)) is True
    assert not watch.settled(5)


def test_settled_until_the_next_change() -> None:
    watch = TargetWatch()
    assert take(watch, described(target=parts(0)), owned=parts(0)) is False
    assert watch.settled(5)
    assert not watch.settled(6)
    assert watch.due_at() is None
    watch.changed(2.0)
    assert not watch.settled(5)


@pytest.mark.parametrize("member_epoch", [4, 6])
def test_answer_from_another_epoch_settles_nothing(member_epoch: int) -> None:
    """A description may be older than the heartbeat whose answer overtook it."""
    watch = TargetWatch()
    answer = described(
        target=parts(0), group_epoch=4, assignment_epoch=4, member_epoch=member_epoch
    )
    assert take(watch, answer, owned=parts(0)) is True
    assert not watch.settled(5)


@pytest.mark.parametrize(
    "answer",
    [
        DescribeGroupResponse(error_code=ErrorCode.NOT_COORDINATOR),
        DescribeGroupResponse(group_epoch=7, members=()),
    ],
)
def test_answer_without_the_member_tells_nothing_and_is_asked_again(
    answer: DescribeGroupResponse,
) -> None:
    watch = TargetWatch()
    take(watch, described(target=parts(0, 1)), owned=parts(0))
    watch.asked(3.0)
    assert take(watch, answer, now=3.5) is None
    assert watch.pending == parts(1)
    assert watch.due_at() == 3.5 + DESCRIBE_AGAIN_S


def test_question_that_failed_does_not_put_off_a_change_that_came_meanwhile() -> None:
    watch = TargetWatch()
    watch.asked(1.0)
    watch.changed(1.1)
    watch.unanswered(2.0)
    assert watch.due_at() == pytest.approx(1.25)
