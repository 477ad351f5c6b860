"""What a table with one row for each key must have, and how one differs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from workshop.chaos.systems.upserted import differences, replayed, unlike_ends


def record(offset: int, key: str, *, deleted: bool = False, partition: int = 0) -> dict[str, Any]:
    place = {"topic": "ants", "partition": partition, "offset": offset}
    return {**place, "key": key, "deleted": deleted, "number": offset * 10}


def stored(offset: int, key: str) -> dict[str, Any]:
    return {"key": key, "number": offset * 10}


LOG = [
    record(0, "a"),
    record(1, "b"),
    record(2, "a"),
    record(3, "c", deleted=True),
    record(4, "b", deleted=True),
    record(5, "d", deleted=True),
    record(6, "d"),
    record(0, "e", partition=1),
]


def test_last_record_of_a_key_stays_unless_it_deletes_in_any_order_of_reading() -> None:
    for seed in range(5):
        log = Random(seed).sample(LOG, len(LOG))
        assert replayed(log) == {"a": LOG[2], "d": LOG[6], "e": LOG[7]}


def test_key_of_several_partitions_has_no_last_record() -> None:
    with pytest.raises(ValueError, match="the key e comes in several partitions"):
        replayed([*LOG, record(9, "e", partition=2)])


def test_table_that_is_a_replay_has_no_differences() -> None:
    found = [stored(6, "d"), stored(0, "e"), stored(2, "a")]
    assert differences(replayed(LOG), found) == []


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([stored(2, "a"), stored(6, "d")], "1 keys that the table lacks, such as e"),
        (
            [stored(2, "a"), stored(6, "d"), stored(0, "e"), stored(1, "b")],
            "1 keys that were deleted, or never written, such as b",
        ),
        (
            [stored(2, "a"), stored(6, "d"), stored(0, "e"), stored(2, "a")],
            "1 keys with several rows, such as a",
        ),
        (
            [stored(0, "a"), stored(6, "d"), stored(0, "e")],
            "1 rows that are not the last ones of their keys, such as a",
        ),
    ],
)
def test_difference_names_keys(found: list[dict[str, Any]], problem: str) -> None:
    assert differences(replayed(LOG), found) == [problem]


def test_fence_of_a_table_ends_where_the_log_ends() -> None:
    ends = {("ants", 0): 7, ("ants", 1): 1, ("bees", 0): 0}
    entries = {("ants", 0): (0, 7), ("ants", 1): (0, 1)}
    assert unlike_ends(entries, ends) == []
    assert unlike_ends({("ants", 0): (0, 6)}, ends) == [
        "the entry of ants-0 is (0, 6), its log ends at 7",
        "the entry of ants-1 is None, its log ends at 1",
    ]
