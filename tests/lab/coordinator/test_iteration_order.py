"""Facts printed by Java 17 and the classes of Apache Kafka 4.3.1."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.lab.coordinator.iteration_order import (
    member_order,
    name_order,
    timeline_order,
    topic_order,
    vote_order,
)
from spark_groups.lab.coordinator.topic_images import TopicImage, TopicsImage


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, (0,)),
        (2, (0, 1)),
        (3, (0, 2, 1)),
        (5, (3, 0, 2, 4, 1)),
        (12, (3, 10, 8, 0, 5, 2, 7, 4, 11, 9, 1, 6)),
    ],
)
def test_a_timeline_hash_map(count: int, expected: tuple[int, ...]) -> None:
    put = [f"member-{each}" for each in range(count)]
    assert timeline_order(put) == [f"member-{each}" for each in expected]


def test_members_of_a_group_that_had_more_of_them() -> None:
    """A broker of 4.4.0 gave the first of them what was free, after five members were three."""
    first, second = "4c8e8d31-9a1a-4c6e-a774-619e966aac93", "f4b3d509-5bb7-45ab-8f81-1f04a5b9bef3"
    known = ["7ce73a7d-8082-441e-aeed-22aa7230c1f6", first, second]
    assert member_order(known, known)[:2] == [second, first]
    assert member_order(known, known, most_members=5)[:2] == [first, second]


MEMBERS = {
    3: "m37 new m0 m74",
    6: "m37 new m0 m185 m111 m148 m74",
    12: "new m0 m74 m370 m37 m296 m185 m333 m111 m222 m148 m259 m407",
}


@pytest.mark.parametrize("count", MEMBERS)
def test_members_as_the_target_builder_goes_through_them(count: int) -> None:
    known = [f"m{each * 37}" for each in range(count)]
    assert member_order(known, [*known, "new"]) == MEMBERS[count].split()


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("new", "new m74 m370 m37 m296 m185 m333 m111 m222 m148 m259 m407"),
        ("n1", "n1 m74 m370 m37 m296 m185 m333 m111 m222 m148 m259 m407"),
        ("n2", "m37 m296 m185 m333 n2 m111 m222 m148 m74 m259 m407 m370"),
        ("n4", "m37 m296 m185 m333 m111 n4 m222 m148 m74 m259 m407 m370"),
    ],
)
def test_a_member_that_replaces_another_one(new: str, expected: str) -> None:
    known = [f"m{each * 37}" for each in range(12)]
    assert member_order(known, [*known[1:], new]) == expected.split()


def test_topics() -> None:
    names = name_order({"audit", "clicks", "orders", "payments", "returns", "views"})
    assert names == ["audit", "payments", "clicks", "orders", "returns", "views"]
    ids = {
        "clicks": uuid.UUID("c9e9e0fc-2cae-3d20-a506-e0c1a4c77d49"),
        "payments": uuid.UUID("84d5eaf7-13c9-3eec-b3d2-c4a83e64dc9a"),
        "audit": uuid.UUID("a5a63d9b-90e6-3fe9-a61e-70b66afec721"),
        "orders": uuid.UUID("12c500ed-0b78-3910-9fb4-6af0f246be87"),
        "returns": uuid.UUID("7fff8452-5c65-3691-9851-a9005373f87e"),
        "views": uuid.UUID("59a14a57-86fe-3a10-9d78-0bb1e1e2b21b"),
    }
    topics = TopicsImage.of(TopicImage(topic_id, name, 1) for name, topic_id in ids.items())
    assert topic_order([*names, "gone"], topics) == list(ids.values())


@pytest.mark.parametrize(
    ("voted", "kept", "added", "expected"),
    [
        ((), (), ("range",), ["range"]),
        (("uniform",), ("uniform",), ("range",), ["range", "uniform"]),
        (("range",), ("range",), ("uniform",), ["uniform", "range"]),
        (("range", "uniform"), ("range", "uniform"), (), ["uniform", "range"]),
        (("range", "uniform"), ("uniform",), ("range",), ["range", "uniform"]),
    ],
)
def test_votes_for_assignors(
    voted: tuple[str, ...], kept: tuple[str, ...], added: tuple[str, ...], expected: list[str]
) -> None:
    assert vote_order(voted, kept, added) == expected
