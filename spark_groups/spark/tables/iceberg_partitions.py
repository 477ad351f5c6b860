"""The partitions of an Iceberg table: which value of each row tasks compute, and with which spec.

Executors import this module, but only for a table that is partitioned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from pyiceberg import types
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    parse_transform,
)
from pyiceberg.typedef import Record

from spark_groups.errors import OptionsError
from spark_groups.spark.tables.column_types import MICROS, MICROS_UTC
from spark_groups.spark.tables.partition_values import as_key, column_of

_CALL: Final = re.compile(r"(\w+)\(\s*(?:(\d+)\s*,\s*)?`?(.+?)`?\s*\)")
_TIMES: Final = ("year", "month", "day", "hour")
_SPELLINGS: Final = {
    **{each: each for each in (*_TIMES, "bucket", "truncate")},
    **{f"{each}s": each for each in _TIMES},
}
_SUFFIXES: Final = {"identity": "", "truncate": "_trunc"}
"""How Spark names a partition after its column, unless by the name of the transform."""
_TYPES: Final = {
    pa.bool_(): types.BooleanType(),
    pa.int32(): types.IntegerType(),
    pa.int64(): types.LongType(),
    pa.float32(): types.FloatType(),
    pa.float64(): types.DoubleType(),
    pa.string(): types.StringType(),
    pa.binary(): types.BinaryType(),
    pa.date32(): types.DateType(),
    pa.time64("us"): types.TimeType(),
    MICROS: types.TimestampType(),
    MICROS_UTC: types.TimestamptzType(),
    pa.uuid(): types.UUIDType(),
}


@dataclass(frozen=True, slots=True)
class PartitionTransforms:
    """The values by which rows of an Iceberg table are split; pickled to executors.

    Args:
        fields: The transform of each value, in Iceberg's words, and its column; an empty one for a
            value that is always null.
    """

    fields: tuple[tuple[str, str], ...]

    @property
    def names(self) -> list[str]:
        """The name of each value in errors, and in the details of files."""
        return [f"{transform}({column})" for transform, column in self.fields]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that they are computed from."""
        return tuple(column for _, column in self.fields)

    def problems(self, columns: pa.Schema) -> list[str]:
        """Return why a new table cannot be partitioned by them.

        Args:
            columns: The columns of the table.
        """
        problems: list[str] = []
        for transform, column in self.fields:
            if column not in columns.names:
                problems.append(f"partition_by names {column}, which the batch lacks")
            elif transform in self.refusing(column, columns.field(column).type):
                shown = f"{transform} of partition_by"
                problems.append(f"{column} is {columns.field(column).type}, which {shown} refuses")
            elif (name := _spark_name(transform, column)) != column and name in columns.names:
                problems.append(f"{name} is a column, and the name of {transform} of {column}")
        return problems

    def refusing(self, name: str, of: pa.DataType) -> list[str]:
        """Return the transforms of a column whose values cannot be computed from a type.

        Args:
            name: The column.
            of: The type.
        """
        kind = _iceberg_type(of)
        return [
            transform
            for transform, column in self.fields
            if column == name
            and (kind is None or not _can_transform(parse_transform(transform), kind))
        ]

    def keys(self, rows: pa.Table) -> Mapping[str, pa.DictionaryArray]:
        """Return the value of each row, in hexadecimal digits of Iceberg's bytes for it.

        Args:
            rows: The rows, in the types of the table.
        """
        return {name: _key(rows, *each) for name, each in zip(self.names, self.fields, strict=True)}

    def new_spec(self, columns: Schema) -> PartitionSpec:
        """Return the spec of a new table, with the names that Spark gives.

        Args:
            columns: Its columns.
        """
        return PartitionSpec(
            *(
                PartitionField(
                    source_id=columns.find_field(column).field_id,
                    field_id=PARTITION_FIELD_ID_START + index,
                    transform=parse_transform(transform),
                    name=_spark_name(transform, column),
                )
                for index, (transform, column) in enumerate(self.fields)
            )
        )


def parsed(partition_by: Sequence[str]) -> PartitionTransforms | None:
    """Return transforms that are written as in Spark SQL: `day(ts)`, `bucket(16, id)`, `region`.

    Args:
        partition_by: The transforms; none: the table is not partitioned.

    Raises:
        OptionsError: One is no transform of Iceberg, or two have one name.
    """
    fields: dict[str, tuple[str, str]] = {}
    for text in partition_by:
        transform, column = "identity", text.strip("`")
        if found := _CALL.fullmatch(text):
            spelling, width, column = found.groups()
            transform = _SPELLINGS.get(spelling.lower(), "")
            if not transform or (width is None) != (transform in _TIMES) or not int(width or 1):
                raise OptionsError(
                    f"partition_by has {text!r}, which is no transform of Iceberg: write a column,"
                    " or such as year(ts), month(ts), day(ts), hour(ts), bucket(16, id) or"
                    " truncate(4, name)"
                )
            transform = transform if width is None else f"{transform}[{int(width)}]"
        name = _spark_name(transform, column)
        if name in fields:
            raise OptionsError(f"partition_by has two values with the name {name}: keep one")
        fields[name] = transform, column
    return PartitionTransforms((*fields.values(),)) if fields else None


