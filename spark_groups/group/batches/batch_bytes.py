"""From a limit in bytes to a limit in offsets: how many unread offsets fit `maxBytesPerTrigger`.

Offsets say nothing about bytes, and brokers list no sizes. So the records at the first offset of
each range and at its last one are sampled, and sizes between the two are taken to lie between
theirs. If records grow within the ranges, these are halved until the samples at their ends fit. One
factor shrinks all ranges, so partitions share the limit in proportion to their backlog.

Offsets without a record at the beginning of a backlog, such as those that the broker has deleted,
have no bytes, so a batch may pass all of them beside the offsets that fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from spark_groups.group.batches.plan_limit import divide
from spark_groups.group.member.messages import RecordSample

K = TypeVar("K")
UNKNOWN_RECORD_BYTES: Final = 1024 * 1024
"""The size of an offset if no partition was ever sampled: the largest that brokers accept by
default, so that the batch is too small rather than too large."""
ROUNDS_MAX: Final = 12
"""The last of these rounds samples ranges of 1/1024 of the first estimate."""


class BytesSearch(Generic[K]):
    """Finds how many offsets of a backlog fit a number of bytes.

    Call `wanted` and `take` in turn until `wanted` is empty; `until_offsets` is the result.

    Args:
        unread: The first unread offset and the end, by partition with a backlog.
        max_offsets: The limit in offsets, if the query has one.
        known: The last samples of partitions, which stand in for samples that fail.
    """

    def __init__(
        self,
        unread: Mapping[K, tuple[int, int]],
        max_bytes: int,
        max_offsets: int | None,
        known: Mapping[K, RecordSample] = MappingProxyType({}),
    ) -> None:
        self._begins = {key: begin for key, (begin, _) in unread.items()}
        self._positions = dict(self._begins)
        """Where there may be records."""
        self._ends = {key: end for key, (_, end) in unread.items()}
        self._max_bytes = max_bytes
        self._own_max_offsets = max_offsets
        self.known = dict(known)
        """The last sample with records, by partition."""
        self._rounds = 0
        self._at_begin: dict[K, RecordSample] | None = None
        self.unread_offsets = sum(end - begin for begin, end in unread.values())
        """The whole backlog."""
        self._most_offsets = self.max_offsets = self._most()
        """How many offsets fit, as far as the search has come; none without a record before."""
        self.size_bytes = 0.0
        """The estimated size of these."""
        self._is_over = not self.unread_offsets

    @property
    def is_limiting(self) -> bool:
        """Whether the batch is smaller than without the limit in bytes."""
        return self.max_offsets < self._most_offsets

    def wanted(self) -> dict[K, int]:
        """Return the offsets to sample next, by partition; none: the search is over."""
        if self._is_over:
            return {}
        if self._at_begin is None:
            return dict(self._positions)
        begins, ranges = self._at_begin, self._ranges()
        # A sample that covers its whole range needs no second one.
        return {
            key: until - 1
            for key, (begin, until) in ranges.items()
            if begins[key].offsets < until - begin
        }

    def take(
        self, samples: Mapping[K, RecordSample], reached: Mapping[K, int] = MappingProxyType({})
    ) -> None:
        """Take the samples of `wanted`.

        Args:
            samples: A partition without one, or whose sample has no bytes, counts as its last known
                one, or as the largest of the others, at the beginning of its range, and as
                unchanged at its end.
            reached: By partition, an offset before which there is no record from the wanted one on.
        """
        self._rounds += 1
        found = {key: sample for key, sample in samples.items() if sample.size_bytes}
        self.known.update(found)
        if self._at_begin is None:
            for key, begin in self._positions.items():
                self._positions[key] = min(max(begin, reached.get(key, begin)), self._ends[key])
            self._most_offsets = self.max_offsets = self._most()
            self._at_begin = _complete(self._positions, found, self.known)
            self._fit(self._at_begin)
            self._is_over = not self.wanted()
            return
        ends = {**self._at_begin, **found}
        before = self.max_offsets
        size_bytes = self._size_bytes(ends)
        if size_bytes > 2 * self._max_bytes and self._rounds < ROUNDS_MAX and before > 1:
            self.max_offsets = before // 2
            self.size_bytes = self._size_bytes(self._at_begin)
            self._is_over = not self.wanted()
            return
        self._fit(ends)
        self._is_over = True

    def until_offsets(self) -> dict[K, int]:
        """Return the end of the batch in each partition with a backlog."""
        fitting, most = self._ranges(), divide(self._begins, self._ends, self._own_max_offsets)
        # A partition that does not fit has no record up to its end.
        return {
            key: min(until, fitting[key][1]) if key in fitting else until
            for key, (_, until) in most.items()
        }

    def _most(self) -> int:
        """Return the offsets of a batch that has no limit in bytes."""
        left = sum(end - self._positions[key] for key, end in self._ends.items())
        return left if self._own_max_offsets is None else min(self._own_max_offsets, left)

    def _fit(self, at_end: Mapping[K, RecordSample]) -> None:
        """Shrink the number of offsets if their estimated size exceeds the limit."""
        size_bytes = self._size_bytes(at_end)
        if size_bytes > self._max_bytes:
            self.max_offsets = max(1, math.floor(self.max_offsets * self._max_bytes / size_bytes))
        self.size_bytes = self._size_bytes(at_end)

    def _size_bytes(self, at_end: Mapping[K, RecordSample]) -> float:
        begins = self._at_begin or {}
        return sum(
            (until - begin) * (begins[key].per_offset + at_end[key].per_offset) / 2
            for key, (begin, until) in self._ranges().items()
        )

    def _ranges(self) -> dict[K, tuple[int, int]]:
        return divide(self._positions, self._ends, self.max_offsets)


def _complete(
    positions: Mapping[K, int], samples: Mapping[K, RecordSample], known: Mapping[K, RecordSample]
) -> dict[K, RecordSample]:
    """Return a sample of each partition; without one, its last or the largest of the others."""
    sizes = {key: known[key].per_offset for key in positions if key in known}
    largest = max(sizes.values(), default=UNKNOWN_RECORD_BYTES)
    unknown = {key: RecordSample(math.ceil(sizes.get(key, largest)), 1) for key in positions}
    return {**unknown, **samples}
