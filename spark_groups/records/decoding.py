"""Decodes (with numba) the batches of one response: each is checked, then skipped or decoded.

Source: the Kafka protocol guide, Record Batch; Kafka's DefaultRecordBatch and CompletedFetch.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import int64, typeof

from spark_groups.records.blocks import REFUSED, unpack
from spark_groups.records.checksum import crc32c
from spark_groups.records.compiling import compiled, entry_point
from spark_groups.records.layout import (
    ABORTED,
    Columns,
    Octets,
    Status,
    new_columns,
    new_cursor,
)
from spark_groups.records.record import append_records, read_length, read_varint

# Positions of a batch's fields.
_LENGTH_AT: Final = 8
_LENGTH_FROM: Final = 12
_MAGIC_AT: Final = 16
_CHECKSUM_AT: Final = 17
_CHECKED_FROM: Final = 21
_ATTRIBUTES_AT: Final = 22
_LAST_DELTA_AT: Final = 23
_BASE_TIMESTAMP_AT: Final = 27
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER_ID_AT: Final = 43
_COUNT_AT: Final = 57
_HEADER_BYTES: Final = 61

_MAGIC: Final = 2
_CODEC_MASK: Final = 0x07
_IS_LOG_APPEND_TIME: Final = 0x08
_IS_TRANSACTIONAL: Final = 0x10
_IS_CONTROL: Final = 0x20
_ABORT: Final = 0
_MARKER_KEY_BYTES: Final = 4
_MAX_OFFSET: Final = 2**63 - 2

Aborted = npt.NDArray[Any]


@compiled
def _int64(octets: Octets, at: int) -> Any:
    value = np.int64(0)
    for index in range(at, at + 8):
        value = value << 8 | np.int64(octets[index])
    return value


@compiled
def _int32(octets: Octets, at: int) -> Any:
    value = np.int64(0)
    for index in range(at, at + 4):
        value = value << 8 | np.int64(octets[index])
    return value - ((value >> 31) << 32)


@compiled
def _check_frame(wire: Octets, begin: int) -> Status:
    """Check that there is a whole batch with a valid format and length."""
    left = len(wire) - begin
    if left <= _MAGIC_AT:
        return Status.NO_WHOLE_BATCH
    if wire[begin + _MAGIC_AT] < _MAGIC:
        return Status.IS_OLD_FORMAT
    if wire[begin + _MAGIC_AT] > _MAGIC:
        return Status.IS_UNKNOWN_FORMAT
    length = _int32(wire, begin + _LENGTH_AT)
    if length < _HEADER_BYTES - _LENGTH_FROM:
        return Status.LENGTH_IS_WRONG
    return Status.GO_ON if length <= left - _LENGTH_FROM else Status.NO_WHOLE_BATCH


@compiled
def _last_aborted(aborted: Aborted, producer_id: int, offset: int) -> int:
    """Return the index of a producer's last aborted transaction that began by an offset, or -1."""
    low, high = 0, len(aborted)
    while low < high:
        middle = (low + high) // 2
        each = aborted[middle]
        if each.producer_id < producer_id or (
            each.producer_id == producer_id and each.first_offset <= offset
        ):
            low = middle + 1
        else:
            high = middle
    if low > 0 and aborted[low - 1].producer_id == producer_id:
        return low - 1
    return -1


@compiled
def _is_aborted(aborted: Aborted, producer_id: int, last_offset: int) -> bool:
    """Return whether a transactional batch belongs to an aborted transaction."""
    index = _last_aborted(aborted, producer_id, last_offset)
    return index >= 0 and not aborted[index].is_ended


@compiled
def _note_marker(wire: Octets, begin: int, end: int, aborted: Aborted, offset: int) -> Status:
    """Note the end of an aborted transaction, if a control batch marks it."""
    length, at = read_varint(wire, begin + _HEADER_BYTES, end)
    _, at = read_varint(wire, at + 1, end)
    _, at = read_varint(wire, at, end)
    key_length, key_at, key_end = read_length(wire, at, end)
    if length < 0 or key_length < _MARKER_KEY_BYTES or key_end > end:
        return Status.RECORD_IS_WRONG
    if wire[key_at + 2] == 0 and wire[key_at + 3] == _ABORT:
        index = _last_aborted(aborted, _int64(wire, begin + _PRODUCER_ID_AT), offset)
        if index >= 0:
            aborted[index].is_ended = True
    return Status.GO_ON


