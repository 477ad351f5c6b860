"""What a run of a query says of itself at INFO: its batches, a slow start, and its end.

Events say what happened to a member; these lines say what a user waits for. The runner of a query
passes events and the time, and logs what it gets back. At most one line of batches is due in
`LINE_EVERY_S`, and it sums up all batches since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final

from spark_groups.group.batches.warm_up import Phase
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.events import BatchFinished, BatchPlanned, RangesLost
from spark_groups.group.member.events import Event, listed, names_of
from spark_groups.types import OffsetRange, TopicIdPartition, TopicPartition

LINE_EVERY_S: Final = 10.0
"""The least time between two lines of batches, and between two of a start."""
OFTEN_UNTIL_S: Final = 60.0
"""How long a start is reported every `LINE_EVERY_S`; then each time its duration has doubled."""
IN_MINUTES_S: Final = 600.0
"""Longer durations are shown in minutes."""


@dataclass(slots=True)
class _Batches:
    """Some batches, summed up; it grows with the number of partitions, not with that of batches."""

    number: int = 0
    records: int = 0
    longest_s: float = 0.0
    ranges: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The first offset and the end of each partition."""

    def add(self, ranges: Iterable[OffsetRange], took_s: float) -> None:
        """Add a batch; one without records does not count."""
        records = 0
        for each in ranges:
            records += len(each)
            self._extend(each.topic_partition, each.from_offset, each.until_offset)
        if records:
            self.number, self.records = self.number + 1, self.records + records
            self.longest_s = max(self.longest_s, took_s)

    def take(self, others: _Batches) -> None:
        """Add the batches of another sum, which is empty afterwards."""
        self.number, self.records = self.number + others.number, self.records + others.records
        self.longest_s = max(self.longest_s, others.longest_s)
        for partition, (from_offset, until_offset) in others.ranges.items():
            self._extend(partition, from_offset, until_offset)
        others.clear()

    def remove(self, lost: OffsetRange) -> None:
        """Take out records that are not committed."""
        first, end = self.ranges.pop(lost.topic_partition, (0, 0))
        kept_end = min(end, max(first, lost.from_offset))
        self.records -= end - kept_end
        if kept_end > first:
            self.ranges[lost.topic_partition] = (first, kept_end)
        if not self.ranges:
            self.clear()

    def clear(self) -> None:
        """Forget all batches."""
        self.number, self.records, self.longest_s = 0, 0, 0.0
        self.ranges.clear()

    def named(self) -> str:
        """Return the ranges as a line shows them: the first of many."""
        return listed([f"{each} [{a}, {b})" for each, (a, b) in sorted(self.ranges.items())])

    def _extend(self, partition: TopicPartition, from_offset: int, until_offset: int) -> None:
        first, end = self.ranges.get(partition, (from_offset, until_offset))
        self.ranges[partition] = min(first, from_offset), max(end, until_offset)


