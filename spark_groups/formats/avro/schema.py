"""Avro schemas as values: names are resolved, defaults are bytes, and hostile schemas are refused.

Source: the specification of Apache Avro 1.12, Schema Declaration, Names, Aliases, Logical Types.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, Final, cast

from spark_groups.errors import SchemaError
from spark_groups.values import dataclass

TEXT_BYTES_MAX: Final = 1 << 20
TYPES_MAX: Final = 10_000
"""The most types in a schema, where each use of a named type counts all that are in it."""
DEPTH_MAX: Final = 64
DEFAULTS_MAX: Final = 1 << 20
"""The most values in the defaults of a schema, and bytes of those that are used in others."""
_SIZE_MAX: Final = 1 << 20
"""The most bytes of a fixed type."""

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
_LOGICAL: Final = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        *(f"timestamp-{unit}" for unit in ("millis", "micros", "nanos")),
        *(f"local-timestamp-{unit}" for unit in ("millis", "micros", "nanos")),
    },
    "string": {"uuid"},
}
"""The logical types that mean anything here, beside decimals, by the type that they stand on."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without a name, or one of a fixed size, which has one.

    Args:
        type: `fixed`, or the name of a primitive type.
        logical: Its logical type; empty: none that is valid.
        precision: Of a decimal.
        scale: Of a decimal.
        size: Of a fixed type, in bytes; `REST`: of bytes that are a whole record.
        name: Of a fixed type, in full.
        aliases: Of a fixed type, in full.
    """

    type: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    name: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Enumeration:
    """An enum; `default` stands for the symbols that a reader does not know."""

    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class Items:
    """An array, or a map from strings."""

    item: AvroType
    is_map: bool


@dataclass(frozen=True, slots=True)
class Union:
    """A union; no branch is a union."""

    branches: tuple[AvroType, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record; `default` is in Avro's encoding, None: it has none."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    default: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record."""

    name: str
    aliases: tuple[str, ...]
    fields: tuple[Field, ...]


AvroType = Primitive | Enumeration | Items | Union | Record
NULL: Final = Primitive("null")


class TooLargeError(Exception):
    """A limit of all of a schema is reached, so that no other branch of a union is tried."""


def kind_of(avro_type: AvroType) -> str:
    """Return the name of a kind of types, as schemas have it."""
    if isinstance(avro_type, Primitive):
        return avro_type.type
    if isinstance(avro_type, Items):
        return "map" if avro_type.is_map else "array"
    return {Enumeration: "enum", Union: "union"}.get(type(avro_type), "record")


def described(avro_type: AvroType) -> str:
    """Return a type in words, for messages."""
    if isinstance(avro_type, Union):
        return f"one of [{', '.join(map(described, avro_type.branches))}]"
    return f"{kind_of(avro_type)} {getattr(avro_type, 'name', '')}".strip()


def with_references(text: str, references: Mapping[str, str]) -> str:
    """Return one text of a schema and those that it refers to, for `parse_schema`.

    Args:
        text: The schema, in JSON.
        references: The schemas that it and these refer to, in JSON, by full name.

    Raises:
        SchemaError: A text is not JSON.
    """
    parsed = {name: _loaded(each) for name, each in references.items()}
    return json.dumps({"schema": _loaded(text), "references": parsed}, ensure_ascii=False)


def _loaded(text: str) -> Any:
    try:
        parsed = json.loads(text)
        json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the Avro schema is not JSON in UTF-8: {error}") from None
    return parsed


def parse_schema(text: str, *, with_defaults: bool = False) -> AvroType:
    """Return the type that a schema describes.

    Args:
        text: The schema, in JSON, or the result of `with_references`.
        with_defaults: Whether to read the defaults of fields, of which only a reader's are used.

    Raises:
        SchemaError: It is malformed, too large or recursive, or a default is none of its type; the
            message names the path.
    """
    if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        raise SchemaError(f"the Avro schema has more than {TEXT_BYTES_MAX} bytes")
    schema, references = _loaded(text), {}
    # A schema of its own has a type.
    if isinstance(schema, dict) and schema.keys() == {"schema", "references"}:
        schema, references = schema["schema"], schema["references"]
    if not isinstance(references, dict):
        raise SchemaError(f"the references of a schema have names, unlike {_short(references)}")
    parser = _Parser(references, _Defaults() if with_defaults else None)
    try:
        return parser.type_of(schema, "", "the schema", 0)
    except TooLargeError as error:
        raise SchemaError(f"the schema: {error}") from None


