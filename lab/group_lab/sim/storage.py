"""Topics and partition logs: growth, deletion, elections, retention, transactions."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Final

from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.group.member.messages import NO_LEADER_EPOCH, NO_OFFSET, EpochEnd
from spark_groups.types import EARLIEST_TIMESTAMP, TopicId, TopicIdPartition


@dataclass(slots=True)
class Transaction:
    """Records visible to read_committed readers only after a commit.

    Args:
        ended_at: Seconds; None while it is open.
        marker_offset: Offset of its end marker; NO_OFFSET if the log has none, or lost it.
    """

    from_offset: int
    until_offset: int
    ended_at: float | None = None
    marker_offset: int = NO_OFFSET


class PartitionLog:
    """Records from offset 0 on, each with an id of its own."""

    def __init__(self, count: int) -> None:
        self.start_offset = 0
        """The log start offset, moved by retention."""
        self.leader_epoch = 0
        self.deposed = (0, 0)
        """End offset and leader epoch of the previous leader."""
        self.deposed_stable_offset = 0
        """Last stable offset of the previous leader."""
        self.deposed_at = float("-inf")
        self.written = 0
        """The number of records ever written."""
        self._records: list[int] = []
        self._began: list[tuple[int, int]] = [(0, 0)]
        """Each leader epoch with its first offset."""
        self._appended: list[tuple[int, float]] = []
        """The first record of each append, and its time."""
        self._transactions: list[Transaction] = []
        self._markers: set[int] = set()
        """End markers of transactions: no reader sees them."""
        self._aborted: set[int] = set()
        """Records of aborted transactions."""
        self.append(count)

    @property
    def end_offset(self) -> int:
        return len(self._records)

    @property
    def stable_offset(self) -> int:
        """The last stable offset: the first record of a transaction that is open, or the end."""
        unmarked = (
            transaction
            for transaction in self._transactions
            if transaction.marker_offset == NO_OFFSET
        )
        open_at = (each.from_offset for each in unmarked)
        return min(open_at, default=self.end_offset)

    def append(self, count: int, now: float = 0.0) -> None:
        """Write so many records."""
        for transaction in self._transactions:
            if transaction.ended_at is not None and transaction.marker_offset == NO_OFFSET:
                self._mark(transaction, now)
        self._write(count, now)

    def _write(self, count: int, now: float) -> None:
        self._appended.append((self.written, now))
        self._records += range(self.written, self.written + count)
        self.written += count

    def _mark(self, transaction: Transaction, now: float) -> None:
        """Write the end marker of a transaction."""
        transaction.marker_offset = self.end_offset
        self._markers.add(self.written)
        self._write(1, now)

    def open_transaction(self, count: int, now: float) -> Transaction:
        """Write so many records in a transaction."""
        # Markers that are due come first.
        self.append(0, now)
        found = Transaction(self.end_offset, self.end_offset + count)
        self._transactions.append(found)
        self._write(count, now)
        return found

    def end_transaction(self, transaction: Transaction, now: float, *, aborts: bool) -> None:
        """Commit or abort a transaction, unless an election has removed it."""
        if transaction not in self._transactions or transaction.ended_at is not None:
            return
        transaction.ended_at = now
        if aborts:
            first, until = transaction.from_offset, transaction.until_offset
            self._aborted.update(self._records[first:until])
        self._mark(transaction, now)

    def stable_since(self, since: float) -> int:
        """Return a lower bound of the last stable offset at every instant since one."""
        unstable = (
            transaction.from_offset
            for transaction in self._transactions
            if transaction.marker_offset == NO_OFFSET or (transaction.ended_at or 0.0) > since
        )
        return min(unstable, default=self.end_offset)

    def available(self, since: float, *, read_committed: bool) -> int:
        """Return a lower bound of the end offset at an instant, if no truncation followed.

        Args:
            read_committed: Whether the bound is the last stable offset.
        """
        count = sum(self.written_at(record) <= since for record in self._records)
        return min(count, self.stable_since(since)) if read_committed else count

    def hides(self, record: int, *, read_committed: bool) -> bool:
        """Return whether a record in the log is hidden from such a reader."""
        return record in self._markers or (read_committed and record in self._aborted)

    def written_at(self, record: int) -> float:
        """Return when a record was written, in seconds."""
        return self._appended[bisect_right(self._appended, (record, inf)) - 1][1]

    def read(self, from_offset: int, until_offset: int) -> Sequence[int]:
        """Return the records in a range, without those dropped by retention."""
        return self._records[max(from_offset, self.start_offset) : until_offset]

    def shown(self, from_offset: int, until_offset: int, *, read_committed: bool) -> Sequence[int]:
        """Return the records in a range that a reader gets.

        Args:
            read_committed: Whether aborted records, and all above the last stable offset, are left
                out.
        """
        if read_committed:
            until_offset = min(until_offset, self.stable_offset)
        found = self.read(from_offset, until_offset)
        if not self._markers and not self._aborted:
            return found
        return [each for each in found if not self.hides(each, read_committed=read_committed)]

    def rows(self, from_offset: int, until_offset: int, *, read_committed: bool) -> dict[int, int]:
        """Return the records of a range that a reader gets, by offset.

        It includes those that retention has dropped.

        Args:
            read_committed: As for `shown`.
        """
        found = enumerate(self._records[from_offset:until_offset], from_offset)
        hides = self.hides
        return {
            offset: record
            for offset, record in found
            if not hides(record, read_committed=read_committed)
        }

    def retain(self, start_offset: int) -> None:
        """Drop the records below an offset, as retention does."""
        self.start_offset = min(max(start_offset, self.start_offset), self.end_offset)

    def elect(self, lost: int, now: float) -> None:
        """Elect a leader that lacks so many of the last records."""
        self.deposed, self.deposed_at = (self.end_offset, self.leader_epoch), now
        self.deposed_stable_offset = self.stable_offset
        del self._records[max(self.start_offset, self.end_offset - lost) :]
        self._cut_transactions()
        self.leader_epoch += 1
        self._began = [each for each in self._began if each[1] < self.end_offset]
        self._began.append((self.leader_epoch, self.end_offset))

    def _cut_transactions(self) -> None:
        """Remove transactions above the end; the next append writes lost markers again."""
        end = self.end_offset
        self._transactions = [
            transaction for transaction in self._transactions if transaction.from_offset < end
        ]
        for transaction in self._transactions:
            if transaction.marker_offset >= end:
                transaction.marker_offset = NO_OFFSET
            transaction.until_offset = min(transaction.until_offset, end)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at an offset, written or next."""
        return [epoch for epoch, start in self._began if start <= offset][-1]

    def end_of(self, leader_epoch: int) -> EpochEnd:
        """Answer as LeaderEpochFileCache.endOffsetFor does."""
        if leader_epoch == self.leader_epoch:
            return EpochEnd(self.end_offset, leader_epoch)
        later = [start for epoch, start in self._began if epoch > leader_epoch]
        if not later:
            return EpochEnd(NO_OFFSET, NO_LEADER_EPOCH)
        known = [epoch for epoch, _ in self._began if epoch <= leader_epoch]
        return EpochEnd(later[0], known[-1] if known else leader_epoch)


