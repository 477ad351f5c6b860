"""Headers of records that are written again: what they say, and that they are understood."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import (
    ERROR,
    ERROR_BYTES_MAX,
    EXPIRES,
    GROUP,
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_TOPIC,
    RETRIES,
    Letter,
    Origin,
    dead_letter,
    expiry_ms,
    origin_of,
    own_origin,
    recirculated,
    replayed,
)

OWN = (("trace", b"1"), ("trace", None))
RECORD = Record(b"k", b"v", "flights", 3, 17, 1_000, OWN)
HISTORY = replace(origin_of(RECORD), group_id="readers", expires_ms=9_000)


def read_back(letter: Letter, offset: int = 5) -> Record:
    """Return a letter as it is read from its topic."""
    return Record(
        letter.key, letter.value, letter.topic, letter.partition or 0, offset, 2_000, letter.headers
    )


def test_documented_names_and_values() -> None:
    letter = dead_letter(RECORD, HISTORY, "ValueError: x", "flights.readers.dead-letter")
    assert letter.topic == "flights.readers.dead-letter"
    assert (letter.key, letter.value, letter.partition) == (b"k", b"v", None)
    assert letter.headers[: len(OWN)] == OWN
    assert dict(letter.headers[len(OWN) :]) == {
        "spark-groups.original.topic": b"flights",
        "spark-groups.original.partition": b"3",
        "spark-groups.original.offset": b"17",
        "spark-groups.original.timestamp": b"1000",
        "spark-groups.group": b"readers",
        "spark-groups.error": b"ValueError: x",
        "spark-groups.retries": b"0",
        "spark-groups.expires": b"9000",
    }


def test_record_that_was_never_forwarded_keeps_its_place() -> None:
    assert origin_of(RECORD) == Origin("flights", 3, 17, 1_000)


def test_second_time_is_counted_and_the_first_place_stays() -> None:
    first = recirculated(RECORD, HISTORY, "a", "flights")
    assert first.partition == RECORD.partition
    again = read_back(first, offset=40)
    second = recirculated(again, origin_of(again), "b", "flights.readers.retry")
    assert second.partition is None
    assert [name for name, _ in second.headers].count(ORIGINAL_TOPIC) == 1
    assert origin_of(read_back(second)) == Origin("flights", 3, 17, 1_000, "readers", 2, 9_000)
    assert dict(second.headers)[ERROR] == b"b"


def test_count_that_cannot_be_read_is_not_a_count() -> None:
    odd = replace(RECORD, headers=((RETRIES, b"-1"),))
    assert origin_of(odd).retries is None
    letter = dead_letter(odd, origin_of(odd), "x", "t")
    assert RETRIES not in dict(letter.headers)


def test_number_that_is_absurdly_long_is_none() -> None:
    digits = b"9" * 5_000
    place = ((ORIGINAL_TOPIC, b"t"), (ORIGINAL_PARTITION, digits), (ORIGINAL_OFFSET, b"1"))
    odd = replace(RECORD, headers=((RETRIES, digits), (EXPIRES, digits), *place))
    assert origin_of(odd) == Origin("flights", 3, 17, 1_000, retries=None)


@pytest.mark.parametrize(
    ("headers", "expire_after_s", "expected"),
    [
        ((), None, None),
        ((), 2.5, 3_500),
        (((EXPIRES, b"7"),), 2.5, 7),
        (((EXPIRES, b"7"),), None, 7),
        (((EXPIRES, b"soon"),), 2.5, 3_500),
    ],
)
def test_expiry(
    headers: tuple[tuple[str, bytes], ...], expire_after_s: float | None, expected: int | None
) -> None:
    assert expiry_ms(origin_of(replace(RECORD, headers=headers)), expire_after_s) == expected


def test_long_error_is_cut() -> None:
    letter = dead_letter(RECORD, HISTORY, "x" * 5_000, "t")
    assert len(dict(letter.headers)[ERROR] or b"") == ERROR_BYTES_MAX


def test_replay_goes_back_as_if_nothing_had_been() -> None:
    letter = dead_letter(RECORD, replace(HISTORY, retries=3), "x", "flights.readers.dead-letter")
    assert replayed(read_back(letter)) == Letter("flights", b"k", b"v", OWN, 3)


def test_replay_to_a_groups_topic_keeps_the_first_place_and_restarts_the_count() -> None:
    letter = dead_letter(RECORD, replace(HISTORY, retries=3), "x", "flights.readers.dead-letter")
    back = replayed(read_back(letter), "flights.readers.retry")
    assert back is not None
    assert origin_of(read_back(back)) == Origin("flights", 3, 17, 1_000, "readers")


@pytest.mark.parametrize(
    ("read_from", "named", "partition", "expected"),
    [
        ("flights.readers.retry", "flights", 3, Origin("flights", 3, 17, 1_000, "readers", 1)),
        ("flights", "flights", 3, Origin("flights", 3, 17, 1_000, "readers", 1)),
        # A producer of the topic wrote these.
        ("flights", "payments", 3, Origin("flights", 3, 99, 5_000, retries=1)),
        ("flights", "flights", 7, Origin("flights", 3, 99, 5_000, retries=1)),
        (
            "flights.readers.retry",
            "__consumer_offsets",
            3,
            Origin("flights.readers.retry", 3, 99, 5_000, retries=1),
        ),
    ],
)
def test_headers_are_believed_only_for_the_topic_that_was_read(
    read_from: str, named: str, partition: int, expected: Origin
) -> None:
    history = Origin(named, partition, 17, 1_000, "readers")
    written = recirculated(RECORD, history, "x", read_from)
    record = Record(b"k", b"v", read_from, 3, 99, 5_000, written.headers)
    assert own_origin(record, "flights") == expected


def test_letter_that_says_nothing_is_not_replayed() -> None:
    assert replayed(RECORD) is None
    assert replayed(replace(RECORD, headers=((GROUP, b"readers"),))) is None
