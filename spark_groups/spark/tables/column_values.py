"""Exact conversions of the values of a column to the type in which a table has them.

Executors import this module.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_KEY: Final = "key"
_VALUE: Final = "value"
IS_NULL: Final = "is null, which the table does not allow"
PLACE: Final[Mapping[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
"""The columns of a row that tell which record it was made of, and so order it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The values that a kind of table has.

    Args:
        has_zero_bytes: Whether text may have the character with the number 0.
        has_nan: Whether there is a floating point value that is no number.
        between: The least and the largest value of a type, as Arrow stores it: days or microseconds
            since 1970.
    """

    has_zero_bytes: bool = True
    has_nan: bool = True
    between: Mapping[pa.DataType, tuple[int, int]] = field(default_factory=dict)


class ValueMisfitError(Exception):
    """A value does not fit exactly.

    Args:
        path: The column, with the fields that lead to a nested value.
        row: The number of the row in its record batch.
        reason: The reason, to follow the path.
    """

    def __init__(self, path: str, row: int, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path
        self.row = row
        self.reason = reason

    def at(self, row: int) -> ValueMisfitError:
        """Return the same reason for another row: that of the value around a nested one."""
        return ValueMisfitError(self.path, row, self.reason)


def shown_place(batch: pa.RecordBatch, row: int) -> str:
    """Return where a row is from: its record if the rows have that, else its number.

    Args:
        batch: The rows.
        row: The number of the row in it.
    """
    place = f"row {row} of a record batch"
    if not all(name in batch.schema.names for name in PLACE):
        return place
    try:
        topic, partition, offset = (batch.column(name)[row].as_py() for name in PLACE)
    except (ValueError, OverflowError):
        # The topic may be the text that is not UTF-8.
        return place
    return f"the record {topic}-{partition} offset {offset}"


def converted(column: pa.Array, wanted: pa.Field, path: str, limits: Limits) -> pa.Array:
    """Convert the values of a column exactly.

    Args:
        column: The values, of a type that fits.
        wanted: The type in which the table has them, and whether they may be null.
        path: The column in errors.
        limits: The values that the table has.

    Raises:
        ValueMisfitError: A value does not fit.
    """
    found = _converted(column, wanted.type, path, limits)
    if not wanted.nullable:
        refuse_where(found.is_null(), path, IS_NULL)
    return found


def _converted(column: pa.Array, wanted: pa.DataType, path: str, limits: Limits) -> pa.Array:
    if kinds.is_null(column.type):
        return pa.nulls(len(column), wanted)
    while kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kinds.is_run_end_encoded(column.type):
        return _converted(pc.run_end_decode(column), wanted, path, limits)
    if kinds.is_struct(wanted):
        return _struct(column, wanted, path, limits)
    if kinds.is_map(wanted):
        return _map(column, wanted, path, limits)
    if kinds.is_list(wanted):
        return _list(column, wanted, path, limits)
    return _scalar(column, wanted, path, limits)


def _struct(column: pa.Array, wanted: pa.DataType, path: str, limits: Limits) -> pa.Array:
    # Fields below a null are nulls in what this returns, except those of runs.
    given = dict(zip((each.name for each in column.type), column.flatten(), strict=True))
    fields = []
    is_null = column.is_null()
    for each in wanted:
        nested = given.get(each.name)
        if nested is None:
            nested = pa.nulls(len(column))
        value = _converted(nested, each.type, f"{path}.{each.name}", limits)
        if not each.nullable and value.null_count:
            refuse_where(pc.and_not(value.is_null(), is_null), f"{path}.{each.name}", IS_NULL)
            # A Parquet file has no nulls there, and no reader sees the values below a null.
            places = pa.array(range(len(value)), pa.int64())
            filled = pc.if_else(value.is_valid(), places, len(value))
            value = pa.concat_arrays([value, _any_value(each.type)]).take(filled)
        fields.append(value)
    mask = is_null if column.null_count else None
    return pa.StructArray.from_arrays(fields, fields=[*wanted], mask=mask)


def _any_value(wanted: pa.DataType) -> pa.Array:  # noqa: PLR0911
    """Return one value of a type."""
    if kinds.is_struct(wanted):
        fields = [_any_value(each.type) for each in wanted]
        return pa.StructArray.from_arrays(fields, fields=[*wanted])
    if kinds.is_list(wanted) or kinds.is_map(wanted):
        return pa.array([[]], wanted)
    if kinds.is_string(wanted) or kinds.is_binary(wanted):
        return pa.array([""]).cast(wanted)
    if isinstance(wanted, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(wanted, _any_value(wanted.storage_type))
    if kinds.is_fixed_size_binary(wanted):
        return pa.array([bytes(wanted.byte_width)], wanted)
    if kinds.is_temporal(wanted):
        width = pa.int32() if wanted.bit_width == 32 else pa.int64()
        return pa.array([0], width).view(wanted)
    if kinds.is_decimal(wanted):
        return pa.array([Decimal(0)], wanted)
    return pa.array([0]).cast(wanted)


def _list(column: pa.Array, wanted: pa.DataType, path: str, limits: Limits) -> pa.Array:
    """Convert lists, large lists, lists of one size and views of lists."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    field_ = wanted.value_field
    values = _nested(column, field_, f"{path}.{field_.name}", limits, lengths)
    return pa.ListArray.from_arrays(_ends(lengths), values, type=wanted, mask=_mask(column))


