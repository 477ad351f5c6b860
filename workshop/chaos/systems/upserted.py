"""A table with one row for each key, compared with a replay of the log, row by row.

It has the last record of each key that its partition has, without the keys whose last record
deletes. All records of a key are in one partition, so their offsets order them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from workshop.chaos.results.facts import Partition

KEY: Final = "key"
DELETED: Final = "deleted"
OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({"merge_on": KEY, "delete_when": DELETED})
"""The options of such a table."""
NOT_STORED: Final = frozenset({DELETED, "topic", "partition", "offset"})
"""The columns by which rows are ordered and deleted, and that the table does not have."""
SHOWN_MAX: Final = 5

Row = Mapping[str, Any]


def replayed(log: Iterable[Row]) -> dict[str, Row]:
    """Return the rows that a table must have, by their keys.

    Args:
        log: The rows of all records, in any order.

    Raises:
        ValueError: A key comes in several partitions, whose offsets do not order it.
    """
    last: dict[str, Row] = {}
    for row in log:
        known = last.setdefault(row[KEY], row)
        if any(known[name] != row[name] for name in ("topic", "partition")):
            raise ValueError(f"the key {row[KEY]} comes in several partitions")
        if row["offset"] > known["offset"]:
            last[row[KEY]] = row
    return {key: row for key, row in last.items() if not row[DELETED]}


def differences(expected: Mapping[str, Row], found: Sequence[Row]) -> list[str]:
    """Return how the rows of a table differ from those that it must have, in words.

    Args:
        expected: Those of `replayed`.
        found: The rows of the table, in any order.
    """
    counts = Counter(row[KEY] for row in found)
    stored = {
        key: {name: value for name, value in row.items() if name not in NOT_STORED}
        for key, row in expected.items()
    }
    wrong = {
        "keys that the table lacks": stored.keys() - counts,
        "keys that were deleted, or never written": counts.keys() - stored,
        "keys with several rows": {key for key, count in counts.items() if count > 1},
        "rows that are not the last ones of their keys": {
            row[KEY] for row in found if row[KEY] in stored and row != stored[row[KEY]]
        },
    }
    return [
        f"{len(keys):,} {what}, such as {', '.join(sorted(keys)[:SHOWN_MAX])}"
        for what, keys in wrong.items()
        if keys
    ]


def unlike_ends(
    entries: Mapping[Partition, tuple[int, int]], ends: Mapping[Partition, int]
) -> list[str]:
    """Return how the fence of a table differs from the log, in words.

    Args:
        entries: The first and the next offset of each partition, as the fence has them.
        ends: The next offset to be written of each partition.
    """
    return [
        f"the entry of {topic}-{index} is {entries.get((topic, index))}, its log ends at {end}"
        for (topic, index), end in sorted(ends.items())
        if end and entries.get((topic, index), (0, 0))[1] != end
    ]
