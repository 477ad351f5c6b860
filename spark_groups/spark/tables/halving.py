"""Finds the records that a function cannot take: it is called again with halves of the records.

Pure: the function is an argument. A batch of records that all fail, of n, costs 2n - 1 calls; one
record that fails costs about twice the logarithm of n. Executors import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from spark_groups.errors import RecordRefusedError, TableError
from spark_groups.types import OffsetRange


class Part(Protocol):
    """Records that can be divided, such as a record batch."""

    @property
    def num_rows(self) -> int:
        """The number of records."""

    def slice(self: AnyPart, offset: int, length: int | None = None, /) -> AnyPart:
        """Return some of them."""


AnyPart = TypeVar("AnyPart", bound=Part)
Ranges = tuple[OffsetRange, ...]
Fails = Callable[[Ranges], str | None]
"""Returns why a function cannot take the records of ranges; None: it takes them."""


@dataclass(frozen=True, slots=True)
class Refusal(Generic[AnyPart]):
    """A record that a function cannot take.

    Args:
        record: The record, as a part of one row.
        error: The error of the function.
    """

    record: AnyPart
    error: Exception


def taken(
    batch: AnyPart, take: Callable[[AnyPart], pa.RecordBatch]
) -> Iterator[pa.RecordBatch | Refusal[AnyPart]]:
    """Yield what a function makes of the records that it can take, and the others, in their order.

    Args:
        batch: The records.
        take: The function; it is called once if it can take all.

    Raises:
        MemoryError: There is too little memory, which is not the fault of a record.
        TableError: The columns that the function returns do not fit: no record is at fault.
    """
    waiting = [batch]
    while waiting:
        part = waiting.pop()
        try:
            rows = take(part)
        except Exception as error:
            if is_of_all_records(error) or not part.num_rows:
                raise
            if part.num_rows == 1:
                yield Refusal(part, error)
                continue
            half = part.num_rows // 2
            waiting += [part.slice(half), part.slice(0, half)]
        else:
            yield rows


def is_of_all_records(error: Exception) -> bool:
    """Return whether an error of a function or of a table is about no record in particular.

    Args:
        error: The error.
    """
    is_of_table = isinstance(error, TableError) and not isinstance(error, RecordRefusedError)
    return is_of_table or isinstance(error, MemoryError)


def refused(ranges: Ranges, fails: Fails) -> Iterator[tuple[OffsetRange, str]]:
    """Yield each record that a function cannot take, as a range of one offset, and the reason.

    Each is tried once more by itself before it is yielded. Records that fail only together with
    others, or that did not fail again, are not yielded.

    Args:
        ranges: Ranges with such records.
        fails: Tries the function.
    """
    waiting = [ranges]
    while waiting:
        part = waiting.pop()
        if sum(map(len, part)) <= 1:
            if part and (reason := fails(part)) is not None:
                yield part[0], reason
            continue
        left, right = halves(part)
        # If the left half does not fail, the right one does, and need not be tried as a whole.
        if fails(left) is None:
            waiting.append(right)
        elif sum(map(len, right)) == 1 or fails(right) is not None:
            waiting += [right, left]
        else:
            waiting.append(left)


def halves(ranges: Ranges) -> tuple[Ranges, Ranges]:
    """Divide ranges at the middle of their offsets.

    Args:
        ranges: Ranges of at least two offsets.
    """
    left_size = sum(map(len, ranges)) // 2
    left: list[OffsetRange] = []
    right: list[OffsetRange] = []
    for each in ranges:
        size = min(left_size, len(each))
        left_size -= size
        middle = each.from_offset + size
        if size:
            left.append(replace(each, until_offset=middle))
        if size < len(each):
            right.append(replace(each, from_offset=middle))
    return tuple(left), tuple(right)


def without(ranges: Ranges, left_out: Sequence[OffsetRange]) -> Ranges:
    """Return ranges without some records.

    Args:
        ranges: The ranges.
        left_out: The records, as ranges of one offset in these ranges.
    """
    found: list[OffsetRange] = []
    for each in ranges:
        begin = each.from_offset
        offsets = sorted(out.from_offset for out in left_out if out.key == each.key)
        for offset in (*offsets, each.until_offset):
            if begin <= offset <= each.until_offset:
                if begin < offset:
                    found.append(replace(each, from_offset=begin, until_offset=offset))
                begin = offset + 1
    return tuple(found)
