"""Random rows of all of Arrow's types, a table that nearly fits them, and when rows are equal."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

_ROWS_MAX: Final = 5
_DEPTH: Final = 2
_NAMES: Final = (
    *("a", "b", "c", "d", "e", "f", "Key", "key", "topic", "partition", "offset", "value"),
    *("a.b", "söm", "x y", "select", "a%b", 'q"t', "", "n" * 64, "element", "1st", "a-b", "_c"),
)
_FOR_TEXT: Final = ("", "a", "süß", "a'b\\\n\t\"", "\0", "x" * 300, "NULL", "null", "{}", "1")
_DECIMALS: Final = ((1, 0), (10, 2), (38, 0), (38, 37), (20, 5), (5, 5))
_PLAIN: Final = (
    *(pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.float32(), pa.string(), pa.binary()),
    *(pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
)
"""Types that each kind of table has."""
_SCALARS: Final = (
    *_PLAIN,
    *(pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16()),
    *(pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
    *(pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "ns")),
    *(pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("s", "+02:00")),
    *(pa.decimal128(*decimal) for decimal in _DECIMALS),
    *(pa.decimal256(10, 2), pa.decimal256(76, 0), pa.decimal32(9, 2), pa.decimal64(18, 4)),
    *(pa.duration("us"), pa.month_day_nano_interval(), pa.null(), pa.uuid()),
)


@dataclass(frozen=True)
class Case:
    """Rows, and the table that they are for.

    Args:
        batches: The rows of one task.
        existing: The columns of the table; None: it is a new one.
        partition_by: The columns by which the table is partitioned.
        is_plain: Whether any table has to take the rows.
    """

    batches: Sequence[pa.RecordBatch]
    existing: pa.Schema | None
    partition_by: tuple[str, ...]
    is_plain: bool


def drawn_case(seed: bytes) -> Case:
    """Return the case of a seed.

    Args:
        seed: Any bytes.
    """
    chance = random.Random(seed)
    is_plain = chance.random() < 0.3
    count = chance.choice((1, 1, 2, 3, 5))
    names = chance.sample(_NAMES, count)
    if is_plain:
        names = [f"c{index}" for index in range(count)]
    fields = [
        pa.field(name, chance.choice(_PLAIN) if is_plain else _type(chance, _DEPTH))
        for name in names
    ]
    schema = pa.schema(fields)
    batches = [_batch(chance, schema, is_plain) for _ in range(chance.choice((1, 1, 2, 3)))]
    if not is_plain:
        batches = [_turned(chance, batch) for batch in batches]
        batches[1:] = [_changed(chance, batch) for batch in batches[1:]]
    existing = None if is_plain or chance.random() < 0.4 else _nearly(chance, schema)
    partition_by: tuple[str, ...] = ()
    if count > 1 and chance.random() < 0.2 and not is_plain:
        partition_by = (chance.choice((existing or schema).names),)
    return Case(batches, existing, partition_by, is_plain)


def _type(chance: random.Random, depth: int) -> pa.DataType:
    if depth and chance.random() < 0.25:
        inner = _type(chance, depth - 1)
        return chance.choice(
            (
                lambda: pa.list_(inner),
                lambda: pa.large_list(inner),
                lambda: pa.list_(inner, 2),
                lambda: pa.list_view(inner),
                lambda: pa.map_(pa.string(), inner),
                lambda: pa.struct([("x", inner), ("y", _type(chance, depth - 1))]),
            )
        )()
    scalar = chance.choice(_SCALARS)
    if chance.random() < 0.1:
        return pa.dictionary(pa.int8(), scalar if kinds.is_string(scalar) else pa.string())
    if chance.random() < 0.05:
        return pa.run_end_encoded(pa.int32(), pa.int64())
    return scalar


def _batch(chance: random.Random, schema: pa.Schema, is_plain: bool) -> pa.RecordBatch:
    count = chance.randint(0, _ROWS_MAX)
    skipped = chance.choice((0, 0, 1))
    arrays = [_array(chance, each.type, count + skipped, is_plain) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)[skipped:]


def _turned(chance: random.Random, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows, sometimes with columns in another order, or without one."""
    names = batch.schema.names
    if chance.random() < 0.2:
        names = chance.sample(names, len(names))
    if len(names) > 1 and chance.random() < 0.1:
        names = names[:-1]
    return pa.RecordBatch.from_arrays(
        [batch.column(name) for name in names],
        schema=pa.schema([batch.schema.field(n) for n in names]),
    )


