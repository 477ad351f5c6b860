"""Records that Avro's own library wrote, and what it reads of them with a reader's schema.

`JavaRecords.java` says how the files are made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_groups.formats.avro.decoder import AvroDecoder

HERE = Path(__file__).parent
SCHEMAS = json.loads((HERE / "java_schemas.json").read_text(encoding="utf-8"))
RECORDS = json.loads((HERE / "java_records.json").read_text(encoding="utf-8"))


def ordered(value: Any) -> Any:
    """Return a value with the entries of maps in one order: Java's is any."""
    if isinstance(value, dict):
        return {name: ordered(each) for name, each in value.items()}
    if isinstance(value, list):
        below = [ordered(each) for each in value]
        is_map = below and all(isinstance(each, tuple) for each in below)
        return sorted(below, key=str) if is_map else below
    return value


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_records_become_the_values_that_java_reads(number: int) -> None:
    writer, reader = (json.dumps(SCHEMAS[number][side]) for side in ("writer", "reader"))
    written, read = zip(*RECORDS[number], strict=True)

    def decoded(texts: Any, schema: str) -> tuple[list[Any], list[int]]:
        frames = [None if each is None else b"\0\0\0\0\1" + bytes.fromhex(each) for each in texts]
        decoder = AvroDecoder(reader, lambda _: schema, bytes_max=1 << 24)
        column = decoder.decode(pa.array(frames, pa.binary()))
        return ordered(column.values.to_pylist()), list(column.refused)

    values, refused = decoded(written, writer)
    expected, unread = decoded(read, reader)
    assert repr(values) == repr(expected)
    assert not unread
    assert refused == [row for row, each in enumerate(read) if each is None]
