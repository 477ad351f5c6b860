"""Records of one batch, decoded into columns by compiled code.

Every index is checked before it is used: positions only grow, and a reader that fails returns a
position after the end, where every other read fails.

Source: the Kafka protocol guide, Record and Record Header; Kafka's DefaultRecord.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from spark_groups.records.compiling import compiled, copy_bytes
from spark_groups.records.layout import Columns, Octets, Status
from spark_groups.records.misfits import MAX_MS

_FAR_MS: Final = 2**63 - 1 - MAX_MS
_VARINT_BITS: Final = 64
CREATE_TIME: Final = 0
_NULL: Final = -1


@compiled
def read_varint(octets: Octets, at: int, end: int) -> tuple[Any, int]:
    """Read a number in zigzag encoding at a position of at least 0.

    Args:
        end: The end of readable bytes, at most the array's length.

    Returns:
        The number and the position after it; a position after `end` if there is none.
    """
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < np.uint64(_VARINT_BITS):
        byte = np.uint64(octets[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return 0, end + 1


@compiled
def read_length(octets: Octets, at: int, end: int) -> tuple[Any, int, int]:
    """Read the length of a key or a value.

    Returns:
        The length, -1 for null; the positions of the first byte and after the last one, the latter
        after `end` if bytes are missing.
    """
    length, begin = read_varint(octets, at, end)
    if length < _NULL or length > end - begin:
        return 0, end, end + 1
    return length, begin, begin + max(length, 0)


@compiled
def _append_headers(octets: Octets, at: int, end: int, cursor: Any, columns: Columns) -> Status:
    """Append the headers of a record to their columns."""
    count, at = read_varint(octets, at, end)
    # Each header has at least two lengths.
    if count < 0 or count > (end - at) // 2:
        return Status.RECORD_IS_WRONG
    used = columns.header_ends[cursor.rows]
    keys, values = columns.header_key_ends[used], columns.header_value_ends[used]
    cursor.header_rows = used + count
    cursor.header_key_bytes, cursor.header_value_bytes = keys + end - at, values + end - at
    if (
        cursor.header_rows > len(columns.has_header_value)
        or cursor.header_key_bytes > len(columns.header_key_bytes)
        or cursor.header_value_bytes > len(columns.header_value_bytes)
    ):
        return Status.COLUMNS_ARE_FULL
    for header in range(used, used + count):
        key_length, key_at, key_end = read_length(octets, at, end)
        value_length, value_at, at = read_length(octets, key_end, end)
        if key_length < 0 or key_end > end or at > end:
            return Status.RECORD_IS_WRONG
        copy_bytes(columns.header_key_bytes, keys, octets, key_at, key_length)
        copy_bytes(columns.header_value_bytes, values, octets, value_at, at - value_at)
        keys, values = keys + key_length, values + at - value_at
        columns.header_key_ends[header + 1] = keys
        columns.header_value_ends[header + 1] = values
        columns.has_header_value[header] = value_length >= 0
    if at != end:
        return Status.RECORD_IS_WRONG
    columns.has_headers[cursor.rows] = count > 0
    columns.header_ends[cursor.rows + 1] = used + count
    return Status.GO_ON


@compiled
def _append(octets: Octets, at: int, end: int, cursor: Any, columns: Columns) -> Status:
    """Append a record's key, value and headers to the columns, if there is room."""
    key_length, key_at, key_end = read_length(octets, at, end)
    value_length, value_at, value_end = read_length(octets, key_end, end)
    # A record without a header count is truncated.
    if key_end > end or value_end >= end:
        return Status.RECORD_IS_WRONG
    row = cursor.rows
    keys, values = columns.key_ends[row], columns.value_ends[row]
    cursor.key_bytes, cursor.value_bytes = keys + key_end - key_at, values + value_end - value_at
    if (
        row >= len(columns.offsets)
        or cursor.key_bytes > len(columns.key_bytes)
        or cursor.value_bytes > len(columns.value_bytes)
    ):
        cursor.header_rows = cursor.header_key_bytes = cursor.header_value_bytes = 0
        return Status.COLUMNS_ARE_FULL
    if cursor.include_headers:
        status = _append_headers(octets, value_end, end, cursor, columns)
        if status != Status.GO_ON:
            return status
    copy_bytes(columns.key_bytes, keys, octets, key_at, key_end - key_at)
    copy_bytes(columns.value_bytes, values, octets, value_at, value_end - value_at)
    columns.key_ends[row + 1], columns.value_ends[row + 1] = cursor.key_bytes, cursor.value_bytes
    columns.has_key[row], columns.has_value[row] = key_length >= 0, value_length >= 0
    return Status.GO_ON


