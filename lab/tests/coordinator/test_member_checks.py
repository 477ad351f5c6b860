"""Who a heartbeat comes from; the sentences are Kafka's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from group_lab.coordinator import member_checks
from group_lab.coordinator.effects import RefusedError
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import ReconciliationState
from group_lab.coordinator.profile import KAFKA_4_1, KAFKA_4_2, KAFKA_4_3, KAFKA_4_4, Profile
from group_lab.coordinator.records import OffsetCommitKey, OffsetCommitValue, Record
from group_lab.coordinator.settings import BrokerSettings
from lab.tests.coordinator.driving import Driven, foo, settled_pair
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import HeartbeatRequest
from spark_groups.types import Assignment


def sender(
    driven: Driven, member_id: str, member_epoch: int, **fields: Any
) -> member_checks.Sender:
    request = HeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=member_epoch, **fields
    )
    return member_checks.sender(driven.group, request, member_id, driven.profile)


def refusal(driven: Driven, member_id: str, member_epoch: int, **fields: Any) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        sender(driven, member_id, member_epoch, **fields)
    return refused.value


@pytest.fixture
def pair() -> Driven:
    return settled_pair()


def test_a_new_dynamic_member(pair: Driven) -> None:
    found = sender(pair, "m3", 0)
    assert (found.member.member_id, found.member.member_epoch) == ("m3", 0)
    assert found.records == ()


def test_a_member_that_never_joined(pair: Driven) -> None:
    refused = refusal(pair, "m3", 3)
    assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.message == "Member m3 is not a member of group g."


@pytest.mark.parametrize(
    ("received", "owned", "comparison"),
    [
        (3, None, None),
        (4, foo(0), "greater"),
        (2, foo(0, 1, 2), None),
        (2, foo(0), None),
        (2, foo(), None),
        (2, foo(0, 5), "smaller"),
        (2, None, "smaller"),
        (1, foo(0), "smaller"),
    ],
)
def test_a_member_epoch_is_the_one_it_has_or_the_one_of_a_lost_answer(
    pair: Driven, received: int, owned: Assignment | None, comparison: str | None
) -> None:
    assert (pair.member("m1").member_epoch, pair.member("m1").previous_member_epoch) == (3, 2)
    if comparison is None:
        assert sender(pair, "m1", received, topic_partitions=owned).member is pair.member("m1")
        return
    refused = refusal(pair, "m1", received, topic_partitions=owned)
    assert refused.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused.message == (
        f"The consumer group member has a {comparison} member epoch ({received}) than the one"
        " known by the group coordinator (3)."
        " The member must abandon all its partitions and rejoin."
    )


@pytest.mark.parametrize(("profile", "is_taken"), [(KAFKA_4_1, False), (KAFKA_4_2, True)])
def test_a_member_that_is_known_joins_again_from_4_2_on(
    pair: Driven, profile: Profile, is_taken: bool
) -> None:
    pair.profile = profile
    if is_taken:
        assert sender(pair, "m1", 0).member is pair.member("m1")
    else:
        assert "smaller member epoch (0)" in str(refusal(pair, "m1", 0))


def test_a_group_that_is_none() -> None:
    group = ConsumerGroup("g")
    with pytest.raises(RefusedError, match="it is unknown") as refused:
        member_checks.check_exists(group, "it is unknown")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    group.apply(Record(OffsetCommitKey("g", "foo", 0), OffsetCommitValue(1)))
    with pytest.raises(RefusedError, match="Group g is not a consumer group"):
        member_checks.check_exists(group, "it is unknown")


class TestStatic:
    @pytest.fixture
    def driven(self) -> Driven:
        driven = Driven()
        driven.join("m1", "foo", instance_id="i1")
        return driven

    def test_an_instance_id_that_is_held(self, driven: Driven) -> None:
        refused = refusal(driven, "m2", 0, instance_id="i1")
        assert refused.code is ErrorCode.UNRELEASED_INSTANCE_ID
        assert refused.message == (
            "Static member m2 with instance id i1 cannot join the group because the instance id is"
            " owned by m1 member."
        )

    def test_an_instance_id_that_no_member_holds(self, driven: Driven) -> None:
        refused = refusal(driven, "m1", 2, instance_id="i2")
        assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert refused.message == "Instance id i2 is unknown."

    def test_an_instance_id_that_another_member_holds(self, driven: Driven) -> None:
        refused = refusal(driven, "m2", 2, instance_id="i1")
        assert refused.code is ErrorCode.FENCED_INSTANCE_ID
        assert refused.message == ("Static member m2 with instance id i1 was fenced by member m1.")

    def test_its_epoch_is_checked_like_that_of_any_other(self, driven: Driven) -> None:
        assert sender(driven, "m1", 2, instance_id="i1").member is driven.member("m1")
        assert "greater member epoch (3)" in str(refusal(driven, "m1", 3, instance_id="i1"))

    @pytest.mark.parametrize("successor", ["m1", "m2"])
    def test_a_successor_inherits_everything_at_epoch_0(
        self, driven: Driven, successor: str
    ) -> None:
        driven.send("m1", -2, instance_id="i1")
        found = sender(driven, successor, 0, instance_id="i1")
        assert found.predecessor == "m1"
        before = driven.member("m1")
        assert found.member == replace(
            before, member_id=successor, member_epoch=0, previous_member_epoch=0
        )
        types = [(each.key.record_type, each.value is None) for each in found.records]
        tombstones = [(8, True), (7, True), (5, True)]
        assert types == [*tombstones, (5, False), (7, False), (8, False)]
        for each in found.records:
            driven.group.apply(each)
        assert driven.group.members == {successor: found.member}
        assert driven.group.targets[successor].partitions == foo(0, 1, 2, 3, 4, 5)
        assert found.member.state is ReconciliationState.STABLE


@pytest.mark.parametrize(
    ("profile", "member_id", "instance_id", "is_taken"),
    [
        (KAFKA_4_3, "m1", None, True),
        (KAFKA_4_3, "m3", None, False),
        (KAFKA_4_3, "m3", "i1", False),
        (KAFKA_4_4, "m3", "i1", True),
        (KAFKA_4_4, "m3", "i2", False),
        (KAFKA_4_4, "m3", None, False),
    ],
)
def test_a_full_group(
    profile: Profile, member_id: str, instance_id: str | None, is_taken: bool
) -> None:
    driven = Driven()
    driven.join("m1", "foo", instance_id="i1")
    sender = (member_id, instance_id, profile)
    full = BrokerSettings(max_size=1)
    if is_taken:
        member_checks.check_size(driven.group, *sender, full)
    else:
        with pytest.raises(RefusedError, match="maximum capacity of 1 members") as refused:
            member_checks.check_size(driven.group, *sender, full)
        assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    member_checks.check_size(driven.group, *sender, BrokerSettings(max_size=2))


@pytest.fixture
def renamed() -> Driven:
    """A static member that joined again under another instance id, on Kafka 4.3."""
    driven = Driven()
    driven.join("m1", "foo", instance_id="old")
    assert driven.join("m1", "foo", instance_id="new").error_code == 0
    return driven


def test_an_old_instance_id_leads_to_the_member_until_4_3(renamed: Driven) -> None:
    assert sender(renamed, "m1", 2, instance_id="new").member.instance_id == "new"
    assert sender(renamed, "m1", 2, instance_id="old").member.member_id == "m1"
    assert refusal(renamed, "m2", 0, instance_id="old").code is ErrorCode.UNRELEASED_INSTANCE_ID
    renamed.send("m1", -1)
    refused = refusal(renamed, "m2", 0, instance_id="old")
    assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.message == "Member m1 is not a member of group g."
    assert sender(renamed, "m2", 0, instance_id="new").member.member_id == "m2"


def test_an_old_instance_id_is_free_from_4_4_on(renamed: Driven) -> None:
    renamed.profile = KAFKA_4_4
    refused = refusal(renamed, "m1", 2, instance_id="old")
    assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.message == "Instance id old is unknown."
    assert sender(renamed, "m2", 0, instance_id="old").member.member_id == "m2"


def test_static_members_that_swap_their_instance_ids(pair: Driven) -> None:
    """Until 4.3 the second one is refused, although the first has another instance id now."""
    for name in ("m3", "m4"):
        pair.join(name, "foo", instance_id=f"of {name}")
    for name in ("m3", "m4"):
        pair.send(name, -2, instance_id=f"of {name}")
    assert pair.join("m4", "foo", instance_id="of m3").error_code == 0
    assert refusal(pair, "m3", 0, instance_id="of m4").code is ErrorCode.UNRELEASED_INSTANCE_ID
    pair.profile = KAFKA_4_4
    assert sender(pair, "m3", 0, instance_id="of m4").member.member_id == "m3"