def _map(column: pa.Array, wanted: pa.DataType, path: str, limits: Limits) -> pa.Array:
    ends = pa.array(column.offsets.to_numpy(zero_copy_only=False))
    parts = []
    for part, field_, name in (
        (column.keys, wanted.key_field, _KEY),
        (column.items, wanted.item_field, _VALUE),
    ):
        # A list leaves out the entries of a null, which a map may have.
        entries = pa.ListArray.from_arrays(ends, part, mask=_mask(column))
        lengths = pc.fill_null(pc.list_value_length(entries), 0)
        parts.append(_nested(entries, field_, f"{path}.{name}", limits, lengths))
    return pa.MapArray.from_arrays(_ends(lengths), *parts, type=wanted, mask=_mask(column))


def _nested(
    lists: pa.Array, wanted: pa.Field, path: str, limits: Limits, lengths: pa.Array
) -> pa.Array:
    """Convert the values inside lists of certain lengths."""
    # pyarrow 26 cannot make an array of no values of some types, such as maps of UUIDs.
    values = lists.flatten() if pc.sum(lengths).as_py() else lists.values[:0]
    try:
        return converted(values, wanted, path, limits)
    except ValueMisfitError as error:
        ends = _ends(lengths)[1:].to_pylist()
        raise error.at(bisect_right(ends, error.row)) from None


def _ends(lengths: pa.Array) -> pa.Array:
    ends = pc.cumulative_sum(lengths.cast(pa.int64())).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _scalar(column: pa.Array, wanted: pa.DataType, path: str, limits: Limits) -> pa.Array:
    found = column
    if column.type != wanted:
        found = _checked(
            column, lambda part: _cast(part, wanted), path, f"does not fit {wanted} exactly"
        )
    if kinds.is_string(wanted):
        _checked(found, _validated, path, "is text with bytes that are not UTF-8")
        if not limits.has_zero_bytes:
            refuse_where(pc.match_substring(found, "\0"), path, "is text with the character 0")
    if kinds.is_floating(wanted) and not limits.has_nan:
        refuse_where(pc.is_nan(found), path, "is not a number (NaN)")
    if bounds := limits.between.get(wanted):
        refuse_outside(found, bounds, path, f"is outside the {wanted} values that the table has")
    return found


def refuse_where(refused: pa.Array, path: str, reason: str) -> None:
    """Refuse the first of some values.

    Args:
        refused: Whether each row is refused.
        path: The column in the error.
        reason: The reason, to follow the path.

    Raises:
        ValueMisfitError: There is one.
    """
    row = pc.index(refused, True).as_py()
    if row >= 0:
        raise ValueMisfitError(path, row, reason)


def refuse_outside(column: pa.Array, bounds: tuple[int, int], path: str, reason: str) -> None:
    """Refuse the first date or time outside some bounds.

    Args:
        column: The values.
        bounds: The least and the largest, since 1970, in days or in the unit of the type.
        path: The column in the error.
        reason: The reason, to follow the path.

    Raises:
        ValueMisfitError: There is one.
    """
    numbers = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    outside = pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))
    refuse_where(outside, path, reason)


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    found = column.cast(wanted)
    if kinds.is_temporal(wanted) or kinds.is_decimal(column.type):
        back = found.cast(column.type, safe=False)
        if pc.any(pc.not_equal(back, column)).as_py():
            raise pa.ArrowInvalid("digits are lost")
    return found


def _validated(column: pa.Array) -> pa.Array:
    column.validate(full=True)
    return column


def _checked(
    column: pa.Array, convert: Callable[[pa.Array], pa.Array], path: str, reason: str
) -> pa.Array:
    """Convert a column, or name the first value that cannot be converted."""
    try:
        return convert(column)
    except pa.ArrowInvalid:
        first, count = 0, len(column)
        while count > 1:
            half = count // 2
            try:
                convert(column.slice(first, half))
            except pa.ArrowInvalid:
                count = half
            else:
                first, count = first + half, count - half
        raise ValueMisfitError(path, first, reason) from None