@compiled
def _skip_or_begin(wire: Octets, begin: int, end: int, cursor: Any, aborted: Aborted) -> Status:
    """Skip a batch without wanted rows, or position the cursor at its records."""
    attributes = wire[begin + _ATTRIBUTES_AT]
    count = _int32(wire, begin + _COUNT_AT)
    last_offset = cursor.last_offset
    status = Status.GO_ON
    if attributes & _IS_CONTROL:
        if count > 0 and len(aborted):
            status = _note_marker(wire, begin, end, aborted, last_offset)
        count = 0
    elif attributes & _IS_TRANSACTIONAL and _is_aborted(
        aborted, _int64(wire, begin + _PRODUCER_ID_AT), last_offset
    ):
        count = 0
    if count == 0 or last_offset < cursor.next_offset:
        cursor.next_offset = max(cursor.next_offset, min(last_offset + 1, cursor.until_offset))
        return status
    is_log_append_time = attributes & _IS_LOG_APPEND_TIME != 0
    cursor.timestamp_type = is_log_append_time
    cursor.timestamp_ms = _int64(
        wire, begin + (_MAX_TIMESTAMP_AT if is_log_append_time else _BASE_TIMESTAMP_AT)
    )
    cursor.previous_offset = cursor.base_offset - 1
    cursor.records_left = count
    cursor.codec = attributes & _CODEC_MASK
    cursor.at, cursor.end = begin + _HEADER_BYTES, end
    return Status.BATCH_IS_COMPRESSED if cursor.codec else Status.GO_ON


@compiled
def _check_header(wire: Octets, begin: int, end: int, cursor: Any) -> Status:
    """Check a batch as a whole, and store its last offset."""
    if cursor.check_crcs:
        expected = _int32(wire, begin + _CHECKSUM_AT) & 0xFFFFFFFF
        if crc32c(wire, begin + _CHECKED_FROM, end) != expected:
            return Status.CHECKSUM_IS_WRONG
    last_delta = _int32(wire, begin + _LAST_DELTA_AT)
    if cursor.base_offset < 0 or last_delta < 0 or cursor.base_offset > _MAX_OFFSET - last_delta:
        return Status.OFFSETS_ARE_WRONG
    cursor.last_offset = cursor.base_offset + last_delta
    return Status.COUNT_IS_WRONG if _int32(wire, begin + _COUNT_AT) < 0 else Status.GO_ON


@compiled
def _next_batch(wire: Octets, cursor: Any, aborted: Aborted) -> Status:
    """Check the next batch; skip it, or position the cursor at its records."""
    begin = cursor.wire_at
    if cursor.next_offset >= cursor.until_offset:
        return Status.RANGE_IS_READ
    status = _check_frame(wire, begin)
    if status != Status.GO_ON:
        return status
    cursor.base_offset = _int64(wire, begin)
    if cursor.base_offset >= cursor.until_offset:
        cursor.next_offset = cursor.until_offset
        return Status.RANGE_IS_READ
    end = begin + _LENGTH_FROM + _int32(wire, begin + _LENGTH_AT)
    status = _check_header(wire, begin, end, cursor)
    if status != Status.GO_ON:
        return status
    cursor.wire_at = end
    return _skip_or_begin(wire, begin, end, cursor, aborted)


@entry_point(
    int64(
        typeof(np.frombuffer(b"-", np.uint8)),
        typeof(np.empty(1, np.uint8)),
        typeof(new_cursor()),
        typeof(np.zeros(1, ABORTED)),
        typeof(new_columns(1, 1)),
    )
)
def decode_batches(
    wire: Octets, body: Octets, cursor: Any, aborted: Aborted, columns: Columns
) -> int:
    """Decode a response until the caller must act.

    Args:
        wire: The records of the response.
        body: Receives the current batch, if `unpack` can decompress it; after a status of
            `BATCH_IS_COMPRESSED` the caller has put it here.
        cursor: The decoder's position; is moved.
        aborted: Aborted transactions; their ends are noted.
        columns: Receive the rows.

    Returns:
        Why it stopped: a `Status`.
    """
    while True:
        if cursor.records_left == 0:
            status = _next_batch(wire, cursor, aborted)
            if status == Status.BATCH_IS_COMPRESSED:
                size = unpack(cursor.codec, wire, cursor.at, cursor.end, body)
                if size != REFUSED:
                    cursor.at, cursor.end = 0, size
                    continue
            if status != Status.GO_ON:
                return status
        else:
            status = append_records(body if cursor.codec else wire, cursor, columns)
            if status != Status.GO_ON:
                return status
            cursor.next_offset = min(cursor.last_offset + 1, cursor.until_offset)


@entry_point(int64(typeof(np.frombuffer(b"-", np.uint8)), int64))
def offset_behind(wire: Octets, next_offset: int) -> int:
    """Return the offset after the last whole batch of a response, at least `next_offset`."""
    begin = 0
    while _check_frame(wire, begin) == Status.GO_ON:
        base_offset = _int64(wire, begin)
        last_delta = _int32(wire, begin + _LAST_DELTA_AT)
        if base_offset < 0 or last_delta < 0 or base_offset > _MAX_OFFSET - last_delta:
            break
        next_offset = max(next_offset, base_offset + last_delta + 1)
        begin += _LENGTH_FROM + _int32(wire, begin + _LENGTH_AT)
    return next_offset