class RunLines:
    """The lines of one run.

    Records are counted by their offsets, as Kafka's `records-lag` counts them: a topic with
    transactions or compaction has fewer.

    Args:
        began_at: When the run began, in seconds of the client's clock.
    """

    def __init__(self, began_at: float) -> None:
        self._began_at = began_at
        self._start_due_at = began_at + LINE_EVERY_S
        self._batch_began_at = began_at
        self._lost: dict[TopicIdPartition, OffsetRange] = {}
        """What the running batch will not commit."""
        self._finished, self._committed = _Batches(), _Batches()
        """Batches without a commit; committed batches that no line has named."""
        self._said_at = -inf
        self._number = self._records = 0
        """The committed batches of the whole run, and their records."""

    def note(self, event: Event) -> None:
        """Note an event of the member; only those of batches matter."""
        match event:
            case BatchPlanned():
                self._batch_began_at = event.at
                self._lost.clear()
            case RangesLost(ranges=ranges):
                for lost in ranges:
                    self._lost[lost.key] = lost
                    if lost.topic_partition in self._finished.ranges:
                        self._finished.remove(lost)
            case BatchFinished(plan=plan):
                kept = [each for each in plan.ranges if each.key not in self._lost]
                self._finished.add(kept, event.at - self._batch_began_at)
                self._lost.clear()
                if plan.ranges:
                    self._start_due_at = inf

    def due(
        self, now: float, *, is_committing: bool, awaited: Callable[[], str] = str
    ) -> list[str]:
        """Return the lines that are due now.

        Args:
            is_committing: Whether offsets of finished batches are not committed yet.
            awaited: Returns what the start waits for; empty: the start is over.
        """
        if self._finished.number and not is_committing:
            self._number += self._finished.number
            self._records += self._finished.records
            self._committed.take(self._finished)
        lines = []
        if now >= self._start_due_at and (line := self._start_line(now, awaited())):
            lines.append(line)
        if self._committed.number and now >= self._said_at + LINE_EVERY_S:
            lines.append(self._batches_line(now))
            self._committed.clear()
            self._said_at = now
        return lines

    def end(
        self,
        now: float,
        *,
        is_committed: bool,
        kept_s: float | None = None,
        is_answered: bool = True,
    ) -> str:
        """Return the line of the run's end, which sums it up.

        Args:
            is_committed: Whether the offsets of all batches are committed.
            kept_s: How long the group keeps the partitions of a static member; None: it does not.
            is_answered: Whether the coordinator has answered that the member left.
        """
        self.due(now, is_committing=not is_committed)
        ran = "no batch"
        if self._number:
            ran = f"{_counted(self._number, 'batch')}, {_counted(self._records, 'record')}"
        line = f"left the group after {ran} in {_duration(now - self._began_at)}"
        if is_committed and self._number:
            line = f"committed, {line}"
        if not is_answered:
            line += (
                "; the coordinator has not answered, so the group may keep this member until its"
                " session ends"
            )
        elif kept_s is not None:
            line += f"; it keeps the partitions of this static member for {kept_s:g} s"
        if not is_committed:
            line += "; the last batch is not committed and may be read again"
        return line

    def _start_line(self, now: float, awaited: str) -> str:
        age_s = now - self._began_at
        if not awaited:
            self._start_due_at = inf
            return ""
        self._start_due_at = now + (LINE_EVERY_S if age_s < OFTEN_UNTIL_S else age_s)
        return f"the start has taken {_duration(age_s)}; waiting for {awaited}"

    def _batches_line(self, now: float) -> str:
        batches = self._committed
        records = _counted(batches.records, "record")
        of = f"of {_counted(len(batches.ranges), 'partition')}"
        if batches.number == 1:
            return (
                f"committed a batch: {records} {of} in {batches.longest_s:.1f} s: {batches.named()}"
            )
        since_s = now - max(self._said_at, self._began_at)
        return (
            f"committed {_counted(batches.number, 'batch')} in the last {_duration(since_s)}:"
            f" {records} {of}, the longest took {batches.longest_s:.1f} s: {batches.named()}"
        )


def awaited_at_start(parts: ClientParts) -> str:
    """Return what the start of a run waits for; empty if it waits for nothing but records."""
    return next(_awaited(parts), "")


def _awaited(parts: ClientParts) -> Iterator[str]:
    """Yield what a run waits for, the first step of its start first."""
    member, ledger, search = parts.member, parts.ledger, parts.search
    in_flight, name_of = ledger.in_flight, parts.topics.name
    if search.node is None:
        why = f" (the last attempt: {search.last_failure})" if search.last_failure else ""
        yield f"the coordinator of group {member.config.group_id!r}{why}"
    if in_flight is not None and in_flight.warm_up_tasks:
        yield "Spark to run the tasks that warm up its Python workers"
    if in_flight is not None:
        yield "Spark to run the first batch, which starts its Python workers"
    if parts.warm_up.is_warming:
        yield "Spark to ask for the tasks that warm up its Python workers"
    if parts.warm_up.phase is not Phase.OVER:
        yield "the coordinator to say whether other members read meanwhile"
    if member.instance_deadline is not None:
        yield f"another member to release the instance id {member.config.instance_id!r}"
    if member.member_epoch <= 0:
        yield "the coordinator to let this member join"
    if pending := parts.positions.still_pending(parts.target.pending):
        yield f"other members to release {names_of(pending, name_of)}"
    if not (member.assigned or parts.next_batch.is_settled or parts.target.is_refused):
        yield "the coordinator to assign partitions"
    if unready := ledger.unready():
        causes = sorted({str(wait) for wait in parts.positions.waits().values()})
        why = f" ({', '.join(causes)})" if causes else ""
        yield f"the committed offsets of {names_of(unready, name_of)}{why}"


def _counted(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < IN_MINUTES_S else f"{seconds / 60:.0f} min"
