"""Buffers for decoded rows, lent to Arrow without a copy and reused.

A record batch keeps its buffers; weak references show when the batch is gone. Mapped memory is much
faster to reuse than to allocate.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_groups.records.layout import Columns, Ends, Flags, Octets, new_columns
from spark_groups.types import TopicPartition

_FIRST_BYTES: Final = 1024 * 1024
_KEPT: Final = 3
"""The sets of buffers in rotation: one being filled, one being read, one being freed."""
_HEADER_BYTES: Final = 16
"""The approximate size of a header beside its key and its value."""


@dataclass(frozen=True, slots=True, eq=False)
class _Lent:
    columns: Columns
    views: tuple[weakref.ref[Any], ...]

    def is_back(self) -> bool:
        return all(view() is None for view in self.views)


class _Lending:
    """Views of the buffers in one record batch."""

    def __init__(self) -> None:
        self.views: list[weakref.ref[Any]] = []

    def buffer(self, part: npt.NDArray[Any]) -> pa.Buffer:
        self.views.append(weakref.ref(part))
        return pa.py_buffer(part)

    def binary(
        self, kind: pa.DataType, ends: Ends, octets: Octets, has: Flags | None, rows: int
    ) -> pa.Array:
        validity, nulls = validity_bits(has, rows)
        buffers = [validity, self.buffer(ends[: rows + 1]), self.buffer(octets[: ends[rows]])]
        return pa.Array.from_buffers(kind, rows, buffers, nulls)

    def fixed(
        self, kind: pa.DataType, numbers: npt.NDArray[Any], rows: int, has: Flags | None = None
    ) -> pa.Array:
        validity, nulls = validity_bits(has, rows)
        return pa.Array.from_buffers(kind, rows, [validity, self.buffer(numbers[:rows])], nulls)


def validity_bits(has: Flags | None, rows: int) -> tuple[pa.Buffer | None, int]:
    """Return Arrow's validity bitmap, or None if all rows have a value, and the null count."""
    nulls = 0 if has is None else rows - int(np.count_nonzero(has[:rows]))
    if has is None or not nulls:
        return None, 0
    return pa.py_buffer(np.packbits(has[:rows], bitorder="little")), nulls


class HeadersTooLargeError(Exception):
    """The headers of a single record exceed the memory limit."""


