"""Record batches in the binary format of PostgreSQL's COPY, and their types in PostgreSQL.

Each column is encoded as a whole, and Arrow joins the fields of each row, so no row becomes a
Python object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_groups.spark.tables.column_types import TypeRules
from spark_groups.spark.tables.column_values import Limits

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = b"\xff\xff"
NAME_BYTES_MAX: Final = 63
"""The longest name, in bytes: PostgreSQL cuts a longer one."""

_CHUNK_BYTES: Final = 64 * 1024 * 1024
_NULL: Final = b"\xff\xff\xff\xff"
_EPOCH_DAYS: Final = 10_957
"""The days from 1970, the epoch of Arrow, to 2000, the epoch of PostgreSQL."""
_EPOCH_US: Final = _EPOCH_DAYS * 86_400_000_000
_DAYS: Final = (-2_440_588, 2_145_031_948)
"""The first day that PostgreSQL has, in the year 4713 BC, and the last one, since 1970."""
_TIMES_US: Final = (_DAYS[0] * 86_400_000_000, 2**63 - 1 - _EPOCH_US)


class Column(NamedTuple):
    """A column of staged rows.

    Args:
        name: Its name.
        staged_type: Its SQL type in a staging table.
        table_type: Its SQL type in a new table.
    """

    name: str
    staged_type: str
    table_type: str


class _Fixed(NamedTuple):
    """A type whose values all have the same size."""

    sql: str
    number: str
    """The numpy type of an encoded value."""
    read_as: pa.DataType | None = None
    epoch: int = 0


_FIXED: Final[Mapping[pa.DataType, _Fixed]] = {
    pa.bool_(): _Fixed("boolean", ">u1", pa.uint8()),
    pa.int16(): _Fixed("smallint", ">i2"),
    pa.int32(): _Fixed("integer", ">i4"),
    pa.int64(): _Fixed("bigint", ">i8"),
    pa.float32(): _Fixed("real", ">f4"),
    pa.float64(): _Fixed("double precision", ">f8"),
    pa.date32(): _Fixed("date", ">i4", pa.int32(), _EPOCH_DAYS),
    pa.time64("us"): _Fixed("time without time zone", ">i8", pa.int64()),
    pa.timestamp("us"): _Fixed("timestamp without time zone", ">i8", pa.int64(), _EPOCH_US),
    pa.timestamp("us", "UTC"): _Fixed("timestamp with time zone", ">i8", pa.int64(), _EPOCH_US),
}
_VARIABLE: Final[Mapping[pa.DataType, str]] = {
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.uuid(): "uuid",
}

LISTED: Final = frozenset(
    (*(pa.bool_(), pa.int16(), pa.int32(), pa.int64()), *(pa.float32(), pa.float64(), pa.string()))
)
"""Types whose lists have a form in this module: the text of an array."""
POSTGRES: Final = TypeRules(
    "PostgreSQL",
    {pa.int8(): pa.int16(), **{each: each for each in (*_FIXED, *_VARIABLE)}},
    listed=LISTED,
    limits=Limits(
        has_zero_bytes=False,
        between={
            pa.date32(): _DAYS,
            pa.timestamp("us"): _TIMES_US,
            pa.timestamp("us", "UTC"): _TIMES_US,
        },
    ),
    name_bytes_max=NAME_BYTES_MAX,
    not_in_names="\0",
    is_case_sensitive=True,
    casts=True,
)
"""The types that have a form in this module."""


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of rows.

    Args:
        schema: Their schema, which `POSTGRES` allows.
    """
    return tuple(_column_of(each) for each in schema)


def _column_of(field: pa.Field) -> Column:
    if pa.types.is_decimal(field.type):
        return Column(field.name, "text", f"numeric({field.type.precision},{field.type.scale})")
    if pa.types.is_list(field.type):
        return Column(field.name, "text", f"{_sql(field.type.value_type)}[]")
    return Column(field.name, _sql(field.type), _sql(field.type))


def _sql(column: pa.DataType) -> str:
    return _FIXED[column].sql if column in _FIXED else _VARIABLE[column]


def copied(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """Yield the rows of a record batch in the format of COPY, without header and trailer.

    Args:
        batch: The rows; `columns_of` has accepted their schema.
    """
    if batch.nbytes > _CHUNK_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from copied(batch.slice(0, half))
        yield from copied(batch.slice(half))
        return
    if not batch.num_rows:
        return
    parts: list[Any] = [pa.scalar(batch.num_columns.to_bytes(2, "big"), pa.large_binary())]
    for column in batch.columns:
        parts += _fields(column)
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    _, ends, values = joined.buffers()
    end = np.frombuffer(ends, np.int64)[joined.offset + len(joined)]
    yield memoryview(values)[:end]


def _fields(column: pa.Array) -> list[pa.Array]:
    """Return the sizes and values of a column's fields, one of each for a row."""
    fixed = _FIXED.get(column.type)
    if fixed is None:
        if pa.types.is_list(column.type):
            column = _array_text(column)
        elif pa.types.is_decimal(column.type):
            column = column.cast(pa.string())
        elif column.type == pa.uuid():
            column = column.storage
        sizes = column.cast(pa.binary()).cast(pa.large_binary())
        lengths = pc.fill_null(pc.binary_length(sizes), -1).to_numpy(zero_copy_only=False)
        return [_of_one_size(lengths.astype(">i4")), pc.fill_null(sizes, b"")]
    read = column if fixed.read_as is None else column.cast(fixed.read_as)
    numbers = pc.fill_null(read, 0).to_numpy(zero_copy_only=False)
    number = np.dtype(fixed.number)
    fields = np.empty(len(column), [("size", ">i4"), ("value", number)])
    fields["size"] = number.itemsize
    fields["value"] = numbers - fixed.epoch if fixed.epoch else numbers
    found = _of_one_size(fields)
    if column.null_count:
        found = pc.if_else(column.is_valid(), found, pa.scalar(_NULL, pa.large_binary()))
    return [found]


def _of_one_size(items: np.ndarray[Any, Any]) -> pa.Array:
    """Return the bytes of each item."""
    size = items.dtype.itemsize
    ends = np.arange(0, (len(items) + 1) * size, size, dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(items.tobytes())]
    return pa.Array.from_buffers(pa.large_binary(), len(items), buffers)


def _array_text(column: pa.Array) -> pa.Array:
    """Return lists as the text of PostgreSQL's arrays."""
    values = column.flatten()
    texts = values.cast(pa.string())
    if pa.types.is_string(values.type):
        escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
        texts = pc.binary_join_element_wise('"', escaped, '"', "")
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    # An element without a value is the word without quotes.
    lists = pa.ListArray.from_arrays(ends, pc.fill_null(texts, "NULL"))
    joined = pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")
    return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.string()))
