"""The types that a kind of table has, and which types of rows fit them exactly.

Executors import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from spark_groups.spark.tables.column_values import Limits

MICROS: Final = pa.timestamp("us")
MICROS_UTC: Final = pa.timestamp("us", "UTC")
IN_LAKES: Final = (
    *(pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()),
    *(pa.date32(), MICROS, MICROS_UTC),
)
"""The types that both Delta and Iceberg have."""
_DIGITS_MAX: Final = 38
_ELEMENT: Final = "element"


@dataclass(frozen=True, slots=True)
class TypeRules:
    """The types and names that one kind of table has.

    Args:
        system: The kind of table, in errors.
        stored_as: The scalar types that it has, each with the type that it is stored as. Decimal
            numbers of up to 38 digits belong to every kind.
        listed: The types of which it has lists, if it has no other types inside types; None: it has
            lists, maps and structs of all its types.
        lacks: Types among these that a table cannot get, each with the reason and the cure.
        not_in_maps: Types that no key and no value of a map of a new table may have, at any depth.
        limits: The values that it has.
        name_bytes_max: The longest name of a column; None: any.
        not_in_names: Characters that no name may have.
        is_case_sensitive: Whether `a` and `A` are two columns.
        widens: Whether the type of a column may become wider, as in Iceberg.
        casts: Whether the commit converts staged values, and checks those that must not be null;
            else it adds files, which have to be as the table is.
    """

    system: str
    stored_as: Mapping[pa.DataType, pa.DataType]
    listed: frozenset[pa.DataType] | None = None
    lacks: Mapping[pa.DataType, str] = field(default_factory=dict)
    not_in_maps: frozenset[pa.DataType] = frozenset()
    limits: Limits = field(default_factory=Limits)
    name_bytes_max: int | None = None
    not_in_names: str = ""
    is_case_sensitive: bool = False
    widens: bool = False
    casts: bool = False

    def stored(self, given: pa.DataType, path: str) -> pa.DataType:
        """Return the type in which a new table has the values of a type.

        Args:
            given: The type of the rows.
            path: The column, with the fields that lead to a nested type.

        Raises:
            TypeMisfitError: The table has no such type.
        """
        plain = plain_type(given)
        if kinds.is_null(plain):
            raise TypeMisfitError(f"{path} has only nulls and no type: cast it")
        if plain in self.lacks:
            raise TypeMisfitError(f"{path} is {given}, {self.lacks[plain]}")
        if plain in self.stored_as:
            return self.stored_as[plain]
        if kinds.is_uint64(plain):
            return pa.decimal128(20, 0)
        if kinds.is_decimal128(plain):
            return plain
        if nested := self._nested(plain, path):
            return nested
        raise TypeMisfitError(
            f"{path} is {given}, which {self.system} does not have: turn it into text, bytes or"
            " another type, such as with to_json"
        )

    def _nested(self, plain: pa.DataType, path: str) -> pa.DataType | None:
        if kinds.is_list(plain):
            inner = self.stored(plain.value_type, f"{path}.{_ELEMENT}")
            is_listed = self.listed is None or inner in self.listed
            return pa.list_(pa.field(_ELEMENT, inner)) if is_listed else None
        if self.listed is not None:
            return None
        if kinds.is_map(plain):
            key = self.stored(plain.key_type, f"{path}.key")
            item = self.stored(plain.item_type, f"{path}.value")
            if found := self.not_in_maps & {*_types_in(key), *_types_in(item)}:
                raise TypeMisfitError(
                    f"{path} has {', '.join(map(str, found))} in a map, with which {self.system}"
                    " makes a table that no reader opens: say a time zone, or turn it into text"
                )
            return pa.map_(key, item)
        if kinds.is_struct(plain) and plain.num_fields:
            if problems := self.name_problems([each.name for each in plain], path):
                raise TypeMisfitError("; ".join(problems))
            fields = [(each.name, self.stored(each.type, f"{path}.{each.name}")) for each in plain]
            return pa.struct(fields)
        return None

    def plain_decimal(self, given: pa.DataType) -> pa.DataType | None:
        """Return the type of decimal numbers of some rows; None: they are none, or too long.

        Args:
            given: The type of the rows.
        """
        plain = plain_type(given)
        return plain if kinds.is_decimal128(plain) else None

    def name_problems(self, names: Iterable[str], parent: str = "") -> list[str]:
        """Return why a table cannot have columns, or a column fields, of these names.

        Args:
            names: The names.
            parent: The column whose fields they are.
        """
        problems: list[str] = []
        seen: dict[str, str] = {}
        for name in names:
            path = f"{parent}.{name}" if parent else name
            same = name if self.is_case_sensitive else name.casefold()
            if not name:
                problems.append(f"{parent or 'the batch'} has a column without a name")
            elif self.name_bytes_max is not None and len(name.encode()) > self.name_bytes_max:
                problems.append(
                    f"the name {path} is too long for {self.system}, which takes"
                    f" {self.name_bytes_max} bytes"
                )
            elif found := [each for each in self.not_in_names if each in name]:
                problems.append(
                    f"the name {path!r} has {', '.join(map(repr, found))}, which {self.system} does"
                    " not take"
                )
            elif same in seen:
                problems.append(f"{path} and {seen[same]} have one name for {self.system}")
            seen.setdefault(same, path)
        return problems


class TypeMisfitError(Exception):
    """A table has no type that holds the values of a column exactly; the text names the column."""


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table in the types to which rows are fitted.

    Args:
        schema: The columns as a library of the table gives them.
    """
    return pa.schema([_table_field(each) for each in schema])


