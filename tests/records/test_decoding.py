"""Batches of a response: which are skipped or refused, and where reading stops."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from spark_groups.errors import MessageFormatError, RecordsError
from spark_groups.records.arrow_batches import AbortedTransaction, RecordDecoder, next_fetch_offset
from spark_groups.spark.reading.rows import ROW_SCHEMA
from spark_groups.types import RangeCursor
from workshop.parts.decoding import END, TP, compiled_outcome, plain_outcome
from workshop.parts.encoding import Batch, Record, marker, plain, varint

TEN = plain(100, [b"%d" % number for number in range(10)])


def offsets(response: bytes, *arguments: object) -> list[int]:
    outcome = compiled_outcome(response, *arguments)  # type: ignore[arg-type]
    assert not outcome.is_wrong
    return [row[2] for row in outcome.rows]


def transactional(base_offset: int, producer_id: int, values: int = 2) -> Batch:
    batch = plain(base_offset, [b"t"] * values)
    return replace(batch, is_transactional=True, producer_id=producer_id)


def error_of(response: bytes, next_offset: int = 0, until_offset: int = END) -> RecordsError:
    with pytest.raises(RecordsError) as raised:
        list(RecordDecoder(ROW_SCHEMA).decode(response, RangeCursor(TP, next_offset, until_offset)))
    return raised.value


@pytest.mark.parametrize("next_offset", [0, 100, 101, 109, 110])
@pytest.mark.parametrize("until_offset", [99, 100, 101, 109, 110, 111])
def test_range_is_read_exactly(next_offset: int, until_offset: int) -> None:
    response = TEN.encode() + plain(110, [b"more"]).encode()
    outcome = compiled_outcome(response, next_offset, until_offset)
    wanted = [offset for offset in range(100, 111) if next_offset <= offset < until_offset]
    assert [row[2] for row in outcome.rows] == wanted
    assert outcome.next_offset == max(next_offset, until_offset)
    assert outcome == plain_outcome(response, next_offset, until_offset)


def test_gaps_of_compaction_are_gone_over() -> None:
    records = (Record(3), Record(7))
    batch = Batch(10, records, last_offset_delta=20)
    outcome = compiled_outcome(batch.encode(), 10)
    assert [row[2] for row in outcome.rows] == [13, 17]
    assert outcome.next_offset == 31
    assert compiled_outcome(batch.encode(), 10, 25).next_offset == 25
    # A batch behind the end of the range says that there is nothing more in it.
    assert compiled_outcome(batch.encode(), 3, 9).next_offset == 9


def test_empty_batch_is_only_a_gap() -> None:
    outcome = compiled_outcome(Batch(5, (), last_offset_delta=4).encode(), 5)
    assert (outcome.rows, outcome.next_offset) == ([], 10)


@pytest.mark.parametrize("size", range(len(TEN.encode())))
def test_batch_that_has_not_come_whole_is_left(size: int) -> None:
    response = TEN.encode() + replace(TEN, base_offset=110).encode()[:size]
    outcome = compiled_outcome(response, 100)
    assert (len(outcome.rows), outcome.next_offset, outcome.is_wrong) == (10, 110, False)
    assert next_fetch_offset(response, 100) == 110


def test_control_batches_are_no_rows() -> None:
    response = b"".join(
        batch.encode()
        for batch in (transactional(0, 7), marker(2, 7, is_abort=False), plain(3, [b"x"]))
    )
    assert offsets(response) == [0, 1, 3]


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    log = (
        transactional(0, 7),
        transactional(2, 8),
        marker(4, 7, is_abort=True),
        transactional(5, 7),
        marker(7, 8, is_abort=False),
        marker(8, 7, is_abort=False),
        transactional(9, 7),
        marker(11, 7, is_abort=True),
        transactional(12, 7),
        plain(14, [b"x"]),
    )
    response = b"".join(batch.encode() for batch in log)
    aborted = (AbortedTransaction(7, 9), AbortedTransaction(7, 0))
    assert offsets(response) == [0, 1, 2, 3, 5, 6, 9, 10, 12, 13, 14]
    assert offsets(response, 0, END, aborted) == [2, 3, 5, 6, 12, 13, 14]
    # A response that begins in the middle of a transaction lists it, too.
    assert offsets(response, 10, END, (AbortedTransaction(7, 9),)) == [12, 13, 14]
    # Only transactional batches are left out: the list is of transactions, not of producers.
    plain_of_7 = replace(plain(0, [b"x"]), producer_id=7)
    assert offsets(plain_of_7.encode(), 0, END, aborted) == [0]


def test_marker_that_cannot_be_read_is_refused_where_it_matters() -> None:
    broken = replace(marker(0, 7, is_abort=True), records=(Record(key=b"\0\0\0"),)).encode()
    assert offsets(broken) == []
    aborted = (AbortedTransaction(7, 0),)
    assert compiled_outcome(broken, 0, END, aborted).is_wrong
    for length in (-1, 2**31, 2**63 - 1):
        body = varint(20) + b"\0" + varint(0) * 2 + varint(length)
        response = marker(0, 7, is_abort=True).encode(body)
        assert compiled_outcome(response, 0, END, aborted).is_wrong


def test_wrong_checksum_says_where() -> None:
    wrong = bytearray(plain(110, [b"x"]).encode())
    wrong[-2] ^= 1
    error = error_of(TEN.encode() + wrong, 100)
    assert str(error) == (
        "the batch of flights-3 that has offset 110 cannot be read: its checksum (CRC-32C) is wrong"
    )
    assert not compiled_outcome(bytes(wrong), check_crcs=False).is_wrong


@pytest.mark.parametrize("at", [*range(17, 61), 65])
def test_every_checked_byte_is_checked(at: int) -> None:
    wrong = bytearray(TEN.encode())
    wrong[at] ^= 0x10
    assert compiled_outcome(bytes(wrong)).is_wrong


def test_behind_the_end_of_the_range_nothing_is_checked() -> None:
    behind = bytearray(plain(110, [b"x"]).encode())
    behind[-1] ^= 1
    assert len(offsets(TEN.encode() + behind, 0, 110)) == 10


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_name_the_reader_that_takes_them(magic: int) -> None:
    error = error_of(replace(TEN, magic=magic).encode())
    assert isinstance(error, MessageFormatError)
    assert "set the option reader to librdkafka" in str(error)


@pytest.mark.parametrize("magic", [3, 127])
def test_unknown_format_is_refused(magic: int) -> None:
    error = error_of(replace(TEN, magic=magic).encode())
    assert not isinstance(error, MessageFormatError)
    assert "message format is unknown" in str(error)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_lengths_that_no_batch_has_are_refused(length: int) -> None:
    response = bytearray(TEN.encode())
    response[8:12] = struct.pack(">i", length)
    assert "its length is wrong" in str(error_of(bytes(response)))


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 2, 2**63 - 10])
def test_offsets_that_no_log_has_are_refused(base_offset: int) -> None:
    response = replace(TEN, base_offset=base_offset).encode()
    assert "its offsets are wrong" in str(error_of(response, 0, 2**63 - 1))
    assert next_fetch_offset(response, 3) == 3


def test_next_fetch_offset_is_known_before_decoding() -> None:
    batches = (TEN, Batch(110, (), last_offset_delta=4), plain(120, [b"x"]))
    response = b"".join(batch.encode() for batch in batches)
    assert next_fetch_offset(response, 105) == 121
    assert next_fetch_offset(response[:-1], 105) == 115
    assert next_fetch_offset(b"", 105) == 105
