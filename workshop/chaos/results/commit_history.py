"""What the committed offsets of a partition did: they go back only where an operator sets them.

An operator sets or deletes them while no member runs, so each commit in such a time is a reset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from workshop.chaos.results.facts import DELETED_OFFSET, Commit, Execution, Partition, Span

Histories = Mapping[Partition, Sequence[Commit]]


def is_within(at_s: float, spans: Iterable[Span]) -> bool:
    """Return whether a time is in one of these times.

    Args:
        at_s: The time, in seconds of the wall clock.
        spans: The times.
    """
    return any(span.from_s <= at_s <= (span.until_s or at_s) for span in spans)


def went_back(histories: Histories, resets: Collection[Span]) -> list[str]:
    """Return where a committed offset went back without a reset, in words.

    Args:
        histories: What Kafka accepted, by partition, in its order.
        resets: When no member ran.
    """
    found = []
    for (topic, index), history in sorted(histories.items()):
        highest = -1
        for each in history:
            if each.offset < highest and not is_within(each.at_s, resets):
                found.append(f"{topic}-{index}: from {highest} to {each.offset}")
            highest = each.offset
    return found


def highest_so_far(history: Iterable[Commit], resets: Collection[Span]) -> list[int]:
    """Return the highest offset up to each commit, since the last reset.

    Args:
        history: What Kafka accepted of one partition, in its order.
        resets: When no member ran.
    """
    highest, found = -1, []
    for each in history:
        is_reset = is_within(each.at_s, resets)
        highest = each.offset if is_reset else max(highest, each.offset)
        found.append(highest)
    return found


def overruled(
    histories: Histories,
    resets: Collection[Span],
    executions: Iterable[Execution],
    ends: Mapping[Partition, int],
) -> list[str]:
    """Return the resets after which not everything was read again, in words.

    All from the new offset on is read by batches that run after the reset, up to what members
    commit before the next one; after the last one, up to the end.

    Args:
        histories: What Kafka accepted, by partition, in its order.
        resets: When no member ran.
        executions: All batches that were run.
        ends: The next offset to be written of each partition that is to be read as a whole.
    """
    read: dict[Partition, list[tuple[float, int, int]]] = defaultdict(list)
    for execution in executions:
        for partition, span in execution.ranges.items():
            read[partition].append((execution.began_s, *span))
    found = []
    for partition, end in sorted(ends.items()):
        for at_s, until_s, offset, target in _periods(histories.get(partition, ()), resets, end):
            reached = offset
            for _, first, following in sorted(
                (each for each in read[partition] if at_s <= each[0] < until_s),
                key=lambda each: each[1],
            ):
                reached = max(reached, following) if first <= reached else reached
            if reached < target:
                place = f"{partition[0]}-{partition[1]}"
                found.append(
                    f"{place}: reset to {offset}, but [{reached}, {target}) was not read as a whole"
                )
    return found


def _periods(
    history: Sequence[Commit], resets: Collection[Span], end: int
) -> Iterator[tuple[float, float, int, int]]:
    """Yield each time from a reset to the next one: its offset, and up to where members read.

    A deletion ends such a time: the checkpoint of a query may decide then.
    """
    began: tuple[float, int] | None = None
    target = 0
    for each in history:
        if not is_within(each.at_s, resets):
            target = max(target, each.offset)
            continue
        if began is not None:
            yield began[0], each.at_s, began[1], target
        is_deletion = each.offset == DELETED_OFFSET
        began, target = None if is_deletion else (each.at_s, each.offset), each.offset
    if began is not None:
        yield began[0], float("inf"), began[1], end
