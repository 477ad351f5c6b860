"""What the topic that keeps committed offsets says, byte by byte."""

from __future__ import annotations

import struct
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.wire.coordinator_connection_setup import topic_id
from workshop.chaos.results.facts import DELETED_OFFSET
from workshop.chaos.systems.cluster import Broker, parse_commit


def key(version: int, group: str = "g", topic: str = "ants", partition: int = 3) -> bytes:
    texts = b"".join(struct.pack(">h", len(each)) + each.encode() for each in (group, topic))
    return struct.pack(">h", version) + texts + struct.pack(">i", partition)


@pytest.mark.parametrize("version", [0, 1])
def test_committed_offset_is_read(version: int) -> None:
    value = struct.pack(">hqi", 3, 2**40, 7) + b"metadata and times"
    assert parse_commit(key(version), value) == ("g", ("ants", 3), 2**40)


def test_records_of_other_kinds_are_none_and_deletions_have_their_offset() -> None:
    value = struct.pack(">hq", 3, 5)
    assert parse_commit(key(2), value) is None
    assert parse_commit(key(1), None) == ("g", ("ants", 3), DELETED_OFFSET)


@pytest.mark.broker
def test_committed_offsets_are_read_also_of_a_group_that_does_not_exist(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    broker = Broker(kafka.bootstrap_servers)
    broker.create({topic_name: 2})
    assert broker.committed(group_id) == {}
    with Cluster(kafka.bootstrap_servers) as cluster:
        commit_outside(cluster, group_id, {TopicIdPartition(topic_id(cluster, topic_name), 1): 5})
    assert broker.committed(group_id) == {(topic_name, 1): 5}


@pytest.mark.broker
def test_offset_is_set_with_the_metadata_that_it_had(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    broker = Broker(kafka.bootstrap_servers)
    broker.create({topic_name: 1})
    ((found, _),) = broker.names([topic_name]).items()
    partition = TopicIdPartition(found, 0)
    with Cluster(kafka.bootstrap_servers) as cluster:
        commit_outside(cluster, group_id, {partition: 5}, {found: "kept"})
        broker.commit_keeping_metadata(group_id, partition, 3)
        assert broker.is_empty(group_id)
        assert not broker.is_empty(f"no-{group_id}"), "there is no such group"
        committed = cluster.fetch_all_offsets(group_id)[partition]
    assert (committed.committed_offset, committed.metadata) == (3, "kept")
    assert [each.offset for each in broker.commit_history(group_id)[topic_name, 0]] == [5, 3]


def test_leader_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Admin:
        """An admin client whose first request is not answered in time."""

        def list_offsets(self, asked: Any, **_: Any) -> dict[Any, Future[Any]]:
            answer: Future[Any] = Future()
            if asked_before:
                answer.set_result(SimpleNamespace(offset=7))
            else:
                answer.set_exception(TimeoutError())
            asked_before.append(asked)
            return dict.fromkeys(asked, answer)

    asked_before: list[Any] = []
    monkeypatch.setattr(Broker, "_new_admin", lambda _: Admin())
    assert Broker("nowhere").ends({"ants": 1}) == {("ants", 0): 7}
    assert len(asked_before) == 2