class RowBuffers:
    """Columns of rows, which grow on demand up to a limit.

    Args:
        schema: Of the record batches: key, value, topic, partition, offset, timestamp,
            timestampType, and optionally headers.
        rows_max: The most rows of a record batch.
        bytes_max: The most bytes of one of its columns, unless a single record has more.
        headers_bytes_max: The most bytes of a single record's headers, beside their keys and
            values.
    """

    def __init__(
        self, schema: pa.Schema, *, rows_max: int, bytes_max: int, headers_bytes_max: int
    ) -> None:
        if not 0 < rows_max < 2**31 or not 0 < bytes_max < 2**31:
            raise ValueError("limits of record batches must be positive and fit 31 bits")
        self._schema = schema
        self.include_headers = "headers" in schema.names
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._headers_max = headers_bytes_max // _HEADER_BYTES
        self._kinds = {field.name: field.type for field in schema}
        self._constants: dict[str, tuple[Any, pa.Array]] = {}
        self._lent: list[_Lent] = []
        self.columns = self._new()

    def _new(self) -> Columns:
        return new_columns(self._rows_max, min(_FIRST_BYTES, self._bytes_max))

    def make_room(self, cursor: Any) -> bool:
        """Enlarge the columns for the next record, and return whether they may be so large.

        Args:
            cursor: The sizes that the next record requires.

        Raises:
            HeadersTooLargeError: The record is alone, and has too many headers.
        """
        rows = int(cursor["rows"])
        wanted = {
            "key_bytes": int(cursor["key_bytes"]),
            "value_bytes": int(cursor["value_bytes"]),
            "header_key_bytes": int(cursor["header_key_bytes"]),
            "header_value_bytes": int(cursor["header_value_bytes"]),
            "has_header_value": int(cursor["header_rows"]),
        }
        limits = dict.fromkeys(wanted, self._bytes_max)
        limits["has_header_value"] = self._bytes_max // _HEADER_BYTES
        # A single record may exceed the limits.
        if rows and (
            rows >= self._rows_max or any(size > limits[name] for name, size in wanted.items())
        ):
            return False
        headers = wanted["has_header_value"]
        if headers > max(self._headers_max, limits["has_header_value"]):
            raise HeadersTooLargeError(
                f"a record has {headers} headers, which take {headers * _HEADER_BYTES} bytes beside"
                " their keys and values, more than their share of maxMemoryPerTask: raise that"
                " option, or set includeHeaders=false"
            )
        for name, size in wanted.items():
            if size > len(getattr(self.columns, name)):
                self._enlarge(name, max(size, min(2 * size, limits[name])))
        return True

    def _enlarge(self, name: str, size: int) -> None:
        self._resize(name, size)
        if name == "has_header_value":
            self._resize("header_key_ends", size + 1)
            self._resize("header_value_ends", size + 1)

    def _resize(self, name: str, size: int) -> None:
        column = getattr(self.columns, name)
        larger = np.empty(size, column.dtype)
        larger[: len(column)] = column
        self.columns = self.columns._replace(**{name: larger})

    def take(self, runs: Sequence[tuple[TopicPartition, int]]) -> pa.RecordBatch:
        """Return the rows as a record batch, which owns their memory while it exists.

        Args:
            runs: The partition and the number of each run of rows; at least one row.
        """
        rows = sum(count for _, count in runs)
        columns, lending = self.columns, _Lending()
        kinds = self._kinds
        keys, values = (
            (columns.key_ends, columns.key_bytes),
            (columns.value_ends, columns.value_bytes),
        )
        arrays = [
            lending.binary(kinds["key"], *keys, columns.has_key, rows),
            lending.binary(kinds["value"], *values, columns.has_value, rows),
            self._repeated("topic", [run.topic for run, _ in runs], runs),
            self._repeated("partition", [run.partition for run, _ in runs], runs),
            lending.fixed(kinds["offset"], columns.offsets, rows),
            lending.fixed(kinds["timestamp"], columns.timestamps_us, rows, columns.has_timestamp),
            lending.fixed(kinds["timestampType"], columns.timestamp_types, rows),
        ]
        if self.include_headers:
            arrays.append(_headers(kinds["headers"], columns, lending, rows))
        self._lend(_Lent(columns, tuple(lending.views)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _repeated(
        self, name: str, values: Sequence[Any], runs: Sequence[tuple[TopicPartition, int]]
    ) -> pa.Array:
        """Return a column with one value for all rows of a run."""
        # Not by pa.array() or pa.scalar(), which import pandas: most of a worker's first read.
        counts, kind = [count for _, count in runs], self._kinds[name]
        if values.count(values[0]) < len(values):
            return _repeat(kind, values, counts)
        # Most record batches are of the same single partition as the last one.
        value, column = self._constants.get(name, (None, None))
        if value != values[0]:
            value, column = values[0], _repeat(kind, values[:1], [self._rows_max])
            self._constants[name] = (value, column)
        return column[: sum(counts)]

    def _lend(self, lent: _Lent) -> None:
        """Continue with other buffers: returned ones, or new ones."""
        # Those of a huge record are not reused.
        if not _is_larger(lent.columns, self._bytes_max):
            self._lent.append(lent)
        back = next((each for each in self._lent if each.is_back()), None)
        if back is not None:
            self._lent.remove(back)
        elif len(self._lent) >= _KEPT:
            # A caller that collects batches keeps their memory: stop waiting for it.
            del self._lent[0]
        self.columns = self._new() if back is None else back.columns


def _repeat(kind: pa.DataType, values: Sequence[Any], counts: Sequence[int]) -> pa.Array:
    """Return a column of numbers or texts, each repeated as often as its count."""
    rows = sum(counts)
    if kind != pa.string():
        numbers = np.repeat(np.array(values, kind.to_pandas_dtype()), counts)
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)], 0)
    texts = [str(each).encode("utf-8") for each in values]
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(np.repeat([len(each) for each in texts], counts), out=ends[1:])
    octets = b"".join(text * count for text, count in zip(texts, counts, strict=True))
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(octets)], 0)


def _is_larger(columns: Columns, bytes_max: int) -> bool:
    octets = (columns.key_bytes, columns.value_bytes)
    octets_of_headers = (columns.header_key_bytes, columns.header_value_bytes)
    return max(map(len, octets + octets_of_headers)) > bytes_max


def _headers(kind: pa.DataType, columns: Columns, lending: _Lending, rows: int) -> pa.Array:
    headers = int(columns.header_ends[rows])
    key, value = kind.value_type
    keys = lending.binary(
        key.type, columns.header_key_ends, columns.header_key_bytes, None, headers
    )
    values = lending.binary(
        value.type,
        columns.header_value_ends,
        columns.header_value_bytes,
        columns.has_header_value,
        headers,
    )
    structs = pa.StructArray.from_arrays([_as_text(keys), values], fields=[key, value])
    validity, nulls = validity_bits(columns.has_headers, rows)
    ends = lending.buffer(columns.header_ends[: rows + 1])
    return pa.Array.from_buffers(kind, rows, [validity, ends], nulls, children=[structs])


def _as_text(keys: pa.Array) -> pa.Array:
    """Return keys of headers as text even if they are not UTF-8, as Kafka's consumers do."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        octets = keys.view(pa.binary()).to_pylist()
        return pa.array([octet.decode("utf-8", "replace") for octet in octets], keys.type)
    return keys
