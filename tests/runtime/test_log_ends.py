"""Log ends for a plan, and the report of those that cannot be listed."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from spark_groups.errors import ErrorCode, GroupError
from spark_groups.group.member.messages import (
    LATEST_TIMESTAMP,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from spark_groups.runtime.driver import LogEnds
from spark_groups.types import TopicIdPartition
from spark_groups.wire.connection import RequestError
from tests.answers import list_answer

KEYS = [TopicIdPartition(uuid.UUID(int=1), partition) for partition in range(2)]


class Answers:
    """A cluster that gives one answer after the other."""

    def __init__(self, *answers: ListOffsetsResponse | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[ListOffsetsRequest] = []

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def ends_of(cluster: Any, *, read_committed: bool = False) -> LogEnds:
    return LogEnds(cluster, read_committed=read_committed)


def test_ends_come_with_their_leader_epochs() -> None:
    answer = list_answer(offsets={KEYS[0]: 5}, leader_epochs={KEYS[0]: 2})
    cluster = Answers(answer)
    assert ends_of(cluster, read_committed=True).list(frozenset(KEYS)) == {KEYS[0]: (5, 2)}
    assert cluster.asked == [
        ListOffsetsRequest(
            partitions=frozenset(KEYS), timestamp_ms=LATEST_TIMESTAMP, read_committed=True
        )
    ]


def test_nothing_is_asked_for_no_partition() -> None:
    assert ends_of(SimpleNamespace()).list(frozenset()) == {}


def test_what_cannot_be_listed_is_left_out_and_said() -> None:
    moved = list_answer(
        offsets={KEYS[0]: 5}, errors={KEYS[1]: ErrorCode.LEADER_NOT_AVAILABLE.value}
    )
    gone = RequestError("no broker answered", may_have_arrived=False)
    ends = ends_of(Answers(moved, gone, list_answer(offsets={KEYS[0]: 6})))
    assert ends.list(frozenset(KEYS)) == {KEYS[0]: (5, -1)}
    assert ends.problem == "1 partitions: LEADER_NOT_AVAILABLE"
    assert ends.list(frozenset(KEYS)) == {}
    assert ends.problem == "no broker answered"
    ends.list(frozenset(KEYS))
    assert not ends.problem


def test_a_final_refusal_ends_the_query() -> None:
    refused = list_answer(errors={KEYS[0]: ErrorCode.TOPIC_AUTHORIZATION_FAILED.value})
    with pytest.raises(GroupError, match=r"TOPIC_AUTHORIZATION_FAILED.*DESCRIBE"):
        ends_of(Answers(refused)).list(frozenset(KEYS))


def test_error_of_a_partition_that_is_only_shown_is_ignored() -> None:
    refused = list_answer(
        offsets={KEYS[0]: 5}, errors={KEYS[1]: ErrorCode.TOPIC_AUTHORIZATION_FAILED.value}
    )
    ends = ends_of(Answers(refused))
    assert ends.list(frozenset(KEYS), frozenset(KEYS[1:])) == {KEYS[0]: (5, -1)}
    assert not ends.problem
