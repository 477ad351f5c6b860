"""The Arrow types of Avro's, as Spark's own Avro reader maps them to those of columns."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from spark_groups.errors import SchemaError
from spark_groups.formats.avro.schema import (
    NULL,
    AvroType,
    Enumeration,
    Items,
    Primitive,
    Record,
    Union,
    kind_of,
)

_PRECISION_MAX: Final = 38
_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
"""Times of day have none of their own: they stay numbers."""


def members_of(union: Union) -> tuple[AvroType, ...]:
    """Return the types that a union has columns for.

    Without null, one type is itself, and so are numbers that fit the larger of them.

    Args:
        union: The union.
    """
    members = tuple(each for each in union.branches if each != NULL)
    for larger, kinds in (("long", {"int", "long"}), ("double", {"float", "double"})):
        if len(members) == 2 and {kind_of(each) for each in members} == kinds:
            return (Primitive(larger),)
    return members


def arrow_type_of(avro_type: AvroType, path: str = "value") -> pa.DataType:  # noqa: PLR0911
    """Return the type of a column for values of a type.

    Args:
        avro_type: The reader's.
        path: Where in the schema it is.

    Raises:
        SchemaError: No column can have it.
    """
    members = members_of(avro_type) if isinstance(avro_type, Union) else (avro_type,)
    if not members or NULL in members:
        raise SchemaError(f"{path}: columns cannot have the type null alone")
    if isinstance(avro_type, Primitive):
        return _primitive(avro_type, path)
    if isinstance(avro_type, Enumeration):
        return pa.string()
    if isinstance(avro_type, Items):
        if avro_type.is_map:
            return pa.map_(pa.string(), arrow_type_of(avro_type.item, f"{path}{{}}"))
        return pa.list_(arrow_type_of(avro_type.item, f"{path}[]"))
    if isinstance(avro_type, Record):
        fields = [
            (each.name, arrow_type_of(each.type, f"{path}.{each.name}"))
            for each in avro_type.fields
        ]
        return pa.struct(fields)
    if len(members) == 1:
        return arrow_type_of(members[0], path)
    names = [f"member{index}" for index in range(len(members))]
    return pa.struct(
        [
            (name, arrow_type_of(each, f"{path}.{name}"))
            for name, each in zip(names, members, strict=True)
        ]
    )


def _primitive(avro_type: Primitive, path: str) -> pa.DataType:
    if avro_type.logical != "decimal":
        return _LOGICAL.get(avro_type.logical, _PLAIN[avro_type.type])
    if avro_type.precision > _PRECISION_MAX:
        raise SchemaError(
            f"{path}: a decimal of {avro_type.precision} digits; columns have at most"
            f" {_PRECISION_MAX}"
        )
    return pa.decimal128(avro_type.precision, avro_type.scale)
