"""One partition of `__consumer_offsets`: batches of records, of which some are replicated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from spark_groups.lab.coordinator.records import Key, Record
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that are appended together or not at all.

    Args:
        base_offset: The offset of its first record when it was appended.
        records: Its records; compaction may have taken some.
    """

    base_offset: int
    records: tuple[Record, ...]


@dataclass(slots=True)
class Log:
    """The log of one partition.

    Args:
        batches: In the order of their offsets.
        end_offset: The offset of the next record.
        high_watermark: All records below it are replicated; what is above it may get lost.
    """

    batches: list[Batch] = field(default_factory=list)
    end_offset: int = 0
    high_watermark: int = 0

    def append(self, records: tuple[Record, ...]) -> None:
        """Append one atomic batch."""
        self.batches.append(Batch(self.end_offset, records))
        self.end_offset += len(records)

    def replicate(self) -> None:
        """Take everything as replicated."""
        self.high_watermark = self.end_offset

    def truncate(self) -> None:
        """Lose everything that is not replicated."""
        while self.batches and self.batches[-1].base_offset >= self.high_watermark:
            self.batches.pop()
        self.end_offset = self.high_watermark

    def replay(self) -> Iterator[Record]:
        """Yield all records, the oldest first."""
        for batch in self.batches:
            yield from batch.records

    def compact(self, until_offset: int, *, drops_tombstones: bool = True) -> None:
        """Keep the last value of each key among the replicated records below an offset.

        A tombstone that goes takes with it everything older that it covered: what replay gives is
        the same. Offsets do not move.

        Args:
            until_offset: Batches that begin below it are compacted; those above the high
                watermark never are.
            drops_tombstones: Tombstones go too, as they do once `delete.retention.ms` has passed.
        """
        cut = sum(
            each.base_offset < min(until_offset, self.high_watermark) for each in self.batches
        )
        last: dict[Key, tuple[int, int]] = {}
        for number, batch in enumerate(self.batches[:cut]):
            for index, record in enumerate(batch.records):
                last[record.key] = (number, index)
        kept = []
        for number, batch in enumerate(self.batches[:cut]):
            records = tuple(
                record
                for index, record in enumerate(batch.records)
                if last[record.key] == (number, index)
                and not (drops_tombstones and record.value is None)
            )
            if records:
                kept.append(Batch(batch.base_offset, records))
        self.batches[:cut] = kept