RECORD_BYTES: Final = 100
OLD_LEADER_ANSWERS_S: Final = 2.0
"""How long a deposed leader still answers."""
Refused = Mapping[TopicIdPartition, int]
"""The error codes of partitions whose leaders refuse."""
NONE_REFUSED: Final[Refused] = MappingProxyType({})


class Storage:
    """The topics of a cluster.

    Args:
        counts: Partition counts by topic name.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.image = TopicsImage()
        self.logs: dict[TopicIdPartition, PartitionLog] = {}
        self._created = 0
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        """Create a topic with a new id."""
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
        """Delete a topic with its logs, and return its last image."""
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
            old: Whether the previous leader answers, if it still can.
            read_committed: Whether to return the last stable offset.
        """
        log = self.logs.get(key)
        if log is None:
            return None
        if old and now < log.deposed_at + OLD_LEADER_ANSWERS_S:
            end, leader_epoch = log.deposed
            return (log.deposed_stable_offset if read_committed else end), leader_epoch
        return (log.stable_offset if read_committed else log.end_offset), log.leader_epoch

    def metadata(self, request: m.MetadataRequest) -> m.MetadataResponse:
        """Answer a metadata request."""
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
        """Answer a request for start or end offsets."""
        answers: dict[TopicIdPartition, m.ListedOffset | m.PartitionError] = {
            key: m.PartitionError(code) for key, code in refused.items()
        }
        for key in request.partitions - refused.keys():
            log = self.logs.get(key)
            if log is None:
                answers[key] = m.PartitionError(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif request.timestamp_ms == EARLIEST_TIMESTAMP:
                start = log.start_offset
                answers[key] = m.ListedOffset(start, log.epoch_at(start))
            else:
                end = log.stable_offset if request.read_committed else log.end_offset
                answers[key] = m.ListedOffset(end, log.leader_epoch)
        return m.ListOffsetsResponse(answers=answers)

    def sample_records(self, request: m.SampleRecordsRequest) -> m.SampleRecordsResponse:
        """Answer a request for the size of records: all have the same."""
        found = {
            key: m.RecordSample(RECORD_BYTES, 1)
            for key, offset in request.offsets.items()
            if key in self.logs and offset < self.logs[key].end_offset
        }
        starts = {
            key: self.logs[key].start_offset
            for key, offset in request.offsets.items()
            if key in self.logs and offset < self.logs[key].start_offset
        }
        problem = "" if len(found) == len(request.offsets) else "UNKNOWN_TOPIC_OR_PARTITION"
        return m.SampleRecordsResponse(samples=found, reached=starts, problem=problem)

    def epoch_ends(
        self, request: m.OffsetForLeaderEpochRequest, refused: Refused = NONE_REFUSED
    ) -> m.OffsetForLeaderEpochResponse:
        """Answer a request for the end offsets of leader epochs."""
        answers: dict[TopicIdPartition, EpochEnd | m.PartitionError] = {
            key: m.PartitionError(code) for key, code in refused.items()
        }
        for key in request.lookups.keys() - refused.keys():
            each, log = request.lookups[key], self.logs.get(key)
            if log is None:
                answers[key] = m.PartitionError(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                assert each.leader_epoch < each.current_leader_epoch <= log.leader_epoch
                answers[key] = log.end_of(each.leader_epoch)
        return m.OffsetForLeaderEpochResponse(answers=answers)

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic that exists."""
        topic = self.image.by_id(topic_id)
        return topic.name if topic else None
