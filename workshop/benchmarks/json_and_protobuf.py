"""How fast JSON documents and Protobuf messages become Arrow columns, in one thread, from memory.

    python -m workshop.benchmarks.json_and_protobuf [--rows 50000] [--repeats 5]

The record is that of the benchmark of Avro. Beside it: plain Python, with pyarrow's own conversion.
Time is the thread's own, so that neighbours on the machine count little.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Row
from rich.console import Console
from rich.table import Table

from spark_groups.formats.decoding import ColumnDecoder
from spark_groups.formats.json_values import JsonDecoder
from spark_groups.formats.protobuf_values import ProtobufDecoder
from workshop.benchmarks import avro
from workshop.benchmarks.avro import BYTES_MAX, ITEMS, cpu_s
from workshop.parts.messages import add_field, as_set, class_of, new_file, row_of

FLAT: Final = (
    "id BIGINT, amount BIGINT, count INT, zone INT, name STRING, city STRING, price DOUBLE,"
    " is_new BOOLEAN, at TIMESTAMP, note STRING"
)
KINDS: Final = {
    **dict.fromkeys(("id", "amount"), "int64"),
    **dict.fromkeys(("count", "zone"), "int32"),
    **dict.fromkeys(("name", "city"), "string"),
    "price": "double",
    "is_new": "bool",
    "at": "google.protobuf.Timestamp",
}
FRAME: Final = b"\0\0\0\0\1\0"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def flat(chance: random.Random) -> dict[str, Any]:
    """Return a random record like Avro's, with its time as a value of Python."""
    record = avro.flat(chance)
    del record["items"]
    return record | {"at": _EPOCH + timedelta(milliseconds=record["at"])}


def as_json(record: Any) -> bytes:
    """Return a document as a producer writes it: times in ISO 8601."""
    return json.dumps(record, separators=(",", ":"), default=datetime.isoformat).encode()


def whole(decoder: ColumnDecoder) -> Callable[[pa.Array], None]:
    """Return what decodes a whole batch."""

    def decode(column: pa.Array) -> None:
        done = 0
        while done < len(column):
            done += len(decoder.decode(column.slice(done)).values)

    return decode


def json_ways(rows: int) -> dict[str, tuple[Callable[[pa.Array], Any], pa.Array]]:
    """Return each measurement of JSON: how a batch is decoded, and the batch."""
    chance = random.Random(1)
    records = [flat(chance) for _ in range(rows)]
    values = [as_json(each) for each in records]
    column = pa.array(values, pa.binary())
    nested = [
        as_json({"id": number, "items": records[number : number + ITEMS]})
        for number in range(rows // ITEMS)
    ]
    wrong = [each if number % 2 else each[:-1] for number, each in enumerate(values)]
    with_map = [as_json({**each, "tags": {"k": "v"}}) for each in records]

    def plain(part: pa.Array) -> None:
        pa.array([json.loads(each) for each in part.to_pylist()])

    def one(ddl: str, **options: Any) -> Callable[[pa.Array], None]:
        return whole(JsonDecoder(ddl, bytes_max=BYTES_MAX, **options))

    return {
        "JSON, flat": (one(FLAT), column),
        "JSON, framed": (one(FLAT, framed=True), pa.array([FRAME[:5] + each for each in values])),
        "JSON, 4 flat ones nested, each": (
            one(f"id BIGINT, items ARRAY<STRUCT<{FLAT}>>"),
            pa.array(nested, pa.binary()),
        ),
        "JSON, each second one wrong": (one(FLAT), pa.array(wrong, pa.binary())),
        "JSON, with a map": (one(f"{FLAT}, tags MAP<STRING,STRING>"), pa.array(with_map)),
        "json.loads and pa.array": (plain, column),
    }


def flat_file() -> Any:
    """Return a file of Protobuf with the message `t.Flat`."""
    file = new_file("proto3")
    descriptor = file.message_type.add(name="Flat")
    for name, kind in KINDS.items():
        add_field(descriptor, name, kind)
    descriptor.oneof_decl.add(name="_note")
    add_field(descriptor, "note", "string", oneof_index=0, proto3_optional=True)
    return file


@cache
def _message() -> Any:
    return class_of(flat_file(), "t.Flat")


def as_protobuf(record: Row) -> bytes:
    """Return the bytes of a flat record as a message of Protobuf."""
    fields = {name: value for name, value in record.asDict().items() if value is not None}
    octets: bytes = _message()(**fields).SerializeToString()
    return octets


def protobuf_ways(rows: int) -> dict[str, tuple[Callable[[pa.Array], Any], pa.Array]]:
    """Return each measurement of Protobuf: how a batch is decoded, and the batch."""
    file = flat_file()
    outer = file.message_type.add(name="Nested")
    add_field(outer, "id", "int64")
    add_field(outer, "items", "t.Flat", is_array=True)
    message, several = class_of(file, "t.Flat"), class_of(file, "t.Nested")
    chance = random.Random(1)
    made = []
    for _ in range(rows):
        record = flat(chance)
        made.append(message(**{name: value for name, value in record.items() if value is not None}))
    values = [each.SerializeToString() for each in made]
    nested = []
    for number in range(rows // ITEMS):
        item = several(id=number)
        for each in values[number : number + ITEMS]:
            item.items.add().ParseFromString(each)
        nested.append(item.SerializeToString())
    wrong = [each if number % 2 else each[:-1] for number, each in enumerate(values)]

    def one(name: str = "t.Flat", **options: Any) -> Callable[[pa.Array], None]:
        return whole(ProtobufDecoder(as_set(file), name, bytes_max=BYTES_MAX, **options))

    def schema_of_id(_: int) -> str:
        return base64.b64encode(file.SerializeToString()).decode()

    def plain(part: pa.Array) -> None:
        pa.array([row_of(message.FromString(each)) for each in part.to_pylist()])

    return {
        "Protobuf, flat": (one(), pa.array(values)),
        "Protobuf, framed": (
            one(schema_of_id=schema_of_id),
            pa.array([FRAME + each for each in values]),
        ),
        "Protobuf, 4 flat ones nested, each": (
            one("t.Nested"),
            pa.array(nested),
        ),
        "Protobuf, each second one wrong": (one(), pa.array(wrong)),
        "Protobuf's library and pa.array": (plain, pa.array(values)),
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    table = Table("way", "bytes each", "CPU s for a million")
    for name, (decode, column) in (
        json_ways(arguments.rows) | protobuf_ways(arguments.rows)
    ).items():
        took_s = cpu_s(decode, column, arguments.repeats)
        each = ITEMS if name.endswith("each") else 1
        size = len(column[0].as_py()) // each
        table.add_row(name, str(size), f"{took_s / each:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
