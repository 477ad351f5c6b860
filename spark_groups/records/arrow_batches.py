"""Decodes the records of Fetch responses into Arrow record batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_groups.errors import MessageFormatError, RecordsError
from spark_groups.records.codecs import DecompressionError, Decompressor
from spark_groups.records.decoding import decode_batches, offset_behind
from spark_groups.records.layout import ABORTED, Octets, Status, new_cursor
from spark_groups.records.misfits import MisfitCounts, TimestampMisfits
from spark_groups.records.row_buffers import HeadersTooLargeError, RowBuffers
from spark_groups.types import RangeCursor, TopicPartition

_WRONG: Final = {
    Status.IS_UNKNOWN_FORMAT: "its message format is unknown",
    Status.LENGTH_IS_WRONG: "its length is wrong",
    Status.CHECKSUM_IS_WRONG: "its checksum (CRC-32C) is wrong",
    Status.COUNT_IS_WRONG: "the number of its records is wrong",
    Status.OFFSETS_ARE_WRONG: "its offsets are wrong",
    Status.RECORD_IS_WRONG: "a record in it is malformed",
}
_OLD_FORMAT: Final = (
    "its message format is older than v2 (Kafka 0.11), which the fast reader does not support: set"
    " the option reader to librdkafka"
)


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction of a Fetch response, with its first offset in the partition."""

    producer_id: int
    first_offset: int


class RecordDecoder:
    """Decodes records of any number of partitions, one response after the other.

    Args:
        schema: Of the record batches; see `RowBuffers`.
        rows_max: The most rows of a record batch.
        bytes_max: The most bytes of one of its columns, unless a single record has more.
        batch_bytes_max: The size limit of a decompressed batch of Kafka's.
        check_crcs: Whether to verify checksums.
        null_timestamps: Whether a timestamp that does not fit microseconds becomes null; else it is
            an error.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        rows_max: int = 10_000,
        bytes_max: int = 16 * 1024 * 1024,
        batch_bytes_max: int = 128 * 1024 * 1024,
        check_crcs: bool = True,
        null_timestamps: bool = False,
    ) -> None:
        if not 0 < batch_bytes_max < 2**31:
            raise ValueError("the limit of a decompressed batch must be positive and fit 31 bits")
        self._buffers = RowBuffers(
            schema, rows_max=rows_max, bytes_max=bytes_max, headers_bytes_max=batch_bytes_max
        )
        self._decompressor = Decompressor(batch_bytes_max)
        self._cursor = new_cursor()
        self._cursor["include_headers"] = self._buffers.include_headers
        self._cursor["check_crcs"] = check_crcs
        self._cursor["null_timestamps"] = null_timestamps
        self.misfits = MisfitCounts()
        self._runs: list[tuple[TopicPartition, int]] = []
        self._rows_of_runs = 0

    def decode(
        self, records: Any, position: RangeCursor, aborted: Collection[AbortedTransaction] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Decode a partition's records of a response; yield each full record batch.

        The remaining rows stay for the next response, or for `take`. The iterator must be
        exhausted.

        Args:
            records: A buffer, which may be overwritten once the iterator is exhausted.
            position: The progress of the range; is moved. No record below it becomes a row.
            aborted: The aborted transactions in the response, under read_committed.

        Raises:
            RecordsError: A batch is invalid; rows before it were decoded.
            MessageFormatError: A batch is older than message format v2.
        """
        wire = np.frombuffer(records, np.uint8)
        cursor, listed = self._cursor, _aborted(aborted)
        cursor["next_offset"], cursor["until_offset"] = position.next_offset, position.until_offset
        cursor["wire_at"] = cursor["records_left"] = cursor["misfits"] = 0
        while True:
            body = self._decompressor.body
            status = decode_batches(wire, body, cursor, listed, self._buffers.columns)
            if status == Status.BATCH_IS_COMPRESSED:
                self._decompress(wire, position)
                continue
            self._note(position)
            self._note_misfits(position.topic_partition)
            if status in (Status.NO_WHOLE_BATCH, Status.RANGE_IS_READ):
                return
            if status != Status.COLUMNS_ARE_FULL:
                raise self._error(Status(status), position)
            try:
                has_room = self._buffers.make_room(cursor)
            except HeadersTooLargeError as error:
                raise RecordsError(f"{self._place(position)}: {error}") from None
            if not has_room:
                yield self._take()

    def take(self) -> pa.RecordBatch | None:
        """Return the remaining rows, if there are any."""
        return self._take() if self._rows_of_runs else None

    def _take(self) -> pa.RecordBatch:
        runs, self._runs, self._rows_of_runs = self._runs, [], 0
        self._cursor["rows"] = 0
        return self._buffers.take(runs)

    def _note(self, position: RangeCursor) -> None:
        """Move the caller's position, and note whose the rows are that came with it."""
        position.next_offset = int(self._cursor["next_offset"])
        rows = int(self._cursor["rows"])
        added, self._rows_of_runs = rows - self._rows_of_runs, rows
        if added and self._runs and self._runs[-1][0] == position.topic_partition:
            added += self._runs.pop()[1]
        if added:
            self._runs.append((position.topic_partition, added))

    def _note_misfits(self, topic_partition: TopicPartition) -> None:
        cursor = self._cursor
        if not cursor["misfits"]:
            return
        timestamp_ms = int(cursor["misfit_base_ms"]) + int(cursor["misfit_delta_ms"])
        found = TimestampMisfits(
            topic_partition, int(cursor["misfit_offset"]), timestamp_ms, int(cursor["misfits"])
        )
        cursor["misfits"] = 0
        if not cursor["null_timestamps"]:
            raise found.error()
        self.misfits.add(found)

    def _decompress(self, wire: Octets, position: RangeCursor) -> None:
        cursor = self._cursor
        compressed = wire[int(cursor["at"]) : int(cursor["end"])]
        try:
            body = self._decompressor.decompress(int(cursor["codec"]), compressed)
        except DecompressionError as error:
            self._note(position)
            raise RecordsError(
                f"{self._place(position)}: it cannot be decompressed: {error}"
            ) from error
        cursor["at"], cursor["end"] = 0, len(body)

    def _error(self, status: Status, position: RangeCursor) -> RecordsError:
        if status is Status.IS_OLD_FORMAT:
            return MessageFormatError(f"{self._place(position)}: {_OLD_FORMAT}")
        return RecordsError(f"{self._place(position)}: {_WRONG[status]}")

    def _place(self, position: RangeCursor) -> str:
        partition, offset = position.topic_partition, position.next_offset
        return f"the batch of {partition} that has offset {offset} cannot be read"


def next_fetch_offset(records: Any, next_offset: int) -> int:
    """Return the offset that is fetched next, before a response is decoded.

    Args:
        records: The bytes of its records for a partition.
        next_offset: The offset that was asked for.
    """
    return int(offset_behind(np.frombuffer(records, np.uint8), next_offset))


def _aborted(transactions: Collection[AbortedTransaction]) -> Any:
    listed = sorted(
        (transaction.producer_id, transaction.first_offset, False) for transaction in transactions
    )
    return np.array(listed, ABORTED)
