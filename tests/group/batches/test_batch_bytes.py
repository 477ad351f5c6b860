"""A limit in bytes becomes one in offsets, from samples of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from spark_groups.group.batches.batch_bytes import (
    ROUNDS_MAX,
    UNKNOWN_RECORD_BYTES,
    BytesSearch,
    RecordSample,
)
from spark_groups.group.batches.plan_limit import divide

KB = 1024
Log = Sequence[int]
"""The bytes of each offset of a partition."""


def search(
    logs: Mapping[str, Log],
    max_bytes: int,
    max_offsets: int | None = None,
    *,
    unknown: frozenset[str] = frozenset(),
) -> tuple[BytesSearch[str], int, int]:
    """Search with samples of one record; return also the bytes of the batch and the rounds."""
    unread = {key: (0, len(log)) for key, log in logs.items()}
    found = BytesSearch(unread, max_bytes, max_offsets)
    rounds = 0
    while wanted := found.wanted():
        rounds += 1
        assert rounds <= ROUNDS_MAX
        found.take(
            {
                key: RecordSample(logs[key][at], 1)
                for key, at in wanted.items()
                if key not in unknown
            }
        )
    ranges = divide(dict.fromkeys(logs, 0), {key: len(log) for key, log in logs.items()}, None)
    if found.is_limiting or max_offsets is not None:
        begins, ends = dict.fromkeys(logs, 0), {key: len(log) for key, log in logs.items()}
        ranges = divide(begins, ends, found.max_offsets)
    size_bytes = sum(sum(logs[key][begin:until]) for key, (begin, until) in ranges.items())
    return found, size_bytes, rounds


@pytest.mark.parametrize("record_bytes", [KB, 100 * KB])
def test_topics_of_small_and_of_large_records_are_limited_alike(record_bytes: int) -> None:
    _, size_bytes, rounds = search({"t": [record_bytes] * 100_000}, 10_000 * KB)
    assert size_bytes == 10_000 * KB
    assert rounds == 2


def test_both_topics_of_a_query_advance_in_proportion_to_their_backlog() -> None:
    logs = {"small": [KB] * 10_000, "large": [100 * KB] * 10_000}
    found, size_bytes, _ = search(logs, 10_100 * KB)
    assert found.max_offsets == 200
    assert size_bytes == 10_100 * KB


def test_a_backlog_that_fits_is_not_limited() -> None:
    found, size_bytes, _ = search({"t": [KB] * 10}, 10 * KB)
    assert (found.is_limiting, size_bytes) == (False, 10 * KB)
    found, _, rounds = search({}, 1)
    assert (found.is_limiting, rounds) == (False, 0)


def test_a_sample_of_the_whole_range_is_the_only_one() -> None:
    found = BytesSearch({"t": (5, 15)}, 1000, None)
    assert found.wanted() == {"t": 5}
    found.take({"t": RecordSample(900, 10)})
    assert found.wanted() == {}
    assert not found.is_limiting


@pytest.mark.parametrize(("max_offsets", "read"), [(3, 3), (50, 10), (None, 10)])
def test_the_smaller_of_both_limits_counts(max_offsets: int | None, read: int) -> None:
    found, _, _ = search({"t": [KB] * 100}, 10 * KB, max_offsets)
    assert found.max_offsets == read
    assert found.is_limiting is (read == 10)


def test_records_that_grow_within_the_backlog_are_found() -> None:
    logs = {"t": [KB] * 1_000 + [100 * KB] * 1_000}
    _, size_bytes, _ = search(logs, 1_000 * KB)
    assert 500 * KB <= size_bytes <= 1_000 * KB
    _, size_bytes, _ = search({"t": [0] * 1_000 + [100 * KB] * 100_000}, 1_000 * KB)
    assert size_bytes <= 1_000 * KB


def test_records_that_shrink_make_the_batch_smaller_not_larger() -> None:
    _, size_bytes, _ = search({"t": [100 * KB] * 10 + [KB] * 10_000}, 1_000 * KB)
    assert 0 < size_bytes <= 1_000 * KB


def test_a_record_beyond_the_limit_is_read_and_every_partition_advances() -> None:
    logs = {str(each): [100 * KB] * 10 for each in range(5)}
    found, size_bytes, _ = search(logs, KB)
    assert found.max_offsets == 1
    assert size_bytes == 500 * KB, "one record of each partition"


def test_a_partition_without_a_sample_counts_as_the_largest_of_the_others() -> None:
    logs = {"a": [KB] * 100, "b": [3 * KB] * 100, "c": [KB] * 100}
    found, _, _ = search(logs, 70 * KB, unknown=frozenset("c"))
    assert found.max_offsets == 30
    found, _, _ = search(logs, 30 * UNKNOWN_RECORD_BYTES, unknown=frozenset("abc"))
    assert found.max_offsets == 30


@settings(derandomize=True, deadline=None)
@given(
    logs=some.dictionaries(
        some.sampled_from("abc"),
        some.lists(some.integers(0, 200), min_size=1, max_size=60),
        min_size=1,
    ),
    max_bytes=some.integers(1, 5_000),
    max_offsets=some.none() | some.integers(1, 100),
)
def test_a_search_ends_and_never_exceeds_the_limit_in_offsets(
    logs: dict[str, list[int]], max_bytes: int, max_offsets: int | None
) -> None:
    found, _, _ = search(logs, max_bytes, max_offsets)
    backlog = sum(map(len, logs.values()))
    assert 1 <= found.max_offsets <= min(backlog, max_offsets or backlog)


def test_a_sample_without_bytes_at_the_end_of_a_range_is_no_evidence() -> None:
    found = BytesSearch({"t": (0, 1_000)}, 10 * KB, None)
    found.take({"t": RecordSample(KB, 1)})
    assert found.wanted() == {"t": 9}
    found.take({"t": RecordSample(0, 1)})
    assert (found.max_offsets, found.size_bytes) == (10, 10 * KB)


def test_a_sample_without_bytes_at_the_beginning_is_no_evidence() -> None:
    found = BytesSearch({"t": (0, 1_000)}, 10 * UNKNOWN_RECORD_BYTES, None)
    found.take({"t": RecordSample(0, 1)})
    assert found.max_offsets == 10
    found = BytesSearch({"t": (0, 500), "u": (0, 500)}, 10 * KB, None)
    found.take({"t": RecordSample(0, 1), "u": RecordSample(KB, 1)})
    assert found.max_offsets == 10


def test_offsets_without_a_record_at_the_beginning_are_planned_whole() -> None:
    unread = {"t": (0, 1_100_000), "gone": (0, 50), "u": (5, 100_005)}
    found = BytesSearch(unread, 10 * KB, None)
    assert found.wanted() == {"t": 0, "gone": 0, "u": 5}
    found.take(
        {"t": RecordSample(KB, 1), "gone": RecordSample(0, 0), "u": RecordSample(KB, 1)},
        {"t": 1_000_000, "gone": 60, "u": 5},
    )
    assert found.wanted() == {"t": 1_000_004, "u": 9}
    found.take({"t": RecordSample(KB, 1), "u": RecordSample(KB, 1)})
    assert found.until_offsets() == {"t": 1_000_005, "gone": 50, "u": 10}
    assert found.is_limiting
    assert found.unread_offsets == 1_200_050


def test_a_backlog_of_deleted_records_alone_is_planned_whole() -> None:
    found = BytesSearch({"t": (0, 1_000)}, KB, None)
    found.take({}, {"t": 1_000})
    assert found.wanted() == {}
    assert found.until_offsets() == {"t": 1_000}
    assert not found.is_limiting


def test_the_limit_in_offsets_counts_offsets_without_a_record() -> None:
    found = BytesSearch({"t": (0, 1_000)}, 10 * KB, 7)
    found.take({"t": RecordSample(KB, 1_000)}, {"t": 3})
    assert found.until_offsets() == {"t": 7}
    found = BytesSearch({"t": (0, 1_000)}, 10 * KB, 7)
    found.take({"t": RecordSample(10 * KB, 1_000)}, {"t": 500})
    assert found.until_offsets() == {"t": 7}


def test_the_last_known_size_stands_in_for_a_sample_that_fails() -> None:
    before = BytesSearch({"t": (0, 1_000), "u": (0, 1_000)}, 20 * KB, None)
    before.take({"t": RecordSample(2 * KB, 2), "u": RecordSample(5 * KB, 1)})
    before.take({"t": RecordSample(0, 1)})
    found = BytesSearch({"t": (10, 1_000)}, 20 * KB, None, before.known)
    found.take({})
    assert found.max_offsets == 20, "1 KiB as before, neither 1 MiB nor that of another partition"
    found = BytesSearch({"t": (0, 500), "new": (0, 500)}, 10 * KB, None, before.known)
    found.take({})
    assert found.max_offsets == 10, "a new one counts as the largest of the others"
