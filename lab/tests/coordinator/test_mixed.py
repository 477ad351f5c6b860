"""Classic members in a consumer group, as Kafka's coordinator answers them."""

from __future__ import annotations

import pytest

from group_lab.coordinator import admin_requests, offsets
from group_lab.coordinator import messages as m
from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.classic.messages import ClassicProtocol
from group_lab.coordinator.effects import CoordinatorErrorCode as C
from group_lab.coordinator.effects import TimerKey, TimerKind
from group_lab.coordinator.log import value_bytes
from group_lab.coordinator.member import ClassicMetadata, ReconciliationState
from group_lab.coordinator.profile import (
    KAFKA_4_0,
    KAFKA_4_1,
    KAFKA_4_2,
    KAFKA_4_3,
    KAFKA_4_4,
    KIP_848,
    Profile,
)
from group_lab.coordinator.records import member_metadata
from group_lab.coordinator.settings import BrokerSettings, MigrationPolicy, Settings
from lab.tests.coordinator.driving import EVERY_PROFILE, FOO, foo, record_types
from lab.tests.coordinator.mixed_group import Mixed, owned, subscribed
from lab.tests.scenarios.kip_states import rebalance_state
from spark_groups.errors import ErrorCode as E
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from spark_groups.types import TopicIdPartition


def mixed_pair(profile: Profile = KAFKA_4_3) -> Mixed:
    """Return a group with a consumer member `m1` and a classic one, `k1`, that has joined."""
    group = Mixed(profile)
    group.join("m1", "foo")
    group.beat("m1")
    group.classic_join("k1", "foo")
    return group


def settled(profile: Profile = KAFKA_4_3) -> Mixed:
    """Return the same group when `m1` has given up three partitions and `k1` has them."""
    group = mixed_pair(profile)
    group.synced("k1")
    group.beat("m1", topic_partitions=foo(0, 1, 2, 3, 4, 5))
    group.beat("m1", topic_partitions=foo(0, 1, 2))
    group.rejoin("k1")
    group.synced("k1")
    return group


def timer(group: Mixed, kind: TimerKind, member_id: str = "k1") -> float | None:
    """Return in how many seconds a timer fires."""
    found = group.timers.get(TimerKey(kind, "g", member_id))
    return None if found is None or found.at is None else found.at - group.now


@EVERY_PROFILE
def test_a_classic_member_rebalances_on_its_own(profile: Profile) -> None:
    group = mixed_pair(profile)
    epoch = group.group.group_epoch
    assert group.member("k1").member_epoch == epoch
    assert group.member("k1").state is ReconciliationState.UNRELEASED_PARTITIONS
    assert group.synced("k1").partitions == frozenset()
    # m1 still has all partitions: k1 waits until some are free.
    assert group.classic_beat("k1").error_code == E.NONE
    group.beat("m1", topic_partitions=foo(0, 1, 2, 3, 4, 5))
    assert group.classic_beat("k1").error_code == E.NONE
    group.beat("m1", topic_partitions=foo(0, 1, 2))
    assert group.classic_beat("k1").error_code == C.REBALANCE_IN_PROGRESS
    response = group.rejoin("k1")
    assert (response.error_code, response.generation_id, response.leader) == (0, epoch, "")
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert (response.members, response.skip_assignment) == ((), False)
    assert group.synced("k1").partitions == owned("foo", 3, 4, 5)
    assert group.classic_beat("k1").error_code == E.NONE


@pytest.mark.parametrize(
    ("kept", "has"), [((), (3, 4)), ((3, 4), (3, 4)), ((3, 4, 5), (3, 4))], ids=str
)
def test_an_eager_member_gives_all_up_at_once_and_a_cooperative_one_in_two_rounds(
    kept: tuple[int, ...], has: tuple[int, ...]
) -> None:
    group = settled()
    group.join("m2", "foo")
    before = group.member("k1").member_epoch
    assert group.classic_beat("k1").error_code == C.REBALANCE_IN_PROGRESS
    response = group.rejoin("k1", *kept)
    assert group.synced("k1").partitions == owned("foo", *has)
    if 5 not in kept:
        assert response.generation_id == before + 1
        assert group.classic_beat("k1").error_code == E.NONE
        return
    # It still has 5, so it keeps its generation until it has joined once more.
    assert response.generation_id == before
    assert group.classic_beat("k1").error_code == C.REBALANCE_IN_PROGRESS
    assert group.rejoin("k1", *has).generation_id == before + 1
    assert group.classic_beat("k1").error_code == E.NONE


