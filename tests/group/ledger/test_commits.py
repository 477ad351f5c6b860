"""Offset commits: in flight, their outcome, and retries."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_groups.errors import ErrorCode, Reaction
from spark_groups.group.ledger.commit_metadata import commit_metadata, partition_count_in
from spark_groups.group.ledger.commits import (
    MAX_PARTITIONS_PER_COMMIT,
    CommitOutcome,
    CommitQueue,
    PendingCommit,
    commit_request,
)
from spark_groups.group.member.messages import OffsetAndMetadata, OffsetCommitResponse
from spark_groups.types import TopicIdPartition

TOPIC = uuid.UUID(int=1)


def key(partition: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, partition)


def commit(partition: int = 0, offset: int = 10, epoch: int = 3, tenure: int = 1) -> PendingCommit:
    return PendingCommit(key(partition), tenure, epoch, offset, 4, mark=f"at{offset}")


def stored(offset: int, mark: str | None = None) -> OffsetAndMetadata:
    """An offset as the coordinator stores it, with the mark of `commit` unless another is given."""
    known = commit_metadata(4, mark=mark or f"at{offset}", offset=offset)
    return OffsetAndMetadata(offset, known)


def poll(
    queue: CommitQueue,
    now: float = 0.0,
    *,
    epoch: int = 3,
    proven_at: float | None = None,
    tenure: Callable[[TopicIdPartition], int | None] = lambda _: 1,
) -> dict[int, int]:
    """What goes out: offsets by partition."""
    chosen = queue.poll(now, member_epoch=epoch, proven_at=proven_at, tenure=tenure)
    return {each.partition: value.committed_offset for each, value in chosen.items()}


def answer(
    queue: CommitQueue, codes: dict[int, int] | None = None, now: float = 0.0
) -> CommitOutcome:
    """Answer the request in flight; partitions that are not named are accepted."""
    errors = dict.fromkeys(queue.pending(), 0) | {
        key(index): int(code) for index, code in (codes or {}).items()
    }
    return queue.handle_response(OffsetCommitResponse(errors=errors), now)


def with_a_doubtful_commit() -> CommitQueue:
    """A commit that was sent twice: the first request may still arrive, the second was answered."""
    queue = CommitQueue()
    queue.add([commit(0)])
    poll(queue)
    queue.handle_failure(0.0, may_have_arrived=True)
    poll(queue, 1.0)
    answer(queue)
    return queue


def test_one_request_at_a_time() -> None:
    queue = CommitQueue()
    assert (poll(queue), queue.next_wakeup()) == ({}, None)
    queue.add([commit(0)])
    assert queue.next_wakeup() == 0.0
    assert poll(queue) == {0: 10}
    queue.add([commit(1)])
    assert poll(queue) == {}
    assert queue.next_wakeup() is None
    assert queue.pending() == {key(0), key(1)}
    assert answer(queue).accepted == (commit(0),)
    assert poll(queue) == {1: 10}


def test_at_most_a_thousand_partitions_in_a_request() -> None:
    queue = CommitQueue()
    queue.add([commit(index) for index in range(2 * MAX_PARTITIONS_PER_COMMIT + 1)])
    counts = []
    while queue.pending():
        counts.append(len(poll(queue)))
        answer(queue)
    assert counts == [1_000, 1_000, 1]


def test_one_epoch_in_a_request() -> None:
    queue = CommitQueue()
    queue.add([commit(0, epoch=3), commit(1, epoch=4), commit(2, epoch=3)])
    assert poll(queue) == {0: 10, 2: 10}
    answer(queue)
    assert poll(queue) == {1: 10}


def test_partition_whose_tenure_is_over_is_taken_out() -> None:
    queue = CommitQueue()
    queue.add([commit(0), commit(1), commit(2)])
    tenures = {0: 1, 1: None, 2: 2}
    assert poll(queue, tenure=lambda each: tenures[each.partition]) == {0: 10}
    answer(queue)
    assert not queue.pending()


def test_later_offset_takes_the_place_of_an_earlier_one() -> None:
    queue = CommitQueue()
    queue.add([commit(0, 10)])
    queue.add([commit(0, 20, epoch=4)])
    assert poll(queue) == {0: 20}


def test_later_offset_waits_for_the_one_under_way_and_survives_its_refusal() -> None:
    queue = CommitQueue()
    queue.add([commit(0, 10)])
    poll(queue)
    queue.add([commit(0, 20)])
    answer(queue, {0: ErrorCode.STALE_MEMBER_EPOCH})
    assert poll(queue) == {0: 20}
    assert answer(queue).accepted == (commit(0, 20),)
    assert not queue.pending()


def test_refused_as_stale_waits_for_a_heartbeat_sent_since_and_takes_its_epoch() -> None:
    queue = CommitQueue()
    queue.add([commit(0), commit(1)])
    poll(queue)
    outcome = answer(
        queue, {0: ErrorCode.STALE_MEMBER_EPOCH, 1: ErrorCode.STALE_MEMBER_EPOCH}, now=5.0
    )
    assert (outcome.refused, outcome.reaction, queue.refused) == (2, Reaction.ACCEPT, 2)
    assert poll(queue, 6.0, epoch=4) == {}
    assert poll(queue, 6.0, epoch=4, proven_at=4.9) == {}
    chosen = queue.poll(6.0, member_epoch=4, proven_at=5.1, tenure=lambda _: 1)
    assert {each.member_epoch for each in chosen.values()} == {4}
    assert answer(queue).accepted == tuple(chosen.values())


def test_refused_ones_do_not_keep_others_waiting() -> None:
    queue = CommitQueue()
    queue.add([commit(0)])
    poll(queue)
    answer(queue, {0: ErrorCode.STALE_MEMBER_EPOCH}, now=5.0)
    queue.add([commit(1, epoch=3)])
    assert poll(queue, 5.0) == {1: 10}


def test_refused_partition_that_is_lost_meanwhile_is_not_sent_again() -> None:
    queue = CommitQueue()
    queue.add([commit(0), commit(1)])
    poll(queue)
    answer(queue, {0: ErrorCode.STALE_MEMBER_EPOCH, 1: ErrorCode.STALE_MEMBER_EPOCH}, now=5.0)
    assert poll(
        queue, 6.0, epoch=4, proven_at=5.5, tenure=lambda each: 1 if each.partition else None
    ) == {1: 10}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_refused_for_now_is_sent_again_after_a_pause_that_grows(code: ErrorCode) -> None:
    queue, now, pauses = CommitQueue(), 0.0, []
    queue.add([commit(0)])
    for _ in range(6):
        assert poll(queue, now) == {0: 10}
        outcome = answer(queue, {0: code}, now)
        assert outcome.reaction in (Reaction.RETRY, Reaction.REDISCOVER)
        assert outcome.error == code
        wake_at = queue.next_wakeup()
        assert wake_at is not None
        assert poll(queue, wake_at - 0.01) == {}
        pauses.append(wake_at - now)
        now = wake_at
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_partition_the_answer_forgot_is_sent_again() -> None:
    queue = CommitQueue()
    queue.add([commit(0), commit(1)])
    poll(queue)
    outcome = queue.handle_response(OffsetCommitResponse(errors={key(1): 0}), 0.0)
    assert outcome.accepted == (commit(1),)
    assert queue.pending() == {key(0)}


def test_topic_that_is_gone_is_dropped() -> None:
    queue = CommitQueue()
    queue.add([commit(0), commit(1)])
    poll(queue)
    outcome = answer(queue, {0: ErrorCode.UNKNOWN_TOPIC_ID})
    assert (outcome.gone, outcome.accepted) == ((commit(0),), (commit(1),))
    assert not queue.pending()


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, Reaction.REJOIN_NEW_ID),
        (ErrorCode.FENCED_MEMBER_EPOCH, Reaction.REJOIN_SAME_ID),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Reaction.FAIL),
        (12_345, Reaction.FAIL),
    ],
)
def test_what_concerns_the_whole_member_is_reported(code: int, reaction: Reaction) -> None:
    queue = CommitQueue()
    queue.add([commit(0)])
    poll(queue)
    outcome = answer(queue, {0: code})
    assert (outcome.reaction, outcome.error) == (reaction, code)


def test_commit_that_may_have_arrived_counts_only_once_it_is_looked_up() -> None:
    queue = CommitQueue()
    queue.add([commit(0)])
    poll(queue)
    queue.handle_failure(0.0, may_have_arrived=True)
    assert poll(queue, 1.0) == {0: 10}
    assert answer(queue).accepted == ()
    assert queue.unverified() == queue.pending() == {key(0)}
    assert poll(queue, 2.0) == {}
    assert queue.verified(key(0), stored(10)) == replace(commit(0), uncertain=True)
    assert not queue.pending()
    assert queue.verified(key(0), stored(10)) is None


def test_commit_of_another_member_at_the_same_offset_does_not_count() -> None:
    queue = with_a_doubtful_commit()
    assert queue.verified(key(0), stored(10, "of another member")) is None
    assert poll(queue, 2.0) == {0: 10}


def test_commit_that_was_overtaken_by_an_older_one_is_sent_again_and_looked_up_again() -> None:
    queue = with_a_doubtful_commit()
    assert queue.verified(key(0), stored(7)) is None
    assert poll(queue, 2.0) == {0: 10}
    answer(queue)
    assert queue.unverified() == {key(0)}


def test_commit_that_never_left_needs_no_look_up() -> None:
    queue = CommitQueue()
    queue.add([commit(0)])
    poll(queue)
    queue.handle_failure(0.0, may_have_arrived=False)
    poll(queue, 1.0)
    assert answer(queue).accepted == (commit(0),)


@pytest.mark.parametrize("when", ["queued", "under way", "accepted"])
def test_later_offset_takes_over_the_doubt_about_an_earlier_one(when: str) -> None:
    """The older request may still arrive, after the newer one: so that is looked up as well."""
    queue = CommitQueue()
    queue.add([commit(0, 10)])
    poll(queue)
    queue.handle_failure(0.0, may_have_arrived=True)
    if when != "queued":
        poll(queue, 1.0)
    if when == "accepted":
        answer(queue)
    queue.add([commit(0, 20)])
    if when == "under way":
        assert answer(queue).accepted == (replace(commit(0, 10), uncertain=True),)
    assert poll(queue, 2.0) == {0: 20}
    assert answer(queue).accepted == ()
    assert queue.verified(key(0), stored(20)) == replace(commit(0, 20), uncertain=True)


def test_dropped_commits_are_forgotten_in_every_state() -> None:
    queue = with_a_doubtful_commit()
    queue.add([commit(1)])
    poll(queue, 1.0)
    queue.add([commit(2)])
    assert {each.key for each in queue.drop([key(0), key(1), key(2), key(3)])} == {
        key(0),
        key(1),
        key(2),
    }
    assert not queue.pending()
    assert answer(queue, {1: ErrorCode.UNKNOWN_MEMBER_ID}).reaction is Reaction.ACCEPT


def test_request_carries_the_epoch_of_the_plan_and_the_partition_count() -> None:
    request = commit_request({key(0): commit(0)}, group_id="g", member_id="m", instance_id="i")
    assert (request.group_id, request.member_id, request.instance_id) == ("g", "m", "i")
    assert request.member_epoch == 3
    (value,) = request.offsets.values()
    assert value.committed_offset == 10
    assert partition_count_in(value.metadata) == 4


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_of_several_reactions_the_gravest_counts(turn: int) -> None:
    codes = [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    queue = CommitQueue()
    queue.add([commit(index) for index in range(3)])
    poll(queue)
    outcome = answer(queue, dict(enumerate(codes[turn:] + codes[:turn])))
    assert (outcome.reaction, outcome.error) == (Reaction.FAIL, codes[1])
