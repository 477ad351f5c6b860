"""How fast Avro's records become Arrow columns, in one thread, from memory, beside fastavro.

    python -m workshop.benchmarks.avro [--rows 100000] [--repeats 7]

Time is the thread's own, so that neighbours on the machine count little.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import fastavro
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from spark_groups.spark.reading.compiled import AVRO, prepare

BATCH_ROWS: Final = 10_000
BYTES_MAX: Final = 1 << 26
FLAT: Final = {
    "type": "record",
    "name": "Flat",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "zone", "type": "int"},
        {"name": "name", "type": "string"},
        {"name": "city", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "is_new", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
NESTED: Final = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "items", "type": {"type": "array", "items": FLAT}},
    ],
}
ITEMS: Final = 4


def flat(chance: random.Random) -> dict[str, Any]:
    """Return a random record of `FLAT`, and of what follows from it."""
    return {
        "id": chance.getrandbits(40),
        "amount": chance.getrandbits(30),
        "count": chance.getrandbits(12),
        "zone": chance.getrandbits(20),
        "name": "".join(chance.choices("abcdefgh", k=12)),
        "city": "".join(chance.choices("abcdefgh", k=12)),
        "price": chance.random(),
        "is_new": chance.random() < 0.5,
        "at": 1_700_000_000_000 + chance.getrandbits(30),
        "note": chance.choice((None, "as ordered")),
        "items": [],
    }


def written(schema: Any, record: Any) -> bytes:
    """Return the bytes of a record."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, record)
    return file.getvalue()


def evolved(number: int) -> dict[str, Any]:
    """Return one of many schemas: fields came, went and moved."""
    chance = random.Random(number)
    fields = chance.sample(FLAT["fields"], 10) if number % 4 == 0 else [*FLAT["fields"]]
    fields.insert(number % 11, {"name": f"more{number}", "type": "int", "default": number})
    return FLAT | {"fields": fields}


def cpu_s(decode: Callable[[pa.Array], Any], column: pa.Array, repeats: int) -> float:
    """Return the CPU seconds for a million rows: the median of the repeats after the first."""
    found = []
    for _ in range(repeats + 1):
        began_s = time.thread_time()
        for first in range(0, len(column), BATCH_ROWS):
            decode(column[first : first + BATCH_ROWS])
        found.append((time.thread_time() - began_s) / len(column) * 1e6)
    return statistics.median(found[1:])


def by_fastavro(schema: Any, kind: pa.DataType) -> Callable[[pa.Array], Any]:
    """Return what decodes a column with fastavro."""

    def decode(column: pa.Array) -> pa.Array:
        rows = (io.BytesIO(each) for each in column.to_pylist())
        return pa.array([fastavro.schemaless_reader(row, schema, None) for row in rows], kind)

    return decode


def framed(rows: Sequence[bytes], ids: Sequence[int]) -> pa.Array:
    """Return a column of records with the ids of their schemas."""
    frames = (b"\0" + each.to_bytes(4, "big") + row for each, row in zip(ids, rows, strict=True))
    return pa.array(frames, pa.binary())


def main() -> None:
    """Measure each way, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    began_s = time.thread_time()
    prepare(AVRO)
    from spark_groups.formats.avro.decoder import AvroDecoder  # noqa: PLC0415

    console = Console()
    console.print(f"the compiled code was there after {time.thread_time() - began_s:.2f} CPU s")
    chance, rows = random.Random(1), arguments.rows
    schemas = [fastavro.parse_schema(evolved(each)) for each in range(200)]
    texts = [json.dumps(evolved(each)) for each in range(200)]
    ids = [chance.randrange(200) for _ in range(rows)]
    records = [flat(chance) for _ in range(rows)]
    plain = fastavro.parse_schema(FLAT)
    octets = [written(plain, each) for each in records]
    nested_of = fastavro.parse_schema(NESTED)
    nested = [
        written(nested_of, {"id": 1, "items": records[first : first + ITEMS]})
        for first in range(0, rows, ITEMS)
    ]
    many = [
        written(schemas[each], record | {f"more{each}": each})
        for each, record in zip(ids, records, strict=True)
    ]
    own = json.dumps(FLAT)

    def decoder(text: str, schema_of_id: Any = None) -> Any:
        return AvroDecoder(text, schema_of_id, bytes_max=BYTES_MAX)

    def measured(name: str, decode: Any, column: pa.Array, repeats: int, factor: float = 1) -> None:
        took_s = cpu_s(decode, column, repeats) * factor
        table.add_row(name, f"{took_s:.3f}", f"{1 / took_s:.2f}")

    table = Table("way", "CPU s for 1 M", "M rows/s")
    few = pa.array(octets[:BATCH_ROWS], pa.binary())
    measured("flat", decoder(own).decode, pa.array(octets), arguments.repeats)
    one = framed(octets, [1] * rows)
    measured("flat, one schema id", decoder(own, lambda _: own).decode, one, arguments.repeats)
    same = framed(octets, ids)
    measured("flat, 200 ids", decoder(own, lambda _: own).decode, same, arguments.repeats)
    differ = framed(many, ids)
    measured(
        "200 ids, one field more", decoder(own, texts.__getitem__).decode, differ, arguments.repeats
    )
    column = pa.array(nested, pa.binary())
    measured(
        "flat in arrays, by item",
        decoder(json.dumps(NESTED)).decode,
        column,
        arguments.repeats,
        1 / ITEMS,
    )
    measured("flat, fastavro", by_fastavro(plain, decoder(own).arrow_type), few, 2)
    console.print(table)
    console.print(f"{len(differ.buffers()[2]) / rows:.0f} bytes in a record")
    console.print(
        f"a new schema id: {new_id_ms(decoder(own, texts.__getitem__), many, ids):.2f} ms"
    )


def new_id_ms(decoder: Any, many: Sequence[bytes], ids: Sequence[int]) -> float:
    """Return how long the first record of a schema takes more than the second one, at most."""
    found = []
    for schema_id in range(200):
        column = framed([many[ids.index(schema_id)]], [schema_id])
        times = []
        for _ in range(2):
            began_s = time.thread_time()
            decoder.decode(column)
            times.append(time.thread_time() - began_s)
        found.append(1000 * (times[0] - times[1]))
    return max(found)


if __name__ == "__main__":
    main()