@compiled
def _append_position(offset: int, delta_ms: int, cursor: Any, columns: Columns) -> Status:
    """Set offset and timestamp of the current row, and complete it."""
    row, timestamp_ms = cursor.rows, cursor.timestamp_ms
    if cursor.timestamp_type != CREATE_TIME:
        delta_ms = 0
    # Compare without the sum, and without limits, that may overflow.
    if delta_ms >= 0:
        fits = timestamp_ms <= MAX_MS - delta_ms
        fits = fits and (delta_ms > _FAR_MS or timestamp_ms >= -MAX_MS - delta_ms)
    else:
        fits = timestamp_ms >= -MAX_MS - delta_ms
        fits = fits and (delta_ms < -_FAR_MS or timestamp_ms <= MAX_MS - delta_ms)
    if not fits:
        if cursor.misfits == 0:
            cursor.misfit_offset = offset
            cursor.misfit_base_ms, cursor.misfit_delta_ms = timestamp_ms, delta_ms
        cursor.misfits += 1
        if not cursor.null_timestamps:
            return Status.TIMESTAMP_IS_WRONG
    columns.offsets[row] = offset
    columns.has_timestamp[row] = fits
    columns.timestamps_us[row] = (timestamp_ms + delta_ms) * 1000 if fits else 0
    columns.timestamp_types[row] = cursor.timestamp_type
    cursor.rows = row + 1
    return Status.GO_ON


@compiled
def _read_position(octets: Octets, at: int, end: int) -> tuple[int, int, Any, Any]:
    """Read the beginning of a record.

    Returns:
        The positions of its key and after the record, the latter after `end` if it is malformed;
        its timestamp and offset deltas.
    """
    length, begin = read_varint(octets, at, end)
    if length < 0 or length > end - begin:
        return end, end + 1, 0, 0
    record_end = begin + length
    # Skip the record's attributes, an unused byte.
    delta_ms, at = read_varint(octets, begin + 1, record_end)
    offset_delta, at = read_varint(octets, at, record_end)
    return at, record_end if at <= record_end else end + 1, delta_ms, offset_delta


@compiled
def append_records(octets: Octets, cursor: Any, columns: Columns) -> Status:
    """Append the remaining records of a batch to the columns.

    Args:
        octets: The response or the decompressed batch, for the cursor's positions.
        cursor: The decoder's position; 0 <= at <= end <= len(octets).
    """
    end = cursor.end
    while cursor.records_left > 0:
        at, record_end, delta_ms, offset_delta = _read_position(octets, cursor.at, end)
        if record_end > end:
            return Status.RECORD_IS_WRONG
        offset = cursor.base_offset + offset_delta
        if (
            not 0 <= offset_delta <= cursor.last_offset - cursor.base_offset
            or offset <= cursor.previous_offset
        ):
            return Status.OFFSETS_ARE_WRONG
        if offset >= cursor.until_offset:
            cursor.records_left, cursor.next_offset = 0, cursor.until_offset
            return Status.RANGE_IS_READ
        if offset >= cursor.next_offset:
            status = _append(octets, at, record_end, cursor, columns)
            if status == Status.GO_ON:
                status = _append_position(offset, delta_ms, cursor, columns)
            if status != Status.GO_ON:
                return status
            cursor.next_offset = offset + 1
        cursor.previous_offset, cursor.at = offset, record_end
        cursor.records_left -= 1
    return Status.GO_ON if cursor.at == end else Status.LENGTH_IS_WRONG
