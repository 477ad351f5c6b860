"""From assigned to planned: committed offsets, starts, and errors that are neither."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.errors import ERROR_RULES, ErrorCode, Reaction
from spark_groups.group.ledger.commit_metadata import commit_metadata
from spark_groups.group.ledger.commits import PendingCommit
from spark_groups.group.ledger.events import (
    CheckpointOfAnotherGroup,
    DataLost,
    PartitionsReadFromBeginning,
    PartitionsStarted,
    PositionFound,
)
from spark_groups.group.ledger.ledger import Phase
from spark_groups.group.ledger.marks import NO_MARK
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.group.member.messages import NO_LEADER_EPOCH, OffsetAndMetadata, TopicMetadata
from spark_groups.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Assignment,
    BatchPlan,
    OffsetRange,
    PlanTopic,
    TopicIdPartition,
    TopicPartition,
)
from tests.answers import fetch_answer, list_answer
from tests.group.ledger.resolution_setup import (
    BEHIND_2,
    BILLS,
    EARLIEST,
    FIRST_BILLS,
    LATEST,
    NONE,
    TOPIC,
    Scene,
    committed,
    key,
    read_whole,
    started,
)


def test_committed_offset_is_the_position() -> None:
    scene = Scene()
    resolved = scene.fetched({0: committed(17)})
    assert (scene.of(0).phase, scene.of(0).position) == (Phase.READY, 17)
    assert scene.of(0).committed_offset == 17
    (event,) = resolved.events
    assert isinstance(event, PositionFound)
    assert (event.position, event.committed) == (17, True)
    assert not scene.commits.pending()
    assert not scene.resolver.to_fetch()


@pytest.mark.parametrize("starting", [EARLIEST, LATEST], ids=["earliest", "latest"])
@pytest.mark.parametrize("code", [*ERROR_RULES, 12_345])
def test_error_is_never_read_as_no_committed_offset(starting: StartingOffsets, code: int) -> None:
    if code == ErrorCode.NONE:
        return
    scene = Scene(starting)
    resolved = scene.fetched({}, {0: code})
    assert scene.of(0).phase is Phase.FETCHING
    assert resolved.reaction is not Reaction.ACCEPT
    assert resolved.error == code
    assert scene.resolver.listing.to_list() is None
    assert not scene.commits.pending()


def test_partition_the_answer_forgot_is_asked_for_again() -> None:
    scene = Scene()
    assert scene.fetched({}).reaction is Reaction.RETRY
    assert key(0) in scene.resolver.to_fetch()


def test_topic_the_broker_does_not_know_yet_is_asked_for_again() -> None:
    scene = Scene()
    resolved = scene.fetched({}, {0: ErrorCode.UNKNOWN_TOPIC_ID})
    assert resolved.reaction is Reaction.RETRY
    assert scene.of(0).topic_gone
    scene.fetched({0: committed(3)})
    assert not scene.of(0).topic_gone


def test_one_partition_with_an_error_does_not_keep_the_others() -> None:
    scene = Scene(LATEST, 0, 1)
    resolved = scene.fetched({1: committed(5)}, {0: ErrorCode.UNSTABLE_OFFSET_COMMIT})
    assert resolved.reaction is Reaction.RETRY
    assert (scene.of(0).phase, scene.of(1).phase) == (Phase.FETCHING, Phase.READY)


def test_answer_of_an_earlier_tenure_says_nothing() -> None:
    scene = Scene()
    scene.resolver.to_fetch()
    scene.ledger.drop([key(0)])
    scene.ledger.assign(Assignment.of({TOPIC: (0,)}), 5)
    answer = fetch_answer(offsets={key(0): committed(17)})
    scene.resolver.handle_fetch(answer, now=1.0)
    assert scene.of(0).phase is Phase.FETCHING


def test_topic_without_a_name_is_not_fetched() -> None:
    assert Scene(count=0).resolver.to_fetch() == frozenset()


@pytest.mark.parametrize(
    ("starting", "wanted"),
    [
        (EARLIEST, {1}),
        (LATEST, {0, 1, 2, 3}),
        (
            StartingOffsets(StartingPoint.EARLIEST, {TopicPartition("orders", 1): -1}),
            {0, 1, 2, 3},
        ),
    ],
)
def test_whole_topic_is_fetched_where_latest_may_apply(
    starting: StartingOffsets, wanted: set[int]
) -> None:
    scene = Scene(starting, 1)
    scene.topics.note_count(TOPIC, 4)
    assert {each.partition for each in scene.resolver.to_fetch()} == wanted


@pytest.mark.parametrize(
    ("starting", "first"),
    [
        (EARLIEST, False),
        (LATEST, True),
        (StartingOffsets(StartingPoint.EARLIEST, {TopicPartition("orders", 1): -1}), True),
        (StartingOffsets(StartingPoint.EARLIEST, {TopicPartition("orders", 1): 9}), False),
    ],
)
def test_start_must_be_committed_before_it_is_given_up_where_latest_may_apply(
    starting: StartingOffsets, first: bool
) -> None:
    assert Scene(starting).resolver.commits_start_first is first


@pytest.mark.parametrize(
    ("starting", "timestamp_ms"),
    [(EARLIEST, EARLIEST_TIMESTAMP), (LATEST, LATEST_TIMESTAMP)],
)
def test_start_is_listed_committed_and_only_then_ready(
    starting: StartingOffsets, timestamp_ms: int
) -> None:
    scene = Scene(starting)
    scene.fetched({0: NONE})
    assert scene.of(0).phase is Phase.LISTING
    request = scene.listed({0: 42})
    assert (request.timestamp_ms, request.read_committed) == (timestamp_ms, True)
    assert (scene.of(0).phase, scene.of(0).position) == (Phase.COMMITTING_START, 42)
    assert scene.ledger.positions(Assignment.of({TOPIC: (0,)})) == {}
    (commit,) = scene.commit().values()
    assert (commit.committed_offset, commit.known_count, commit.member_epoch) == (42, 4, 3)
    assert (scene.of(0).phase, scene.of(0).committed_offset) == (Phase.READY, 42)


def test_positions_carry_the_leader_epochs_they_came_with() -> None:
    scene = Scene(EARLIEST, 0, 1)
    scene.fetched({0: OffsetAndMetadata(17, "", 6), 1: NONE})
    assert (scene.of(0).leader_epoch, scene.of(0).reached_offset) == (6, 17)
    request = scene.resolver.listing.to_list()
    assert request is not None
    answer = list_answer(offsets={key(1): 4}, leader_epochs={key(1): 2})
    scene.handle_list(request, answer)
    assert (scene.of(1).leader_epoch, scene.of(1).reached_offset) == (2, 4)
    assert scene.commit()[1].leader_epoch == 2


def test_partition_added_since_the_group_began_starts_at_its_beginning() -> None:
    scene = Scene(LATEST, 2, 3)
    scene.fetched({0: committed(5, 3), 1: committed(5, 3), 2: NONE, 3: NONE})
    assert scene.of(2).lookup.timestamp_ms == LATEST_TIMESTAMP
    assert scene.of(3).lookup.timestamp_ms == EARLIEST_TIMESTAMP
    assert scene.of(3).known_count == 3, "and commits it for the next owner"


def test_least_known_count_is_when_the_group_began() -> None:
    scene = Scene(LATEST, 3)
    scene.fetched({0: committed(5, 4), 1: committed(5, 3), 2: committed(5, None), 3: NONE})
    assert scene.of(3).lookup.timestamp_ms == EARLIEST_TIMESTAMP


def test_offsets_others_committed_leave_the_count_that_this_member_knew() -> None:
    scene = Scene(LATEST, 0)
    scene.fetched(dict.fromkeys(range(4), NONE))
    scene.topics.learn(TopicMetadata(TOPIC, "orders", 6))
    scene.ledger.assign(Assignment.of({TOPIC: (2, 3, 4)}), 4)
    scene.fetched({0: committed(5, None), 2: NONE, 3: committed(8, None), 4: NONE})
    starts = [scene.of(each).lookup.timestamp_ms for each in (2, 4)]
    assert starts == [LATEST_TIMESTAMP, EARLIEST_TIMESTAMP]
    assert (scene.of(3).position, scene.of(3).known_count) == (8, 4)


def test_topic_created_after_the_join_starts_at_its_beginning() -> None:
    scene = Scene(count=0)
    scene.topics.end_initial_topics()
    scene.topics.learn(TopicMetadata(TOPIC, "orders", 4))
    scene.fetched({0: NONE})
    assert scene.of(0).lookup.timestamp_ms == EARLIEST_TIMESTAMP


def test_topic_created_again_starts_at_its_beginning() -> None:
    scene = Scene(count=0)
    scene.topics.remember([PlanTopic(uuid.UUID(int=9), "orders")], of_this_group=True)
    scene.topics.learn(TopicMetadata(TOPIC, "orders", 4))
    scene.fetched({0: NONE})
    assert scene.of(0).lookup.timestamp_ms == EARLIEST_TIMESTAMP


def checkpoint(scene: Scene) -> None:
    scene.ledger.finish(BatchPlan("g", "old", 1, (OffsetRange(TOPIC, "orders", 0, 5, 9),)))


def test_checkpoint_without_a_committed_offset_is_data_loss() -> None:
    scene = Scene(EARLIEST)
    checkpoint(scene)
    resolved = scene.fetched({0: NONE})
    assert resolved.data_loss is not None
    assert "orders-0" in resolved.data_loss
    assert "up to 9" in resolved.data_loss
    assert "failOnDataLoss=false" in resolved.data_loss
    assert [type(each) for each in resolved.events] == [DataLost]
    assert not scene.commits.pending()
    assert scene.resolver.listing.to_list() is None


# A log that ends below 9 was truncated since: its leader epoch says nothing about offset 9.
@pytest.mark.parametrize(("log_end", "leader_epoch"), [(12, 4), (9, 4), (6, NO_LEADER_EPOCH)])
def test_without_fail_on_data_loss_a_checkpoint_replaces_a_missing_offset(
    log_end: int, leader_epoch: int
) -> None:
    scene = Scene(EARLIEST, fail_on_data_loss=False)
    checkpoint(scene)
    resolved = scene.fetched({0: NONE})
    assert resolved.data_loss is None
    assert [type(each) for each in resolved.events] == [DataLost]
    request = scene.resolver.listing.to_list()
    assert request is not None
    assert (request.timestamp_ms, request.read_committed) == (LATEST_TIMESTAMP, False)
    answer = list_answer(offsets={key(0): log_end}, leader_epochs={key(0): 4})
    assert scene.handle_list(request, answer).data_loss is None
    commit = scene.commit()[0]
    assert (commit.committed_offset, commit.leader_epoch) == (9, leader_epoch)
    assert scene.of(0).position == 9


@pytest.mark.parametrize("fails", [True, False])
def test_topic_that_was_read_and_of_which_nothing_is_committed_is_data_loss(fails: bool) -> None:
    scene = Scene(LATEST, 0, 1, fail_on_data_loss=fails)
    scene.topics.remember([PlanTopic(TOPIC, "orders")], of_this_group=True)
    resolved = scene.fetched(dict.fromkeys(range(4), NONE))
    assert [type(each) for each in resolved.events] == [DataLost] * 2
    if fails:
        assert resolved.data_loss is not None
        assert "orders" in resolved.data_loss
        assert scene.resolver.listing.to_list() is None
    else:
        request = scene.listed({0: 0, 1: 0})
        assert request.timestamp_ms == EARLIEST_TIMESTAMP


def test_topic_that_was_read_is_no_loss_while_anything_of_it_is_committed() -> None:
    scene = Scene(LATEST, 0, 1)
    scene.topics.remember([PlanTopic(TOPIC, "orders")], of_this_group=True)
    resolved = scene.fetched({0: committed(5), 1: NONE, 2: NONE, 3: NONE})
    assert resolved.data_loss is None
    assert scene.of(0).phase is Phase.READY


def test_start_that_cannot_be_listed_is_asked_for_again() -> None:
    scene = Scene(LATEST, 0, 1)
    scene.fetched({0: NONE, 1: NONE})
    request = scene.resolver.listing.to_list()
    assert request is not None
    answer = list_answer(
        offsets={key(1): 4}, errors={key(0): int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    )
    resolved = scene.handle_list(request, answer)
    assert resolved.reaction is Reaction.REFRESH_TOPICS
    assert resolved.failed == {key(0): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (scene.of(0).phase, scene.of(1).phase) == (Phase.LISTING, Phase.COMMITTING_START)
    again = scene.resolver.listing.to_list()
    assert again is not None
    assert again.partitions == {key(0)}


def test_two_kinds_of_starts_are_listed_in_turns() -> None:
    scene = Scene(LATEST, 0, 3)
    scene.fetched({1: committed(5, 3), 0: NONE, 3: NONE})
    asked = [scene.listed({}).timestamp_ms for _ in range(4)]
    assert asked == [LATEST_TIMESTAMP, EARLIEST_TIMESTAMP] * 2


def test_listed_offset_of_a_lost_partition_is_ignored() -> None:
    scene = Scene()
    scene.fetched({0: NONE})
    request = scene.resolver.listing.to_list()
    assert request is not None
    scene.ledger.drop([key(0)])
    answer = list_answer(offsets={key(0): 4})
    scene.handle_list(request, answer)
    assert not scene.commits.pending()


def test_accepted_commit_of_an_earlier_tenure_changes_nothing() -> None:
    scene = Scene()
    old = PendingCommit(key(0), 0, 3, 42, 4)
    scene.resolver.committed([old], 1.0)
    scene.resolver.dropped(old)
    assert (scene.of(0).committed_offset, scene.of(0).topic_gone) == (-1, False)


def test_start_whose_commit_was_dropped_is_resolved_again() -> None:
    scene = Scene()
    scene.fetched({0: NONE})
    scene.listed({0: 42})
    scene.resolver.dropped(PendingCommit(key(0), scene.of(0).tenure, 3, 42, 4))
    assert (scene.of(0).phase, scene.of(0).topic_gone) == (Phase.FETCHING, True)


def test_commit_of_a_batch_that_was_dropped_is_made_again_once_the_topic_is_known() -> None:
    scene = Scene(EARLIEST)
    scene.fetched({0: committed(4)})
    plan = BatchPlan("g", "me", 3, (OffsetRange(TOPIC, "orders", 0, 4, 9),), marks=("at4",))
    scene.ledger.record(plan)
    (commit,) = scene.ledger.finish(plan).commits
    scene.resolver.dropped(commit)
    assert scene.of(0).phase is Phase.FETCHING
    scene.fetched({0: committed(4)})
    inheritance = scene.ledger.inherit(3)
    assert [each.committed_offset for each in inheritance.commits] == [9]
    assert scene.of(0).position == 9


def test_of_several_reactions_the_gravest_counts() -> None:
    scene = Scene(EARLIEST, 0, 1, 2)
    retry, refused = ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    resolved = scene.fetched({}, {0: retry, 1: refused, 2: retry})
    assert (resolved.reaction, resolved.error) == (Reaction.FAIL, refused)


def test_offset_of_a_partition_that_was_added_tells_that_the_group_knows_the_topic() -> None:
    scene = Scene(LATEST, 0, 4)
    scene.topics.note_read([TOPIC])
    scene.of(4).committed_offset = 58
    resolved = scene.fetched(dict.fromkeys(range(4), NONE))
    assert resolved.data_loss is None
    assert scene.of(0).phase is Phase.LISTING


def test_without_a_count_partitions_without_an_offset_start_at_their_beginning() -> None:
    scene = Scene(LATEST, 0, 2, 3)
    resolved = scene.fetched(BEHIND_2)
    assert [scene.of(each).lookup.timestamp_ms for each in (2, 3)] == [EARLIEST_TIMESTAMP] * 2
    assert not [each for each in resolved.events if isinstance(each, PartitionsStarted)], "not yet"
    (reported,) = started(scene)
    assert isinstance(reported, PartitionsReadFromBeginning)
    assert (reported.topic, reported.partitions) == ("orders", (key(2), key(3)))
    assert reported.command == (
        "spark-groups reset-offsets g --topic orders:2,3 --to-latest --execute"
        " --bootstrap-server b:1"
    )
    assert {scene.of(each).known_count for each in (2, 3)} == {0}, "it stays unknown"


def test_the_count_of_the_checkpoint_shows_which_partitions_were_added() -> None:
    scene = Scene(LATEST, 2, 3)
    scene.topics.remember([PlanTopic(TOPIC, "orders", 2)], of_this_group=True)
    scene.fetched({0: committed(5, None), 1: committed(5, None), 2: NONE, 3: NONE})
    assert [scene.of(each).lookup.timestamp_ms for each in (2, 3)] == [EARLIEST_TIMESTAMP] * 2
    assert read_whole(scene) == []


def test_a_partition_of_the_checkpoint_whose_offset_is_gone_is_read_whole() -> None:
    named = StartingOffsets(StartingPoint.LATEST, {TopicPartition("orders", 2): 7})
    scene = Scene(named, 0, 1, 2)
    scene.topics.remember([PlanTopic(TOPIC, "orders")], of_this_group=True)
    resolved = scene.fetched({0: committed(5), 1: NONE, 2: NONE, 3: committed(9)})
    assert resolved.data_loss is None
    starts = [scene.of(each).lookup.timestamp_ms for each in (1, 2)]
    assert starts == [EARLIEST_TIMESTAMP, LATEST_TIMESTAMP]
    assert read_whole(scene) == [("orders", (1,))]
    assert scene.of(1).known_count == 4


def test_partition_assigned_later_and_read_whole_is_reported_too() -> None:
    scene = Scene(LATEST, 0)
    scene.fetched(BEHIND_2)
    assert read_whole(scene) == []
    scene.ledger.assign(Assignment.of({TOPIC: (2, 3)}), 4)
    scene.fetched(BEHIND_2)
    assert read_whole(scene) == [("orders", (2, 3))]


def test_earliest_asks_for_the_whole_topic_only_while_its_partition_count_is_unknown() -> None:
    scene = Scene(EARLIEST, 1)
    assert len(scene.resolver.to_fetch()) == 4
    scene.topics.note_count(TOPIC, 4)
    assert scene.resolver.to_fetch() == {key(1)}


@pytest.mark.parametrize(("noted", "kept"), [(2, 3), (3, 2)])
def test_of_two_counts_the_smaller_holds(noted: int, kept: int) -> None:
    scene = Scene(LATEST, 0, 2)
    scene.topics.note_count(TOPIC, noted)
    scene.fetched({0: committed(5, kept), 2: NONE})
    assert scene.of(2).lookup.timestamp_ms == EARLIEST_TIMESTAMP
    assert (scene.of(0).known_count, scene.of(2).known_count) == (2, 2)


def test_a_partition_that_is_named_starts_where_it_is_named() -> None:
    named = StartingOffsets(StartingPoint.LATEST, {TopicPartition("orders", 2): 7})
    scene = Scene(named, 2, 3)
    scene.fetched(BEHIND_2)
    assert scene.of(2).lookup.timestamp_ms == LATEST_TIMESTAMP
    assert read_whole(scene) == [("orders", (3,))]


def test_a_recreated_topic_starts_at_its_beginning_despite_named_offsets() -> None:
    scene = Scene(StartingOffsets(StartingPoint.LATEST, {TopicPartition("orders", 0): 500}))
    again = uuid.UUID(int=2)
    scene.topics.learn(TopicMetadata(again, "orders", 4))
    scene.ledger.assign(Assignment.of({again: (0,)}), 4)
    new = TopicIdPartition(again, 0)
    scene.resolver.to_fetch()
    response = fetch_answer(offsets={new: NONE})
    scene.resolver.handle_fetch(response, now=1.0)
    owned = scene.ledger.owned[new]
    assert (owned.lookup.timestamp_ms, owned.lookup.wanted_offset) == (EARLIEST_TIMESTAMP, None)


def test_earliest_warns_of_a_partition_that_the_checkpoint_may_have_read() -> None:
    scene = Scene(EARLIEST, 0, 3)
    scene.topics.remember([PlanTopic(TOPIC, "orders", 3)], of_this_group=True)
    scene.fetched({0: NONE, 3: NONE})
    assert scene.of(0).lookup.timestamp_ms == EARLIEST_TIMESTAMP
    assert read_whole(scene) == [("orders", (0,))]


def test_offsets_that_could_not_be_read_may_hold_the_count() -> None:
    scene = Scene(LATEST, 1, 3)
    unread = {0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    resolved = scene.fetched({1: NONE, 3: NONE}, unread)
    assert resolved.reaction is Reaction.RETRY
    assert (scene.of(1).phase, scene.of(3).phase) == (Phase.FETCHING, Phase.FETCHING)
    scene.fetched({0: committed(5, 2), 1: NONE, 3: NONE})
    starts = [scene.of(each).lookup.timestamp_ms for each in (1, 3)]
    assert starts == [LATEST_TIMESTAMP, EARLIEST_TIMESTAMP]


def test_a_topic_whose_offsets_are_gone_is_read_whole_also_in_what_comes_later() -> None:
    scene = Scene(LATEST, 0, fail_on_data_loss=False)
    scene.topics.remember([PlanTopic(TOPIC, "orders")], of_this_group=True)
    scene.fetched(dict.fromkeys(range(4), NONE))
    scene.listed({0: 0})
    scene.commit()
    scene.ledger.assign(Assignment.of({TOPIC: (1,)}), 4)
    scene.fetched({0: committed(0, 0), 1: NONE})
    assert scene.of(1).lookup.timestamp_ms == EARLIEST_TIMESTAMP


@pytest.mark.parametrize(
    ("metadata", "mark"),
    [
        (commit_metadata(4, mark="k3Jx9aQb", offset=17), "k3Jx9aQb"),
        (commit_metadata(4, mark="k3Jx9aQb", offset=17, is_truncated=True), "k3Jx9aQb"),
        (commit_metadata(4, mark="k3Jx9aQb", offset=18), NO_MARK),
        (commit_metadata(4), NO_MARK),
        (commit_metadata(4, is_reset=True), NO_MARK),
        (commit_metadata(4, mark="a,b", offset=17), NO_MARK),
        ("", NO_MARK),
        ('{"reset":true}', NO_MARK),
    ],
)
def test_position_has_the_mark_of_its_commit(metadata: str, mark: str) -> None:
    scene = Scene()
    scene.fetched({0: OffsetAndMetadata(17, metadata)})
    assert scene.of(0).mark == mark


def test_starting_position_has_the_mark_that_is_committed() -> None:
    scene = Scene()
    scene.fetched({0: NONE})
    scene.listed({0: 42})
    commits = scene.commit()
    assert scene.of(0).mark == commits[0].mark != NO_MARK


def moved(starting: StartingOffsets, *owned: int) -> Scene:
    scene = Scene(starting, *owned)
    scene.topics.remember([PlanTopic(TOPIC, "orders")], of_this_group=True)
    scene.resolver.came_from("old one", ["orders"])
    return scene


@pytest.mark.parametrize("starting", [EARLIEST, LATEST], ids=["earliest", "latest"])
def test_checkpoint_of_another_group_is_refused_while_this_one_has_read_nothing(starting) -> None:
    scene = moved(starting)
    assert len(scene.resolver.to_fetch()) == 4, "that nothing is committed must be certain"
    resolved = scene.fetched(dict.fromkeys(range(4), NONE))
    assert resolved.refusal is not None
    assert "'old one'" in str(resolved.refusal)
    assert "the group 'g'" in str(resolved.refusal)
    assert str(resolved.refusal).endswith(
        " run: spark-groups reset-offsets g --from-group 'old one' --topic orders --execute"
        " --bootstrap-server b:1"
    )
    assert resolved.data_loss is None
    assert scene.resolver.has_unchecked_topics
    assert not scene.commits.pending()


@pytest.mark.parametrize("starting", [EARLIEST, LATEST], ids=["earliest", "latest"])
def test_checkpoint_of_another_group_yields_to_the_offsets_of_this_one(starting) -> None:
    scene = moved(starting)
    resolved = scene.fetched({0: committed(7), 1: NONE, 2: NONE, 3: NONE})
    assert resolved.refusal is None
    reported = [each for each in resolved.events if isinstance(each, CheckpointOfAnotherGroup)]
    assert [(each.former_group_id, each.group_id, each.topics) for each in reported] == [
        ("old one", "g", ("orders",))
    ]
    assert (scene.of(0).position, scene.resolver.has_unchecked_topics) == (7, False)
    scene.ledger.assign(Assignment.of({TOPIC: (1,)}), 4)
    assert scene.fetched({0: committed(7), 1: committed(3)}).events == [
        PositionFound(1.0, key(1), "orders", 3, True)
    ], "it is reported once"


def test_checkpoint_of_another_group_is_not_judged_by_offsets_that_could_not_be_read() -> None:
    scene = moved(EARLIEST)
    unread = {1: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    resolved = scene.fetched({0: NONE, 2: NONE, 3: NONE}, unread)
    assert (resolved.refusal, resolved.reaction) == (None, Reaction.RETRY)
    assert scene.of(0).phase is Phase.FETCHING
    assert scene.fetched({0: NONE, 1: committed(3), 2: NONE, 3: NONE}).refusal is None
    assert scene.of(0).phase is Phase.LISTING


def moved_with_two_topics() -> Scene:
    """Only one of the two topics that the checkpoint has read is assigned to this member."""
    scene = moved(EARLIEST)
    scene.topics.remember([PlanTopic(BILLS, "bills")], of_this_group=True)
    scene.resolver.came_from("old one", ["orders", "bills"])
    return scene


def test_checkpoint_of_another_group_is_refused_for_a_topic_that_others_hold() -> None:
    scene = moved_with_two_topics()
    scene.topics.learn(TopicMetadata(BILLS, "bills", 1))
    assert FIRST_BILLS in scene.resolver.to_fetch()
    offsets = {key(0): committed(7), FIRST_BILLS: NONE}
    response = fetch_answer(offsets=offsets)
    resolved = scene.resolver.handle_fetch(response, now=1.0)
    assert resolved.refusal is not None
    assert "committed nothing for bills:" in str(resolved.refusal)
    assert "--topic bills --execute" in str(resolved.refusal)
    assert scene.of(0).phase is Phase.FETCHING, "nothing is read before"


@pytest.mark.parametrize(
    ("code", "phase"),
    [
        (ErrorCode.UNSTABLE_OFFSET_COMMIT, Phase.FETCHING),
        (ErrorCode.UNKNOWN_TOPIC_ID, Phase.READY),
    ],
)
def test_no_topic_is_read_while_another_topic_of_the_checkpoint_is_in_doubt(
    code: ErrorCode, phase: Phase
) -> None:
    scene = moved_with_two_topics()
    scene.topics.learn(TopicMetadata(BILLS, "bills", 1))
    scene.resolver.to_fetch()
    response = fetch_answer(offsets={key(0): committed(7)}, errors={FIRST_BILLS: int(code)})
    resolved = scene.resolver.handle_fetch(response, now=1.0)
    assert (resolved.refusal, scene.of(0).phase) == (None, phase)
    assert scene.resolver.has_unchecked_topics


def test_a_topic_whose_name_came_after_the_request_is_asked_for_next() -> None:
    scene = moved_with_two_topics()
    scene.resolver.to_fetch()
    scene.topics.learn(TopicMetadata(BILLS, "bills", 1))
    response = fetch_answer(offsets={key(0): committed(7)})
    resolved = scene.resolver.handle_fetch(response, now=1.0)
    assert (resolved.refusal, resolved.reaction) == (None, Reaction.RETRY)
    assert scene.of(0).phase is Phase.FETCHING
    assert FIRST_BILLS in scene.resolver.to_fetch()


def test_what_the_new_group_has_not_committed_of_a_topic_is_read_whole() -> None:
    scene = moved(LATEST, 0, 1, 2)
    resolved = scene.fetched({0: committed(7), 1: NONE, 2: NONE, 3: NONE})
    assert resolved.refusal is None
    assert [scene.of(each).lookup.timestamp_ms for each in (1, 2)] == [EARLIEST_TIMESTAMP] * 2
    assert read_whole(scene) == [("orders", (1, 2))]


def test_the_error_about_lost_offsets_has_the_command_that_cures_it() -> None:
    scene = Scene(LATEST)
    scene.topics.remember([PlanTopic(TOPIC, "orders")], of_this_group=True)
    gone = scene.fetched(dict.fromkeys(range(4), NONE)).data_loss
    scene = Scene(EARLIEST)
    checkpoint(scene)
    lost = scene.fetched({0: NONE}).data_loss
    for said, what in ((gone, "orders"), (lost, "orders:0")):
        assert said is not None
        assert (
            f"`spark-groups reset-offsets g --topic {what} --to-earliest --execute"
            " --bootstrap-server b:1`, or the same with --to-latest" in said
        )
        assert "from startingOffsets, give the query a new checkpointLocation" in said
