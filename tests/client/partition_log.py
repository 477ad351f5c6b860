"""A partition's log as its leader has it: records, leader epochs, and leaders that come and go."""

from __future__ import annotations

import itertools

from spark_groups.protocol.messages import EpochEnd


class PartitionLog:
    """Records that can be told apart, from offset 0 on.

    Args:
        count: How many there are at first.
    """

    def __init__(self, count: int) -> None:
        self.records: list[int] = []
        self._serial = itertools.count()
        self.leader_epoch = 0
        self.deposed = (0, 0)
        """End and leader epoch of the leader before."""
        self.deposed_at = float("-inf")
        self._began: list[tuple[int, int]] = [(0, 0)]
        """Each leader epoch with its first offset."""
        self.append(count)

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, count: int) -> None:
        self.records += [next(self._serial) for _ in range(count)]

    def elect(self, lost: int, now: float) -> None:
        """Give it another leader, who lacks so many of the last records."""
        self.deposed, self.deposed_at = (self.end_offset, self.leader_epoch), now
        del self.records[max(0, self.end_offset - lost) :]
        self.leader_epoch += 1
        self._began = [each for each in self._began if each[1] < self.end_offset]
        self._began.append((self.leader_epoch, self.end_offset))

    def end_of(self, leader_epoch: int) -> EpochEnd:
        """Answer as LeaderEpochFileCache.endOffsetFor does."""
        if leader_epoch == self.leader_epoch:
            return EpochEnd(self.end_offset, leader_epoch)
        later = [start for epoch, start in self._began if epoch > leader_epoch]
        if not later:
            return EpochEnd(-1, -1)
        known = [epoch for epoch, _ in self._began if epoch <= leader_epoch]
        return EpochEnd(later[0], known[-1] if known else leader_epoch)
