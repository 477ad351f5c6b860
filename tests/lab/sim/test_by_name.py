"""What is asked by name before 4.2, and what becomes of topics that are gone."""

from __future__ import annotations

import uuid

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.lab.sim.by_name import sent_by_name
from spark_groups.protocol import messages as m
from spark_groups.types import TopicIdPartition

HERE, GONE = (TopicIdPartition(uuid.UUID(int=number), 0) for number in (1, 2))
TOPICS = TopicsImage.of([TopicImage(HERE.topic_id, "orders", 1)])
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_ID)


def test_offsets_of_topics_that_are_gone_are_not_committed() -> None:
    offsets = dict.fromkeys((HERE, GONE), m.OffsetAndMetadata(5))
    request = m.OffsetCommitRequest(group_id="g", member_id="m", member_epoch=1, offsets=offsets)
    sent, whole = sent_by_name(request, TOPICS)
    assert isinstance(sent, m.OffsetCommitRequest)
    assert sent.offsets.keys() == {HERE}
    assert whole(m.OffsetCommitResponse(errors={HERE: 0})) == m.OffsetCommitResponse(
        errors={HERE: 0, GONE: UNKNOWN}
    )


def test_topics_that_are_gone_are_not_taken_for_never_read() -> None:
    request = m.OffsetFetchRequest(group_id="g", partitions=frozenset({HERE, GONE}))
    sent, whole = sent_by_name(request, TOPICS)
    assert sent == m.OffsetFetchRequest(group_id="g", partitions=frozenset({HERE}))
    found = whole(m.OffsetFetchResponse(offsets={HERE: m.OffsetAndMetadata(5)}))
    assert isinstance(found, m.OffsetFetchResponse)
    assert found.errors == {GONE: UNKNOWN}
    assert found.offsets.keys() == {HERE}


def test_other_requests_name_no_topics() -> None:
    request = m.DescribeGroupRequest(group_id="g")
    sent, whole = sent_by_name(request, TOPICS)
    assert sent is request
    assert whole(m.DescribeGroupResponse()) == m.DescribeGroupResponse()
