"""Conversion of live groups between the two protocols, as Kafka's coordinator does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from group_lab.assignors.embedded import encode_assignment, encode_subscription
from group_lab.coordinator import messages as m
from group_lab.coordinator import records as r
from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.classic.messages import (
    ClassicProtocol,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    SyncGroupRequest,
)
from group_lab.coordinator.effects import CoordinatorErrorCode as C
from group_lab.coordinator.group import ConsumerGroup, GroupState
from group_lab.coordinator.log import MAX_BATCH_BYTES
from group_lab.coordinator.member import ClassicMetadata
from group_lab.coordinator.profile import (
    KAFKA_4_0,
    KAFKA_4_1,
    KAFKA_4_2,
    KAFKA_4_3,
    KAFKA_4_4,
    KIP_848,
    Profile,
)
from group_lab.coordinator.settings import BrokerSettings, MigrationPolicy, Settings
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from lab.tests.coordinator.classic.driving import GROUP, METADATA, RANGE, DrivenShard
from lab.tests.coordinator.driving import EVERY_PROFILE, FOO, JOIN, foo
from lab.tests.coordinator.mixed_group import owned
from spark_groups.errors import ErrorCode as E
from spark_groups.group.member.embedded import EmbeddedAssignment, Subscription, decode_assignment
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetAndMetadata,
    OffsetCommitRequest,
)
from spark_groups.types import TopicIdPartition

AT_ONCE = BrokerSettings(assignment_interval_s=0.0)


def driven(profile: Profile = KAFKA_4_3, **settings: Any) -> DrivenShard:
    """Return a coordinator that computes targets at once."""
    return DrivenShard(profile, Settings(replace(AT_ONCE, **settings)))


def beat(shard: DrivenShard, member_id: str, member_epoch: int, **fields: Any) -> HeartbeatResponse:
    """Send a ConsumerGroupHeartbeat; with epoch 0 a join of the topic foo."""
    if member_epoch == 0:
        fields = JOIN | {"subscribed_topic_names": ("foo",)} | fields
    request = HeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=member_epoch, **fields
    )
    response = shard.send(request).response
    assert isinstance(response, HeartbeatResponse)
    return response


def consumer_group(shard: DrivenShard) -> ConsumerGroup:
    return shard.shard.memory.group(GROUP)


def listed(shard: DrivenShard) -> tuple[str, str]:
    """Return type and state in a list of groups."""
    response = shard.shard.ask(m.ListGroupsRequest(), shard.now)
    assert isinstance(response, m.ListGroupsResponse)
    (group,) = response.groups
    return group.group_type, group.group_state


def assign(
    shard: DrivenShard, *partitions: Sequence[int], user_data: bytes | None = None
) -> list[str]:
    """Let classic members join and sync, and the leader assign partitions of foo in their order."""
    tickets = [shard.join(client=f"k{number}") for number in range(len(partitions))]
    shard.wait(3.0 * len(tickets))
    responses: list[Any] = [each.response for each in tickets]
    member_ids = [each.member_id for each in responses]
    assigned = {
        member_id: encode_assignment(
            EmbeddedAssignment(partitions=owned("foo", *each), user_data=user_data)
        )
        for member_id, each in zip(member_ids, partitions, strict=True)
    }
    leader = shard.group.leader_id
    for each in sorted(member_ids, key=lambda each: each == leader):
        shard.sync(each, assigned if each == leader else None)
    assert shard.group.state is ClassicState.STABLE
    return member_ids


def written(shard: DrivenShard, since: int) -> list[int]:
    """Return the numbers of the record types since an offset, those of tombstones negative."""
    return [
        each.key.record_type if each.value is not None else -each.key.record_type
        for each in list(shard.log.replay())[since:]
    ]


@pytest.mark.parametrize("made", [("k1", "k51"), ("k3", "k31")])
def test_the_target_of_the_upgrade_follows_the_table_that_the_classic_group_filled(
    made: tuple[str, str],
) -> None:
    """The ids share a bucket of a HashMap, and a slot of a TimelineHashMap of two slots.

    Kafka fills it with each member once, and goes through a slot from the last one to the first.
    """
    shard = driven()
    shard.topics = TopicsImage.of([TopicImage(FOO, "foo", 7)])
    shard.fail_over()
    ids = iter(made)
    shard.shard.make_classic_id = lambda _prefix: next(ids)
    first, second = assign(shard, (0, 1, 2), (3, 4, 5, 6))
    assert (first, second) == made
    beat(shard, "m1", 0)
    targets = consumer_group(shard).targets
    shares = {each: len(targets[each].partitions.partitions) for each in (first, second, "m1")}
    assert shares == {first: 2, second: 3, "m1": 2}


@EVERY_PROFILE
def test_a_classic_group_becomes_a_consumer_group(profile: Profile) -> None:
    shard = driven(profile)
    k0, k1 = assign(shard, (0, 1, 2), (3, 4, 5))
    before = len(list(shard.log.replay()))
    response = beat(shard, "m1", 0)
    assert (response.error_code, response.member_epoch) == (E.NONE, 2)
    assert listed(shard) == ("consumer", "Reconciling")
    group = consumer_group(shard)
    assert (group.group_epoch, group.classic, group.classic_metadata) == (2, None, None)
    for member_id, kept in ((k0, foo(0, 1, 2)), (k1, foo(3, 4, 5))):
        member = group.members[member_id]
        assert (member.member_epoch, member.previous_member_epoch) == (1, 1)
        assert member.assignment == kept
        assert member.subscribed_topic_names == frozenset({"foo"})
        assert member.classic is not None
        assert (member.classic.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 60_000)
        assert member.classic.supported_protocols == (RANGE,)
    types = written(shard, before)
    conversion = [-2, 5, 5, *([4] if profile is KIP_848 else []), 3, 7, 7, 6, 8, 8]
    assert types[: len(conversion)] == conversion
    assert types[len(conversion)] == 5


def test_what_the_leader_assigned_is_the_target_until_the_next_one() -> None:
    shard = driven()
    k0, k1 = assign(shard, (0, 1, 2, 3), (4, 5))
    before = len(list(shard.log.replay()))
    beat(shard, "m1", 0)
    records = list(shard.log.replay())[before:]
    targets = {
        each.key.member_id: each.value.partitions
        for each in records[:7]
        if isinstance(each.key, r.TargetMemberKey) and isinstance(each.value, r.TargetMemberValue)
    }
    assert targets == {k0: foo(0, 1, 2, 3), k1: foo(4, 5)}
    epochs = [each.value for each in records if isinstance(each.key, r.TargetMetadataKey)]
    assert [
        each.assignment_epoch for each in epochs if isinstance(each, r.TargetMetadataValue)
    ] == [
        1,
        2,
    ]


@EVERY_PROFILE
def test_a_classic_member_learns_and_joins_the_consumer_group(profile: Profile) -> None:
    shard = driven(profile)
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    beat(shard, "m1", 0)
    assert shard.heartbeat(k0, generation_id=1) == C.REBALANCE_IN_PROGRESS
    protocol = replace(RANGE, metadata=encode_subscription(Subscription(topics=("foo",))))
    response: Any = shard.join(k0, protocols=(protocol,)).response
    assert (response.error_code, response.generation_id, response.member_id) == (E.NONE, 2, k0)
    synced: Any = shard.send(
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=2,
            member_id=k0,
            protocol_type="consumer",
            protocol_name="range",
        )
    ).response
    assert len(decode_assignment(synced.assignment).partitions) == 3
    assert beat(shard, "m1", 2).assignment is not None
    assert shard.heartbeat(k0, generation_id=2) == E.NONE
    assert listed(shard) == ("consumer", "Stable")


def test_parked_requests_are_answered() -> None:
    shard = driven()
    k0, k1 = assign(shard, (0, 1, 2), (3, 4, 5))
    ticket = shard.join(k1, client="k1", protocols=(RANGE, ClassicProtocol("sticky", METADATA)))
    assert ticket.response is None
    assert listed(shard) == ("classic", "PreparingRebalance")
    beat(shard, "m1", 0)
    response: Any = ticket.response
    assert (response.error_code, response.member_id) == (C.REBALANCE_IN_PROGRESS, k1)
    assert consumer_group(shard).members.keys() == {k0, k1, "m1"}


def test_parked_syncs_are_answered() -> None:
    shard = driven()
    tickets = [shard.join(client="k0"), shard.join(client="k1")]
    shard.wait(6.0)
    responses: list[Any] = [each.response for each in tickets]
    follower = next(each.member_id for each in responses if each.member_id != each.leader)
    parked = shard.sync(follower)
    assert parked.response is None
    beat(shard, "m1", 0)
    answered: Any = parked.response
    assert answered.error_code == C.REBALANCE_IN_PROGRESS
    # Nothing is assigned yet: the members have nothing to give up.
    members = consumer_group(shard).members
    assert all(not members[each.member_id].assigned for each in responses)


REFUSED = "Cannot upgrade classic group g to consumer group because "


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"migration_policy": MigrationPolicy.DISABLED}, "online upgrade is disabled."),
        ({"migration_policy": MigrationPolicy.DOWNGRADE}, "online upgrade is disabled."),
        (
            {"max_size": 1},
            "the group size exceeds the consumer group maximum size.",
        ),
    ],
)
@EVERY_PROFILE
def test_settings_may_forbid_an_upgrade(
    profile: Profile, settings: dict[str, Any], reason: str
) -> None:
    shard = driven(profile, **settings)
    assign(shard, (0, 1, 2), (3, 4, 5))
    response = beat(shard, "m1", 0)
    code = E.INVALID_REQUEST if profile is KIP_848 else E.GROUP_ID_NOT_FOUND
    assert (response.error_code, response.error_message) == (code, REFUSED + reason)
    assert listed(shard) == ("classic", "Stable")


def test_other_protocol_types_stay_classic() -> None:
    shard = driven()
    request = shard.join_request(protocols=(ClassicProtocol("sessioned", b"x"),))
    shard.send(replace(request, protocol_type="connect"), api_version=3)
    shard.wait(3.0)
    response = beat(shard, "m1", 0)
    assert response.error_code == E.GROUP_ID_NOT_FOUND
    expected = "the group does not use the consumer embedded protocol."
    assert response.error_message == REFUSED + expected


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_4, KIP_848], ids=lambda each: each.name)
def test_a_custom_assignor_prevents_the_upgrade_of_kafka_only(profile: Profile) -> None:
    shard = driven(profile)
    assign(shard, (0, 1, 2, 3, 4, 5), user_data=b"more")
    response = beat(shard, "m1", 0)
    if profile is KIP_848:
        assert response.error_code == E.NONE
        return
    assert response.error_code == E.GROUP_ID_NOT_FOUND
    assert response.error_message == (
        REFUSED + "an unsupported custom assignor is in use. Please refer to the documentation"
        " or switch to a default assignor before re-attempting the upgrade."
    )
    assert listed(shard) == ("classic", "Stable")


def test_a_refused_join_has_answered_the_parked_one() -> None:
    shard = driven()
    _, k1 = assign(shard, (0, 1, 2), (3, 4, 5), user_data=b"more")
    ticket = shard.join(k1, client="k1", protocols=(RANGE, ClassicProtocol("sticky", METADATA)))
    assert beat(shard, "m1", 0).error_code == E.GROUP_ID_NOT_FOUND
    response: Any = ticket.response
    assert response.error_code == C.REBALANCE_IN_PROGRESS
    assert (shard.group.state, shard.group.awaiting_join) == (ClassicState.PREPARING_REBALANCE, 0)


def test_malformed_metadata_prevents_the_upgrade() -> None:
    shard = driven()
    shard.join(protocols=(ClassicProtocol("range", b"\x00"),))
    shard.wait(3.0)
    response = beat(shard, "m1", 0)
    assert response.error_message == REFUSED + "the embedded consumer protocol is malformed."


def test_the_kip_wants_embedded_metadata_of_version_3() -> None:
    shard = driven(KIP_848)
    old = encode_subscription(Subscription(topics=("foo",), version=1))
    shard.join(protocols=(ClassicProtocol("range", old),))
    shard.wait(3.0)
    response = beat(shard, "m1", 0)
    assert response.error_code == E.INVALID_REQUEST
    expected = "version 1 of the embedded protocol is not supported."
    assert response.error_message == REFUSED + expected


def test_a_consumer_group_that_is_full_refuses_after_the_conversion() -> None:
    shard = driven(max_size=2)
    assign(shard, (0, 1, 2), (3, 4, 5))
    assert beat(shard, "m1", 0).error_code == E.GROUP_MAX_SIZE_REACHED
    assert listed(shard) == ("classic", "Stable")


@EVERY_PROFILE
def test_the_last_leave_makes_a_classic_group(profile: Profile) -> None:
    shard = driven(profile)
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    beat(shard, "m1", 0)
    before = len(list(shard.log.replay()))
    assert beat(shard, "m1", -1).error_code == E.NONE
    assert listed(shard) == ("classic", "PreparingRebalance")
    # The generation is the group epoch; the assignment is the target of the member.
    assert shard.group.generation_id == 2
    assert (shard.group.leader_id, shard.group.protocol_name) == (k0, "range")
    assigned = decode_assignment(shard.group.members[k0].assignment)
    assert len(assigned.partitions) == 3
    middle = [-4] if profile in (KAFKA_4_0, KIP_848) else []
    assert written(shard, before) == [-8, -8, -7, -7, -6, -5, -5, *middle, -3, 2]
    assert not consumer_group(shard).members
    assert shard.heartbeat(k0, generation_id=2) == C.REBALANCE_IN_PROGRESS
    ticket = shard.join(k0)
    response: Any = ticket.response
    assert (response.error_code, response.generation_id, response.leader) == (E.NONE, 3, k0)
    late = beat(shard, "m1", 2)
    assert late.error_code == E.GROUP_ID_NOT_FOUND
    assert late.error_message == "Group g is not a consumer group."


@pytest.mark.parametrize("policy", list(MigrationPolicy), ids=lambda each: each.value)
def test_the_policy_decides_on_the_way_back(policy: MigrationPolicy) -> None:
    shard = driven()
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    beat(shard, "m1", 0)
    shard.shard.set_settings(Settings(replace(AT_ONCE, migration_policy=policy)), shard.now)
    beat(shard, "m1", -1)
    goes_back = policy in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)
    assert listed(shard)[0] == ("classic" if goes_back else "consumer")
    if not goes_back:
        assert consumer_group(shard).members.keys() == {k0}
        assert consumer_group(shard).group_epoch == 3


def test_a_large_group_stays_a_consumer_group() -> None:
    shard = driven(classic_max_size=1)
    beat(shard, "m1", 0)
    shard.join(client="k0")
    shard.join(client="k1")
    beat(shard, "m1", -1)
    assert listed(shard)[0] == "consumer"
    k0 = min(consumer_group(shard).members)
    # The next leave finds one member only.
    assert shard.leave(m.LeavingMember(k0)) == (E.NONE,)
    assert listed(shard) == ("classic", "PreparingRebalance")


def test_a_silent_last_member_makes_a_classic_group() -> None:
    shard = driven()
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    beat(shard, "m1", 0)
    for _ in range(9):
        shard.wait(5.0)
        shard.heartbeat(k0, generation_id=1)
    assert listed(shard) == ("classic", "PreparingRebalance")


def test_operators_may_remove_the_last_member_of_the_new_protocol() -> None:
    shard = driven()
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    beat(shard, "m1", 0)
    assert shard.leave(m.LeavingMember("m1"), m.LeavingMember("m9")) == (
        E.NONE,
        E.UNKNOWN_MEMBER_ID,
    )
    assert listed(shard) == ("classic", "PreparingRebalance")
    assert shard.group.members.keys() == {k0}


def test_without_members_nothing_is_converted() -> None:
    shard = driven()
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    beat(shard, "m1", 0)
    assert shard.leave(m.LeavingMember("m1"), m.LeavingMember(k0)) == (E.NONE, E.NONE)
    assert listed(shard) == ("consumer", "Empty")


@pytest.mark.parametrize(
    ("profile", "topics", "state", "generation_id"),
    [
        (KAFKA_4_0, ("foo",), "Stable", 1),
        (KAFKA_4_0, ("foo", "bar"), "Stable", 2),
        (KAFKA_4_1, ("foo",), "Stable", 1),
        (KAFKA_4_4, ("foo",), "Stable", 2),
        (KAFKA_4_1, ("foo", "bar"), "PreparingRebalance", 0),
        (KAFKA_4_4, ("foo", "bar"), "PreparingRebalance", 0),
    ],
    ids=lambda each: str(getattr(each, "name", each)),
)
def test_a_static_member_that_returns_makes_a_classic_group(
    profile: Profile, topics: tuple[str, ...], state: str, generation_id: int
) -> None:
    shard = driven(profile)
    beat(shard, "m1", 0, instance_id="i1")
    embedded = encode_subscription(Subscription(topics=topics))
    ticket = shard.join(instance_id="i1", protocols=(ClassicProtocol("range", embedded),))
    response: Any = ticket.response
    assert response.error_code == E.NONE
    assert response.generation_id == generation_id
    assert listed(shard) == ("classic", state)
    (member,) = shard.group.members.values()
    assert (member.member_id, member.instance_id) == (response.member_id, "i1")
    assert decode_assignment(member.assignment).partitions == owned("foo", 0, 1, 2, 3, 4, 5)
    if state == "Stable":
        # Kafka 4.0 answers with an epoch that the group never has.
        is_known = shard.group.generation_id == generation_id
        assert is_known is (profile is not KAFKA_4_0 or topics == ("foo",))
        error = E.NONE if is_known else E.ILLEGAL_GENERATION
        assert shard.heartbeat(member.member_id, generation_id=generation_id) == error


def test_a_static_member_of_a_group_that_waits_for_a_target() -> None:
    states = {}
    for profile in (KAFKA_4_2, KAFKA_4_3):
        shard = driven(profile)
        beat(shard, "m1", 0, instance_id="i1")
        beat(shard, "m2", 0)
        beat(shard, "m2", -1)
        shard.join(instance_id="i1")
        states[profile.name] = listed(shard)
    assert states == {
        "kafka-4.2": ("classic", "Stable"),
        "kafka-4.3": ("classic", "PreparingRebalance"),
    }


@EVERY_PROFILE
def test_empty_groups_convert_under_every_policy(profile: Profile) -> None:
    shard = driven(profile, migration_policy=MigrationPolicy.DISABLED)
    key = TopicIdPartition(FOO, 0)
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    commit = OffsetCommitRequest(
        group_id=GROUP, member_id="", member_epoch=-1, offsets={key: OffsetAndMetadata(7)}
    )
    shard.leave(m.LeavingMember(k0))
    assert listed(shard) == ("classic", "Empty")
    shard.send(commit)
    before = len(list(shard.log.replay()))
    first = profile.first_group_epoch + 1
    assert beat(shard, "m1", 0).member_epoch == first
    assert written(shard, before)[0] == -2
    assert listed(shard) == ("consumer", "Stable")
    beat(shard, "m1", -1)
    assert listed(shard) == ("consumer", "Empty")
    response: Any = shard.join("gone").response
    assert response.error_code == E.UNKNOWN_MEMBER_ID
    ticket = shard.join()
    assert ticket.response is None
    assert listed(shard) == ("classic", "PreparingRebalance")
    shard.wait(3.0)
    response = ticket.response
    assert (response.error_code, response.generation_id) == (E.NONE, 1)
    # The offsets have stayed.
    assert consumer_group(shard).offsets["foo", 0].committed_offset == 7


def test_failed_appends_undo_conversions() -> None:
    shard = driven()
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    shard.replicates = False
    ticket = shard.send(
        HeartbeatRequest(
            group_id=GROUP,
            member_id="m1",
            member_epoch=0,
            subscribed_topic_names=("foo",),
            **JOIN,
        )
    )
    assert consumer_group(shard).members.keys() == {k0, "m1"}
    # A list shows replicated groups only.
    assert listed(shard) == ("classic", "Stable")
    shard.fail()
    response: Any = ticket.response
    assert response.error_code == E.COORDINATOR_NOT_AVAILABLE
    assert (listed(shard), shard.group.members.keys()) == (("classic", "Stable"), {k0})
    shard.replicates = True
    beat(shard, "m1", 0)
    shard.replicates = False
    shard.send(HeartbeatRequest(group_id=GROUP, member_id="m1", member_epoch=-1))
    assert consumer_group(shard).classic is not None
    shard.fail()
    assert consumer_group(shard).classic is None
    assert consumer_group(shard).members.keys() == {k0, "m1"}
    assert listed(shard) == ("consumer", "Reconciling")


def test_a_conversion_that_does_not_fit_into_a_batch_is_refused() -> None:
    shard = driven()
    beat(shard, "m1", 0)
    joined: Any = shard.join().response
    group = consumer_group(shard)
    member = group.members[joined.member_id]
    large = encode_subscription(Subscription(topics=("foo",), user_data=bytes(MAX_BATCH_BYTES)))
    metadata = ClassicMetadata(10_000, (ClassicProtocol("range", large),))
    # A record that no request can make.
    group.apply(r.member_metadata(GROUP, replace(member, classic=metadata)))
    assert beat(shard, "m1", -1).error_code == E.UNKNOWN_SERVER_ERROR
    assert consumer_group(shard).classic is None
    assert consumer_group(shard).state is GroupState.RECONCILING


def test_a_failover_finds_the_converted_group() -> None:
    shard = driven()
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    beat(shard, "m1", 0)
    member = consumer_group(shard).members[k0]
    shard.fail_over()
    assert consumer_group(shard).members[k0] == member
    # A new coordinator gives all members the session timeout of the group.
    shard.wait(44.0)
    assert k0 in consumer_group(shard).members
    beat(shard, "m1", -1)
    shard.fail_over()
    assert (shard.group.state, shard.group.generation_id) == (ClassicState.STABLE, 2)


def test_each_description_knows_its_own_groups() -> None:
    shard = driven()
    (k0,) = assign(shard, (0, 1, 2, 3, 4, 5))
    request = DescribeGroupRequest(group_id=GROUP)
    described: Any = shard.send(request).response
    assert described.error_message == "Group g is not a consumer group."
    beat(shard, "m1", 0)
    described = shard.send(request).response
    assert {each.member_id: each.member_type for each in described.members} == {"m1": 1, k0: 0}
    classic: Any = shard.send(DescribeGroupsRequest(group_id=GROUP)).response
    assert isinstance(classic, DescribeGroupsResponse)
    assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_4], ids=lambda each: each.name)
def test_before_the_first_generation_the_coordinator_fails(profile: Profile) -> None:
    shard = driven(profile)
    ticket = shard.join()
    assert ticket.response is None
    assert beat(shard, "m1", 0).error_code == E.UNKNOWN_SERVER_ERROR
    response: Any = ticket.response
    assert response.error_code == C.REBALANCE_IN_PROGRESS
    assert listed(shard) == ("classic", "PreparingRebalance")


def test_in_the_kip_the_user_data_of_classic_members_does_not_bump_the_epoch() -> None:
    shard = driven(KIP_848)
    beat(shard, "m1", 0)

    def protocols(user_data: bytes) -> tuple[ClassicProtocol, ...]:
        embedded = encode_subscription(Subscription(topics=("foo",), user_data=user_data))
        return (ClassicProtocol("sticky", embedded),)

    joined: Any = shard.join(protocols=protocols(b"generation 1")).response
    member_id = joined.member_id
    epoch = consumer_group(shard).group_epoch
    shard.join(member_id, protocols=protocols(b"generation 2"))
    assert consumer_group(shard).group_epoch == epoch
    (assignor,) = consumer_group(shard).members[member_id].client_assignors
    assert (assignor.name, assignor.metadata) == ("sticky", b"generation 2")
    # Without classic protocol a member no longer has them, and its change bumps nothing either.
    beat(shard, member_id, 0)
    assert consumer_group(shard).group_epoch == epoch
    assert consumer_group(shard).members[member_id].client_assignors == ()


@pytest.mark.parametrize(("profile", "epoch"), [(KAFKA_4_0, 2), (KAFKA_4_1, 1), (KAFKA_4_4, 1)])
def test_a_static_member_that_upgrades_its_group(profile: Profile, epoch: int) -> None:
    shard = driven(profile)
    shard.join(instance_id="i1")
    shard.wait(3.0)
    (k0,) = shard.group.members
    shard.sync(k0, {k0: encode_assignment(EmbeddedAssignment(partitions=owned("foo", 0, 1)))})
    response = beat(shard, "m1", 0, instance_id="i1")
    assert (response.error_code, response.member_epoch) == (E.NONE, epoch)
    assert consumer_group(shard).members.keys() == {"m1"}
    assert consumer_group(shard).group_epoch == epoch
    # Without a new target it keeps what the leader assigned.
    assert response.assignment == (foo(0, 1) if epoch == 1 else foo(0, 1, 2, 3, 4, 5))


def test_what_waits_in_a_classic_group_that_was_never_recorded() -> None:
    shard = driven()
    beat(shard, "m1", 0)
    beat(shard, "m1", -1)
    shard.replicates = False
    creates = shard.join(api_version=3)
    assert (creates.response, len(shard.shard.parked)) == (None, 1)
    shard.fail()
    response: Any = creates.response
    assert response.error_code == E.COORDINATOR_NOT_AVAILABLE
    assert not shard.shard.parked
    assert listed(shard) == ("consumer", "Empty")
    shard.replicates = True
    beat(shard, "m1", 0)
    joined: Any = shard.join().response
    shard.replicates = False
    shard.send(HeartbeatRequest(group_id=GROUP, member_id="m1", member_epoch=-1))
    waits = shard.join("", instance_id="i2")
    assert len(shard.shard.parked) == 1
    shard.fail()
    refused: Any = waits.response
    assert refused.error_code == E.COORDINATOR_NOT_AVAILABLE
    assert not shard.shard.parked
    assert consumer_group(shard).members.keys() == {"m1", joined.member_id}
