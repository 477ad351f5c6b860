"""In which order Kafka's coordinator goes through members, topics and assignors.

The result of an assignor depends on three orders: that of the members (a HashMap that
TargetAssignmentBuilder fills from the group's TimelineHashMap), that of the topics (a HashSet of
ids, filled from the HashSet of the names of the first member), and in `assignors.java_order` that
of the partitions a member has. A tie between server assignors goes by a fourth one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from spark_groups.lab.assignors.java_order import (
    DEFAULT_TABLE,
    copied_table,
    grown_table,
    hash_order,
    signed,
    string_hash,
    uuid_hash,
)
from spark_groups.lab.coordinator.topic_images import TopicsImage
from spark_groups.types import TopicId

_FIBONACCI: Final = -7046029254386353131
_LONG: Final = (1 << 64) - 1


def timeline_order(keys: Sequence[str], most: int = 0) -> list[str]:
    """Return keys in the order of a TimelineHashMap: by slot, and in a slot the last one first.

    Args:
        keys: Each once, in the order in which they were put.
        most: How many there were at once before, if more than now: a table never shrinks.
    """
    bits = 1
    while (max(len(keys), most) + 1) * 3 > 4 << bits:
        bits += 1

    def slot(key: str) -> int:
        return (signed(string_hash(key)) * _FIBONACCI & _LONG) >> (64 - bits)

    last_first = list(keys)
    last_first.reverse()
    return sorted(last_first, key=slot)


def member_order(
    known: Sequence[str], members: Collection[str], most_members: int = 0
) -> list[str]:
    """Return member ids in the order of TargetAssignmentBuilder's `memberSpecs`.

    Where one replaces another, the table may hold both for a moment, and grow.

    Args:
        known: The members of the group before the request, in the order in which they came.
        members: Those that are assigned to.
        most_members: How many members the group had at once before, if more than now.
    """
    kept = set(known).intersection(members)
    added = [each for each in members if each not in kept]
    gone = [each for each in known if each not in kept]
    changes = hash_order([*added, *gone], string_hash, DEFAULT_TABLE)
    grows_first = bool(added) and changes[0] == added[0]
    put = [*(each for each in timeline_order(known, most_members) if each in kept), *added]
    return hash_order(put, string_hash, grown_table(max(len(put), len(known) + grows_first)))


def topic_order(names: Sequence[str], topics: TopicsImage) -> list[TopicId]:
    """Return the ids of those topics that exist, in the order of a HashSet of ids.

    Args:
        names: Topic names, in the order in which the coordinator goes through them.
        topics: The cluster's topics.
    """
    found = [topics.by_name[each].topic_id for each in names if each in topics.by_name]
    return hash_order(found, uuid_hash, copied_table(len(names)))


def name_order(names: Iterable[str]) -> list[str]:
    """Return topic names in the order of a HashSet that was made from their sorted list."""
    listed = sorted(names)
    return hash_order(listed, string_hash, copied_table(len(listed)))


def vote_order(voted: Sequence[str], kept: Collection[str], added: Iterable[str]) -> list[str]:
    """Return assignor names in the order of `computePreferredServerAssignor`'s copy of the votes.

    `HashMap.compute` puts what it adds in front of its bucket.

    Args:
        voted: Those that have votes before the request, each once.
        kept: Those that have them without the member that asks.
        added: Those that only that member asks for.
    """
    copied = [each for each in timeline_order(voted) if each in kept]
    table = 1 << (len(voted) * 4 // 3).bit_length() if voted else DEFAULT_TABLE
    return hash_order([*added, *copied], string_hash, table)