class _Parser:
    """Reads one schema; a named type is in `_named` once its definition is complete."""

    def __init__(self, references: dict[str, Any], defaults: _Defaults | None) -> None:
        self._references, self._defaults = references, defaults
        self._named: dict[str, tuple[AvroType, int, int]] = {}
        self._open: set[str] = set()
        self._types = 0
        self._deepest = 0

    def type_of(self, schema: Any, namespace: str, path: str, depth: int) -> AvroType:
        """Return the type of a part of the schema."""
        self._count(1, depth, path)
        if isinstance(schema, list):
            return self._union(schema, namespace, path, depth)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self.type_of(kind, namespace, path, depth + 1)
        if not isinstance(kind, str):
            raise SchemaError(f"{path}: it needs a type, which is not {_short(kind)}")
        if kind in ("array", "map"):
            is_map = kind == "map"
            below = _required(schema, "values" if is_map else "items", path)
            place = path + ("{}" if is_map else "[]")
            return Items(self.type_of(below, namespace, place, depth + 1), is_map)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, namespace, path, depth)
        if kind in PRIMITIVES:
            return _primitive(schema, kind)
        return self._reference(kind, namespace, path, depth)

    def _count(self, types: int, depth: int, path: str) -> None:
        self._types += types
        self._deepest = max(self._deepest, depth)
        if self._types > TYPES_MAX:
            raise SchemaError(f"{path}: the Avro schema has more than {TYPES_MAX} types")
        if depth > DEPTH_MAX:
            raise SchemaError(f"{path}: the Avro schema is nested deeper than {DEPTH_MAX} types")

    def _union(self, schema: list[Any], namespace: str, path: str, depth: int) -> Union:
        branches = tuple(self.type_of(each, namespace, path, depth + 1) for each in schema)
        names = [getattr(each, "name", "") or kind_of(each) for each in branches]
        if not branches or "union" in names or len(set(names)) < len(names):
            raise SchemaError(
                f"{path}: a union needs branches of different types, none of which is a union; not"
                f" [{', '.join(names)}]"
            )
        return Union(branches)

    def _reference(self, name: str, namespace: str, path: str, depth: int) -> AvroType:
        for each in (_full_name(name, namespace), name):
            if each in self._references:
                self.type_of(self._references.pop(each), "", path, depth + 1)
                if each in self._named:
                    return self._named[each][0]
            if each in self._open:
                raise SchemaError(
                    f"{path}: the type {each} contains itself; columns cannot have recursive types"
                )
            if each in self._named:
                found, types, height = self._named[each]
                self._count(types - 1, depth + height, path)
                return found
        raise SchemaError(f"{path}: the type {_short(name)} is not defined before it is used")

    def _definition(
        self, schema: Mapping[str, Any], namespace: str, path: str, depth: int
    ) -> AvroType:
        simple = _required(schema, "name", path)
        given = namespace if schema.get("namespace") is None else schema["namespace"]
        if not isinstance(simple, str) or not simple or not isinstance(given, str):
            raise SchemaError(f"{path}: a name and a namespace are texts")
        name = _full_name(simple, given)
        namespace = name.rpartition(".")[0]
        if name in self._named or name in self._open or name in PRIMITIVES:
            raise SchemaError(f"{path}: the type {name} is defined twice")
        self._references.pop(name, None)
        aliases = tuple(_full_name(each, namespace) for each in _texts(schema, "aliases", path))
        types, deepest = self._types, self._deepest
        self._deepest = depth
        self._open.add(name)
        made: AvroType
        if schema["type"] == "fixed":
            made = _fixed(schema, name, aliases, path)
        elif schema["type"] == "enum":
            made = _enumeration(schema, name, aliases, path)
        else:
            fields = self._fields(schema, namespace, path if depth else name, depth)
            made = Record(name, aliases, fields)
        self._open.remove(name)
        self._named[name] = made, self._types - types + 1, self._deepest - depth
        self._deepest = max(deepest, self._deepest)
        return made

    def _fields(
        self, schema: Mapping[str, Any], namespace: str, path: str, depth: int
    ) -> tuple[Field, ...]:
        listed = _required(schema, "fields", path)
        if not isinstance(listed, list):
            raise SchemaError(f'{path}: "fields" is a list, not {_short(listed)}')
        fields: dict[str, Field] = {}
        for each in listed:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not name or name in fields:
                raise SchemaError(f"{path}: a field is an object with a name of its own")
            below = f"{path}.{name}"
            kind = self.type_of(_required(each, "type", below), namespace, below, depth + 1)
            default = None
            if self._defaults is not None and "default" in each:
                default = self._defaults.encoded(kind, each["default"], below)
            fields[name] = Field(name, _texts(each, "aliases", below), kind, default)
        return tuple(fields.values())


def _primitive(schema: Mapping[str, Any], kind: str) -> Primitive:
    logical = schema.get("logicalType")
    if kind == "bytes" and logical == "decimal":
        return Primitive(kind, *_decimal(schema, None))
    known = isinstance(logical, str) and logical in _LOGICAL.get(kind, ())
    return Primitive(kind, cast("str", logical) if known else "")


def _fixed(schema: Mapping[str, Any], name: str, aliases: tuple[str, ...], path: str) -> Primitive:
    size = _required(schema, "size", path)
    if not _is_integer(size) or not 0 <= size <= _SIZE_MAX:
        raise SchemaError(f"{path}: the size of a fixed type is 0 to {_SIZE_MAX}: {_short(size)}")
    decimal = _decimal(schema, size) if schema.get("logicalType") == "decimal" else ("", 0, 0)
    return Primitive("fixed", *decimal, size, name, aliases)


