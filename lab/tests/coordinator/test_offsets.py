"""Commits and fetches, as brokers answered them (measured.md 2) and as Kafka's code has it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest

from group_lab.coordinator import offsets, profile
from group_lab.coordinator import records as r
from group_lab.coordinator.effects import NEWEST_API_VERSION, RequestContext
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.log import Log
from group_lab.coordinator.member import ReconciliationState
from group_lab.coordinator.messages import OffsetDeleteRequest
from group_lab.coordinator.profile import KAFKA_4_0, KAFKA_4_2, KAFKA_4_3, KIP_848, Profile
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.shard import Shard
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.errors import ErrorCode as E
from spark_groups.group.member.messages import (
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
)
from spark_groups.types import TopicIdPartition, TopicPartition
from tests.answers import fetch_answer

TOPIC, GONE = uuid.UUID(int=1), uuid.UUID(int=2)
TOPICS = TopicsImage.of((TopicImage(TOPIC, "t", 4), TopicImage(uuid.UUID(int=3), "other", 1)))
WEEK_S = 604_800.0


def at(partition: int, topic: uuid.UUID = TOPIC) -> TopicIdPartition:
    return TopicIdPartition(topic, partition)


def context(api_version: int = NEWEST_API_VERSION, now: float = 50.0) -> RequestContext:
    return RequestContext(now, TOPICS, Settings(), api_version=api_version)


def group(*records: r.Record) -> ConsumerGroup:
    """Return a group whose member "a" has epoch 7, partitions 0 and 1, and gives up 2."""
    found = ConsumerGroup("g")
    for key, value in (
        (r.MemberMetadataKey("g", "a"), r.MemberMetadataValue(subscribed_topic_names=("t",))),
        (r.GroupMetadataKey("g"), r.GroupMetadataValue(7)),
        (
            r.CurrentAssignmentKey("g", "a"),
            r.CurrentAssignmentValue(
                member_epoch=7,
                previous_member_epoch=6,
                state=ReconciliationState.UNREVOKED_PARTITIONS,
                assigned={at(0): 5, at(1): 7},
                pending_revocation={at(2): 4},
            ),
        ),
    ):
        found.apply(r.Record(key, value))
    for record in records:
        found.apply(record)
    return found


def without_members(*records: r.Record) -> ConsumerGroup:
    keys = (r.CurrentAssignmentKey("g", "a"), r.MemberMetadataKey("g", "a"))
    return group(*(r.Record(key, None) for key in keys), *records)


def offset(partition: int, value: int = 9, topic: str = "t", at_s: float = 50.0) -> r.Record:
    committed = r.OffsetCommitValue(value, 3, "text", at_s, TOPIC)
    return r.Record(r.OffsetCommitKey("g", topic, partition), committed)


def commit(
    to: ConsumerGroup,
    member_epoch: int,
    *keys: TopicIdPartition,
    member_id: str = "a",
    like: Profile = KAFKA_4_3,
    api_version: int = NEWEST_API_VERSION,
    metadata: Mapping[TopicIdPartition, str] | None = None,
) -> tuple[dict[TopicIdPartition, int], tuple[r.Record, ...]]:
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=member_epoch,
        offsets={key: OffsetAndMetadata(9, (metadata or {}).get(key, "text"), 3) for key in keys},
    )
    outcome = offsets.commit(to, request, like, context(api_version))
    assert isinstance(outcome.response, OffsetCommitResponse)
    return dict(outcome.response.errors), outcome.records


@pytest.mark.parametrize("like", profile.PROFILES.values(), ids=lambda each: each.name)
def test_the_current_epoch_commits_anything(like: Profile) -> None:
    errors, records = commit(group(), 7, at(0), at(3), like=like)
    assert errors == {at(0): E.NONE, at(3): E.NONE}
    assert [each.key for each in records] == [
        r.OffsetCommitKey("g", "t", 0),
        r.OffsetCommitKey("g", "t", 3),
    ]
    topic_id = TOPIC if like.commits_topic_ids else None
    assert records[0].value == r.OffsetCommitValue(9, 3, "text", 50.0, topic_id)


@pytest.mark.parametrize(
    ("member_epoch", "partitions", "relaxed"),
    [
        (6, (0,), E.NONE),
        (5, (0,), E.NONE),
        (4, (0,), E.STALE_MEMBER_EPOCH),
        (6, (1,), E.STALE_MEMBER_EPOCH),
        (4, (2,), E.NONE),
        (3, (2,), E.STALE_MEMBER_EPOCH),
        (6, (3,), E.STALE_MEMBER_EPOCH),
        (6, (0, 2), E.NONE),
        (6, (0, 1), E.STALE_MEMBER_EPOCH),
        (8, (0,), E.STALE_MEMBER_EPOCH),
        (-1, (0,), E.STALE_MEMBER_EPOCH),
    ],
)
def test_other_epochs(member_epoch: int, partitions: tuple[int, ...], relaxed: int) -> None:
    keys = [at(each) for each in partitions]
    errors, records = commit(group(), member_epoch, *keys)
    assert errors == dict.fromkeys(keys, relaxed)
    assert len(records) == (0 if relaxed else len(keys))
    for like in (KAFKA_4_0, KAFKA_4_2, KIP_848):
        strict, none = commit(group(), member_epoch, *keys, like=like)
        assert strict == dict.fromkeys(keys, E.STALE_MEMBER_EPOCH)
        assert none == ()


@pytest.mark.parametrize(
    ("to", "member_id", "member_epoch", "api_version", "expected"),
    [
        (ConsumerGroup("g"), "", -1, 9, E.NONE),
        (ConsumerGroup("g"), "a", 3, 9, E.GROUP_ID_NOT_FOUND),
        (ConsumerGroup("g"), "a", 3, 8, E.ILLEGAL_GENERATION),
        (without_members(), "", -1, 9, E.NONE),
        (without_members(), "a", 7, 9, E.UNKNOWN_MEMBER_ID),
        (group(), "", -1, 9, E.UNKNOWN_MEMBER_ID),
        (group(), "b", 7, 9, E.UNKNOWN_MEMBER_ID),
        (group(), "b", 7, 8, E.UNKNOWN_MEMBER_ID),
        (group(), "a", 7, 8, E.UNSUPPORTED_VERSION),
    ],
)
def test_errors_of_commits(
    to: ConsumerGroup, member_id: str, member_epoch: int, api_version: int, expected: int
) -> None:
    errors, records = commit(to, member_epoch, at(0), member_id=member_id, api_version=api_version)
    assert errors == {at(0): expected}
    assert bool(records) is (expected == E.NONE)


@pytest.mark.parametrize(
    ("like", "api_version", "unknown"),
    [
        (KAFKA_4_3, 10, E.UNKNOWN_TOPIC_ID),
        (KAFKA_4_3, 9, E.UNKNOWN_TOPIC_OR_PARTITION),
        (KAFKA_4_0, 10, E.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_unknown_topics_are_reported_before_other_errors(
    like: Profile, api_version: int, unknown: int
) -> None:
    errors, records = commit(
        group(), 3, at(0), at(4), at(0, GONE), like=like, api_version=api_version
    )
    assert errors == {
        at(0): E.STALE_MEMBER_EPOCH,
        at(4): E.UNKNOWN_TOPIC_OR_PARTITION,
        at(0, GONE): unknown,
    }
    assert records == ()


def test_metadata_that_is_too_long_is_refused_alone_unless_the_epoch_is_stale() -> None:
    metadata = {at(1): "x" * 4097, at(0): "x" * 4096}
    errors, records = commit(group(), 6, at(0), at(1), metadata=metadata)
    assert errors == {at(0): E.NONE, at(1): E.OFFSET_METADATA_TOO_LARGE}
    assert len(records) == 1
    stale, _ = commit(group(), 3, at(0), at(1), metadata=metadata)
    assert stale == {at(0): E.STALE_MEMBER_EPOCH, at(1): E.STALE_MEMBER_EPOCH}


@pytest.mark.parametrize(
    ("to", "member_id", "member_epoch", "expected"),
    [
        (group(offset(0)), None, -1, E.NONE),
        (group(offset(0)), "a", 7, E.NONE),
        (group(offset(0)), "a", 6, E.STALE_MEMBER_EPOCH),
        (group(offset(0)), "a", 8, E.STALE_MEMBER_EPOCH),
        (group(offset(0)), "a", -1, E.STALE_MEMBER_EPOCH),
        (group(offset(0)), "b", 7, E.UNKNOWN_MEMBER_ID),
        (group(offset(0)), None, 7, E.UNKNOWN_SERVER_ERROR),
        (group(offset(0)), "", -1, E.UNKNOWN_MEMBER_ID),
        (without_members(offset(0)), "a", 7, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_errors_of_fetches(
    to: ConsumerGroup, member_id: str | None, member_epoch: int, expected: int
) -> None:
    request = OffsetFetchRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=member_epoch,
        partitions=frozenset({at(0), at(1)}),
    )
    response = offsets.fetch(to, request, KAFKA_4_3, context()).response
    assert response.error_code == expected
    if expected == E.NONE:
        assert response.answers == {
            at(0): OffsetAndMetadata(9, "text", 3),
            at(1): OffsetAndMetadata(-1, "", -1),
        }


def test_an_unknown_group_has_no_offsets_for_any_member() -> None:
    request = OffsetFetchRequest(
        group_id="g", member_id="a", member_epoch=7, partitions=frozenset({at(0)})
    )
    response = offsets.fetch(ConsumerGroup("g"), request, KAFKA_4_3, context()).response
    assert (response.error_code, response.answers) == (0, {at(0): OffsetAndMetadata(-1, "", -1)})


def test_fetching_a_topic_that_is_not_there_is_an_error_only_by_id() -> None:
    request = OffsetFetchRequest(group_id="g", partitions=frozenset({at(0, GONE)}))
    by_id = offsets.fetch(group(), request, KAFKA_4_3, context(10)).response
    assert by_id == fetch_answer(errors={at(0, GONE): E.UNKNOWN_TOPIC_ID})
    by_name = offsets.fetch(group(), request, KAFKA_4_3, context(9)).response
    assert by_name == fetch_answer({at(0, GONE): OffsetAndMetadata(-1)})


def test_an_offset_of_a_topic_that_had_the_name_before_is_none() -> None:
    value = r.OffsetCommitValue(9, topic_id=GONE)
    known = group(r.Record(r.OffsetCommitKey("g", "t", 0), value))
    request = OffsetFetchRequest(group_id="g", partitions=frozenset({at(0)}))
    response = offsets.fetch(known, request, KAFKA_4_3, context()).response
    assert response.answers == {at(0): OffsetAndMetadata(-1)}


def test_offsets_of_unsubscribed_topics_are_deleted() -> None:
    t, other = TopicPartition("t", 0), TopicPartition("other", 0)
    request = OffsetDeleteRequest(
        group_id="g",
        partitions=frozenset({t, other, TopicPartition("other", 1), TopicPartition("deleted", 0)}),
    )
    known = group(offset(0), offset(0, topic="other"))
    outcome = offsets.delete(known, request, KAFKA_4_3, context())
    assert outcome.response.errors == {
        t: 86,
        other: E.NONE,
        TopicPartition("other", 1): E.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition("deleted", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert outcome.records == (r.Record(r.OffsetCommitKey("g", "other", 0), None),)
    missing = offsets.delete(ConsumerGroup("g"), request, KAFKA_4_3, context())
    assert missing.response.error_code == E.GROUP_ID_NOT_FOUND
    unknown = replace(request, partitions=frozenset({TopicPartition("deleted", 0)}))
    no_group = offsets.delete(ConsumerGroup("g"), unknown, KAFKA_4_3, context())
    assert no_group.response.error_code == E.GROUP_ID_NOT_FOUND
    nameless = offsets.delete(ConsumerGroup(""), request, KAFKA_4_3, context())
    assert nameless.response.error_code == 24


def test_offsets_of_unsubscribed_topics_expire() -> None:
    later = context(now=100.0 + WEEK_S)
    known = group(offset(0), offset(0, topic="other"), offset(1, topic="other", at_s=101.0))
    outcome = offsets.expire(known, KAFKA_4_3, later)
    assert outcome.records == (r.Record(r.OffsetCommitKey("g", "other", 0), None),)


@pytest.mark.parametrize(
    ("records", "at_s", "goes"),
    [
        ((), 60.0, True),
        ((offset(0),), 49.9 + WEEK_S, False),
        ((offset(0),), 50.0 + WEEK_S, True),
        ((offset(0), offset(1, at_s=51.0)), 50.5 + WEEK_S, False),
    ],
)
def test_a_group_goes_with_its_last_offset(
    records: tuple[r.Record, ...], at_s: float, goes: bool
) -> None:
    empty = without_members(*records)
    for record in offsets.expire(empty, KAFKA_4_3, context(now=at_s)).records:
        empty.apply(record)
    assert empty.is_empty_of_records is goes


def test_a_group_with_members_stays() -> None:
    assert offsets.expire(group(), KAFKA_4_3, context(now=9e9)).records == ()


def test_the_offsets_of_a_deleted_topic_are_forgotten() -> None:
    known = group(offset(0), offset(1), offset(0, topic="other"))
    assert {each.key for each in offsets.forget(known, {"t"})} == {
        r.OffsetCommitKey("g", "t", 0),
        r.OffsetCommitKey("g", "t", 1),
    }


def test_a_shard_forgets_the_offsets_of_a_deleted_topic() -> None:
    shard = Shard(KAFKA_4_3, Settings(), TOPICS, Log(), 0.0)
    committed = OffsetCommitRequest(
        group_id="g", member_id="", member_epoch=-1, offsets={at(0): OffsetAndMetadata(9)}
    )
    shard.ask(committed, 1.0)
    assert shard.groups["g"].offsets
    shard.set_topics(TOPICS.without("t"), 2.0)
    assert not shard.groups
