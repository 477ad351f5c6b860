"""Values that are JSON documents, as columns: what Spark's `from_json` gives with the same DDL.

pyarrow's reader decodes all values of a batch in one pass. Where it refuses the batch, it reads
smaller parts, and Python reads the parts that it still refuses, and all where a column has maps,
which takes about ten times as long. The result of a record never depends on its neighbours.

It differs from `from_json` in permissive mode:

- A value that does not fit its column refuses the record; Spark makes it null.
- A value must be one JSON object, or null, which is null. Spark makes null of an empty value, and
  ignores what follows the first document.
- Names and strings are in double quotes; Spark takes single ones as well. Half of a surrogate pair
  refuses the record.
- In a column of strings, other values are JSON without white space, with numbers as they were
  written; Spark writes them in its own form.
- Times without a zone are in UTC, not in the zone of Spark's session.
- Dates and times have the forms of ISO 8601 with at least year, month and day, from the year 1 to
  9999; times keep microseconds. Spark takes a year alone, times without a day, and zones by name,
  and no zone behind an hour alone.
- Of two values of one key of a map the last one is kept.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyarrow import types as kinds

from spark_groups.errors import SchemaError
from spark_groups.formats.columns import RowLimit, has_far_times, with_nulls
from spark_groups.formats.ddl import parse_ddl
from spark_groups.formats.decoding import DecodedColumn, Undecodable
from spark_groups.formats.frames import schema_id_of, unframed
from spark_groups.formats.json_rows import DEPTH_MAX, Misfit, refuse_deep, row_converter

PART_ROWS: Final = 256
PART_BYTES: Final = 1 << 20
"""A part of a batch that the reader refuses."""
_BLOCK_BYTES_MAX: Final = 1 << 30
_MICROS_CHARACTERS: Final = 27
_ZONE: Final = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)$")
_ONLY_PYARROW: Final = (re.compile(rb"Inf[\s,}\]]"), re.compile(rb"-NaN"))
"""Numbers that pyarrow's reader takes, and JSON's other readers do not; one search is slower."""


class JsonDecoder:
    """Decodes values that are JSON objects.

    Args:
        ddl: The columns, like `id BIGINT, tags ARRAY<STRING>`.
        bytes_max: About how much memory the values of one call may take.
        framed: Whether a schema id stands before each document.

    Raises:
        SchemaError: The DDL is wrong, is not of columns, or has a type that JSON does not have.
    """

    def __init__(self, ddl: str, *, bytes_max: int, framed: bool = False) -> None:
        self.arrow_type = parse_ddl(ddl)
        if not kinds.is_struct(self.arrow_type):
            raise SchemaError(f"the DDL must name columns, like `id BIGINT`, not {ddl!r}")
        self._row = row_converter(self.arrow_type)
        self._bytes_max = min(bytes_max, _BLOCK_BYTES_MAX)
        self._framed = framed
        self._limit = RowLimit(self.arrow_type, item_bytes=2)
        self._read_type = _read_type(self.arrow_type)

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode the first records of a batch, or all.

        Args:
            column: The bytes, null where a record has none.
        """
        column = column.slice(0, self._limit.rows(column, self._bytes_max))
        bodies, refused = unframed(column) if self._framed else (column, {})
        values = self._read(bodies)
        if values is None:
            misfits: dict[int, Misfit] = {}
            values = pa.concat_arrays(
                [self._read_part(part, row, misfits) for row, part in self._parts(bodies)]
            )
            for row, misfit in misfits.items():
                schema_id = schema_id_of(column[row].as_py()) if self._framed else None
                refused[row] = Undecodable(str(misfit), schema_id)
        return DecodedColumn(values, dict(sorted(refused.items())))

    def _parts(self, bodies: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        row = 0
        while row < len(bodies):
            part = bodies.slice(row, PART_ROWS)
            part = part.slice(0, self._limit.rows(part, PART_BYTES))
            yield row, part
            row += len(part)

    def _read_part(self, part: pa.Array, first_row: int, misfits: dict[int, Misfit]) -> pa.Array:
        values = self._read(part)
        if values is not None:
            return values
        rows = [None if value is None else self._row(value) for value in part.to_pylist()]
        misfits |= {first_row + at: row for at, row in enumerate(rows) if isinstance(row, Misfit)}
        kept = [None if isinstance(row, Misfit) else row for row in rows]
        return pa.array(kept, self.arrow_type)

    def _read(self, bodies: pa.Array) -> pa.Array | None:
        """Return what pyarrow's reader makes of all values; None: it refuses one of them."""
        present = bodies.drop_null() if bodies.null_count else bodies
        if not len(present):
            return pa.nulls(len(bodies), self.arrow_type)
        if self._read_type is None:
            return None
        try:
            block = _block(present)
            table = pj.read_json(
                pa.BufferReader(block),
                read_options=pj.ReadOptions(use_threads=False, block_size=block.size + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema(list(self._read_type)),
                    unexpected_field_behavior="ignore",
                ),
            )
            # A value begins as an object and ends as one, so each has at least one document.
            if len(table) != len(present):
                return None
            found = table.to_struct_array().combine_chunks()
            found = _finished(found, self.arrow_type)
        except (ValueError, NotImplementedError):
            return None
        return with_nulls(found, bodies)


def _block(values: pa.Array) -> pa.Buffer:
    """Return documents joined by line ends, which strings in JSON never contain.

    Raises:
        ValueError: One of them is for Python to judge.
    """
    texts = pc.cast(values, pa.string())
    if not _are_objects(texts):
        texts = pc.ascii_trim(texts, " \t\r\n")
        if not _are_objects(texts):
            raise Misfit("one is no object")
    # A short one cannot be deep.
    for document in texts.filter(pc.greater(pc.binary_length(texts), 2 * DEPTH_MAX)):
        refuse_deep(document.as_py())
    everything = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    block = pc.binary_join(everything, "\n")[0].as_buffer()
    if any(each.search(block) for each in _ONLY_PYARROW):
        raise Misfit("one may have a number that JSON does not have")
    return block


def _are_objects(texts: pa.Array) -> bool:
    is_one = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    return bool(pc.all(is_one).as_py())


def _read_type(wanted: pa.DataType) -> pa.DataType | None:
    """Return the type that pyarrow's reader reads for a wanted one; None: it has none."""
    if kinds.is_struct(wanted):
        fields = [(each.name, _read_type(each.type)) for each in wanted]
        return None if any(found is None for _, found in fields) else pa.struct(fields)
    if kinds.is_list(wanted):
        found = _read_type(wanted.value_type)
        return None if found is None else pa.list_(pa.field("element", found))
    if kinds.is_map(wanted):
        return None
    if kinds.is_date(wanted) or kinds.is_timestamp(wanted) or kinds.is_binary(wanted):
        return pa.string()
    if kinds.is_decimal(wanted):
        # The reader checks the scale only; what it makes a narrower decimal of is checked.
        return pa.decimal256(76, wanted.scale)
    return pa.float64() if kinds.is_floating(wanted) else wanted


def _finished(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values that were read in the type that is wanted.

    Raises:
        ValueError: One of the values is for Python to judge.
    """
    if values.type == wanted:
        return values
    if kinds.is_struct(wanted):
        children = [_finished(values.field(place), each.type) for place, each in enumerate(wanted)]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    if kinds.is_list(wanted):
        items = _finished(values.values, wanted.value_type)
        mask = values.is_null() if values.null_count else None
        return pa.ListArray.from_arrays(values.offsets, items, type=wanted, mask=mask)
    if kinds.is_binary(wanted):
        octets = (each and base64.b64decode(each, validate=True) for each in values.to_pylist())
        return pa.array(octets, wanted)
    if kinds.is_temporal(wanted):
        found = _moments(values, wanted)
        if has_far_times(found):
            raise Misfit("one is of a year that Python does not have")
        return found
    return pc.cast(values, wanted)


def _moments(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the times that texts name; all have a time zone, or none has."""
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > _MICROS_CHARACTERS:
        texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    first = next((each.as_py() for each in texts if each.is_valid), "")
    if kinds.is_timestamp(wanted) and wanted.tz and not _ZONE.search(first[10:]):
        texts = pc.cast(texts, pa.timestamp("us"))
    return pc.cast(texts, wanted)
