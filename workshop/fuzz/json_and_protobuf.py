"""Values that are JSON documents or Protobuf messages: decoded together, and each alone."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import random
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

import pyarrow as pa

from spark_groups.errors import SchemaError, UnknownSchemaIdError
from spark_groups.formats.ddl import ddl_of, parse_ddl
from spark_groups.formats.decoding import DecodedColumn
from spark_groups.formats.json_values import JsonDecoder
from spark_groups.formats.protobuf_values import ProtobufDecoder
from workshop.parts.messages import as_set, class_of, fill, full_file

DDL: Final = (
    "i INT, l BIGINT, y TINYINT, f FLOAT, d DOUBLE, s STRING, b BOOLEAN, t TIMESTAMP,"
    " n TIMESTAMP_NTZ, da DATE, de DECIMAL(10,2), wide DECIMAL(38,30), bi BINARY,"
    " st STRUCT<x: INT, s: STRING, t: TIMESTAMP>, ar ARRAY<INT>,"
    " many ARRAY<STRUCT<x: INT, d: DATE, l: ARRAY<TIMESTAMP>>>"
)
BYTES_MAX: Final = 1 << 20
_RECORD: Final = b"\xfd\x1e"
"""Between the values of one input."""
_FRAME: Final = b"\0\0\0\1\2\2\2"


def _moment(chance: random.Random) -> str:
    when = datetime(2026, 1, 1) + timedelta(microseconds=chance.randrange(10**13))  # noqa: DTZ001
    form = chance.choice(("%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%Y-%m-%dT%H"))
    zone = "" if form.endswith("d") else chance.choice(("", "Z", "+02:00", "-0330", "123Z"))
    return when.strftime(form) + zone


def document(chance: random.Random) -> dict[str, Any]:
    """Return a document of the columns: some lacking, some null, some of another type.

    Args:
        chance: What it is drawn from.
    """
    number = chance.choice((0, 1, -1, 2**31 - 1, 2**63 - 1, 1.5, 1e300, -0.25, 1e22))
    whole = chance.choice((0, 127, -128, 2**31 - 1, 2**31, 2**63))
    text = chance.choice(("", "größe", 'a"b\\c\n', "\x00", "Inf}", "x" * 300, "1.5", "{}"))
    item = {"x": chance.choice((1, None)), "d": "2026-01-02", "l": [_moment(chance)]}
    full = {
        "i": chance.choice((1, -5, None)),
        "l": chance.choice((2**63 - 1, -(2**63), 0)),
        "y": chance.choice((127, -128, 0)),
        "f": number,
        "d": number,
        "s": text,
        "b": chance.choice((True, False)),
        "t": _moment(chance),
        "n": _moment(chance)[:19],
        "da": chance.choice(("2026-01-02", "1969-12-31", "0001-01-01", "9999-12-31")),
        "de": chance.choice((1.25, -12345678.25, 7, "3.1")),
        "wide": chance.choice((1.5, "0.000000000000000000000000000001", 12345678)),
        "bi": chance.choice(("", "YWJj", "AA==")),
        "st": {"x": 1, "s": text, "t": _moment(chance), "more": [text]},
        "labels": {text: 1, "k": None},
        "ar": [1, None, 3][: chance.randrange(4)],
        "many": [item, None, {}][: chance.randrange(4)],
        "unknown": {"deep": [[number], {"k": text}]},
    }
    kept = {name: value for name, value in full.items() if chance.random() < 0.8}
    if chance.random() < 0.3:
        kept[chance.choice(tuple(full))] = chance.choice((None, whole, text, [], {}, True, number))
    return kept


def documents() -> list[bytes]:
    """Return inputs: values with a separator between them."""
    inputs = []
    for seed in range(60):
        chance = random.Random(seed)
        made = [json.dumps(document(chance), ensure_ascii=False).encode() for _ in range(seed % 5)]
        inputs.append(_RECORD.join([*made, json.dumps(document(chance)).encode()]))
    literals = (
        '{"d":NaN}',
        '{"d":-Infinity}',
        '{"s":Inf}',
        '{"u":-NaN}',
        "null",
        "",
        " {} ",
        "{}{}",
    )
    more = ('{"i":1,"i":2}', '{"s":"\\ud800"}', '{"u":"\\udc00"}', "\ufeff{}", '{"de":1e40}')
    return [*inputs, _RECORD.join(each.encode() for each in (*literals, *more))]


@cache
def _decoders() -> tuple[JsonDecoder, JsonDecoder]:
    by_python = JsonDecoder(DDL, bytes_max=BYTES_MAX)
    by_python._read_type = None
    return JsonDecoder(DDL, bytes_max=BYTES_MAX), by_python


def feed_documents(data: bytes) -> None:
    """Decode values together, alone, and by Python only: the result must be the same.

    Args:
        data: Values with a separator between them.
    """
    values = pa.array(data.split(_RECORD), pa.binary())
    together: list[str] = []
    faults: dict[int, str] = {}
    decoder, by_python = _decoders()
    while len(together) < len(values):
        decoded = decoder.decode(values.slice(len(together)))
        faults |= {len(together) + row: each.reason for row, each in decoded.refused.items()}
        together += _rows(decoded)
    for row in range(min(len(values), 50)):
        for each in (decoder, by_python):
            alone = each.decode(values.slice(row, 1))
            assert _rows(alone) == [together[row]], values[row]
            assert [each.reason for each in alone.refused.values()] == (
                [faults[row]] if row in faults else []
            )


def ddls() -> list[bytes]:
    """Return texts of columns."""
    texts = (
        DDL,
        *DDL.split(", "),
        "`a``b` INT NOT NULL COMMENT 'it''s'",
        "struct<a: map<string,array<decimal(3,1)>>>",
    )
    return [*(each.encode() for each in texts), b"array<" * 70, b"a int," * 20_000, b"int"]


def feed_ddl(data: bytes) -> None:
    """Parse a text, and the text of what it became.

    Args:
        data: The text.
    """
    with contextlib.suppress(SchemaError):
        arrow_type = parse_ddl(data.decode("utf-8", "replace"))
        assert parse_ddl(ddl_of(arrow_type)) == arrow_type
        JsonDecoder(data.decode("utf-8", "replace"), bytes_max=BYTES_MAX)


def descriptor_sets() -> list[bytes]:
    """Return serialized sets of files: whole ones, and ones that lack a part."""
    whole = [full_file(each) for each in ("proto2", "proto3", "1000", "1001")]
    rests = []
    for file in whole:
        for part in ("dependency", "enum_type", "message_type"):
            rest = copy.deepcopy(file)
            rest.ClearField(part)
            rests.append(rest)
    return [as_set(each) for each in (*whole, *rests)]


def feed_descriptor_set(data: bytes) -> None:
    """Make a decoder of a set of files, and decode a little with it.

    Args:
        data: The serialized set.
    """
    with contextlib.suppress(SchemaError):
        decoder = ProtobufDecoder(data, "t.M", _schema_of_id, bytes_max=BYTES_MAX)
        _rows(decoder.decode(pa.array([_FRAME, _FRAME + b"\x08\x01", _FRAME + b"\x0a\x01\x08"])))


def _rows(decoded: DecodedColumn) -> list[str]:
    decoded.values.validate(full=True)
    return [repr(each).replace("-0.0", "0.0") for each in decoded.values.to_pylist()]


def messages() -> list[bytes]:
    """Return inputs: framed messages with a separator between them."""
    message = class_of(full_file("proto3"), "t.M")
    inputs = []
    for seed in range(60):
        chance = random.Random(seed)
        made = [fill(message(), chance, 0.3).SerializeToString() for _ in range(1 + seed % 5)]
        inputs.append(_RECORD.join(_FRAME + each for each in made))
    return inputs


@cache
def _message_decoder() -> ProtobufDecoder:
    files = as_set(full_file("proto3"))
    return ProtobufDecoder(files, "t.M", _schema_of_id, bytes_max=BYTES_MAX)


@cache
def _schema_of_id(schema_id: int) -> str:
    if schema_id != 258:
        raise UnknownSchemaIdError(f"there is no schema id {schema_id}")
    return base64.b64encode(full_file("proto3").SerializeToString()).decode()


def feed_messages(data: bytes) -> None:
    """Decode framed messages together and alone: the result must be the same.

    Args:
        data: Values with a separator between them.
    """
    values = pa.array(data.split(_RECORD), pa.binary())
    decoded = _message_decoder().decode(values)
    together = _rows(decoded)
    for row in range(min(len(together), 20)):
        alone = _message_decoder().decode(values.slice(row, 1))
        assert _rows(alone) == [together[row]], values[row]
        assert alone.refused.get(0) == decoded.refused.get(row)
