"""The iteration order of Java's HashMap and HashSet.

The results of Kafka's assignors depend on the order of members, topics and partitions, and with it
on the hashes of their keys. Trees in buckets of eight and more keys are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeVar

from spark_groups.types import TopicId

K = TypeVar("K")

DEFAULT_TABLE: Final = 16
"""The default bucket count of a HashMap."""

_INT: Final = 0xFFFF_FFFF
_CACHED: Final = 65_536


@lru_cache(_CACHED)
def string_hash(text: str) -> int:
    """Return `String.hashCode` as unsigned 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        total = (31 * total + (high << 8 | low)) & _INT
    return total


def signed(bits: int) -> int:
    """Return the signed value of 32 bits."""
    return bits - (1 << 32) if bits >> 31 else bits


@lru_cache(_CACHED)
def uuid_hash(topic_id: TopicId) -> int:
    """Return the `hashCode` of Kafka's Uuid as unsigned 32 bits."""
    halves = (topic_id.int >> 64) ^ topic_id.int
    return (halves >> 32 ^ halves) & _INT


def integer_hash(value: int) -> int:
    """Return `Integer.hashCode`: the number."""
    return value


def grown_table(count: int, table: int = DEFAULT_TABLE) -> int:
    """Return the bucket count of a HashMap that began with `table` and holds `count` keys."""
    while count * 4 > table * 3:
        table *= 2
    return table


def copied_table(count: int) -> int:
    """Return the bucket count of a HashSet made from a collection of `count` keys."""
    return 1 << (max(count * 4 // 3 + 1, DEFAULT_TABLE) - 1).bit_length()


def hash_order(keys: Iterable[K], hash_of: Callable[[K], int], table: int) -> list[K]:
    """Return keys in the order of a table: by bucket, and within a bucket by insertion.

    Args:
        keys: Unique, in the order of insertion.
        table: The number of buckets, a power of two.
    """

    def bucket(key: K) -> int:
        value = hash_of(key)
        return (value ^ value >> 16) & (table - 1)

    return sorted(keys, key=bucket)
