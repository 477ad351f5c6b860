"""A partition's log as its leader has it: records, leader epochs, and leaders that come and go."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import inf

from spark_groups.protocol.messages import NO_LEADER_EPOCH, NO_OFFSET, EpochEnd


class PartitionLog:
    """Records that can be told apart, from offset 0 on.

    Args:
        count: How many there are at first.
    """

    def __init__(self, count: int) -> None:
        self.start_offset = 0
        """Where retention has cut the log off."""
        self.leader_epoch = 0
        self.deposed = (0, 0)
        """End and leader epoch of the leader before."""
        self.deposed_at = float("-inf")
        self.written = 0
        """How many records were ever written."""
        self._records: list[int] = []
        self._began: list[tuple[int, int]] = [(0, 0)]
        """Each leader epoch with its first offset."""
        self._appended: list[tuple[int, float]] = []
        """The first record of each append, and when it was."""
        self.append(count)

    @property
    def end_offset(self) -> int:
        return len(self._records)

    def append(self, count: int, now: float = 0.0) -> None:
        """Write so many records; each is a number of its own.

        Args:
            count: How many.
            now: Seconds.
        """
        self._appended.append((self.written, now))
        self._records += range(self.written, self.written + count)
        self.written += count

    def written_at(self, record: int) -> float:
        """Return when a record was written, in seconds."""
        return self._appended[bisect_right(self._appended, (record, inf)) - 1][1]

    def read(self, from_offset: int, until_offset: int) -> Sequence[int]:
        """Return the records in a range that are still there."""
        return self._records[max(from_offset, self.start_offset) : until_offset]

    def retain(self, start_offset: int) -> None:
        """Drop the records below an offset, for they are old."""
        self.start_offset = min(max(start_offset, self.start_offset), self.end_offset)

    def elect(self, lost: int, now: float) -> None:
        """Give it another leader, who lacks so many of the last records.

        Args:
            lost: How many records.
            now: Seconds.
        """
        self.deposed, self.deposed_at = (self.end_offset, self.leader_epoch), now
        del self._records[max(self.start_offset, self.end_offset - lost) :]
        self.leader_epoch += 1
        self._began = [each for each in self._began if each[1] < self.end_offset]
        self._began.append((self.leader_epoch, self.end_offset))

    def epoch_at(self, offset: int) -> int:
        """Return under which leader epoch the record at an offset was written, or will be."""
        return [epoch for epoch, start in self._began if start <= offset][-1]

    def end_of(self, leader_epoch: int) -> EpochEnd:
        """Answer as LeaderEpochFileCache.endOffsetFor does."""
        if leader_epoch == self.leader_epoch:
            return EpochEnd(self.end_offset, leader_epoch)
        later = [start for epoch, start in self._began if epoch > leader_epoch]
        if not later:
            return EpochEnd(NO_OFFSET, NO_LEADER_EPOCH)
        known = [epoch for epoch, _ in self._began if epoch <= leader_epoch]
        return EpochEnd(later[0], known[-1] if known else leader_epoch)