def test_timers_of_a_classic_member() -> None:
    group = mixed_pair()
    assert timer(group, TimerKind.SESSION) == 20.0
    assert timer(group, TimerKind.SYNC) == 60.0
    assert timer(group, TimerKind.JOIN) is None
    group.now += 5
    group.synced("k1")
    assert timer(group, TimerKind.SYNC) is None
    assert timer(group, TimerKind.SESSION) == 20.0
    group.join("m2", "foo")
    group.classic_beat("k1")
    assert timer(group, TimerKind.JOIN) == 60.0
    group.now += 5
    group.rejoin("k1")
    assert timer(group, TimerKind.JOIN) is None
    assert timer(group, TimerKind.SYNC) == 60.0
    # It revokes as a consumer member does, but has no time to revoke.
    assert timer(group, TimerKind.REBALANCE) is None


def test_the_time_to_join_starts_with_the_first_heartbeat_that_asks_for_it() -> None:
    group = settled()
    group.join("m2", "foo")
    outcome = group.classic_beat("k1")
    assert outcome.error_code == C.REBALANCE_IN_PROGRESS
    set_timer = group.timers[TimerKey(TimerKind.JOIN, "g", "k1")]
    assert set_timer.keeps_earlier
    assert set_timer.at == group.now + 60.0


@pytest.mark.parametrize("kind", [TimerKind.SESSION, TimerKind.SYNC])
def test_a_silent_classic_member_is_removed(kind: TimerKind) -> None:
    group = mixed_pair()
    epoch = group.group.group_epoch
    group.fire(kind, "k1")
    assert group.group.members.keys() == {"m1"}
    assert group.group.group_epoch == epoch + 1
    assert {each.member_id for each in group.timers} == {"m1"}


@EVERY_PROFILE
def test_a_dynamic_member_gets_an_id_first(profile: Profile) -> None:
    group = Mixed(profile, api_version=4)
    group.join("m1", "foo")
    response = group.classic_join("", "foo")
    assert (response.error_code, response.member_id) == (C.MEMBER_ID_REQUIRED, "made-here")
    assert group.group.members.keys() == {"m1"}
    group.api_version = 3
    assert group.classic_join("", "foo").member_id == "made-here"
    assert group.group.members.keys() == {"m1", "made-here"}


@EVERY_PROFILE
def test_who_is_refused(profile: Profile) -> None:
    group = settled(profile)
    epoch = group.member("k1").member_epoch
    assert group.classic_beat("other", epoch).error_code == E.UNKNOWN_MEMBER_ID
    assert group.sync("other", epoch).error_code == E.UNKNOWN_MEMBER_ID
    assert group.classic_beat("m1").error_code == E.UNKNOWN_MEMBER_ID
    assert group.classic_beat("k1", epoch + 1).error_code == E.ILLEGAL_GENERATION
    assert group.sync("k1", epoch - 1).error_code == E.ILLEGAL_GENERATION
    assert group.sync("k1", protocol_name="roundrobin").error_code == C.INCONSISTENT_GROUP_PROTOCOL
    assert group.sync("k1", protocol_type="connect").error_code == C.INCONSISTENT_GROUP_PROTOCOL
    right = {"protocol_type": "consumer", "protocol_name": "range"}
    response = group.sync("k1", **right)
    assert (response.error_code, response.protocol_name) == (E.NONE, "range")
    unlike = group.decide_join("k2", subscribed("foo", protocols=("sticky",))).response
    assert unlike.error_code == C.INCONSISTENT_GROUP_PROTOCOL
    connect = group.classic_join("k2", "foo", protocol_type="connect")
    assert connect.error_code == C.INCONSISTENT_GROUP_PROTOCOL
    assert group.decide_join("k2", ()).response.error_code == C.INCONSISTENT_GROUP_PROTOCOL
    shared = group.decide_join("k2", subscribed("foo", protocols=("sticky", "range"))).response
    assert (shared.error_code, shared.protocol_name) == (E.NONE, "sticky")


def test_malformed_metadata_is_an_error_of_the_server() -> None:
    group = settled()
    response = group.decide_join("k2", (ClassicProtocol("range", b"\x00"),)).response
    assert response.error_code == E.UNKNOWN_SERVER_ERROR


def test_a_group_is_full_for_classic_members_as_well() -> None:
    group = mixed_pair()
    group.settings = Settings(BrokerSettings(max_size=2))
    assert group.classic_join("k2", "foo").error_code == E.GROUP_MAX_SIZE_REACHED
    assert group.rejoin("k1").error_code == E.NONE