def _decimal(schema: Mapping[str, Any], size: int | None) -> tuple[str, int, int]:
    """Return logical type, precision and scale; the specification ignores an invalid decimal."""
    precision: Any = schema.get("precision")
    scale: Any = schema.get("scale", 0)
    if not _is_integer(precision) or not _is_integer(scale) or not 0 <= scale <= precision:
        return "", 0, 0
    fits = size is None or precision <= math.floor(math.log10(2) * (8 * size - 1))
    return ("decimal", precision, scale) if fits and precision > 0 else ("", 0, 0)


def _enumeration(
    schema: Mapping[str, Any], name: str, aliases: tuple[str, ...], path: str
) -> Enumeration:
    symbols, default = _texts(schema, "symbols", path), schema.get("default")
    if not symbols or len(set(symbols)) < len(symbols) or len(symbols) > TYPES_MAX:
        raise SchemaError(f"{path}: an enum needs different symbols, at most {TYPES_MAX}")
    if default is not None and default not in symbols:
        raise SchemaError(f"{path}: the default {_short(default)} is no symbol of the enum")
    return Enumeration(name, aliases, symbols, default)


def _required(schema: Mapping[str, Any], key: str, path: str) -> Any:
    if key not in schema:
        raise SchemaError(f'{path}: it needs "{key}"')
    return schema[key]


def _texts(schema: Mapping[str, Any], key: str, path: str) -> tuple[str, ...]:
    listed = schema.get(key) or []
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise SchemaError(f'{path}: "{key}" is a list of texts, not {_short(listed)}')
    return tuple(listed)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Defaults:
    """Writes defaults as Avro's bytes, with a limit for all of a schema."""

    def __init__(self) -> None:
        self._left = DEFAULTS_MAX

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TooLargeError(f"its defaults have more than {DEFAULTS_MAX} values or bytes")

    def encoded(self, avro_type: AvroType, value: Any, path: str) -> bytes:
        """Return the bytes of a default, which is given in JSON."""
        self._take(1)
        if isinstance(avro_type, Union):
            for index, branch in enumerate(avro_type.branches):
                try:
                    return varint(index) + self.encoded(branch, value, path)
                except SchemaError:  # noqa: PERF203
                    continue
        elif isinstance(avro_type, Items) and avro_type.is_map and isinstance(value, dict):
            kind, below = avro_type.item, f"{path}{{}}"
            return _block([_text(key) + self.encoded(kind, value[key], below) for key in value])
        elif isinstance(avro_type, Items) and not avro_type.is_map and isinstance(value, list):
            return _block([self.encoded(avro_type.item, each, f"{path}[]") for each in value])
        elif isinstance(avro_type, Record) and isinstance(value, dict):
            return b"".join(self._of_field(each, value, path) for each in avro_type.fields)
        elif isinstance(avro_type, Enumeration) and value in avro_type.symbols:
            return varint(avro_type.symbols.index(value))
        elif isinstance(avro_type, Primitive):
            octets = _encoded_primitive(avro_type, value)
            if octets is not None:
                return octets
        # All of an object or an array would be written for each branch that is tried.
        shown = "of parts" if isinstance(value, (dict, list)) else repr(str(value)[:60])
        raise SchemaError(f"{path}: the default {shown} is no {described(avro_type)}")

    def _of_field(self, field: Field, value: dict[str, Any], path: str) -> bytes:
        below = f"{path}.{field.name}"
        if field.name in value:
            return self.encoded(field.type, value[field.name], below)
        if field.default is None:
            raise SchemaError(f"{below}: a default lacks the field, which has no default")
        self._take(1 + len(field.default))
        return field.default


def _encoded_primitive(avro_type: Primitive, value: Any) -> bytes | None:  # noqa: PLR0911
    """Return a default as Avro's bytes; None: it is none of its type."""
    kind = avro_type.type
    if kind == "null" and value is None:
        return b""
    if isinstance(value, bool):
        return bytes([value]) if kind == "boolean" else None
    if kind in ("int", "long") and isinstance(value, int):
        limit = 1 << (31 if kind == "int" else 63)
        return varint(value) if -limit <= value < limit else None
    try:
        if kind in ("float", "double") and isinstance(value, (int, float)):
            return struct.pack("<f" if kind == "float" else "<d", value)
        if kind == "string" and isinstance(value, str):
            return _text(value)
        if kind in ("bytes", "fixed") and isinstance(value, str):
            octets = value.encode("latin-1")
            if kind == "bytes":
                return varint(len(octets)) + octets
            return octets if len(octets) == avro_type.size else None
    except (OverflowError, UnicodeEncodeError):
        pass
    return None


def _block(items: list[bytes]) -> bytes:
    return varint(len(items)) + b"".join(items) + b"\0" if items else b"\0"


def _text(text: str) -> bytes:
    octets = text.encode()
    return varint(len(octets)) + octets


def varint(number: int) -> bytes:
    """Return a number in Avro's encoding."""
    rest, octets = (number << 1) ^ (number >> 63), bytearray()
    while rest > 127:
        octets.append(rest & 127 | 128)
        rest >>= 7
    octets.append(rest)
    return bytes(octets)
