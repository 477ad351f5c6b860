"""What sticky members report, and how partitions move in two rebalances."""

from __future__ import annotations

import struct

import pytest

from group_lab.assignors.classic import ClassicAssignor, ClassicMember
from group_lab.assignors.embedded import decode_owned
from group_lab.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from lab.tests.assignors.groups import assigned, claiming, classic_member, partitions
from spark_groups.group.member.embedded import Subscription

STICKY = StickyAssignor()
COOPERATIVE = CooperativeStickyAssignor()
BOTH = pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=lambda each: each.name)


def test_a_sticky_member_sends_its_last_assignment() -> None:
    had = partitions(t=[0, 2])
    user_data = STICKY.user_data(had, 4)
    assert user_data is not None
    assert decode_owned(user_data) == (had, 4)
    assert STICKY.user_data(None, 4) is None


def test_a_cooperative_member_sends_its_generation() -> None:
    assert COOPERATIVE.user_data(partitions(t=[0]), 4) == struct.pack(">i", 4)


def test_sticky_believes_user_data_only() -> None:
    """An eager member owns nothing when it joins; what it says otherwise does not count."""
    owning = Subscription(topics=("t",), owned_partitions=partitions(t=[0]), generation_id=4)
    members = {"a": classic_member("t"), "b": ClassicMember(owning)}
    assert assigned(STICKY, members, t=2)["a"] == partitions(t=[0])


def test_a_partition_moves_in_two_rebalances() -> None:
    members = {
        "a": claiming(COOPERATIVE, "t", had=partitions(t=[0, 1, 2, 3]), generation_id=1),
        "b": claiming(COOPERATIVE, "t", had=None),
    }
    first = assigned(COOPERATIVE, members, t=4)
    assert first == {"a": partitions(t=[0, 1]), "b": frozenset()}
    members = {
        each: claiming(COOPERATIVE, "t", had=had, generation_id=2) for each, had in first.items()
    }
    second = assigned(COOPERATIVE, members, t=4)
    assert second == {"a": partitions(t=[0, 1]), "b": partitions(t=[2, 3])}


def test_so_it_does_where_subscriptions_differ() -> None:
    had = partitions(t=[0, 1, 2, 3])
    members = {
        "a": claiming(COOPERATIVE, "t", "u", had=had, generation_id=1),
        "b": claiming(COOPERATIVE, "t", had=None),
    }
    first = assigned(COOPERATIVE, members, t=4, u=1)
    assert first["b"] == frozenset()
    assert len(first["a"]) == 3
    assert partitions(u=[0]) < first["a"]


@BOTH
def test_a_free_partition_moves_at_once(assignor: ClassicAssignor) -> None:
    """The member that had it is gone."""
    members = {
        "a": claiming(assignor, "t", had=partitions(t=[0]), generation_id=1),
        "c": claiming(assignor, "t", had=None),
    }
    assert assigned(assignor, members, t=2) == {"a": partitions(t=[0]), "c": partitions(t=[1])}


@BOTH
@pytest.mark.parametrize("claimed", [[-1], [-1, -2, -3, -4, -5]])
def test_partitions_that_do_not_exist_have_no_owner(
    assignor: ClassicAssignor, claimed: list[int]
) -> None:
    members = {
        "a": claiming(assignor, "t", had=partitions(t=[*claimed, 4]), generation_id=5),
        "b": claiming(assignor, "t", had=None),
    }
    assert assigned(assignor, members, t=4) == {
        "a": partitions(t=[0, 2]),
        "b": partitions(t=[1, 3]),
    }


@BOTH
def test_the_later_generation_wins(assignor: ClassicAssignor) -> None:
    members = {
        "a": claiming(assignor, "t", had=partitions(t=[0, 1]), generation_id=3),
        "b": claiming(assignor, "t", had=partitions(t=[1]), generation_id=5),
    }
    for order in (("a", "b"), ("b", "a")):
        found = assigned(assignor, {each: members[each] for each in order}, t=2)
        assert found == {"a": partitions(t=[0]), "b": partitions(t=[1])}


def test_two_owners_in_one_generation_both_lose_the_partition() -> None:
    members = {
        each: claiming(COOPERATIVE, "t", had=partitions(t=[0]), generation_id=3) for each in "ab"
    }
    assert assigned(COOPERATIVE, members, t=1) == {"a": frozenset(), "b": frozenset()}
    assert assigned(STICKY, members, t=1)["a"] == partitions(t=[0])


def test_an_old_client_reports_its_generation_in_user_data() -> None:
    """Without version 2 of the subscription."""
    old = Subscription(
        topics=("t",),
        user_data=COOPERATIVE.user_data(None, 5),
        owned_partitions=partitions(t=[0]),
        version=1,
    )
    members = {
        "a": claiming(COOPERATIVE, "t", had=partitions(t=[0]), generation_id=3),
        "b": ClassicMember(old),
    }
    assert assigned(COOPERATIVE, members, t=1) == {"a": frozenset(), "b": partitions(t=[0])}


@pytest.mark.parametrize("user_data", [None, b"", b"\x00", b"\x00\x00\x00\x09broken"])
@BOTH
def test_user_data_that_cannot_be_read_claims_nothing(
    assignor: ClassicAssignor, user_data: bytes | None
) -> None:
    subscription = Subscription(topics=("t",), user_data=user_data, version=0)
    members = {each: ClassicMember(subscription) for each in "ab"}
    assert assigned(assignor, members, t=2) == {"a": partitions(t=[0]), "b": partitions(t=[1])}


@BOTH
def test_partitions_beyond_the_end_of_a_topic_are_forgotten(assignor: ClassicAssignor) -> None:
    """The topic was deleted and created again, smaller; Java's client keeps assigning them."""
    members = {"a": claiming(assignor, "t", had=partitions(t=[0, 5]), generation_id=1)}
    assert assigned(assignor, members, t=2) == {"a": partitions(t=[0, 1])}


@BOTH
def test_a_member_without_topics_gets_nothing(assignor: ClassicAssignor) -> None:
    """Its pattern matches none yet; Java's client may count it as subscribed like the next one."""
    members = {"a": classic_member(), "b": classic_member("t")}
    assert assigned(assignor, members, t=2) == {"a": frozenset(), "b": partitions(t=[0, 1])}


def test_a_former_owner_gets_only_what_it_subscribes_to() -> None:
    """Java's client returns the partition to a member that no longer wants it, or fails."""
    had = partitions(t=[0, 1, 2])
    members = {
        "a": claiming(COOPERATIVE, "u", had=had, generation_id=3),
        "b": claiming(COOPERATIVE, "t", had=had, generation_id=4),
        "c": claiming(COOPERATIVE, "t", "u", had=None),
    }
    found = assigned(COOPERATIVE, members, t=3, u=1)
    assert all(key.topic == "u" for key in found["a"])


def test_a_member_of_an_earlier_generation_is_preferred() -> None:
    """Others took its partitions over, and now one has to move again."""
    had = partitions(t=[0, 1], u=[0, 1])
    members = {
        "a": claiming(STICKY, "t", "u", had=had, generation_id=2),
        "b": claiming(STICKY, "t", had=None),
        "c": claiming(STICKY, "t", had=partitions(t=[0]), generation_id=1),
    }
    found = assigned(STICKY, members, t=2, u=2)
    assert found == {"a": partitions(u=[0, 1]), "b": partitions(t=[1]), "c": partitions(t=[0])}