@pytest.mark.parametrize(
    ("profile", "policy", "error"),
    [
        (KAFKA_4_2, MigrationPolicy.DISABLED, E.NONE),
        (KAFKA_4_3, MigrationPolicy.DISABLED, C.INCONSISTENT_GROUP_PROTOCOL),
        (KAFKA_4_4, MigrationPolicy.DISABLED, C.INCONSISTENT_GROUP_PROTOCOL),
        (KAFKA_4_4, MigrationPolicy.UPGRADE, E.NONE),
    ],
)
def test_the_policy_disabled_keeps_classic_members_out(
    profile: Profile, policy: MigrationPolicy, error: int
) -> None:
    group = Mixed(profile, settings=Settings(BrokerSettings(migration_policy=policy)))
    group.join("m1", "foo")
    assert group.classic_join("k1", "foo").error_code == error


@pytest.mark.parametrize(
    ("profile", "at_once"), [(KAFKA_4_2, True), (KAFKA_4_3, False)], ids=["4.2", "4.3"]
)
def test_a_member_joins_again_for_a_new_epoch_or_for_a_new_target(
    profile: Profile, *, at_once: bool
) -> None:
    group = settled(profile)
    group.join("m2", "foo")
    group.rejoin("k1")
    group.synced("k1")
    group.send("m2", -1)
    assert group.group.group_epoch == group.group.assignment_epoch + 1
    expected = C.REBALANCE_IN_PROGRESS if at_once else E.NONE
    assert group.classic_beat("k1").error_code == expected
    assert group.sync("k1").error_code == expected
    group.beat("m1")
    assert group.classic_beat("k1").error_code == C.REBALANCE_IN_PROGRESS
    assert group.sync("k1").error_code == C.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("kept", "has"), [((), (3, 4)), ((3, 4, 5), (3, 4))], ids=["eager", "cooperative"]
)
def test_below_the_target_the_kip_answers_with_what_the_member_may_keep(
    kept: tuple[int, ...], has: tuple[int, ...]
) -> None:
    group = settled(KIP_848)
    before = group.rejoin("k1", *kept).generation_id
    group.join("m2", "foo")
    target = group.group.targets["k1"].partitions
    assert (target, group.member("k1").member_epoch) == (foo(3, 4), before)
    # It joined before there was a new target, and syncs after.
    assert group.synced("k1").partitions == owned("foo", *has)
    assert timer(group, TimerKind.SYNC) is None
    # What it has to give up is its own until it has joined again.
    assert set(group.member("k1").assigned) == set(foo(3, 4, 5))
    assert group.classic_beat("k1").error_code == C.REBALANCE_IN_PROGRESS
    assert group.rejoin("k1", *has).generation_id == group.group.assignment_epoch
    assert group.synced("k1").partitions == owned("foo", 3, 4)
    assert group.classic_beat("k1").error_code == E.NONE


def test_a_target_that_changes_during_a_revocation_takes_more_away() -> None:
    group = settled(KIP_848)
    group.join("m2", "foo")
    assert group.rejoin("k1", 3, 4, 5).generation_id < group.group.assignment_epoch
    for each in ("m3", "m4", "m5"):
        group.join(each, "foo")
    kept = group.group.targets["k1"].partitions & foo(3, 4)
    assert len(kept) == 1
    answer = group.synced("k1").partitions
    assert {TopicIdPartition(FOO, each.partition) for each in answer} == set(kept)


@EVERY_PROFILE
def test_an_instance_id_moves_between_the_protocols_without_a_leave(profile: Profile) -> None:
    group = Mixed(profile)
    group.join("m1", "foo", instance_id="i1")
    group.join("m2", "foo")
    response = group.classic_join("", "foo", group_instance_id="i1")
    assert (response.error_code, response.member_id) == (E.NONE, "made-here")
    assert group.group.members.keys() == {"m2", "made-here"}
    member = group.member("made-here")
    assert (member.instance_id, member.classic is not None) == ("i1", True)
    assert group.synced("made-here").partitions == owned("foo", 0, 1, 2)
    # The old member id is fenced, in each request.
    old = {"generation_id": member.member_epoch, "group_instance_id": "i1"}
    assert group.classic_beat("m1", **old).error_code == E.FENCED_INSTANCE_ID
    assert group.sync("m1", **old).error_code == E.FENCED_INSTANCE_ID
    fenced = group.classic_join("m1", "foo", group_instance_id="i1")
    assert fenced.error_code == E.FENCED_INSTANCE_ID
    unknown = group.classic_join("m1", "foo", group_instance_id="i9")
    assert unknown.error_code == E.UNKNOWN_MEMBER_ID
    assert group.join("m3", "foo", instance_id="i1").error_code == E.NONE
    assert group.group.members.keys() == {"m2", "m3"}
    assert group.member("m3").classic is None