def _table_field(each: pa.Field, name: str = "") -> pa.Field:
    return pa.field(name or each.name, _table_type(each.type), each.nullable)


def _table_type(column: pa.DataType) -> pa.DataType:
    plain = column if kinds.is_fixed_size_binary(column) else plain_type(column)
    if kinds.is_list(plain):
        return pa.list_(_table_field(plain.value_field, _ELEMENT))
    if kinds.is_map(plain):
        return pa.map_(_table_type(plain.key_type), _table_field(plain.item_field))
    if kinds.is_struct(plain):
        return pa.struct([_table_field(each) for each in plain])
    return plain


def _types_in(column: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type, and those inside it."""
    yield column
    for index in range(column.num_fields):
        yield from _types_in(column.field(index).type)


_LISTS: Final = (
    kinds.is_large_list,
    kinds.is_fixed_size_list,
    kinds.is_list_view,
    kinds.is_large_list_view,
)
_SAME: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.float16(): pa.float32(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
}
"""Types that no table has, each with the one that has all its values."""


def plain_type(column: pa.DataType) -> pa.DataType:
    """Return a type of tables that has the values of another type, if there is one.

    Args:
        column: The other type; it is returned if no type of tables has its values.
    """
    while kinds.is_dictionary(column) or kinds.is_run_end_encoded(column):
        column = column.value_type
    if kinds.is_timestamp(column):
        return MICROS if column.tz is None else MICROS_UTC
    if kinds.is_decimal(column) and column.precision <= _DIGITS_MAX:
        return pa.decimal128(column.precision, column.scale)
    if any(is_kind(column) for is_kind in _LISTS):
        return pa.list_(column.value_field)
    if kinds.is_time(column):
        return pa.time64("us")
    return pa.binary() if kinds.is_fixed_size_binary(column) else _SAME.get(column, column)


_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19, pa.uint64(): 20}
_FLOAT_FROM_BITS: Final = {pa.float32(): 16, pa.float64(): 32}
"""The widest integers that a type of floating point has exactly."""


def misfits(given: pa.DataType, wanted: pa.DataType, path: str, shown: str = "") -> list[str]:
    """Return why a column of a table cannot have the values of a type; nothing: it can.

    Args:
        given: The type of the rows.
        wanted: The type in the table.
        path: The column, with the fields that lead to a nested type.
        shown: The type in the words of the table; empty: as `wanted` is.
    """
    plain = plain_type(given)
    if kinds.is_null(plain):
        return []
    if kinds.is_struct(plain) and kinds.is_struct(wanted):
        return _struct_misfits(plain, wanted, path)
    if kinds.is_list(plain) and kinds.is_list(wanted):
        return misfits(plain.value_type, wanted.value_type, f"{path}.{_ELEMENT}")
    if kinds.is_map(plain) and kinds.is_map(wanted):
        of_keys = misfits(plain.key_type, wanted.key_type, f"{path}.key")
        return of_keys + misfits(plain.item_type, wanted.item_type, f"{path}.value")
    if _fits(plain, wanted) or given == wanted:
        return []
    cure = ""
    if kinds.is_timestamp(plain) and kinds.is_timestamp(wanted):
        cure = ": one has a time zone, and the other has none; say the zone in the transform"
    if kinds.is_nested(plain) and kinds.is_string(wanted):
        cure = ": turn it into text, such as with to_json"
    return [f"{path} is {given}, not {shown or wanted}{cure}"]


def _struct_misfits(given: pa.DataType, wanted: pa.DataType, path: str) -> list[str]:
    has = {each.name: each for each in wanted}
    if len({each.name for each in given}) < given.num_fields:
        return [f"{path} has two fields of one name"]
    problems: list[str] = []
    for each in given:
        if each.name not in has:
            problems.append(f"{path}.{each.name} is not a field of the table")
        else:
            problems += misfits(each.type, has[each.name].type, f"{path}.{each.name}")
    names = {each.name for each in given}
    problems += [
        f"{path}.{each.name} is missing, and must not be null"
        for each in wanted
        if each.name not in names and not each.nullable
    ]
    return problems


def _fits(plain: pa.DataType, wanted: pa.DataType) -> bool:
    if plain in _DIGITS and kinds.is_decimal(wanted):
        return bool(_DIGITS[plain] <= wanted.precision - wanted.scale)
    if kinds.is_signed_integer(plain) and wanted in _FLOAT_FROM_BITS:
        return bool(plain.bit_width <= _FLOAT_FROM_BITS[wanted])
    if kinds.is_signed_integer(plain) and kinds.is_signed_integer(wanted):
        return bool(plain.bit_width <= wanted.bit_width)
    return plain == wanted or any(
        of_rows(plain) and of_table(wanted)
        for of_rows, of_table in (
            (kinds.is_decimal, kinds.is_decimal),
            (kinds.is_float32, kinds.is_float64),
            (kinds.is_binary, kinds.is_fixed_size_binary),
        )
    )
