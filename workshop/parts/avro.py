"""Random Avro schemas, the bytes of records, readers' schemas, and the values fastavro reads."""

from __future__ import annotations

import datetime
import io
import itertools
import json
import math
import random
import re
import struct
from decimal import Context, Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import fastavro
import numpy as np

Schema = Any
"""A schema as JSON; a named type that is used twice is the same object."""
_KINDS: Final = ("boolean", "int", "long", "float", "double", "bytes", "string")
_NESTED: Final = ("record", "array", "map", "union", "nullable", "nullable")
_LOGICAL: Final = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
)
_GROUPS: Final = (
    ("int", "long", "float", "double"),
    ("string", "bytes", "enum", "fixed"),
    ("boolean",),
    ("array",),
    ("record", "map"),
)
"""Of each, a union has one: the value shows its branch, and no promotion leads to another one."""
_TEXTS: Final = ("", "a", "süß", "x" * 15, "y" * 16, "z" * 17, "日本語" * 30, "\0", "q" * 300)
_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
}
_NUMBERS: Final = re.compile(r'"logicalType": "(uuid|time-\w+)"')
_UTC: Final = ZoneInfo("UTC")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_DIGITS: Final = Context(prec=80)


class Schemas:
    """Random schemas.

    Args:
        chance: What they are drawn from.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names = 0
        self._named: list[Schema] = []

    def record(self, depth: int = 3) -> Schema:
        """Return a record; the first one is what a topic has."""
        count = self._chance.choice((0, 1, 2, 3, 5, 8)) if self._names else 6
        made: Schema = {"type": "record", "name": self._name(), "fields": []}
        made["fields"] = [
            {"name": f"f{index}", "type": self.any(depth - 1)} for index in range(count)
        ]
        self._named.append(made)
        return made

    def any(self, depth: int) -> Schema:
        """Return any type."""
        chance = self._chance
        if depth > 0 and chance.random() < 0.4:
            return self._nested(chance.choice(_NESTED), depth)
        if self._named and chance.random() < 0.1:
            return chance.choice(self._named)
        if chance.random() < 0.3:
            return dict(chance.choice(_LOGICAL))
        return self._plain(chance.choice((*_KINDS, "enum", "fixed")))

    def _name(self) -> str:
        self._names += 1
        return f"space.T{self._names}"

    def _plain(self, kind: str) -> Schema:
        if kind not in ("enum", "fixed"):
            return kind
        made: Schema = {"type": kind, "name": self._name()}
        if kind == "enum":
            made["symbols"] = [f"S{index}" for index in range(self._chance.randint(1, 5))]
        else:
            made["size"] = self._chance.choice((0, 1, 7, 16, 20))
            if self._chance.random() < 0.4 and made["size"] > 1:
                made |= {"logicalType": "decimal", "precision": 4, "scale": 1}
        self._named.append(made)
        return made

    def _nested(self, kind: str, depth: int) -> Schema:
        if kind == "record":
            return self.record(depth)
        if kind == "array":
            return {"type": "array", "items": self.any(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.any(depth - 1)}
        groups = self._chance.sample(_GROUPS, self._chance.choice((2, 3)))
        kinds = [self._chance.choice(each) for each in groups]
        if kind == "nullable":
            kinds = kinds[:1]
        branches = [
            self._nested(each, depth - 1) if each in _NESTED else self._plain(each)
            for each in kinds
        ]
        if kind == "nullable" or self._chance.random() < 0.5:
            branches.insert(self._chance.randint(0, len(branches)), "null")
        return branches

    def default(self, schema: Schema) -> Any:  # noqa: PLR0911
        """Return a default of a type, as JSON."""
        chance, kind = self._chance, kind_of(schema)
        if kind == "union":
            return self.default(schema[0])
        if kind == "record":
            return {each["name"]: self.default(each["type"]) for each in schema["fields"]}
        if kind == "array":
            return [self.default(schema["items"]) for _ in range(chance.randint(0, 2))]
        if kind == "map":
            return {"k": self.default(schema["values"])} if chance.random() < 0.5 else {}
        if kind == "enum":
            return chance.choice(schema["symbols"])
        if kind == "fixed":
            return "\0" * (schema["size"] - 1) + "\x07" if schema["size"] else ""
        return {
            "null": None,
            "boolean": True,
            "int": -7,
            "long": 12_345,
            "float": 1.5,
            "double": -2.25,
            "bytes": "\x01ÿ",
            "string": "süß",
        }[kind]

    def evolved(  # noqa: C901, PLR0912
        self, schema: Schema, done: dict[int, Schema] | None = None, *, is_branch: bool = False
    ) -> Schema:
        """Return a schema of a reader for what a writer wrote; mostly one that fits."""
        done = {} if done is None else done
        if isinstance(schema, dict) and id(schema) in done:
            return done[id(schema)]
        chance, kind, made = self._chance, kind_of(schema), schema
        if kind == "record":
            made = done[id(schema)] = dict(schema)
            if chance.random() < 0.1:
                made |= {"name": self._name(), "aliases": [schema["name"]]}
            made["fields"] = self._evolved_fields(schema["fields"], done)
        elif kind == "enum":
            made = done[id(schema)] = dict(schema)
            made["symbols"] = [*schema["symbols"], "NEW"]
            if chance.random() < 0.2:
                made["symbols"] = made["symbols"][::-1][:-1]
                if chance.random() < 0.7:
                    made["default"] = "NEW"
        elif kind == "array":
            made = schema | {"items": self.evolved(schema["items"], done)}
        elif kind == "map":
            made = schema | {"values": self.evolved(schema["values"], done)}
        elif kind == "union":
            made = [self.evolved(each, done, is_branch=True) for each in schema]
            if chance.random() < 0.1 and len(made) > 1:
                made.pop(chance.randrange(len(made)))
            if chance.random() < 0.1:
                made = made[0]
            if made in ("null", ["null"]):
                made = schema
        elif kind in _PROMOTIONS and not isinstance(schema, dict) and chance.random() < 0.15:
            made = chance.choice(_PROMOTIONS[kind])
        if kind not in ("null", "union") and not is_branch and chance.random() < 0.08:
            return ["null", made] if chance.random() < 0.5 else [made, "null"]
        return made

    def _evolved_fields(self, fields: list[Any], done: dict[int, Schema]) -> list[Any]:
        chance = self._chance
        made = []
        for index, field in enumerate(fields):
            if chance.random() < 0.12:
                continue
            kept = {"name": field["name"], "type": self.evolved(field["type"], done)}
            if chance.random() < 0.1:
                kept |= {"name": f"r{index}", "aliases": [field["name"]]}
            made.append(kept)
        # A type that is used here could contain this record.
        self._named = []
        for index in range(chance.choice((0, 0, 0, 1, 2))):
            kind = self.any(2)
            made.append({"name": f"n{index}", "type": kind, "default": self.default(kind)})
        return chance.sample(made, len(made)) if chance.random() < 0.2 else made


def kind_of(schema: Schema) -> str:
    """Return the name of a kind of types."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def text_of(schema: Schema) -> str:
    """Return a schema as text, in which each named type is defined once."""
    seen: set[str] = set()

    def plain(part: Schema) -> Schema:
        if isinstance(part, list):
            return [plain(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "name" in part and part["name"] in seen:
            return part["name"]
        if "name" in part:
            seen.add(part["name"])
        made = dict(part)
        for key in ("items", "values"):
            if key in made:
                made[key] = plain(made[key])
        if "fields" in made:
            made["fields"] = [each | {"type": plain(each["type"])} for each in made["fields"]]
        return made

    return json.dumps(plain(schema))


def varint(number: int) -> bytes:
    """Return a number in Avro's encoding."""
    rest, octets = (number << 1) ^ (number >> 63), bytearray()
    while rest > 127:
        octets.append(rest & 127 | 128)
        rest >>= 7
    return bytes(octets) + bytes([rest])


def octets_of(chance: random.Random, schema: Schema) -> bytes:
    """Return the bytes of a random value of a type."""
    kind = kind_of(schema)
    if kind == "union":
        branch = chance.randrange(len(schema))
        return varint(branch) + octets_of(chance, schema[branch])
    if kind == "record":
        return b"".join(octets_of(chance, each["type"]) for each in schema["fields"])
    if kind in ("array", "map"):
        return _octets_of_items(chance, schema)
    if kind == "enum":
        return varint(chance.randrange(len(schema["symbols"])))
    return _octets_of_plain(chance, schema, kind)


def _octets_of_items(chance: random.Random, schema: Schema) -> bytes:
    made, number = b"", 0
    for _ in range(chance.choice((0, 1, 1, 2))):
        items = []
        for _ in range(chance.choice((1, 2, 3))):
            key = f"k{number}".encode()
            is_map = schema["type"] == "map"
            item = octets_of(chance, schema["values" if is_map else "items"])
            items.append(varint(len(key)) + key + item if is_map else item)
            number += 1
        block = b"".join(items)
        if chance.random() < 0.5:
            made += varint(len(items)) + block
        else:
            made += varint(-len(items)) + varint(len(block)) + block
    return made + b"\0"


def _octets_of_plain(chance: random.Random, schema: Schema, kind: str) -> bytes:
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if kind in ("int", "long"):
        return varint(_number(chance, kind, logical))
    if kind == "boolean":
        return bytes([chance.random() < 0.5])
    if kind in ("float", "double"):
        edges = (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, chance.uniform(-1e9, 1e9))
        return struct.pack("<f" if kind == "float" else "<d", chance.choice(edges))
    if kind == "null":
        return b""
    if logical == "decimal":
        limit = 10 ** schema["precision"] - 1
        number = chance.choice((0, 1, -1, limit, -limit, chance.randint(-limit, limit)))
        size = schema.get("size", number.bit_length() // 8 + 1)
        octets = number.to_bytes(size, "big", signed=True)
    elif kind == "fixed":
        octets = chance.randbytes(schema["size"])
    elif logical == "uuid":
        octets = b"00112233-4455-6677-8899-%012x" % chance.getrandbits(48)
    else:
        octets = chance.choice(_TEXTS).encode()
    return octets if kind == "fixed" else varint(len(octets)) + octets


def _number(chance: random.Random, kind: str, logical: str) -> int:
    if logical == "date":
        return chance.choice((0, -719_162, 2_932_896, chance.randint(-10_000, 40_000)))
    if logical.startswith("time-"):
        return chance.randrange(86_400_000)
    if logical:
        unit = 1_000 if logical.endswith("millis") else 1_000_000
        return chance.randint(-62_135_596_800, 253_402_300_799) * unit + chance.randrange(unit)
    bits = chance.choice((1, 6, 7, 8, 20, 31) if kind == "int" else (1, 6, 7, 13, 34, 48, 63))
    return chance.choice((-1, 1)) * chance.getrandbits(bits) - chance.choice((0, 1))


def _expanded(schema: Schema) -> str:
    """Return a schema as text without references, which fastavro does not resolve everywhere.

    Each use of a named type has a namespace of its own: fastavro compares simple names.
    """
    count = itertools.count()

    def plain(part: Schema) -> Schema:
        if isinstance(part, list):
            return [plain(each) for each in part]
        if not isinstance(part, dict):
            return part
        made = dict(part)
        if "name" in made:
            made["name"] = f"n{next(count)}.{made['name'].rpartition('.')[2]}"
            made["aliases"] = [each.rpartition(".")[2] for each in made.get("aliases", ())]
        for key in {"items", "values"} & made.keys():
            made[key] = plain(made[key])
        if "fields" in made:
            made["fields"] = [each | {"type": plain(each["type"])} for each in made["fields"]]
        return made

    return json.dumps(plain(schema))


class Unread(Exception):  # noqa: N818
    """Fastavro does not read a record."""


def read_by_fastavro(writer: Schema, reader: Schema, octets: bytes) -> Any:
    """Return the value that fastavro reads, in the form of `pyarrow.Array.to_pylist`.

    Args:
        writer: The writer's schema.
        reader: The reader's.
        octets: The bytes of the record.

    Raises:
        Unread: Fastavro raises an error.
    """
    # These two it reads as values of Python's, which not every text and number is.
    texts = (_NUMBERS.sub('"doc": ""', _expanded(each)) for each in (writer, reader))
    file = io.BytesIO(octets)
    try:
        value = fastavro.schemaless_reader(file, *map(json.loads, texts))
    except Exception as error:
        raise Unread(str(error)) from error
    if file.tell() != len(octets):
        raise Unread("bytes are left")
    return _expected(value, reader)


def _expected(value: Any, reader: Schema) -> Any:  # noqa: PLR0911
    """Return a value of fastavro's, or a default as JSON, as Arrow's."""
    kind = kind_of(reader)
    if kind == "union":
        return _expected_of_union(value, reader)
    if kind == "record":
        return {
            each["name"]: _expected(value.get(each["name"], each.get("default")), each["type"])
            for each in reader["fields"]
        }
    if kind == "array":
        return [_expected(each, reader["items"]) for each in value]
    if kind == "map":
        return [(key, _expected(each, reader["values"])) for key, each in value.items()]
    logical = reader.get("logicalType", "") if isinstance(reader, dict) else ""
    if kind == "float":
        return float(np.float32(value))
    if kind == "double":
        return float(value)
    if kind in ("bytes", "fixed") and isinstance(value, str):
        value = value.encode("latin-1")
    if logical == "decimal" and isinstance(value, bytes):
        number = int.from_bytes(value, "big", signed=True)
        return Decimal(number).scaleb(-reader["scale"], _DIGITS)
    return _expected_time(value, logical)


def _expected_time(value: Any, logical: str) -> Any:
    if logical == "date" and isinstance(value, int):
        return datetime.date.fromordinal(719_163 + value)
    if "timestamp" in logical and isinstance(value, int):
        micros = value * (1000 if logical.endswith("millis") else 1)
        value = _EPOCH + datetime.timedelta(microseconds=micros)
    if "timestamp" in logical:
        return value.replace(tzinfo=None if logical.startswith("local") else _UTC)
    return value


_PYTHON: Final[dict[str, Any]] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "fixed": (bytes, Decimal),
    "enum": str,
    "array": list,
    "map": dict,
    "record": dict,
}


def _expected_of_union(value: Any, reader: Schema) -> Any:
    members = [each for each in reader if each != "null"]
    if value is None:
        return None
    if len(members) == 1:
        return _expected(value, members[0])
    made = dict.fromkeys(f"member{index}" for index in range(len(members)))
    for index, each in enumerate(members):
        kind = _PYTHON[kind_of(each)]
        if isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
            made[f"member{index}"] = _expected(value, each)
            return made
    # A default of bytes is a text, and a float's perhaps an integer.
    for index, each in enumerate(members):
        if isinstance(value, str) and kind_of(each) in ("bytes", "fixed"):
            made[f"member{index}"] = _expected(value, each)
            return made
    raise AssertionError(f"{value!r} is of no member of {members}")
