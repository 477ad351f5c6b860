"""Embedded metadata of the classic protocol; brokers' own bytes are in the recorded transcripts."""

from __future__ import annotations

import pytest

from group_lab.assignors.embedded import encode_assignment, encode_subscription
from spark_groups.errors import ProtocolError
from spark_groups.group.member.embedded import (
    EmbeddedAssignment,
    Subscription,
    decode_assignment,
    decode_subscription,
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


def test_bytes_are_those_of_the_schema() -> None:
    subscription = Subscription(topics=("t",), version=0)
    assert encode_subscription(subscription).hex() == "000000000001000174ffffffff"
    assignment = EmbeddedAssignment(partitions=frozenset({TopicPartition("t", 5)}), version=1)
    expected = "0001000000010001740000000100000005ffffffff"
    assert encode_assignment(assignment).hex() == expected
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_assignment(b"") == EmbeddedAssignment()


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
