"""Which positions may be planned from after their leader changed, and which logs were truncated."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest

from spark_groups.errors import ErrorCode, Reaction
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import Ledger, OwnedPartition, Phase
from spark_groups.group.ledger.truncation import DOUBT_S, PositionValidator
from spark_groups.group.member.messages import EpochEnd, EpochLookup, TopicMetadata
from spark_groups.types import Assignment, BatchPlan, OffsetRange, TopicIdPartition
from tests.answers import epoch_answer, list_answer

TOPIC = uuid.UUID(int=1)


def key(partition: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, partition)


class Scene:
    """Partitions that are ready, at positions with leader epochs."""

    def __init__(self, stands: Mapping[int, tuple[int, int]], *, fails: bool = True) -> None:
        self.ledger, topics = Ledger("run"), TopicDirectory()
        topics.learn(TopicMetadata(TOPIC, "orders", 4))
        self.validator = PositionValidator(self.ledger, topics, fails)
        self.ledger.assign(Assignment.of({TOPIC: stands}), 3)
        for partition, (position, leader_epoch) in stands.items():
            self.of(partition).stand_at(position, leader_epoch, f"at{position}")
            self.of(partition).phase = Phase.READY

    def of(self, partition: int) -> OwnedPartition:
        return self.ledger.owned[key(partition)]

    def stand(self, partition: int) -> tuple[int, int]:
        return self.of(partition).position, self.of(partition).leader_epoch

    def listed(self, ends: Mapping[int, tuple[int, int]], now: float = 1.0):
        """Take ends with leader epochs; what may be planned, and why the query must fail."""
        epochs = {key(each): epoch for each, (_, epoch) in ends.items()}
        self.validator.compare({key(each): end for each, (end, _) in ends.items()}, epochs)
        usable, resolved = self.validator.usable(
            self.ledger.positions(Assignment(frozenset(self.ledger.owned))),
            {key(each): end for each, (end, _) in ends.items()},
            epochs,
            now,
        )
        return {each.partition: position for each, position in usable.items()}, resolved

    def whole_log(self, partition: int, end: int, leader_epoch: int, now: float):
        """Take the end of a whole log, of what transactions have not decided, too."""
        response = list_answer(
            offsets={key(partition): end}, leader_epochs={key(partition): leader_epoch}
        )
        return self.validator.handle_list(response, now)

    def answered(
        self, ends: Mapping[int, tuple[int, int]], errors: Mapping[int, int] | None = None
    ):
        """Take how far epochs reach."""
        request = self.validator.to_ask()
        assert request is not None
        response = epoch_answer(
            ends={key(each): EpochEnd(*end) for each, end in ends.items()},
            errors={key(each): int(code) for each, code in (errors or {}).items()},
        )
        return self.validator.handle_ends(request, response, 2.0)


def test_nothing_is_asked_while_leaders_stay() -> None:
    scene = Scene({0: (5, 2), 1: (7, 3)})
    usable, resolved = scene.listed({0: (9, 2), 1: (7, 3)})
    assert usable == {0: 5, 1: 7}
    assert not resolved.events
    assert scene.validator.to_ask() is None
    assert not scene.validator.is_waiting


def test_position_without_an_epoch_takes_that_of_the_first_end_above_it() -> None:
    scene = Scene({0: (5, -1), 1: (5, -1)})
    usable, _ = scene.listed({0: (5, 4), 1: (4, 4)})
    assert usable == {0: 5}
    assert (scene.stand(0), scene.stand(1)) == ((5, 4), (5, -1))


def test_new_leader_is_asked_before_the_partition_is_planned() -> None:
    scene = Scene({0: (5, 2), 1: (7, 3)})
    usable, _ = scene.listed({0: (99, 4), 1: (9, 3)})
    assert usable == {1: 7}, "the others continue"
    assert scene.of(0).phase is Phase.VALIDATING
    request = scene.validator.to_ask()
    assert request is not None
    assert request.lookups == {key(0): EpochLookup(2, 4)}
    assert scene.answered({0: (5, 2)}).data_loss is None
    assert not scene.validator.is_waiting
    assert scene.stand(0) == (5, 4)
    assert scene.listed({0: (99, 4), 1: (9, 3)})[0] == {0: 5, 1: 7}


def test_log_that_left_the_epoch_below_the_position_was_truncated() -> None:
    scene = Scene({0: (8, 2)})
    scene.listed({0: (99, 4)})
    resolved = scene.answered({0: (5, 1)})
    assert resolved.data_loss is not None
    assert "orders-0 was truncated" in resolved.data_loss
    assert "[5, 8)" in resolved.data_loss
    assert "under leader epoch 2" in resolved.data_loss
    assert "leader epoch 4 diverges from it at 5" in resolved.data_loss
    assert scene.listed({0: (99, 4)})[0] == {}, "it is not planned from where it stood"


def test_without_fail_on_data_loss_a_truncated_log_is_read_from_its_end() -> None:
    scene = Scene({0: (8, 2)}, fails=False)
    scene.listed({0: (99, 4)})
    resolved = scene.answered({0: (5, 1)})
    assert resolved.data_loss is None
    assert len(resolved.events) == 1
    assert scene.stand(0) == (5, 4)
    assert resolved.to_commit == [key(0)]
    commit = scene.ledger.commit_of_position(key(0), 3)
    assert (commit.committed_offset, commit.is_truncated) == (5, True)
    assert scene.listed({0: (99, 4)})[0] == {}, "it is not planned before that is committed"


def test_leader_that_does_not_know_is_believed_by_its_end() -> None:
    scene = Scene({0: (8, 2)})
    scene.listed({0: (99, 4)})
    assert scene.answered({0: (-1, -1)}).data_loss is None
    assert scene.stand(0) == (8, 4)


def test_only_offsets_of_the_known_leader_epoch_are_compared() -> None:
    """The end of an inherited run may lie in an epoch that began after the committed offset."""
    scene = Scene({0: (5, 2)})
    scene.of(0).position = 9
    scene.listed({0: (12, 4)})
    assert scene.answered({0: (6, 2)}).data_loss is None
    assert scene.stand(0) == (9, 4)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_leader_that_refuses_is_asked_again(code: ErrorCode) -> None:
    scene = Scene({0: (8, 2)})
    scene.listed({0: (99, 4)})
    resolved = scene.answered({}, {0: code})
    assert (resolved.reaction, resolved.error) == (Reaction.REFRESH_TOPICS, code)
    assert scene.validator.to_ask() is not None


def test_answer_about_an_earlier_tenure_says_nothing() -> None:
    scene = Scene({0: (8, 2)})
    scene.listed({0: (99, 4)})
    request = scene.validator.to_ask()
    assert request is not None
    scene.ledger.drop([key(0)])
    scene.ledger.assign(Assignment.of({TOPIC: (0,)}), 5)
    response = epoch_answer(ends={key(0): EpochEnd(3, 2)})
    assert scene.validator.handle_ends(request, response, 2.0).data_loss is None
    assert scene.of(0).phase is Phase.FETCHING


def test_word_of_an_old_leader_is_not_taken_and_not_waited_out_for_ever() -> None:
    scene = Scene({0: (8, 6)})
    assert scene.listed({0: (99, 4)}, 1.0)[0] == {}
    assert scene.listed({0: (99, 4)}, 1.0 + DOUBT_S - 0.1)[0] == {}
    assert scene.listed({0: (99, 4)}, 1.0 + DOUBT_S)[0] == {}
    assert scene.listed({0: (99, 4)}, 1.1 + DOUBT_S)[0] == {0: 8}
    assert scene.stand(0) == (8, 4)


def test_leader_that_became_known_after_the_comparison_is_not_doubted() -> None:
    scene = Scene({0: (100, 3)})
    for now in (1.0, 2.0 + DOUBT_S):
        usable, resolved = scene.validator.usable({key(0): 100}, {key(0): 150}, {key(0): 4}, now)
        assert not usable
        assert resolved.data_loss is None
        assert not resolved.events


def test_log_does_not_shrink_under_one_leader() -> None:
    """A last stable offset below the position is waited for."""
    scene = Scene({0: (8, 2)})
    for now in (1.0, 2.0 + DOUBT_S, 9.0 * DOUBT_S):
        usable, resolved = scene.listed({0: (5, 2)}, now)
        assert (usable, resolved.data_loss) == ({}, None)


@pytest.mark.parametrize("epochs", [(-1, -1), (2, -1), (-1, 2)])
def test_end_below_the_position_is_doubted_then_believed_where_epochs_are_not_known(
    epochs: tuple[int, int],
) -> None:
    known, listed = epochs
    scene = Scene({0: (8, known)})
    assert scene.listed({0: (5, listed)}, 1.0)[1].data_loss is None
    assert scene.listed({0: (5, listed)}, 0.9 + DOUBT_S)[1].data_loss is None
    if known < 0:
        scene.whole_log(0, 5, listed, 1.0 + DOUBT_S)
    _, resolved = scene.listed({0: (5, listed)}, 1.0 + DOUBT_S)
    assert resolved.data_loss is not None
    assert "orders-0 ends at 5" in resolved.data_loss


RUN = BatchPlan("g", "before", 2, (OffsetRange(TOPIC, "orders", 0, 8, 12),), marks=("at8",))


@pytest.mark.parametrize(
    ("listed", "ready", "asks_again"),
    [
        ((40, 2), True, False),
        ((40, 3), False, False),
        ((40, 1), True, True),
        ((40, -1), True, False),
    ],
)
def test_finished_runs_ask_for_the_leader_of_the_moment_without_a_plan(
    listed: tuple[int, int], ready: bool, asks_again: bool
) -> None:
    """Same leader; a new one, which has to confirm; an old one; one that does not say."""
    scene = Scene({0: (8, 2), 1: (5, 2)})
    scene.of(0).committed_offset, scene.of(0).mark = 8, "at8"
    assert scene.validator.to_list() is None
    scene.ledger.finish(RUN)
    request = scene.validator.to_list()
    assert request is not None
    assert (request.partitions, request.timestamp_ms) == ({key(0)}, -1)
    end, leader_epoch = listed
    resolved = scene.validator.handle_list(
        list_answer(offsets={key(0): end}, leader_epochs={key(0): leader_epoch}), 1.0
    )
    assert (scene.of(0).phase is Phase.READY) == ready
    assert (resolved.reaction is Reaction.RETRY) == asks_again
    assert bool(scene.ledger.inherit(6).taken) == (ready and not asks_again)


def test_end_that_cannot_be_listed_for_a_finished_run_is_asked_for_again() -> None:
    scene = Scene({0: (8, 2)})
    scene.ledger.finish(RUN)
    moved = list_answer(errors={key(0): int(ErrorCode.LEADER_NOT_AVAILABLE)})
    assert scene.validator.to_list() is not None
    assert scene.validator.handle_list(moved, 1.0).reaction is Reaction.REFRESH_TOPICS
    assert scene.validator.to_list() is not None


def test_late_end_of_a_finished_run_does_not_move_a_batch_back_that_was_planned_since() -> None:
    """The end was asked for before another listing let the partition be planned."""
    scene = Scene({0: (8, 2)}, fails=False)
    scene.of(0).committed_offset, scene.of(0).mark = 8, "at8"
    scene.ledger.finish(RUN)
    assert scene.validator.to_list() is not None
    scene.listed({0: (20, 2)})
    assert scene.ledger.inherit(6).taken
    position = scene.stand(0)[0]
    batch = BatchPlan("g", "m1", 3, (OffsetRange(TOPIC, "orders", 0, position, 20),))
    scene.ledger.record(batch, {key(0): 2})
    scene.whole_log(0, 99, 4, 2.0)
    assert scene.of(0).phase is Phase.READY
    assert scene.validator.to_ask() is None


def test_without_fail_on_data_loss_a_batch_of_a_cut_log_is_void() -> None:
    """The new leader answers while the batch runs: its reads do not count."""
    scene = Scene({0: (8, 2)}, fails=False)
    batch = BatchPlan("g", "m1", 3, (OffsetRange(TOPIC, "orders", 0, 8, 12),))
    scene.ledger.record(batch, {key(0): 2})
    scene.validator.compare({key(0): 99}, {key(0): 4})
    scene.answered({0: (5, 2)})
    finished = scene.ledger.finish(batch)
    assert (finished.commits, finished.lost) == ((), batch.ranges)
    assert scene.stand(0) == (5, 4)
    assert scene.ledger.inherit(6).taken == ()
    assert scene.stand(0) == (5, 4)


def test_batch_that_began_where_the_log_was_cut_is_not_taken_over_either() -> None:
    scene = Scene({0: (8, 2)}, fails=False)
    batch = BatchPlan("g", "m1", 3, (OffsetRange(TOPIC, "orders", 0, 8, 12),))
    scene.ledger.record(batch, {key(0): 2})
    scene.validator.compare({key(0): 99}, {key(0): 4})
    scene.answered({0: (8, 2)})
    assert scene.ledger.finish(batch).lost == batch.ranges
    scene.of(0).committed_offset, scene.of(0).mark = 8, "at8"
    assert scene.ledger.inherit(6).taken == ()
    assert scene.stand(0) == (8, 4)


def test_position_above_the_last_stable_offset_is_waited_for_also_without_an_epoch() -> None:
    scene = Scene({0: (100, -1)})
    assert scene.listed({0: (90, 3)})[0] == {}
    request = scene.validator.to_list()
    assert request is not None
    assert (request.partitions, request.read_committed) == ({key(0)}, False)
    response = list_answer(offsets={key(0): 120}, leader_epochs={key(0): 3})
    assert scene.validator.handle_list(response, 1.0).reaction is Reaction.ACCEPT
    assert scene.validator.to_list() is None
    usable, resolved = scene.listed({0: (90, 3)}, now=10 * DOUBT_S)
    assert (usable, resolved.data_loss) == ({}, None), "a transaction is open: nothing was cut"
    assert scene.listed({0: (130, 3)}, now=11 * DOUBT_S)[0] == {0: 100}


def test_inherited_end_is_committed_once_a_log_is_known_to_have_reached_it() -> None:
    scene = Scene({0: (5, 2)})
    scene.of(0).committed_offset, scene.of(0).position = 5, 9
    usable, resolved = scene.listed({0: (8, 2)})
    assert (usable, resolved.to_commit) == ({}, [])
    usable, resolved = scene.listed({0: (9, 2)})
    assert (usable, resolved.to_commit) == ({0: 9}, [key(0)])
    commit = scene.ledger.commit_of_position(key(0), 6)
    assert (commit.committed_offset, commit.leader_epoch) == (9, 2)
    scene.of(0).committed_offset = 9
    assert scene.listed({0: (9, 2)})[1].to_commit == []


def test_log_that_ends_below_a_doubted_position_is_asked_for_again_and_then_believed() -> None:
    scene = Scene({0: (100, -1)})
    scene.listed({0: (90, 3)})
    assert scene.validator.to_list() is not None
    assert scene.whole_log(0, 90, 3, 2.0).reaction is Reaction.RETRY
    assert scene.listed({0: (90, 3)}, now=2 * DOUBT_S)[1].data_loss is None, "it may be old"
    scene.whole_log(0, 91, 3, 2 * DOUBT_S)
    resolved = scene.listed({0: (80, 3)}, now=2 * DOUBT_S)[1]
    assert resolved.data_loss is not None
    assert "orders-0 ends at 91" in resolved.data_loss


def test_last_stable_offset_never_replaces_an_unknown_log_end() -> None:
    scene = Scene({0: (100, -1)})
    for now in (1.0, 2.0 + DOUBT_S, 9.0 * DOUBT_S):
        usable, resolved = scene.listed({0: (90, 3)}, now)
        assert (usable, resolved.data_loss) == ({}, None)
        assert scene.validator.to_list() is not None, "it is asked again"
