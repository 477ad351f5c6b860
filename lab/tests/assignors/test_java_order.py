"""Facts printed by Java 17 and the classes of Apache Kafka 4.3.1."""

from __future__ import annotations

import uuid

import pytest

from group_lab.assignors.java_order import (
    copied_table,
    grown_table,
    hash_order,
    integer_hash,
    signed,
    string_hash,
    uuid_hash,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("uniform", 4008040884),
        ("range", 108280125),
        ("consumer-1", 4128728090),
        ("Grüße", 69215351),
        ("polygenelubricants", 2147483648),
        ("hello world", 1794106052),
        ("\N{GRINNING FACE}", 1772899),
        ("Aa", 2112),
        ("BB", 2112),
        ("c2fa7b1f-9d52-00ef-9ae0-85bf0b500a3f", 835137218),
    ],
)
def test_hash_codes_of_strings(text: str, expected: int) -> None:
    assert string_hash(text) == expected


def test_half_of_all_codes_are_negative_numbers() -> None:
    assert [signed(each) for each in (0, 97, 2**31 - 1)] == [0, 97, 2**31 - 1]
    assert [signed(each) for each in (2**31, 2**32 - 1)] == [-(2**31), -1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("622fbe54-e0f0-49f5-840f-140dfd931ab3", 4215535903),
        ("00000000-0000-0001-0000-000000000000", 1),
        ("ffffffff-ffff-ffff-8000-000000000001", 2147483649),
    ],
)
def test_hash_codes_of_topic_ids(text: str, expected: int) -> None:
    assert uuid_hash(uuid.UUID(text)) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (5, (1, 2, 0, 3, 4)),
        (12, (1, 2, 0, 5, 6, 3, 4, 9, 11, 10, 7, 8)),
        (13, (5, 6, 3, 4, 12, 9, 11, 10, 7, 8, 1, 2, 0)),
    ],
)
def test_a_map_that_grew(count: int, expected: tuple[int, ...]) -> None:
    put = [f"member-{each}" for each in range(count)]
    ordered = hash_order(put, string_hash, grown_table(count))
    assert ordered == [f"member-{each}" for each in expected]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (5, (1, 2, 0, 3, 4)),
        (12, (5, 6, 3, 4, 9, 11, 10, 7, 8, 1, 2, 0)),
        (13, (5, 6, 3, 4, 12, 9, 11, 10, 7, 8, 1, 2, 0)),
    ],
)
def test_a_set_made_from_a_list(count: int, expected: tuple[int, ...]) -> None:
    put = [f"member-{each}" for each in range(count)]
    ordered = hash_order(put, string_hash, copied_table(count))
    assert ordered == [f"member-{each}" for each in expected]


def test_a_set_of_numbers_is_not_sorted() -> None:
    put = [40, 16, 33, 1, 17, 0, 32]
    assert hash_order(put, integer_hash, copied_table(len(put))) == [16, 0, 32, 33, 1, 17, 40]
