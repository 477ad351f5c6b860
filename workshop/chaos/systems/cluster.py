"""The broker of a run, as an operator sees it: topics, end offsets, committed offsets."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from spark_groups.cli.reset_plan import INACTIVE_STATES
from spark_groups.errors import ErrorCode, SparkGroupsError
from spark_groups.group.member.messages import NO_OFFSET, MetadataRequest, found_and_failed
from spark_groups.observation.observe import describe_any_group
from spark_groups.types import TopicId, TopicIdPartition, topic_id_text
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from workshop.chaos.results.facts import DELETED_OFFSET, Commit, Partition

T = TypeVar("T")

ANSWER_S: Final = 30.0
HISTORY_S: Final = 120.0
_LOOK_AGAIN_S: Final = 0.05
_WATCH_S: Final = 3.0
_OFFSETS_TOPIC: Final = "__consumer_offsets"
_UUID_MASK: Final = 2**64 - 1


class ClusterError(Exception):
    """The broker did not do what a run needs."""


class Broker:
    """Asks the broker of a run, or any of several.

    Args:
        bootstrap_servers: Its address, or the addresses of all.
        replicas: How many replicas a partition has.
    """

    def __init__(self, bootstrap_servers: str, replicas: int = 1) -> None:
        self._replicas = replicas
        self._servers = bootstrap_servers
        self._admin = self._new_admin()

    def create(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Create topics.

        Args:
            topics: Partition counts by name.

        Returns:
            Their ids, as Kafka's tools write them.
        """
        new = [NewTopic(name, count, self._replicas) for name, count in topics.items()]
        for each in self._admin.create_topics(new, operation_timeout=ANSWER_S).values():
            each.result(ANSWER_S)
        return _await(lambda: self._ids(topics), f"the broker does not know {', '.join(topics)}")

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._servers, "log_level": 0})

    def _ids(self, topics: Iterable[str]) -> dict[str, str]:
        described = self._admin.describe_topics(TopicCollection(list(topics)))
        try:
            found = {name: each.result(ANSWER_S) for name, each in described.items()}
        except KafkaException as error:
            # The controller has created the topics; the broker may learn of them a moment later.
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return {}
        return {name: _id_text(each.topic_id) for name, each in found.items()}

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, and wait until they have a leader.

        Args:
            topic: Its name.
            partitions: How many it has then.
        """
        grown = self._admin.create_partitions([NewPartitions(topic, partitions)])
        grown[topic].result(ANSWER_S)

        def has_leaders() -> bool:
            known = self._admin.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
            return len(known) == partitions and all(each.leader >= 0 for each in known.values())

        _await(has_leaders, f"{topic} has no {partitions} partitions")

    def delete_before(self, partition: Partition, before_offset: int) -> None:
        """Delete records as retention does.

        Args:
            partition: Their partition.
            before_offset: The first offset that stays.
        """
        asked = TopicPartition(*partition, before_offset)
        self._admin.delete_records([asked], request_timeout=ANSWER_S)[asked].result(ANSWER_S)

    def ends(self, topics: Mapping[str, int]) -> dict[Partition, int]:
        """Return the next offset to be written of every partition.

        Args:
            topics: Partition counts by name.
        """
        return self._offsets(topics, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def starts(self, topics: Mapping[str, int]) -> dict[Partition, int]:
        """Return the first offset of every partition: what lies before it is deleted.

        Args:
            topics: Partition counts by name.
        """
        return self._offsets(topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def _offsets(self, topics: Mapping[str, int], spec: OffsetSpec) -> dict[Partition, int]:
        if not topics:
            return {}
        asked = {
            TopicPartition(name, index): spec
            for name, count in topics.items()
            for index in range(count)
        }

        def answered() -> dict[Partition, int] | None:
            # A client keeps asking with the leader epochs that it has seen first.
            admin = self._new_admin()
            answers = admin.list_offsets(asked, request_timeout=ANSWER_S)
            try:
                return {
                    (each.topic, each.partition): answer.result(ANSWER_S).offset
                    for each, answer in answers.items()
                }
            except (KafkaException, TimeoutError):
                # A partition has got another leader meanwhile, or its leader does not answer.
                return None

        return _await(answered, "the ends of partitions are not known")

    def committed(self, group_id: str) -> dict[Partition, int]:
        """Return the committed offsets of a group.

        It is asked by this package: librdkafka crashes where a coordinator has moved meanwhile
        (librdkafka#5040).

        Args:
            group_id: The group.
        """
        with Cluster(self._servers, request_timeout_s=ANSWER_S) as cluster:
            found, failed = found_and_failed(cluster.fetch_all_offsets(group_id))
            asked = MetadataRequest(topic_ids=frozenset(each.topic_id for each in found))
            topics = cluster.metadata(asked).topics if found else ()
        if failed:
            raise ClusterError(f"OffsetFetch: {ErrorCode.name_of(min(failed.values()))}")
        names = {topic.topic_id: topic.name for topic in topics}
        return {
            (names[key.topic_id], key.partition): each.committed_offset
            for key, each in found.items()
            if key.topic_id in names and each.committed_offset != NO_OFFSET
        }

    def names(self, topics: Iterable[str]) -> dict[TopicId, str]:
        """Return topics by id.

        Args:
            topics: Their names.
        """
        asked = MetadataRequest(topic_names=frozenset(topics))
        with Cluster(self._servers, request_timeout_s=ANSWER_S) as cluster:
            return {topic.topic_id: topic.name for topic in cluster.metadata(asked).topics}

    def is_empty(self, group_id: str) -> bool:
        """Return whether a group has no members; False as long as the coordinator does not tell.

        Args:
            group_id: The group.
        """
        try:
            with Cluster(self._servers, request_timeout_s=ANSWER_S) as cluster:
                _, group = describe_any_group(cluster, group_id)
        except SparkGroupsError:
            return False
        return group.group_state in INACTIVE_STATES

    def commit_keeping_metadata(
        self, group_id: str, partition: TopicIdPartition, offset: int
    ) -> None:
        """Set an offset of a group without members as a tool does that copies the metadata.

        Args:
            group_id: The group.
            partition: The partition.
            offset: Its new offset.

        Raises:
            ClusterError: It was refused.
        """
        with Cluster(self._servers, request_timeout_s=ANSWER_S) as cluster:
            found, _ = found_and_failed(cluster.fetch_all_offsets(group_id))
            if partition not in found:
                raise ClusterError(f"no committed offset of {partition} to copy")
            metadata = {partition.topic_id: found[partition].metadata}
            done = commit_outside(cluster, group_id, {partition: offset}, metadata)
        if code := done.error_code or done.errors.get(partition, 0):
            raise ClusterError(f"OffsetCommit: {ErrorCode.name_of(code)}")

    def commit_history(self, group_id: str) -> dict[Partition, list[Commit]]:
        """Return every commit that was accepted, in its order, from the topic that keeps them.

        Args:
            group_id: The group.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"{group_id}-history",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            topics = consumer.list_topics(timeout=ANSWER_S).topics
            left = set(topics[_OFFSETS_TOPIC].partitions) if _OFFSETS_TOPIC in topics else set()
            consumer.assign([TopicPartition(_OFFSETS_TOPIC, p, OFFSET_BEGINNING) for p in left])
            history: dict[Partition, list[Commit]] = defaultdict(list)
            deadline_s = time.monotonic() + HISTORY_S
            while left and time.monotonic() < deadline_s:
                for message in consumer.consume(1_000, 1.0):
                    error = message.error()
                    if error is None:
                        _note_commit(message, group_id, history)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition() or 0)
        finally:
            consumer.close()
        if left:
            raise ClusterError(f"{_OFFSETS_TOPIC} could not be read within {HISTORY_S:g} s")
        return dict(history)