@pytest.mark.parametrize(("profile", "kept"), [(KAFKA_4_0, "fo+"), (KAFKA_4_1, "")])
def test_a_classic_successor_has_no_pattern(profile: Profile, kept: str) -> None:
    group = Mixed(profile)
    fields = {"subscribed_topic_regex": "fo+", "subscribed_topic_names": None}
    group.join("m1", instance_id="i1", **fields)
    group.join("m2", "foo")
    group.classic_join("", "foo", group_instance_id="i1")
    assert group.member("made-here").subscribed_topic_regex == kept


def test_one_member_id_may_change_its_protocol() -> None:
    group = settled()
    group.join("k1", "foo")
    assert group.member("k1").classic is None
    group.classic_join("k1", "foo")
    assert group.member("k1").classic is not None


def test_records_of_a_join() -> None:
    group = Mixed()
    group.join("m1", "foo")
    outcome = group.decide_join("k1", subscribed("foo"))
    assert record_types(outcome) == [5, 3, 7, 7, 6, 8]
    assert record_types(group.decide_join("k1", subscribed("foo"))) == [8]
    assert record_types(group.decide_join("k1", subscribed("foo"))) == []
    value = member_metadata("g", group.member("k1"))
    assert value == outcome.records[0]
    metadata = ClassicMetadata(20_000, subscribed("foo"))
    assert group.member("k1").classic == metadata
    without = member_metadata("g", group.member("m1"))
    # The flag of a tagged field and its length, presence, timeout, and one named protocol.
    size = 2 + 1 + 4 + 1 + (1 + 5) + (1 + len(metadata.protocol.metadata)) + 1 + 1
    assert value.value
    assert without.value
    assert value_bytes(value.value) - value_bytes(without.value) == size


def test_a_classic_member_commits_with_its_generation() -> None:
    group = settled()
    epoch = group.member("k1").member_epoch
    key = TopicIdPartition(FOO, 3)

    def commit(member_epoch: int, api_version: int = 8) -> int:
        group.api_version = api_version
        request = OffsetCommitRequest(
            group_id="g",
            member_id="k1",
            member_epoch=member_epoch,
            offsets={key: OffsetAndMetadata(7)},
        )
        outcome = offsets.commit(group.group, request, group.profile, group.context)
        return outcome.response.errors[key]

    assert commit(epoch) == E.NONE
    assert commit(epoch + 1) == E.ILLEGAL_GENERATION
    assert commit(epoch - 1, api_version=9) == E.ILLEGAL_GENERATION

    def fetch(member_epoch: int) -> int:
        request = OffsetFetchRequest(
            group_id="g", member_id="k1", member_epoch=member_epoch, partitions=frozenset({key})
        )
        outcome = offsets.fetch(group.group, request, group.profile, group.context)
        return outcome.response.error_code

    assert (fetch(epoch), fetch(epoch + 1)) == (E.NONE, E.ILLEGAL_GENERATION)


def test_descriptions_and_lists_show_the_type() -> None:
    group = settled()
    request = DescribeGroupRequest(group_id="g")
    described = admin_requests.describe(group.group, request, group.profile, group.context)
    assert {each.member_id: each.member_type for each in described.members} == {"m1": 1, "k1": 0}
    listed = admin_requests.list_groups((group.group,), m.ListGroupsRequest()).groups
    assert [each.group_type for each in listed] == ["consumer"]


def test_states_of_a_classic_member() -> None:
    group = settled()

    def state(*, is_syncing: bool = False) -> ClassicState:
        member = group.member("k1")
        return rebalance_state(group.group, member, group.profile, is_syncing=is_syncing)

    assert state() is ClassicState.STABLE
    group.join("m2", "foo")
    assert state() is ClassicState.PREPARING_REBALANCE
    group.rejoin("k1")
    assert timer(group, TimerKind.SYNC)
    assert state(is_syncing=True) is ClassicState.COMPLETING_REBALANCE


def test_the_kip_checks_the_embedded_metadata() -> None:
    group = settled(KIP_848)
    old = group.decide_join("k2", subscribed("foo", version=2)).response
    assert old.error_code == E.INVALID_REQUEST
    late = group.decide_join("k1", subscribed("foo", generation_id=99)).response
    assert late.error_code == E.ILLEGAL_GENERATION
    (assignor,) = group.member("k1").client_assignors
    assert (assignor.name, assignor.metadata_version) == ("range", -1)
    # An eager client may have lost its generation.
    assert group.decide_join("k1", subscribed("foo")).response.error_code == E.NONE
