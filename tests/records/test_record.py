"""Single records: numbers, lengths, timestamps, headers; and errors in them."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from spark_groups.errors import RecordsError
from spark_groups.records import record
from spark_groups.records.arrow_batches import RecordDecoder
from spark_groups.records.misfits import TimestampMisfits
from spark_groups.spark.reading.rows import ROW_SCHEMA
from spark_groups.types import RangeCursor, TopicPartition
from workshop.parts.decoding import compiled_outcome, plain_outcome
from workshop.parts.encoding import (
    LOG_APPEND_TIME,
    Batch,
    Record,
    encode_record,
    plain,
    sized,
    varint,
)

FLIGHTS = TopicPartition("flights", 3)
HUGE = (2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -2, -(2**31), -(2**63))


@njit
def number_at(octets, at, end):
    return record.read_varint(octets, at, end)


def batch_of(*records: bytes, count: int | None = None) -> bytes:
    """Return a batch around records that are bytes already, with the right checksum."""
    batch = Batch(0, (), last_offset_delta=9, count=len(records) if count is None else count)
    return batch.encode(b"".join(records))


@pytest.mark.parametrize(
    "number", [0, 1, -1, 63, 64, -64, -65, 300, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
)
def test_numbers(number: int) -> None:
    octets = b"\xff" + varint(number) + b"\xff"
    array, end = np.frombuffer(octets, np.uint8), len(octets) - 1
    assert number_at(array, 1, end) == (number, end)
    for too_short in range(1, end):
        assert number_at(array, 1, too_short) == (0, too_short + 1)


def test_number_that_does_not_end_is_none() -> None:
    array = np.frombuffer(b"\xff" * 30, np.uint8)
    assert number_at(array, 0, 30) == (0, 31)
    assert number_at(array, 31, 30) == (0, 31)


def test_nulls_empty_values_and_headers() -> None:
    records = (
        Record(0),
        Record(1, key=b"", value=b""),
        Record(2, key=b"k", value=None, headers=((b"a", None), (b"", b""), (b"a", b"2"))),
        Record(3, key=None, value=b"v" * 1000),
    )
    outcome = compiled_outcome(Batch(7, records, base_timestamp=5).encode())
    assert outcome.rows == [
        (None, None, 7, 5000, 0, None),
        (b"", b"", 8, 5000, 0, None),
        (
            b"k",
            None,
            9,
            5000,
            0,
            [
                {"key": "a", "value": None},
                {"key": "", "value": b""},
                {"key": "a", "value": b"2"},
            ],
        ),
        (None, b"v" * 1000, 10, 5000, 0, None),
    ]


def test_headers_that_are_not_text_are_replaced_as_java_does() -> None:
    records = (Record(0, headers=((b"\xffx", b"1"),)), Record(1, headers=((b"ok", b"2"),)))
    outcome = compiled_outcome(Batch(0, records).encode())
    assert [row[-1][0]["key"] for row in outcome.rows] == ["\N{REPLACEMENT CHARACTER}x", "ok"]


@pytest.mark.parametrize(
    ("base_ms", "delta_ms", "time_ms"),
    [
        (0, 0, 0),
        (-1, 0, -1),
        (5, -10, -5),
        (record.MAX_MS, 0, record.MAX_MS),
        (-record.MAX_MS, 2 * record.MAX_MS, record.MAX_MS),
    ],
)
def test_create_time(base_ms: int, delta_ms: int, time_ms: int) -> None:
    records = (Record(0, timestamp_delta=delta_ms),)
    outcome = compiled_outcome(Batch(0, records, base_timestamp=base_ms).encode())
    assert outcome.rows == [(None, None, 0, 1000 * time_ms, 0, None)]


def test_log_append_time_is_the_largest_of_the_batch() -> None:
    records = (Record(0, timestamp_delta=2**63 - 1), Record(1))
    batch = Batch(
        0, records, base_timestamp=-(2**63), max_timestamp=77, timestamp_type=LOG_APPEND_TIME
    )
    assert [row[3:5] for row in compiled_outcome(batch.encode()).rows] == [(77_000, 1)] * 2


@pytest.mark.parametrize(
    ("base_ms", "delta_ms"),
    [
        (record.MAX_MS + 1, 0),
        (record.MAX_MS, 1),
        (0, 2**63 - 1),
        (0, -(2**63)),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
    ],
)
def test_timestamp_that_microseconds_cannot_express_is_refused_or_null(
    base_ms: int, delta_ms: int
) -> None:
    first = Record(0, timestamp_delta=min(-base_ms, 2**63 - 1))
    batch = Batch(0, (first, Record(1, timestamp_delta=delta_ms)), base_timestamp=base_ms).encode()
    refused = compiled_outcome(batch)
    assert refused.is_wrong
    assert refused == plain_outcome(batch)
    read = compiled_outcome(batch, null_timestamps=True)
    assert not read.is_wrong
    assert read == plain_outcome(batch, null_timestamps=True)
    assert read.rows[1][3] is None


def test_misfit_is_named_with_its_sum_and_counted() -> None:
    base_ms = 1_700_000_000_000_000_000
    records = tuple(Record(each, timestamp_delta=each) for each in range(5))
    batch = Batch(40, records, base_timestamp=base_ms).encode()
    refusing = RecordDecoder(ROW_SCHEMA)
    with pytest.raises(RecordsError, match=f"flights-3 at offset 40 .* {base_ms} ms"):
        list(refusing.decode(batch, RangeCursor(FLIGHTS, 0, 100)))
    reading = RecordDecoder(ROW_SCHEMA, rows_max=2, null_timestamps=True)
    for again in range(2):
        taken = list(reading.decode(batch, RangeCursor(FLIGHTS, 41 + again, 100)))
        assert sum(map(len, taken)) <= 4
    assert reading.misfits.take() == [TimestampMisfits(FLIGHTS, 41, base_ms + 1, 7)]
    assert reading.misfits.take() == []


@pytest.mark.parametrize("length", HUGE)
@pytest.mark.parametrize(
    "place", ["record", "key", "value", "headers", "header key", "header value"]
)
def test_hostile_lengths_are_refused(place: str, length: int) -> None:
    before = b"\x00" + varint(0) + varint(0)
    bodies = {
        "key": before + varint(length),
        "value": before + varint(-1) + varint(length),
        "headers": before + varint(-1) + varint(-1) + varint(length),
        "header key": before + varint(-1) + varint(-1) + varint(1) + varint(length),
        "header value": before + varint(-1) + varint(-1) + varint(1) + sized(b"") + varint(length),
    }
    first = varint(length) if place == "record" else sized(bodies[place] + bytes(6))
    outcome = compiled_outcome(batch_of(first, encode_record(Record(1))))
    assert outcome == plain_outcome(batch_of(first, encode_record(Record(1))))
    assert outcome.is_wrong
    assert outcome.rows == []


def test_header_without_a_key_is_refused() -> None:
    body = b"\x00" + varint(0) * 2 + varint(-1) * 2 + varint(1) + varint(-1) + sized(b"v")
    assert compiled_outcome(batch_of(sized(body))).is_wrong


def test_record_that_is_cut_off_anywhere_is_refused() -> None:
    whole = encode_record(Record(0, 5, b"key", b"value", ((b"h", b"x"),)))
    octets = whole[1:]
    assert not compiled_outcome(batch_of(sized(octets))).is_wrong
    for size in range(len(octets)):
        outcome = compiled_outcome(batch_of(sized(octets[:size])))
        assert outcome.is_wrong
        assert outcome.rows == []


@pytest.mark.parametrize("deltas", [(1, 0), (0, 0), (-1,), (10,), (2**31,), (2**63 - 1,)])
def test_offsets_that_do_not_grow_or_leave_the_batch_are_refused(deltas: tuple[int, ...]) -> None:
    records = [encode_record(Record(delta)) for delta in deltas]
    assert compiled_outcome(batch_of(*records)).is_wrong


def test_counts_have_to_be_right() -> None:
    records = [encode_record(Record(index)) for index in range(3)]
    assert not compiled_outcome(batch_of(*records)).is_wrong
    for count in (1, 2, 4, 2**31 - 1, -1, -(2**31)):
        assert compiled_outcome(batch_of(*records, count=count)).is_wrong


def test_rows_before_a_wrong_record_are_kept_and_headers_with_them() -> None:
    good = plain(0, [b"a", b"b"]).encode()
    wrong = Batch(2, (Record(0, headers=((b"h", b"1"),)),), base_timestamp=2**63 - 1).encode()
    outcome = compiled_outcome(good + wrong)
    assert outcome.is_wrong
    assert [row[1] for row in outcome.rows] == [b"a", b"b"]
    assert outcome.next_offset == 2