def _changed(chance: random.Random, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows, sometimes with values of another type in a column."""
    if chance.random() < 0.9:
        return batch
    name = chance.choice(batch.schema.names)
    values = _array(chance, chance.choice(_SCALARS), len(batch), is_plain=False)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {name: values}
    return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])


def _array(  # noqa: PLR0911
    chance: random.Random, column: pa.DataType, count: int, is_plain: bool
) -> pa.Array:
    """Return random values of a type."""
    if kinds.is_null(column):
        return pa.nulls(count)
    if kinds.is_dictionary(column):
        return _array(chance, column.value_type, count, is_plain).dictionary_encode().cast(column)
    if kinds.is_run_end_encoded(column):
        import pyarrow.compute as pc  # noqa: PLC0415

        return pc.run_end_encode(_array(chance, column.value_type, count, is_plain))
    if isinstance(column, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(
            column, _array(chance, column.storage_type, count, is_plain)
        )
    is_null = [chance.random() < 0.2 for _ in range(count)]
    if kinds.is_nested(column):
        return _nested(chance, column, is_null, is_plain)
    if kinds.is_string(column) and not is_plain and chance.random() < 0.05:
        octets = [chance.choice((b"ok", b"\xff\xfe", None)) for _ in is_null]
        return pa.array(octets, pa.binary()).view(pa.string())
    values = [None if each else _value(chance, column) for each in is_null]
    return of_values(values, column)


def of_values(values: Sequence[Any], column: pa.DataType) -> pa.Array:
    """Return values of a type, of which dates and times are numbers.

    Args:
        values: The values; None: it is null.
        column: The type.
    """
    width = {32: pa.int32(), 64: pa.int64()}
    if kinds.is_temporal(column) and not kinds.is_interval(column):
        return pa.array(values, width[column.bit_width]).view(column)
    return pa.array(values, column)


def _nested(
    chance: random.Random, column: pa.DataType, is_null: Sequence[bool], is_plain: bool
) -> pa.Array:
    mask = pa.array(is_null, pa.bool_())
    if kinds.is_struct(column):
        fields = [_array(chance, each.type, len(is_null), is_plain) for each in column]
        # Values that must not be null, and are, cannot be made of fields that forbid it.
        loose = [each.with_nullable(True) for each in column]
        return pa.StructArray.from_arrays(fields, fields=loose, mask=mask)
    if kinds.is_fixed_size_list(column):
        values = _array(chance, column.value_type, 2 * len(is_null), is_plain)
        return pa.FixedSizeListArray.from_arrays(values, 2, mask=mask)
    # There may be values below a null, which no reader sees.
    lengths = [
        0 if each and chance.random() < 0.7 else chance.choice((0, 1, 2)) for each in is_null
    ]
    ends = [sum(lengths[:index]) for index in range(len(lengths) + 1)]
    if kinds.is_map(column):
        keys = pa.array([f"k{index}" for index in range(ends[-1])], pa.string())
        items = _array(chance, column.item_type, ends[-1], is_plain)
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, items, mask=mask)
    values = _array(chance, column.value_type, ends[-1], is_plain)
    if kinds.is_list_view(column):
        places = pa.array(ends[:-1], pa.int32()), pa.array(lengths, pa.int32())
        return pa.ListViewArray.from_arrays(*places, values, mask=mask)
    if kinds.is_large_list(column):
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values, mask=mask)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, mask=mask)


def _value(chance: random.Random, column: pa.DataType) -> Any:  # noqa: PLR0911
    if kinds.is_boolean(column):
        return chance.random() < 0.5
    if kinds.is_integer(column):
        low = 0 if kinds.is_unsigned_integer(column) else -(1 << (column.bit_width - 1))
        high = low + (1 << column.bit_width) - 1
        return chance.choice((low, high, 0, 1, chance.randint(low, high)))
    if kinds.is_floating(column):
        edges = (0.0, -0.0, 1.5, -2.0, float("nan"), float("inf"), float("-inf"))
        return chance.choice(edges)
    if kinds.is_decimal(column):
        return _decimal(chance, column.precision, column.scale)
    if kinds.is_fixed_size_binary(column):
        return chance.randbytes(column.byte_width)
    if "binary" in str(column):
        return chance.choice((b"", b"\0", b"\xff\xfe", b"abc", chance.randbytes(40)))
    if "string" in str(column):
        return chance.choice(_FOR_TEXT)
    if str(column) == "month_day_nano_interval":
        return pa.MonthDayNano([1, 2, 3])
    return _moment(chance, column)


def _decimal(chance: random.Random, precision: int, scale: int) -> Any:
    from decimal import Context, Decimal  # noqa: PLC0415

    digits = chance.choice((1, precision, chance.randint(1, precision)))
    number = chance.choice(
        (0, 10**digits - 1, -(10**digits - 1), chance.randint(0, 10**digits - 1))
    )
    return Decimal(number).scaleb(-scale, Context(prec=80))


def _moment(chance: random.Random, column: pa.DataType) -> int:
    """Return a date, a time or a duration as Arrow stores it."""
    if kinds.is_date32(column):
        return chance.choice((0, -719_162, 2_932_896, 20_000, -3_000_000, 40_000_000, 2**31 - 1))
    if kinds.is_date64(column):
        return 86_400_000 * chance.choice((0, -719_162, 20_000))
    unit = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[column.unit]
    if kinds.is_time(column):
        return chance.choice((0, 86_400 * unit - 1, 3_600 * unit, 1))
    whole = (0, 1_729_992_600, 1_729_989_000, -62_135_596_800, 253_402_300_799, -(10**11))
    seconds = chance.choice(whole) if column.unit != "ns" else chance.choice(whole[:3])
    return seconds * unit + chance.choice((0, 0, 1, unit // 2, unit - 1))


def _nearly(chance: random.Random, schema: pa.Schema) -> pa.Schema:
    """Return columns of a table that rows of a schema fit, or nearly."""
    fields = []
    for each in schema:
        if chance.random() < 0.1:
            continue
        column = each.type if chance.random() < 0.6 else chance.choice(_SCALARS)
        nullable = chance.random() < 0.7 or kinds.is_null(column)
        fields.append(pa.field(each.name, _tightened(chance, column), nullable))
    if chance.random() < 0.2 or not fields:
        fields.append(pa.field("more", pa.int64(), chance.random() < 0.7))
    return pa.schema(fields if chance.random() < 0.7 else chance.sample(fields, len(fields)))


def _tightened(chance: random.Random, column: pa.DataType) -> pa.DataType:
    """Return a type whose nested values may be ones that must not be null."""
    nullable = chance.random() < 0.6
    if any(kinds.is_null(column.field(index).type) for index in range(column.num_fields)):
        return column
    if kinds.is_map(column) and kinds.is_null(column.item_type):
        return column
    if kinds.is_struct(column):
        return pa.struct([pa.field(each.name, each.type, nullable) for each in column])
    if kinds.is_list(column):
        return pa.list_(pa.field("element", column.value_type, nullable))
    if kinds.is_map(column):
        return pa.map_(column.key_type, pa.field("value", column.item_type, nullable))
    return column


def canonical(scalar: pa.Scalar) -> Any:  # noqa: PLR0911
    """Return a value so that equal values of different types are equal.

    Args:
        scalar: The value.
    """
    column = scalar.type
    if kinds.is_dictionary(column) or kinds.is_run_end_encoded(column):
        plain = scalar.as_py()
        return None if plain is None else canonical(pa.scalar(plain))
    if not scalar.is_valid:
        return None
    if isinstance(column, pa.BaseExtensionType):
        return canonical(scalar.value)
    if kinds.is_floating(column):
        number = scalar.as_py()
        is_number = math.isfinite(number) and (number or math.copysign(1, number) > 0)
        return Fraction(number) if is_number else str(number)
    if kinds.is_date64(column):
        return ("days", Fraction(scalar.value, 86_400_000))
    if kinds.is_date32(column):
        return ("days", Fraction(scalar.value))
    if kinds.is_timestamp(column) or kinds.is_time(column):
        unit = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[column.unit]
        has_zone = kinds.is_timestamp(column) and column.tz is not None
        return ("seconds", Fraction(scalar.value, unit), has_zone)
    if kinds.is_map(column):
        return [(canonical(key), canonical(item)) for key, item in _entries(scalar)]
    if kinds.is_struct(column):
        found = {name: canonical(value) for name, value in scalar.items()}
        return {name: value for name, value in found.items() if value is not None}
    if kinds.is_nested(column):
        return [canonical(each) for each in scalar.values]
    if kinds.is_decimal(column) or kinds.is_integer(column):
        return Fraction(scalar.as_py())
    return scalar.as_py()


def _entries(scalar: pa.Scalar) -> Iterator[tuple[pa.Scalar, pa.Scalar]]:
    for each in scalar.values:
        key, item = each.values()
        yield key, item


def rows_as_text(
    rows: pa.Table | Sequence[pa.RecordBatch], blank: Sequence[str], *, is_exact: bool = True
) -> list[str]:
    """Return the rows in an order and form in which equal rows are equal; nulls are left out.

    Args:
        rows: The rows.
        blank: Columns in which empty text is null.
        is_exact: Whether an empty list differs from a null.
    """
    batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
    found = []
    for batch in batches:
        columns = {name: batch.column(name) for name in batch.schema.names}
        for index in range(batch.num_rows):
            row = {name: canonical(column[index]) for name, column in columns.items()}
            row |= {name: None for name in blank if row.get(name) == ""}
            if not is_exact:
                row = {name: _without_empty(value) for name, value in row.items()}
            found.append(repr(sorted((n, v) for n, v in row.items() if v is not None)))
    return sorted(found)


def _without_empty(value: Any) -> Any:
    """Return a value with null instead of empty lists, at each depth."""
    if isinstance(value, list):
        return [_without_empty(each) for each in value] or None
    if isinstance(value, tuple):
        return tuple(_without_empty(each) for each in value)
    if isinstance(value, dict):
        kept = {name: _without_empty(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each is not None}
    return value
