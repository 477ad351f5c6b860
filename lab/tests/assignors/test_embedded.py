"""Embedded metadata as members and leaders write it, and that of the cooperative proposal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_lab.assignors.embedded import (
    ProposedAssignment,
    decode_owned,
    decode_proposed_assignment,
    decode_subscribed_topics,
    encode_owned,
    encode_proposed_assignment,
    encode_subscription,
)
from spark_groups.errors import ProtocolError
from spark_groups.group.member.embedded import Subscription
from spark_groups.types import TopicPartition

OWNED = frozenset({TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)})


@pytest.mark.parametrize("version", [b"\x00\x00", b"\x00\x03", b"\x00\x63", b"\xff\xff"])
def test_topics_are_read_alike_from_every_version(version: bytes) -> None:
    metadata = encode_subscription(Subscription(topics=("a", "b"), version=0))
    assert decode_subscribed_topics(version + metadata[2:]) == ("a", "b")
    with pytest.raises(ProtocolError):
        decode_subscribed_topics(version + metadata[2:-1])


def test_a_proposed_subscription_is_version_1_of_kafkas() -> None:
    """Version, SubscribeTopics, PartitionAssignorData, AssignedTopicPartitions."""
    owned = frozenset({TopicPartition("t", 4)})
    proposed = Subscription(topics=("t",), owned_partitions=owned, version=1)
    expected = "0001" + "00000001" + "000174" + "ffffffff" + "00000001000174" + "0000000100000004"
    assert encode_subscription(proposed).hex() == expected


def test_a_proposed_assignment_has_the_fields_of_its_design() -> None:
    assigned, revoked = TopicPartition("t", 5), TopicPartition("u", -1)
    full = ProposedAssignment(
        assigned=frozenset({assigned}),
        revoked=frozenset({revoked}),
        scheduled_rebalance_timeout_ms=300_000,
    )
    fields = "00000001000174" + "0000000100000005" + "00000001000175" + "00000001ffffffff"
    assert encode_proposed_assignment(full).hex() == "0001" + fields + "000493e0"
    assert decode_proposed_assignment(encode_proposed_assignment(full)) == full

    first = replace(full, version=0, scheduled_rebalance_timeout_ms=0)
    assert encode_proposed_assignment(first).hex() == "0000" + fields
    assert decode_proposed_assignment(encode_proposed_assignment(first)) == first

    newer = b"\x00\x09" + encode_proposed_assignment(full)[2:] + b"more"
    assert decode_proposed_assignment(newer) == full


def test_a_member_keeps_all_that_a_proposed_assignment_leaves_out() -> None:
    a, b, c = sorted(OWNED)
    assert ProposedAssignment().applied_to(OWNED) == OWNED
    moved = ProposedAssignment(assigned=frozenset({c}), revoked=frozenset({a}))
    assert moved.applied_to(frozenset({a, b})) == frozenset({b, c})
    assert decode_proposed_assignment(b"") == ProposedAssignment()


def test_user_data_of_the_sticky_assignor() -> None:
    user_data = encode_owned(OWNED, 7)
    assert decode_owned(user_data) == (OWNED, 7)
    assert decode_owned(user_data[:-4]) == (OWNED, None)
    assert encode_owned([TopicPartition("t", 5)], 7).hex() == (
        "0000000100017400000001" + "00000005" + "00000007"
    )


@pytest.mark.parametrize("cut", [1, 4, 8, 13])
def test_a_broken_proposed_assignment_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        decode_proposed_assignment(encode_proposed_assignment(ProposedAssignment())[:-cut])
