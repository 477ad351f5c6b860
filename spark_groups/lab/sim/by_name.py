"""Commits and fetches by topic name, as brokers before 4.2 want them.

`spark_groups.kafka` looks topics up in fresh metadata before it asks by name: partitions of topics
that are gone are not sent, and answered as unknown. So it is here. That a topic is created again
between the two is left out: nobody can tell then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.topic_images import TopicsImage
from spark_groups.protocol import messages as m
from spark_groups.types import TopicIdPartition

Answer = Callable[[m.Response], m.Response]


def sent_by_name(request: m.Request, topics: TopicsImage) -> tuple[m.Request, Answer]:
    """Return what is sent of a request, and what makes an answer to all of it.

    Args:
        request: Any request to a coordinator.
        topics: The topics there are.
    """
    there = {each.topic_id for each in topics.by_name.values()}
    gone_code = int(ErrorCode.UNKNOWN_TOPIC_ID)
    match request:
        case m.OffsetCommitRequest(offsets=offsets):
            sent = {key: each for key, each in offsets.items() if key.topic_id in there}
            gone = dict.fromkeys(offsets.keys() - sent.keys(), gone_code)
            return replace(request, offsets=sent), lambda answer: _with_errors(answer, gone)
        case m.OffsetFetchRequest(partitions=partitions):
            asked = frozenset(key for key in partitions if key.topic_id in there)
            gone = dict.fromkeys(partitions - asked, gone_code)
            return replace(request, partitions=asked), lambda answer: _with_errors(answer, gone)
        case _:
            return request, lambda answer: answer


def _with_errors(answer: m.Response, gone: dict[TopicIdPartition, int]) -> m.Response:
    assert isinstance(answer, m.OffsetCommitResponse | m.OffsetFetchResponse)
    return replace(answer, errors={**answer.errors, **gone})