def transforms_of(spec: PartitionSpec, columns: Schema) -> PartitionTransforms | None:
    """Return the transforms of a spec; None: it does not partition.

    Args:
        spec: The spec.
        columns: The columns of the table.
    """
    fields = []
    for each in spec.fields:
        is_null = isinstance(each.transform, VoidTransform)
        column = "" if is_null else columns.find_column_name(each.source_id)
        fields.append((str(each.transform), column or ""))
    return PartitionTransforms((*fields,)) if fields else None


def refused(spec: PartitionSpec, columns: Schema) -> list[str]:
    """Return the names of partitions whose values cannot be computed.

    Args:
        spec: The spec of a table.
        columns: Its columns.
    """
    known = {each.field_id: each.field_type for each in columns.fields}
    found = [(each, known.get(each.source_id)) for each in spec.fields]
    return [
        each.name
        for each, kind in found
        # The library writes no manifest with a value whose column is gone.
        if kind is None
        or not (isinstance(each.transform, VoidTransform) or _can_transform(each.transform, kind))
    ]


def partition_of(
    values: Mapping[str, str | None], specs: Sequence[PartitionSpec], columns: Schema
) -> tuple[PartitionSpec, Record] | None:
    """Return the first spec by which a file was split, and its partition; None: there is none.

    Args:
        values: The text of each value of the file, by its name.
        specs: The specs to choose from.
        columns: The columns of the table.
    """
    for spec in specs:
        transforms = transforms_of(spec, columns) or PartitionTransforms(())
        if {*values} == {*transforms.names}:
            of: Any = [each.field_type for each in spec.partition_type(columns).fields]
            found = zip((values[name] for name in transforms.names), of, strict=True)
            return spec, Record(
                *(None if t is None else from_bytes(kind, bytes.fromhex(t)) for t, kind in found)
            )
    return None


def _can_transform(transform: Transform[Any, Any], kind: types.IcebergType) -> bool:
    """Return whether the values of a type can be computed, and read again."""
    # pyiceberg 0.12 gives partitions by double the nearest float, so readers skip their rows.
    return not isinstance(kind, types.DoubleType) and transform.can_transform(kind)


def _spark_name(transform: str, column: str) -> str:
    plain = transform.partition("[")[0]
    return column + _SUFFIXES.get(plain, f"_{plain}")


def _iceberg_type(column: pa.DataType) -> types.PrimitiveType | None:
    """Return the type of a column of a table; None: it is nested."""
    if kinds.is_decimal(column):
        return types.DecimalType(column.precision, column.scale)
    if kinds.is_fixed_size_binary(column):
        return types.FixedType(column.byte_width)
    return _TYPES.get(column)


def _key(rows: pa.Table, text: str, column: str) -> pa.DictionaryArray:
    """Return the value of each row; null if rows lack the column."""
    values = column_of(rows, column)
    kind = _iceberg_type(values.type)
    if kind is None or column not in rows.column_names:
        return as_key(values, lambda each: each)
    transform: Any = parse_transform(text)
    apply, result = transform.transform(kind), transform.result_type(kind)
    # The library's transforms take one value after the other: leave few that differ.
    if isinstance(transform, TimeTransform):
        values = pc.floor_temporal(values, unit=text)
    elif isinstance(transform, TruncateTransform) and kinds.is_string(values.type):
        values = pc.utf8_slice_codeunits(values, 0, transform.width)
    elif isinstance(transform, BucketTransform) and find_spec("pyiceberg_core"):
        values, apply = transform.pyarrow_transform(kind)(_plain(values)), int

    @cache
    def as_text(value: Any) -> str | None:
        return None if value is None else to_bytes(result, value).hex()

    def texts(different: pa.Array) -> pa.Array:
        return pa.array([as_text(apply(each)) for each in different.to_pylist()], pa.string())

    return as_key(_plain(values), texts)


def _plain(values: pa.Array) -> pa.Array:
    """Return times as numbers, and UUIDs as bytes, as the library's transforms take them."""
    if isinstance(values, pa.ExtensionArray):
        return values.storage
    if kinds.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if kinds.is_temporal(values.type) else values
