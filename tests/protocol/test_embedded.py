"""Embedded metadata of the classic protocol; brokers' own bytes are in the recorded transcripts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.errors import ProtocolError
from spark_groups.protocol.embedded import (
    EmbeddedAssignment,
    ProposedAssignment,
    Subscription,
    decode_assignment,
    decode_owned,
    decode_proposed_assignment,
    decode_subscribed_topics,
    decode_subscription,
    encode_assignment,
    encode_owned,
    encode_proposed_assignment,
    encode_subscription,
)
from spark_groups.types import TopicPartition

OWNED = frozenset({TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)})


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_keeps_the_fields_of_its_version(version: int) -> None:
    full = Subscription(
        topics=("a", "b"),
        user_data=b"xy",
        owned_partitions=OWNED if version >= 1 else frozenset(),
        generation_id=7 if version >= 2 else -1,
        rack_id="r1" if version >= 3 else None,
        version=version,
    )

    assert decode_subscription(encode_subscription(full)) == full


@pytest.mark.parametrize("version", [b"\x00\x00", b"\x00\x03", b"\x00\x63", b"\xff\xff"])
def test_topics_are_read_alike_from_every_version(version: bytes) -> None:
    metadata = encode_subscription(Subscription(topics=("a", "b"), version=0))
    assert decode_subscribed_topics(version + metadata[2:]) == ("a", "b")
    with pytest.raises(ProtocolError):
        decode_subscribed_topics(version + metadata[2:-1])


def test_bytes_are_those_of_the_schema() -> None:
    subscription = Subscription(topics=("t",), version=0)
    assert encode_subscription(subscription).hex() == "000000000001000174ffffffff"
    assignment = EmbeddedAssignment(partitions=frozenset({TopicPartition("t", 5)}), version=1)
    expected = "0001000000010001740000000100000005ffffffff"
    assert encode_assignment(assignment).hex() == expected
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_assignment(b"") == EmbeddedAssignment()


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


def test_a_newer_version_is_read_as_the_newest_known_one() -> None:
    newer = b"\x00\x09" + encode_subscription(Subscription(topics=("t",)))[2:] + b"more"
    assert decode_subscription(newer) == Subscription(topics=("t",))


@pytest.mark.parametrize(
    "broken",
    [b"", b"\x00", b"\xff\xff", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x05t"],
)
def test_broken_bytes_are_refused(broken: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(broken)


@pytest.mark.parametrize("cut", [1, 4, 8, 13])
def test_a_broken_proposed_assignment_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        decode_proposed_assignment(encode_proposed_assignment(ProposedAssignment())[:-cut])
