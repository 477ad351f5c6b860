"""The first record at or after an offset, in batches written after the protocol guide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from spark_groups.errors import ProtocolError
from spark_groups.group.member.messages import RecordSample
from spark_groups.wire.fetch import first_unread
from spark_groups.wire.fetch.first_unread import (
    FirstRecord,
    Passed,
    find_missed,
    find_record,
    sample_size,
)
from workshop.parts.encoding import (
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Batch,
    Record,
    marker,
)

BASE_MS = 1_700_000_000_000
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)


def record(offset_delta: int, timestamp_delta: int = 0, value: bytes = b"x") -> Record:
    return Record(offset_delta, timestamp_delta, b"key", value)


def ten(base_offset: int = 0, **fields: object) -> Batch:
    records = tuple(record(each, each * 1000) for each in range(10))
    return Batch(base_offset, records, **fields)  # type: ignore[arg-type]


def found(offset: int, *sent: Batch, aborted: tuple[tuple[int, int], ...] = ()) -> object:
    search = find_record(b"".join(each.encode() for each in sent), offset, aborted)
    if search.record is None:
        return search.next_offset
    return search.record.offset, search.record.timestamp_ms - BASE_MS


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_has_its_own_timestamp_not_that_of_its_batch(codec: int) -> None:
    assert found(7, ten(codec=codec)) == (7, 7000)


def test_a_batch_of_blocks_as_java_writes_them_is_read() -> None:
    large = tuple(record(each, each * 1000, b"v" * 20_000) for each in range(10))
    assert found(9, Batch(0, large, codec=SNAPPY, is_xerial=True)) == (9, 9000)


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_behind_many_chunks_is_found(codec: int) -> None:
    large = tuple(record(each, each * 1000, b"v" * 50_000) for each in range(10))
    assert found(9, Batch(0, large, codec=codec)) == (9, 9000)


def test_with_log_append_time_all_records_have_the_time_of_the_broker() -> None:
    batch = ten(timestamp_type=LOG_APPEND_TIME, max_timestamp=BASE_MS + 55)
    assert found(3, batch) == (3, 55)


def test_a_record_that_compaction_left_behind_a_gap_is_the_first_one() -> None:
    kept = Batch(0, (record(2), record(8, 8000)), last_offset_delta=9)
    assert found(3, kept) == (8, 8000)


def test_a_batch_may_end_before_the_wanted_offset_and_the_next_one_has_it() -> None:
    emptied = Batch(0, (record(2),), last_offset_delta=9)
    assert found(5, emptied) == 10
    assert found(5, emptied, Batch(10, (), last_offset_delta=4), ten(15)) == (15, 0)


def test_markers_are_no_records() -> None:
    assert found(0, marker(0, 7, is_abort=False)) == 1
    assert found(0, marker(0, 7, is_abort=False), ten(1)) == (1, 0)


def test_records_of_aborted_transactions_are_skipped_until_their_marker() -> None:
    sent = (
        ten(0, is_transactional=True, producer_id=7),
        marker(10, 7, is_abort=True),
        ten(11, is_transactional=True, producer_id=7),
    )
    assert found(4, *sent, aborted=((7, 0),)) == (11, 0)
    assert found(4, *sent) == (4, 4000)
    assert found(4, *sent[:2], aborted=((7, 0),)) == 11
    # Only transactional records of that producer.
    assert found(4, ten(0, producer_id=7), aborted=((7, 0),)) == (4, 4000)
    other = ten(0, is_transactional=True, producer_id=8)
    assert found(4, other, aborted=((7, 0),)) == (4, 4000)


def test_a_missing_timestamp_is_minus_one() -> None:
    none = Batch(0, (Record(),), base_timestamp=-1)
    search = find_record(none.encode(), 0)
    assert search.record == FirstRecord(0, -1)


def test_a_partial_batch_at_the_end_is_left_for_the_next_request() -> None:
    sent = ten(0).encode()
    assert find_record(sent + ten(10).encode()[:-3], 10).next_offset == 10
    assert find_record(sent[:20], 0).next_offset == 0
    assert find_record(b"", 5).next_offset == 5


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (Batch(0, (record(0),), magic=1).encode(), "unknown format 1"),
        (Batch(0, (), count=2).encode(), "fewer records"),
        (Batch(0, (record(0),), codec=5).encode(b"x"), "unknown compression 5"),
        (Batch(0, (record(0),), codec=GZIP).encode(b"no gzip"), "cannot be decompressed"),
        (Batch(0, (record(0),), codec=ZSTD).encode(b"no zstd"), "cannot be decompressed"),
        (Batch(0, (record(0),), codec=SNAPPY).encode(b"\xff" * 9), "snappy|exceeds|decompressed"),
        (Batch(0, (record(0),)).encode(b"\x80" * 20), "does not end"),
        (Batch(0, (record(9),), last_offset_delta=3).encode(), "does not fit its batch"),
        (Batch(0, (record(0),)).encode()[:8] + b"\x00\x00\x00\x01" + b"\x02" * 30, "no room"),
    ],
)
def test_bytes_that_are_no_batch_are_a_protocol_error(sent: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        find_record(sent, 0)


def test_a_batch_that_grows_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_unread, "DECOMPRESSED_BYTES_MAX", 100_000)
    large = tuple(record(each, value=b"\x00" * 200_000) for each in range(3))
    for codec in (GZIP, SNAPPY, ZSTD):
        with pytest.raises(ProtocolError, match="exceeds 100000 bytes"):
            find_record(Batch(0, large, codec=codec).encode(), 2)


@pytest.mark.parametrize("codec", CODECS)
def test_a_walk_that_takes_too_long_ends_after_a_piece_of_a_batch(codec: int) -> None:
    large = tuple(record(each, each * 1000, b"v" * 5_000) for each in range(10))
    sent = Batch(0, large, codec=codec).encode()
    assert find_record(sent, 1, is_late=lambda: True).record == FirstRecord(1, BASE_MS + 1000)
    with pytest.raises(TimeoutError, match="searched in time"):
        find_record(sent, 9, is_late=lambda: True)


@given(st.binary(max_size=200), st.integers(0, 20))
def test_any_bytes_are_read_or_refused(tail: bytes, cut: int) -> None:
    whole = ten(codec=NONE).encode()
    for sent in (tail, whole[: len(whole) - cut] + tail, whole[:61] + tail):
        try:
            search = find_record(sent, 5)
        except ProtocolError:
            continue
        assert search.next_offset >= 5


def missed(
    *sent: Batch, returned: Iterable[int], passed: range, aborted: tuple[tuple[int, int], ...] = ()
) -> int | None:
    """Return the first record that a reader has missed, which returned these offsets."""
    missing, at = [], passed.start
    for each in (*sorted(returned), passed.stop):
        if each > at:
            missing.append(range(at, each))
        at = each + 1
    octets = b"".join(each.encode() for each in sent)
    search = find_missed(octets, missing[0].start, Passed(passed, missing), aborted)
    return None if search.record is None else search.record.offset


COMPACTED = Batch(10, tuple(record(each) for each in (1, 4, 7)), last_offset_delta=9, codec=GZIP)


def test_a_batch_with_fewer_records_returned_than_counted_shows_the_missed_one() -> None:
    assert missed(ten(codec=GZIP), returned=range(2), passed=range(10)) == 2
    assert (
        missed(ten(), ten(10), ten(20), returned=[*range(15), *range(20, 30)], passed=range(30))
        == 15
    )
    assert missed(ten(), ten(10), returned=range(5), passed=range(6)) == 5


def test_only_offsets_that_the_reader_has_passed_count() -> None:
    assert missed(ten(), ten(10), returned=range(4, 12), passed=range(4, 13)) == 12
    assert (
        missed(
            ten(), Batch(10, (), last_offset_delta=4), returned=range(4, 10), passed=range(4, 12)
        )
        is None
    )


def test_gaps_of_compaction_and_of_transactions_are_not_missed_records() -> None:
    assert missed(COMPACTED, returned=(11, 14, 17), passed=range(30)) is None
    assert missed(COMPACTED, returned=(14, 17), passed=range(12, 20)) is None
    assert missed(COMPACTED, returned=(11, 17), passed=range(30)) == 14
    assert missed(COMPACTED, returned=(14,), passed=range(12, 20)) == 17
    sent = (
        ten(0, is_transactional=True, producer_id=7),
        marker(10, 7, is_abort=True),
        ten(11, is_transactional=True, producer_id=7),
        marker(21, 7, is_abort=False),
    )
    returned = range(11, 21)
    assert missed(*sent, returned=returned, passed=range(22), aborted=((7, 0),)) is None
    assert missed(*sent, returned=returned, passed=range(22)) == 0


def test_a_search_continues_at_the_next_gap() -> None:
    passed = Passed(range(100), [range(10, 11), range(50, 60)])
    sent = ten().encode() + marker(10, 7, is_abort=False).encode()
    assert find_missed(sent, 10, passed).next_offset == 50
    assert find_missed(b"", 10, passed).next_offset == 10
    assert find_missed(ten(60).encode(), 50, passed).next_offset == 100


def test_batches_of_the_old_format_are_not_compared() -> None:
    old = Batch(3, (record(0),), magic=1).encode()
    passed = Passed(range(20), [range(2, 12)])
    search = find_missed(old + ten(4).encode(), 2, passed)
    assert search.record is not None
    assert search.record.offset == 4
    assert find_missed(old, 2, passed).next_offset == 4


def test_a_marker_that_compaction_removed_leaves_an_empty_batch() -> None:
    emptied = replace(marker(10, 7, is_abort=True), records=(), last_offset_delta=0)
    sent = ten(0, is_transactional=True, producer_id=7), emptied, ten(11)
    assert found(0, *sent, aborted=((7, 0),)) == (11, 0)


def size_of(offset: int, *sent: Batch, aborted: tuple[tuple[int, int], ...] = ()) -> object:
    return sample_size(b"".join(each.encode() for each in sent), offset, aborted)


@pytest.mark.parametrize("codec", CODECS)
def test_a_sample_has_the_size_without_compression(codec: int) -> None:
    large = Batch(0, tuple(record(each, 0, b"v" * 50_000) for each in range(10)), codec=codec)
    sample = sample_size(large.encode(), 0)
    assert sample is not None
    assert sample.offsets == 10
    assert 500_000 < sample.size_bytes < 501_000
    assert sample_size(large.encode(), 5) == RecordSample(sample.size_bytes // 2, 5)


def test_gaps_markers_and_aborted_records_have_offsets_and_no_size() -> None:
    whole = sample_size(ten().encode(), 0)
    assert whole is not None
    assert size_of(0, ten(30)) == RecordSample(whole.size_bytes, 40), "behind a gap of compaction"
    aborted = ten(0, is_transactional=True, producer_id=7)
    sent = aborted, marker(10, 7, is_abort=True), ten(11)
    assert size_of(0, *sent, aborted=((7, 0),)) == RecordSample(whole.size_bytes, 10, 11)
    assert size_of(0, ten(), marker(10, 7, is_abort=True)) == RecordSample(whole.size_bytes, 11)
    assert size_of(0, *sent) == RecordSample(2 * whole.size_bytes, 21), (
        "read_uncommitted reads them"
    )
    assert size_of(10, sent[1]) == RecordSample(0, 0, 1)


def test_without_a_whole_batch_there_is_no_sample() -> None:
    assert sample_size(b"", 0) is None
    assert sample_size(ten().encode()[:-1], 0) is None


def test_old_batches_are_sampled_as_they_are_stored() -> None:
    old = Batch(3, (record(0),), magic=1).encode()
    assert sample_size(old, 3) == RecordSample(len(old) - 12, 1)
