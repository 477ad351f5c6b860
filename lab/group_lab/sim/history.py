"""The history of a run by partition, for the checkers that compare with it."""

from __future__ import annotations

from group_lab.sim import facts
from group_lab.sim.scene import Listeners
from spark_groups.group.ledger.events import PartitionsGivenUp, RangesInherited
from spark_groups.group.member.events import PartitionsAssigned
from spark_groups.types import TopicIdPartition

Ranges = dict[TopicIdPartition, list[tuple[int, int]]]


class History:
    """The ranges read, committed and lost, by partition.

    It listens before the checkers, so it knows a fact when they receive it.
    """

    def __init__(self) -> None:
        self.first: dict[TopicIdPartition, int] = {}
        """The first offset that was committed."""
        self.finished: Ranges = {}
        """Ranges read by finished batches, and by plain consumers before their commit."""
        self.inherited: Ranges = {}
        """Ranges finished by one incarnation and committed by a later one."""
        self.read_again = 0
        """How many ranges of finished batches overlap an earlier one."""
        self.cut: dict[TopicIdPartition, int] = {}
        """The lowest end of a truncated log: records above it may be read again."""
        self.lowest: dict[TopicIdPartition, int] = {}
        """Every record from here on must be read."""
        self.added: set[TopicIdPartition] = set()
        """Partitions that were added while the group was reading the topic."""
        self.given_up: set[TopicIdPartition] = set()
        """Partitions released without a commit, as their client reported, and not reassigned."""
        self.gave_up = False
        """Whether a client ever reported that."""
        self.read: dict[TopicIdPartition, set[int]] = {}
        """Records read by finished batches."""
        self.aged: dict[TopicIdPartition, int] = {}
        """Start offsets of logs that retention has shortened."""
        self.skipped: Ranges = {}
        """Unread ranges below the offset at which a partition started after a deletion."""
        self.deleted: set[TopicIdPartition] = set()
        """Partitions whose committed offset an operator deleted."""
        self._reached: dict[TopicIdPartition, int] = {}
        self._ahead: Ranges = {}
        """Finished ranges not yet below `_reached`."""
        self._ends: dict[TopicIdPartition, int] = {}

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.Finished: self._finished,
            facts.Consumed: self._consumed,
            facts.Committed: self._committed,
            facts.Happened: self._happened,
            facts.ClassicHappened: self._happened,
            facts.Grown: self._grown,
            facts.OffsetReset: self._reset,
            facts.OffsetDeleted: self._deleted,
            facts.Cut: self._cut,
            facts.Aged: self._aged,
        }

    def reached(self, key: TopicIdPartition) -> int:
        """Return the end of the range, from the first committed offset on, read without a gap."""
        reached = self._reached.get(key, self.first.get(key, 0))
        ahead = sorted(self._ahead.pop(key, ()))
        for from_offset, until_offset in ahead:
            # Retention may have dropped the records between.
            if from_offset <= max(reached, self.aged.get(key, 0)):
                reached = max(reached, until_offset)
        self._ahead[key] = [each for each in ahead if each[1] > reached]
        self._reached[key] = reached
        return reached

    def floor(self, key: TopicIdPartition, committed_offset: int) -> int:
        """Return the lowest valid position for a committed offset."""
        return min(self.cut.get(key, committed_offset), committed_offset)

    def _finished(self, fact: facts.Finished) -> None:
        for key, found in fact.records.items():
            self.read.setdefault(key, set()).update(found)
        for offset_range in fact.plan.ranges:
            self._note(offset_range.key, offset_range.from_offset, offset_range.until_offset)

    def _consumed(self, fact: facts.Consumed) -> None:
        for key, found in fact.records.items():
            self.read.setdefault(key, set()).update(found)
        for key, (from_offset, until_offset) in fact.ranges.items():
            self._note(key, from_offset, until_offset)

    def _note(self, key: TopicIdPartition, from_offset: int, until_offset: int) -> None:
        ranges = self.finished.setdefault(key, [])
        end = self._ends.get(key, 0)
        if from_offset < end and any(a < until_offset and from_offset < b for a, b in ranges):
            self.read_again += 1
        self._ends[key] = max(end, until_offset)
        ranges.append((from_offset, until_offset))
        self._ahead.setdefault(key, []).append((from_offset, until_offset))

    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        if each.before is not None:
            return
        if each.key not in self.first:
            self.first[each.key] = self.lowest[each.key] = each.committed_offset
        elif each.key in self.deleted:
            # Where the log was truncated, the group may have gone back below what it had read.
            before = self.floor(each.key, self.reached(each.key))
            if before < each.committed_offset:
                self.skipped.setdefault(each.key, []).append((before, each.committed_offset))
            # A deletion wants nothing read again: batches that finished before it still count.
            self._reached[each.key] = each.committed_offset
            self._ahead[each.key] = list(self.finished.get(each.key, ()))

    def _reset(self, fact: facts.OffsetReset) -> None:
        # Records above the offset have to be read again.
        self._reached[fact.key] = fact.new_offset
        self._ahead.pop(fact.key, None)

    def _deleted(self, fact: facts.OffsetDeleted) -> None:
        self.deleted.add(fact.key)

    def _happened(self, fact: facts.Happened | facts.ClassicHappened) -> None:
        match fact.event:
            case RangesInherited(ranges=ranges):
                for offset_range in ranges:
                    offsets = (offset_range.from_offset, offset_range.until_offset)
                    self.inherited.setdefault(offset_range.key, []).append(offsets)
            case PartitionsGivenUp(partitions=partitions):
                self.given_up.update(partitions)
                self.gave_up = True
            case PartitionsAssigned(partitions=assigned):
                self.given_up -= assigned.partitions

    def _grown(self, fact: facts.Grown) -> None:
        if any(key.topic_id == fact.key.topic_id for key in self.first):
            self.added.add(fact.key)

    def _cut(self, fact: facts.Cut) -> None:
        key, end = fact.key, fact.end_offset
        self.cut[key] = min(end, self.cut.get(key, end))
        if key in self.lowest:
            self.lowest[key] = min(end, self.lowest[key])

    def _aged(self, fact: facts.Aged) -> None:
        self.aged[fact.key] = fact.start_offset
