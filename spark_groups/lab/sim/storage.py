"""Topics and the logs of their partitions: they grow, vanish, return, change leaders, get old."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.lab.sim.partition_log import PartitionLog
from spark_groups.protocol import messages as m
from spark_groups.types import TopicId, TopicIdPartition

OLD_LEADER_ANSWERS_S: Final = 2.0
"""How long a leader that was deposed may still be asked."""
Refused = Mapping[TopicIdPartition, int]
"""An error code of each partition whose leader refuses."""
NONE_REFUSED: Final[Refused] = MappingProxyType({})


class Storage:
    """The topics of a cluster.

    Args:
        counts: How many partitions each topic has at first, by name.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.image = TopicsImage()
        self.logs: dict[TopicIdPartition, PartitionLog] = {}
        self._created = 0
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        """Create a topic, under an id that no topic ever had."""
        self._created += 1
        topic = TopicImage(uuid.UUID(int=self._created), name, count)
        self.image = self.image.with_topic(topic)
        for each in range(count):
            self.logs[TopicIdPartition(topic.topic_id, each)] = PartitionLog(0)

    def grow(self, name: str) -> TopicIdPartition:
        """Add a partition to a topic and return it."""
        topic = self.image.by_name[name]
        key = TopicIdPartition(topic.topic_id, topic.partition_count)
        self.image = self.image.with_topic(
            TopicImage(topic.topic_id, name, topic.partition_count + 1)
        )
        self.logs[key] = PartitionLog(0)
        return key

    def delete(self, name: str) -> TopicImage:
        """Delete a topic with all that is in it, and return what it was."""
        topic = self.image.by_name[name]
        self.image = self.image.without(name)
        for each in range(topic.partition_count):
            del self.logs[TopicIdPartition(topic.topic_id, each)]
        return topic

    def list_end(
        self, key: TopicIdPartition, now: float, *, old: bool, read_committed: bool = False
    ) -> tuple[int, int] | None:
        """Return the end of a log and its leader epoch; None if there is no such partition.

        Args:
            key: The partition.
            now: Seconds.
            old: Whether the leader before is asked, if it still answers.
            read_committed: Whether the last stable offset is asked for.
        """
        log = self.logs.get(key)
        if log is None:
            return None
        if old and now < log.deposed_at + OLD_LEADER_ANSWERS_S:
            end, leader_epoch = log.deposed
            return (log.deposed_stable_offset if read_committed else end), leader_epoch
        return (log.stable_offset if read_committed else log.end_offset), log.leader_epoch

    def metadata(self, request: m.MetadataRequest) -> m.MetadataResponse:
        """Answer which topics there are."""
        return m.MetadataResponse(
            topics=tuple(
                m.TopicMetadata(each.topic_id, each.name, each.partition_count)
                for each in self.image.by_name.values()
                if each.name in request.topic_names or each.topic_id in request.topic_ids
            )
        )

    def list_offsets(
        self, request: m.ListOffsetsRequest, refused: Refused = NONE_REFUSED
    ) -> m.ListOffsetsResponse:
        """Answer where logs begin or end.

        Args:
            request: What is asked.
            refused: Partitions whose leaders do not answer for now.
        """
        offsets, leader_epochs, errors = {}, {}, dict(refused)
        for key in request.partitions - refused.keys():
            log = self.logs.get(key)
            if log is None:
                errors[key] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif request.timestamp_ms == m.EARLIEST_TIMESTAMP:
                start = log.start_offset
                offsets[key], leader_epochs[key] = start, log.epoch_at(start)
            else:
                end = log.stable_offset if request.read_committed else log.end_offset
                offsets[key], leader_epochs[key] = end, log.leader_epoch
        return m.ListOffsetsResponse(offsets=offsets, errors=errors, leader_epochs=leader_epochs)

    def epoch_ends(
        self, request: m.OffsetForLeaderEpochRequest, refused: Refused = NONE_REFUSED
    ) -> m.OffsetForLeaderEpochResponse:
        """Answer how far logs of older leaders reach.

        Args:
            request: What is asked.
            refused: Partitions whose leaders do not answer for now.
        """
        ends, errors = {}, dict(refused)
        for key in request.lookups.keys() - refused.keys():
            each, log = request.lookups[key], self.logs.get(key)
            if log is None:
                errors[key] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                assert each.leader_epoch < each.current_leader_epoch <= log.leader_epoch
                ends[key] = log.end_of(each.leader_epoch)
        return m.OffsetForLeaderEpochResponse(ends=ends, errors=errors)

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic that exists."""
        topic = self.image.by_id(topic_id)
        return topic.name if topic else None
