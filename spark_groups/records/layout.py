"""Data shared by compiled and interpreted code: the decoder's position, and the columns."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt


class Status(IntEnum):
    """Why the decoder stopped."""

    GO_ON = 0
    NO_WHOLE_BATCH = 1
    RANGE_IS_READ = 2
    COLUMNS_ARE_FULL = 3
    BATCH_IS_COMPRESSED = 4
    IS_OLD_FORMAT = 5
    IS_UNKNOWN_FORMAT = 6
    LENGTH_IS_WRONG = 7
    CHECKSUM_IS_WRONG = 8
    COUNT_IS_WRONG = 9
    OFFSETS_ARE_WRONG = 10
    RECORD_IS_WRONG = 11
    TIMESTAMP_IS_WRONG = 12


CURSOR: Final = np.dtype(
    [
        # The range.
        ("next_offset", "i8"),
        ("until_offset", "i8"),
        # The response: where its next batch begins.
        ("wire_at", "i8"),
        # The current batch, if it has records left.
        ("records_left", "i8"),
        ("codec", "i8"),
        ("at", "i8"),
        ("end", "i8"),
        ("base_offset", "i8"),
        ("last_offset", "i8"),
        ("previous_offset", "i8"),
        ("timestamp_ms", "i8"),
        ("timestamp_type", "i8"),
        # The columns: the rows in use, and the sizes that the next record requires.
        ("rows", "i8"),
        ("include_headers", "i8"),
        ("check_crcs", "i8"),
        ("null_timestamps", "i8"),
        # Timestamps that do not fit microseconds: their number, and the first one: the offset of
        # its record, and the two numbers of which it is the sum.
        ("misfits", "i8"),
        ("misfit_offset", "i8"),
        ("misfit_base_ms", "i8"),
        ("misfit_delta_ms", "i8"),
        ("key_bytes", "i8"),
        ("value_bytes", "i8"),
        ("header_rows", "i8"),
        ("header_key_bytes", "i8"),
        ("header_value_bytes", "i8"),
    ]
)
"""The decoder's position.

`at` and `end` are positions of the response's bytes, or of a compressed batch's decompressed ones.
"""

ABORTED: Final = np.dtype([("producer_id", "i8"), ("first_offset", "i8"), ("is_ended", "?")])
"""Aborted transactions, and whether their markers were seen; sorted by the first two fields."""

Octets = npt.NDArray[np.uint8]
Ends = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class Columns(NamedTuple):
    """The columns of rows; ends of variable-length values begin with a zero, as in Arrow."""

    offsets: Numbers
    timestamps_us: Numbers
    has_timestamp: Flags
    timestamp_types: npt.NDArray[np.int32]
    key_ends: Ends
    key_bytes: Octets
    has_key: Flags
    value_ends: Ends
    value_bytes: Octets
    has_value: Flags
    header_ends: Ends
    has_headers: Flags
    header_key_ends: Ends
    header_key_bytes: Octets
    header_value_ends: Ends
    header_value_bytes: Octets
    has_header_value: Flags


def new_columns(rows: int, octets: int) -> Columns:
    """Return columns for `rows` rows, with `octets` bytes each for keys and values."""
    return Columns(
        offsets=np.empty(rows, np.int64),
        timestamps_us=np.empty(rows, np.int64),
        has_timestamp=np.empty(rows, np.bool_),
        timestamp_types=np.empty(rows, np.int32),
        key_ends=np.zeros(rows + 1, np.int32),
        key_bytes=np.empty(octets, np.uint8),
        has_key=np.empty(rows, np.bool_),
        value_ends=np.zeros(rows + 1, np.int32),
        value_bytes=np.empty(octets, np.uint8),
        has_value=np.empty(rows, np.bool_),
        header_ends=np.zeros(rows + 1, np.int32),
        has_headers=np.empty(rows, np.bool_),
        header_key_ends=np.zeros(1, np.int32),
        header_key_bytes=np.empty(0, np.uint8),
        header_value_ends=np.zeros(1, np.int32),
        header_value_bytes=np.empty(0, np.uint8),
        has_header_value=np.empty(0, np.bool_),
    )


def new_cursor() -> Any:
    """Return a zeroed cursor."""
    return np.zeros(1, CURSOR)[0]
