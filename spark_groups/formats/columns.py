"""What decoders of columns share: how many rows fit into memory, nulls, and the years of times."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

_FIRST_DAY: Final = date.min.toordinal() - date(1970, 1, 1).toordinal()
_END_DAY: Final = _FIRST_DAY + date.max.toordinal()
_SPAN_DAYS: Final = (-3_652_501, 3_652_501)
"""Of durations: 10,000 years, the most that Protobuf's may have."""
_DAY_MICROS: Final = 86_400_000_000


class RowLimit:
    """How many rows of a type fit into memory, by the bytes that they are decoded from.

    Args:
        arrow_type: The columns.
        item_bytes: How few bytes an item of an array may take in a record.
        text_bytes: How many bytes a text may have that a record does not spell out.
    """

    def __init__(self, arrow_type: pa.StructType, item_bytes: int, text_bytes: int = 0) -> None:
        self._text_bytes = text_bytes
        self._item_bytes_max = 0
        # Once as it is read, once as it is wanted.
        self._bytes_of_row = 2 * self._width(arrow_type)
        self._bytes_of_byte = 2 + 2 * self._item_bytes_max // item_bytes

    def rows(self, column: pa.Array, bytes_max: int) -> int:
        """Return how many of the first rows fit, at least one.

        Args:
            column: The bytes of records.
            bytes_max: The memory.
        """
        octets = pc.cast(pc.fill_null(pc.binary_length(column), 0), pa.int64())
        needed = pc.add(pc.multiply(octets, self._bytes_of_byte), self._bytes_of_row)
        return max(1, pc.sum(pc.less_equal(pc.cumulative_sum(needed), bytes_max)).as_py() or 0)

    def _width(self, part: pa.DataType) -> int:
        if kinds.is_struct(part):
            return 1 + sum(self._width(each.type) for each in part)
        if kinds.is_nested(part):
            width = sum(self._width(part.field(place).type) for place in range(part.num_fields))
            self._item_bytes_max = max(self._item_bytes_max, width)
            return 8
        return 1 + (part.bit_width // 8 if kinds.is_primitive(part) else 8 + self._text_bytes)


def with_nulls(values: pa.Array, column: pa.Array) -> pa.Array:
    """Return the values of those rows of a column that are not null, with nulls for the others.

    Args:
        values: One for each row that is not null.
        column: The column.
    """
    if not column.null_count:
        return values
    is_there = column.is_valid()
    places = pc.subtract(pc.cumulative_sum(pc.cast(is_there, pa.int64())), 1)
    return values.take(pc.if_else(is_there, places, None))


def without(column: pa.Array, rows: Collection[int]) -> pa.Array:
    """Return a column with nulls in some rows."""
    if not rows:
        return column
    return pc.if_else(pa.array([row in rows for row in range(len(column))]), None, column)


def has_far_times(values: pa.Array) -> bool:
    """Return whether a time or date is outside the years 1 to 9999, the only ones of Python.

    A duration may not be longer than 10,000 years.

    Args:
        values: Values of any type.
    """
    if kinds.is_nested(values.type):
        is_struct = kinds.is_struct(values.type)
        return any(map(has_far_times, values.flatten() if is_struct else [values.values]))
    if not kinds.is_temporal(values.type):
        return False
    is_day = kinds.is_date(values.type)
    unit = 1 if is_day else _DAY_MICROS
    first, end = _SPAN_DAYS if kinds.is_duration(values.type) else (_FIRST_DAY, _END_DAY)
    ends = pc.min_max(values.view(pa.int32() if is_day else pa.int64())).as_py()
    return not first * unit <= (ends["min"] or 0) <= (ends["max"] or 0) < end * unit
