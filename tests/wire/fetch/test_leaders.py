"""Which broker is asked for records: the leader in metadata and in refusals."""

from __future__ import annotations

import math
import uuid
from types import SimpleNamespace

import pytest

from spark_groups.errors import BrokerUnreachableError, ErrorCode, SparkGroupsError
from spark_groups.group.member.grant_command import Identity
from spark_groups.group.member.messages import Node, TopicMetadata
from spark_groups.types import OffsetRange
from spark_groups.wire.fetch.fetch_messages import FetchCursor
from spark_groups.wire.fetch.leaders import FetchLeaders, LostTopic, fail_if_final
from spark_groups.wire.topic_metadata import NO_LEADER, ClusterMetadata, KnownTopic, Leader

TOPIC_ID = uuid.UUID(int=3)
NODES = {node_id: Node(node_id, f"b{node_id}", 9092) for node_id in (1, 2)}
UNKNOWN_LEADER = {"leader_id": -1, "leader_epoch": -1}


def cursor(index: int) -> FetchCursor:
    return FetchCursor.of(OffsetRange(TOPIC_ID, "t", index, 0, 10))


def metadata(*leader_ids: int, topic_id: uuid.UUID = TOPIC_ID, **errors: int) -> ClusterMetadata:
    leaders = {index: Leader(node_id, 5) for index, node_id in enumerate(leader_ids)}
    topic = KnownTopic(TopicMetadata(topic_id, "t", len(leaders)), leaders)
    return ClusterMetadata(NODES, {topic_id: topic} if leaders else {}, errors)


def known(*answers: ClusterMetadata | Exception) -> tuple[FetchLeaders, list[FetchCursor]]:
    """Return leaders of two partitions, that were looked up once, and the partitions."""
    left = list(answers)

    def topics(names: set[str]) -> ClusterMetadata:
        assert names == {"t"}
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cursors = [cursor(0), cursor(1)]
    cluster = SimpleNamespace(topics=topics)
    leaders = FetchLeaders(cluster)  # type: ignore[arg-type]
    wanted = {each.key: each for each in cursors}
    leaders.begin(wanted)
    leaders.refresh(wanted)
    return leaders, cursors


def test_partitions_are_routed_to_their_leaders_or_to_a_replica_nearby() -> None:
    leaders, (one, other) = known(metadata(1, 2))
    assert leaders.route([one, other]) == {1: [one], 2: [other]}
    one.replica_id = 2
    assert leaders.route([one, other]) == {2: [one, other]}
    assert leaders.leader_epochs([one]) == {one.key: 5}
    assert leaders.wake_at == math.inf


def test_a_broker_is_asked_for_no_more_than_a_request_should_name(monkeypatch) -> None:
    monkeypatch.setattr("spark_groups.wire.fetch.leaders._ASKED_AT_ONCE", 1)
    leaders, (one, other) = known(metadata(1, 1))
    assert leaders.route([other, one]) == {1: [other]}


def test_leaders_are_looked_up_again_after_a_while(monkeypatch) -> None:
    monkeypatch.setattr("spark_groups.wire.fetch.leaders._KNOWN_S", 0.0)
    leaders, cursors = known(metadata(1, 2), metadata(2, 2))
    wanted = {each.key: each for each in cursors}
    leaders.begin(wanted)
    leaders.refresh(wanted)
    assert leaders.route(cursors) == {2: cursors}


def test_a_broker_that_is_not_there_is_looked_up_again() -> None:
    leaders, (one, other) = known(metadata(1, 7))
    one.replica_id = 9
    assert leaders.route([one, other]) == {}
    assert leaders.last_error == "broker 7 is not alive"
    assert one.reads_from_leader
    assert leaders.wake_at < math.inf


def test_a_leader_that_is_named_is_asked_if_it_is_newer() -> None:
    leaders, (one, _) = known(metadata(1, 1))
    leaders.learn_nodes([{"node_id": 4, "host": "b4", "port": 9}])
    leaders.note_refusal(one, ErrorCode.NOT_LEADER_OR_FOLLOWER, {"leader_id": 4, "leader_epoch": 6})
    assert leaders.route([one]) == {4: [one]}
    assert leaders.nodes[4] == Node(4, "b4", 9)
    assert leaders.wake_at == math.inf
    for answer in (
        {"leader_id": 1, "leader_epoch": 6},
        {"leader_id": 8, "leader_epoch": 9},
        UNKNOWN_LEADER,
    ):
        leaders.note_refusal(one, ErrorCode.NOT_LEADER_OR_FOLLOWER, answer)
        assert leaders.route([one]) == {}
    assert leaders.last_error == "t-0: NOT_LEADER_OR_FOLLOWER"


def test_a_partition_without_a_leader_waits_and_a_deleted_topic_is_reported() -> None:
    leaders, (one, other) = known(metadata(1, NO_LEADER))
    assert leaders.route([one, other]) == {1: [one]}
    assert leaders.last_error == "t-1 has no leader"
    for answer, is_recreated in (
        (metadata(), False),
        (metadata(1, 1, topic_id=uuid.uuid4()), True),
    ):
        leaders, cursors = known(metadata(1, 1), answer)
        leaders.note("moved", cursors)
        leaders._refresh_at = 0.0
        lost = leaders.refresh({each.key: each for each in cursors})
        assert lost == [LostTopic(TOPIC_ID, "t", is_recreated)]
        assert leaders.route(cursors) == {}


def test_brokers_that_do_not_answer_are_asked_again_once_one_has_answered() -> None:
    with pytest.raises(BrokerUnreachableError, match="unreachable"):
        known(BrokerUnreachableError("unreachable"))
    leaders, cursors = known(metadata(1, 1), BrokerUnreachableError("all are gone"), metadata(2, 2))
    wanted = {each.key: each for each in cursors}
    leaders.note("moved", cursors)
    assert leaders.refresh(wanted) == []
    assert leaders.last_error == "moved"
    for expected in ("all are gone", "all are gone"):
        leaders._refresh_at = 0.0
        leaders.refresh(wanted)
        assert leaders.last_error == expected
    assert leaders.route(cursors) == {2: cursors}


def test_errors_that_are_final_are_raised_with_a_remedy() -> None:
    with pytest.raises(SparkGroupsError, match=r"t cannot be read: TOPIC_AUTHORIZATION.*READ"):
        known(metadata(t=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    fail_if_final("t", ErrorCode.LEADER_NOT_AVAILABLE)
    with pytest.raises(SparkGroupsError, match="error 2"):
        fail_if_final("t", 2)
    alice = Identity(principal="User:alice", bootstrap_servers=("b:9092",))
    with pytest.raises(SparkGroupsError, match=r"User:alice needs READ.*--topic t$"):
        fail_if_final("t-0", ErrorCode.TOPIC_AUTHORIZATION_FAILED, alice, ["t"])