class CommittedWatch:
    """Counts the committed records all the time, beside the faults: a broker may not answer.

    Args:
        broker: The broker.
        group_id: The group.
    """

    def __init__(self, broker: Broker, group_id: str) -> None:
        self.committed = 0
        """The sum of the committed offsets, when a broker last answered."""
        self.problems: list[str] = []
        """What ended the watch before its time."""
        self._broker = broker
        self._group_id = group_id
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="chaos-committed", daemon=True).start()

    def end(self) -> None:
        """Ask no more."""
        self._ended.set()

    def _watch(self) -> None:
        try:
            while not self._ended.wait(_WATCH_S):
                with contextlib.suppress(SparkGroupsError, ClusterError):
                    self.committed = sum(self._broker.committed(self._group_id).values())
        except Exception as error:
            self.problems.append(f"the watch of committed offsets died: {error!r}")
            raise


def _note_commit(
    message: Message, group_id: str, history: Mapping[Partition, list[Commit]]
) -> None:
    key, value = message.key(), message.value()
    committed = parse_commit(key or b"", value) if isinstance(key, bytes) else None
    if committed is not None and committed[0] == group_id:
        _, partition, offset = committed
        history[partition].append(Commit(message.timestamp()[1] / 1000, offset))


def parse_commit(key: bytes, value: Any) -> tuple[str, Partition, int] | None:
    """Read a record of the topic that keeps committed offsets.

    Args:
        key: Its key: version, group, topic, partition.
        value: Its value: version, offset, and fields not needed here; None if it was deleted.

    Returns:
        The group, the partition and the offset; None: the record is of another kind.
    """
    if int.from_bytes(key[:2], "big") not in (0, 1):
        return None
    group, rest = _text(key[2:])
    topic, rest = _text(rest)
    offset = int.from_bytes(value[2:10], "big", signed=True) if value else DELETED_OFFSET
    return group, (topic, int.from_bytes(rest[:4], "big")), offset


def _await(attempt: Callable[[], T | None], failure: str) -> T:
    deadline_s = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline_s:
        if found := attempt():
            return found
        time.sleep(_LOOK_AGAIN_S)
    raise ClusterError(f"{failure} after {ANSWER_S:g} s")


def _text(data: bytes) -> tuple[str, bytes]:
    length = int.from_bytes(data[:2], "big")
    return data[2 : 2 + length].decode(), data[2 + length :]


def _id_text(topic_id: Any) -> str:
    high = topic_id.get_most_significant_bits() & _UUID_MASK
    low = topic_id.get_least_significant_bits() & _UUID_MASK
    return topic_id_text(uuid.UUID(int=high << 64 | low))
