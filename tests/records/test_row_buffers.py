"""Buffers that are lent to Arrow: never written to while somebody has them, used again after."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from spark_groups.errors import RecordsError
from spark_groups.records.arrow_batches import RecordDecoder
from spark_groups.records.row_buffers import RowBuffers
from spark_groups.spark.reading.rows import ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS
from spark_groups.types import RangeCursor, TopicPartition
from workshop.parts.decoding import END, TP, compiled_outcome, rows_of
from workshop.parts.encoding import Batch, Record, plain


def addresses(batch: pa.RecordBatch) -> set[int]:
    """Return the addresses of the reused buffers of a record batch."""
    return {batch[name].buffers()[-1].address for name in ("value", "offset", "timestamp")}


def batches_of(rows: int, rows_max: int) -> list[pa.RecordBatch]:
    decoder = RecordDecoder(ROW_SCHEMA, rows_max=rows_max)
    response = plain(0, [b"%d" % number for number in range(rows)]).encode()
    return list(decoder.decode(response, RangeCursor(TP, 0, END)))


def test_batches_that_are_kept_are_not_written_over() -> None:
    kept = batches_of(1000, 10)
    assert len(kept) == 99
    assert [row[1] for row in rows_of(kept)] == [b"%d" % number for number in range(990)]


def test_part_of_a_batch_keeps_its_memory() -> None:
    decoder = RecordDecoder(ROW_SCHEMA, rows_max=4)
    values = []
    response = plain(0, [b"%d" % number for number in range(40)]).encode()
    for batch in decoder.decode(response, RangeCursor(TP, 0, END)):
        values.append(batch["value"].slice(1, 2))
        del batch
    assert [each.to_pylist() for each in values[:2]] == [[b"1", b"2"], [b"5", b"6"]]


def test_memory_is_reused_once_it_is_unreferenced() -> None:
    decoder = RecordDecoder(ROW_SCHEMA, rows_max=10)
    response = plain(0, [b"x" * 50] * 1000).encode()
    seen: set[int] = set()
    for batch in decoder.decode(response, RangeCursor(TP, 0, END)):
        seen |= addresses(batch)
    assert len(seen) <= 3 * 3


def test_memory_that_came_back_out_of_turn_is_used_again() -> None:
    decoder = RecordDecoder(ROW_SCHEMA, rows_max=10)
    response = plain(0, [b"%d" % number for number in range(200)]).encode()
    batches = decoder.decode(response, RangeCursor(TP, 0, END))
    first, seen = next(batches), set()
    for batch in batches:
        seen |= addresses(batch)
        del batch
    assert len(seen) <= 3 * 2
    assert [row[1] for row in rows_of([first])] == [b"%d" % number for number in range(10)]


def test_large_record_has_a_batch_and_its_memory_is_not_kept() -> None:
    decoder = RecordDecoder(ROW_SCHEMA, bytes_max=1000)
    values = [b"a" * 900, b"b" * 900, b"c" * 100_000, b"d"]
    position = RangeCursor(TP, 0, END)
    batches = list(decoder.decode(plain(0, values).encode(), position))
    rest = decoder.take()
    assert rest is not None
    found = [batch["value"].to_pylist() for batch in [*batches, rest]]
    assert found == [[b"a" * 900], [b"b" * 900], [b"c" * 100_000], [b"d"]]
    sets = [decoder._buffers.columns, *(each.columns for each in decoder._buffers._lent)]
    assert max(len(each.value_bytes) for each in sets) <= 1000


@pytest.mark.parametrize("bytes_max", [1, 30, 1 << 20])
def test_many_headers_fit_or_have_a_batch(bytes_max: int) -> None:
    headers = tuple((b"name%d" % number, b"v" * number) for number in range(40))
    records = tuple(Record(index, headers=headers[: index % 41]) for index in range(90))
    outcome = compiled_outcome(Batch(0, records).encode(), bytes_max=bytes_max)
    assert [len(row[-1] or ()) for row in outcome.rows] == [index % 41 for index in range(90)]
    assert outcome.rows[40][-1][39] == {"key": "name39", "value": b"v" * 39}


def test_a_record_of_endless_empty_headers_is_refused_before_it_has_memory() -> None:
    record = Record(0, headers=((b"", None),) * 50_000)
    response = Batch(0, (record,)).encode()
    decoder = RecordDecoder(ROW_SCHEMA_WITH_HEADERS, bytes_max=1000, batch_bytes_max=500_000)
    with pytest.raises(RecordsError, match=r"50000 headers, which take 800000 bytes .*raise that"):
        list(decoder.decode(response, RangeCursor(TP, 0, END)))
    assert len(decoder._buffers.columns.has_header_value) < 50_000
    ample = RecordDecoder(ROW_SCHEMA_WITH_HEADERS, bytes_max=1000, batch_bytes_max=800_000)
    assert not list(ample.decode(response, RangeCursor(TP, 0, END)))
    (row,) = rows_of([ample.take()])
    assert len(row[-1]) == 50_000


def test_rows_of_several_partitions_share_a_batch() -> None:
    decoder = RecordDecoder(ROW_SCHEMA_WITH_HEADERS)
    flights, planes = TopicPartition("flights", 2), TopicPartition("planes", 0)
    for each, rows in ((flights, 2), (planes, 1), (flights, 1), (planes, 0)):
        position = RangeCursor(each, 0, END)
        assert not list(decoder.decode(plain(0, [b"x"] * rows).encode(), position))
    batch = decoder.take()
    assert batch is not None
    assert batch.schema == ROW_SCHEMA_WITH_HEADERS
    assert batch["topic"].to_pylist() == ["flights", "flights", "planes", "flights"]
    assert batch["partition"].to_pylist() == [2, 2, 0, 2]
    batch.validate(full=True)
    assert decoder.take() is None


def test_rows_do_not_import_pandas() -> None:
    """Arrow imports it where Python values become arrays: most of a worker's first read."""
    program = """
import sys
from spark_groups.records.arrow_batches import RecordDecoder
from spark_groups.types import RangeCursor
from spark_groups.spark.reading.rows import ROW_SCHEMA
from spark_groups.types import TopicPartition
response, decoder = sys.stdin.buffer.read(), RecordDecoder(ROW_SCHEMA)
for topics in (["flights"], ["flights", "planes"]):
    for each in topics:
        assert not list(decoder.decode(response, RangeCursor(TopicPartition(each, 0), 0, 1)))
    assert decoder.take()["topic"].to_pylist() == topics
assert "pandas" not in sys.modules
"""
    response = plain(0, [b"v"]).encode()
    subprocess.run([sys.executable, "-c", program], input=response, check=True, timeout=800)


def test_schema_is_that_of_the_other_reader() -> None:
    (batch, *_) = batches_of(20, 10)
    assert batch.schema == ROW_SCHEMA
    batch.validate(full=True)


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(0, 1), (1, 0), (2**31, 1), (1, 2**31)])
def test_bounds_are_those_of_arrow(rows_max: int, bytes_max: int) -> None:
    with pytest.raises(ValueError, match="31 bits"):
        RowBuffers(ROW_SCHEMA, rows_max=rows_max, bytes_max=bytes_max, headers_bytes_max=bytes_max)
