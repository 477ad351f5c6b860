"""Compares gaps between the records that librdkafka returned with the batches in the log.

Librdkafka decompresses only the first of several compressed members of a batch, and skips the
records of the others without a word. Other gaps have nothing to return: those of compaction, of
aborted transactions, and of the markers of transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from spark_groups.errors import BrokerUnreachableError, ErrorCode, RecordsError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.types import OffsetRange, RangeCursor, TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.fetch.first_unread import FirstRecord, Passed

GAPS_MAX: Final = 10_000
"""How many gaps of a range are kept until they are compared."""
_ASK_AGAIN_S: Final = 0.2
_TOPICS_S: Final = 5.0
"""How long brokers may not know the topic before its gaps are left: it was deleted."""
_DELETED: Final = ErrorCode.OFFSET_OUT_OF_RANGE.name
_NO_TOPIC: Final = (ErrorCode.UNKNOWN_TOPIC_ID.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)
USE_FAST: Final = (
    "set the option reader to fast, which reads such batches as Kafka's own consumer does"
    " (pip install 'spark-groups[fast]' on the executors), and start the query again: it then reads"
    " the whole batch"
)


def unread(partition: TopicPartition, offset: int, what: str) -> RecordsError:
    """Return the error for a batch that librdkafka cannot read."""
    return RecordsError(f"the batch of {partition} that has offset {offset} {what}: {USE_FAST}")


class GapCheck:
    """Reads the batches around gaps, over a connection of its own; for one thread."""

    def __init__(self, settings: RangeSettings) -> None:
        self._settings = settings
        self._cluster: Cluster | None = None

    def check(self, key: TopicIdPartition, partition: TopicPartition, passed: Passed) -> None:
        """Return if nothing was missed.

        Raises:
            RecordsError: A record was missed.
            BrokerUnreachableError: The log cannot be read.
        """
        missed = self.missed(key, passed, self._settings.request_timeout_s)
        if missed is not None:
            raise unread(
                partition,
                missed.offset,
                "has more records than librdkafka returns: it is compressed in several parts, of"
                " which librdkafka reads the first",
            )

    def missed(
        self, key: TopicIdPartition, passed: Passed, patience_s: float
    ) -> FirstRecord | None:
        """Return the first record that was missed, None if there is none.

        Raises:
            BrokerUnreachableError: No more of the log could be read for this time.
        """
        if self._cluster is None:
            self._cluster = Cluster(
                self._settings.bootstrap_servers,
                client_id=self._settings.client_id,
                security=self._settings.security,
                timeouts=self._settings.timeouts,
                identity=ClusterIdentity(self._settings.cluster_id),
            )
        begun_at = time.monotonic()
        while passed.missing:
            answer = self._cluster.missed_record(
                key,
                passed,
                read_committed=self._settings.read_committed,
                timeout_s=begun_at + patience_s - time.monotonic(),
            )
            if key in answer.found:
                return answer.found[key]
            reached = answer.reached.get(key, passed.missing[0].start)
            if reached > passed.missing[0].start:
                # A range of many transactions is as much to read here as for the reader.
                passed = Passed(passed.offsets, passed.missing_of(reached, passed.offsets.stop))
                begun_at = time.monotonic()
                continue
            reason = answer.unknown[key]
            waited_s = time.monotonic() - begun_at
            if reason == _DELETED:
                # Retention has removed the offsets since: nothing is known about them any more.
                passed = Passed(passed.offsets, passed.missing[1:])
                continue
            if reason in _NO_TOPIC and waited_s >= _TOPICS_S:
                # That the topic was deleted is noted at the end.
                return None
            if waited_s + _ASK_AGAIN_S >= patience_s:
                raise BrokerUnreachableError(
                    f"offsets {passed.missing[0].start} to {passed.missing[0].stop - 1} were not"
                    " returned, and could not be compared with the log within"
                    f" {patience_s:g} s: {reason}"
                )
            time.sleep(_ASK_AGAIN_S)
        return None

    def close(self) -> None:
        """Close the connection."""
        if self._cluster is not None:
            self._cluster.close()


@dataclass(slots=True)
class Cursor(RangeCursor):
    """The progress of a range, with its gaps.

    Args:
        checked_offset: Below it, no record is missing.
        missing: The offsets without a record from there on.
    """

    key: TopicIdPartition
    checked_offset: int
    missing: list[range] = field(default_factory=list)

    @classmethod
    def of(cls, wanted: OffsetRange) -> Cursor:
        """Return the cursor at the beginning of a range."""
        begin, until = wanted.from_offset, wanted.until_offset
        return cls(wanted.topic_partition, begin, until, wanted.key, checked_offset=begin)

    def pass_to(self, offset: int, arrived: Iterable[int] = ()) -> None:
        """Move to an offset, and note those before it that have not arrived."""
        for each in arrived:
            if each > self.next_offset:
                self.missing.append(range(self.next_offset, each))
            self.next_offset = each + 1
        if offset > self.next_offset:
            self.missing.append(range(self.next_offset, offset))
        self.next_offset = offset

    def skip_to(self, offset: int) -> None:
        """Move to an offset; nothing before it is left to compare."""
        self.next_offset = self.checked_offset = offset
        self.missing.clear()

    def compare(self, gaps: GapCheck) -> None:
        """Compare the gaps with the log; see `GapCheck.check`."""
        passed = Passed(range(self.checked_offset, self.next_offset), self.missing)
        gaps.check(self.key, self.topic_partition, passed)
        self.skip_to(self.next_offset)
