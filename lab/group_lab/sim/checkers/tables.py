"""A table that queries write to has each record once."""

from __future__ import annotations

from group_lab.sim import facts
from group_lab.sim.checkers.checker import Checker, on
from group_lab.sim.checkers.failures import ANSWER_AGE_S
from group_lab.sim.history import History
from group_lab.sim.scene import Scene
from spark_groups.fence.entries import Entry, FenceKey
from spark_groups.types import OffsetRange, TopicIdPartition


class ExactlyOnce(Checker):
    """A table has each record between the offsets of its entry once, and no record twice.

    The entry covers what finished batches read. At the end it covers all from where the group began
    to the committed offset, without gaps that an operator accepted. A gap is refused only where
    records are gone, offsets were set, or a function swallowed an error. Rows of a log that was
    truncated are compared by offset alone, but those of a batch that was planned since. If a log
    ends below what the table has, but not below the committed offset, no member notices; nor does
    a later batch, if the refusal of the first one after a truncation was swallowed.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self.applies = scene.table is not None
        self._accepted: dict[TopicIdPartition, list[tuple[int, int]]] = {}
        """Gaps that an operator accepted, each with what the table has before it."""
        self._begun_at: dict[TopicIdPartition, int] = {}
        """Where the entries of partitions began, before a gap was accepted."""
        self._swallowed: dict[TopicIdPartition, list[tuple[int, int]]] = {}
        """Ranges of batches whose error was swallowed."""
        self._swallowed_since_cut: set[TopicIdPartition] = set()
        """Those of them whose logs were truncated before, without an operator's act since."""
        self._disturbed: set[TopicIdPartition] = set()
        """Partitions whose offsets were set from outside, or whose rows an operator deleted."""
        self._cut_at: dict[TopicIdPartition, float] = {}
        """When logs were last truncated below the committed offset."""
        self._unnoticed: set[TopicIdPartition] = set()
        """Partitions whose logs were truncated above it."""
        self._acted_at: dict[TopicIdPartition, float] = {}
        """When an operator last changed entries."""

    @on(facts.Stored)
    def _stored(self, fact: facts.Stored) -> None:
        for each in fact.changes:
            key = TopicIdPartition(each.key.topic_id, each.key.partition)
            self._begun_at.setdefault(key, each.entry.start_offset)
            self._check_rows(each.key, each.entry)

    @on(facts.Swallowed)
    def _swallow(self, fact: facts.Swallowed) -> None:
        for offset_range in fact.ranges:
            span = (offset_range.from_offset, offset_range.until_offset)
            if self._entry(offset_range.key) is None:
                # Nothing shows where the group began, once the run that noted it has ended.
                self._accepted.setdefault(offset_range.key, []).append(span)
            places = self._swallowed.setdefault(offset_range.key, [])
            places.append(span)
            if offset_range.key in self._cut_at:
                self._swallowed_since_cut.add(offset_range.key)

    @on(facts.OffsetReset, facts.OffsetDeleted, facts.SetBack)
    def _disturb(self, fact: facts.OffsetReset | facts.OffsetDeleted | facts.SetBack) -> None:
        if isinstance(fact, facts.SetBack):
            self._acted(fact.key)
        self._disturbed.add(fact.key)

    @on(facts.Cut)
    def _cut(self, fact: facts.Cut) -> None:
        self._swallowed_since_cut.discard(fact.key)
        committed = self.scene.coordination.committed(fact.key)
        if committed is not None and committed > fact.end_offset:
            self._cut_at[fact.key] = self.scene.now
        else:
            # A table may be ahead of the group, and no member notices what it never read.
            self._unnoticed.add(fact.key)

    @on(facts.GapAccepted)
    def _accept(self, fact: facts.GapAccepted) -> None:
        self._acted(fact.key)
        begun_at = self._begun_at[fact.key]
        self._accepted.setdefault(fact.key, []).append((begun_at, fact.until_offset))

    def _acted(self, key: TopicIdPartition) -> None:
        """Note that an operator has changed the entry of a partition."""
        self._acted_at[key] = self.scene.now
        self._swallowed_since_cut.discard(key)

    @on(facts.WriteRefused)
    def _refused(self, fact: facts.WriteRefused) -> None:
        keys = {TopicIdPartition(each.topic_id, each.partition) for each in fact.partitions}
        # A table that does not exist has no entry that an operator could set.
        keys = keys or {offset_range.key for offset_range in fact.batch.ranges}
        excused = [key for key in keys if self._may_be_refused(key)]
        if not excused or (fact.partitions and len(excused) < len(keys)):
            self.fail(f"{fact.incarnation} cannot write, but nothing is lost: {fact.reason}")

    def _may_be_refused(self, key: TopicIdPartition) -> bool:
        history = self.history
        is_lost = key in history.aged or key in history.cut or key not in self.scene.storage.logs
        return is_lost or key in self._disturbed or key in self._swallowed

    @on(facts.Wrote)
    def _wrote(self, fact: facts.Wrote) -> None:
        for each in filter(len, fact.kept):
            if self._acted_at.get(each.key, -1.0) >= fact.began_at:
                continue
            entry = self._entry(each.key)
            if entry is None or not (
                entry.start_offset <= each.from_offset and each.until_offset <= entry.next_offset
            ):
                self.fail(f"{fact.incarnation} has written {each}, but the table has {entry}")
            cut_at = self._cut_at.get(each.key)
            if cut_at is not None and fact.planned_at is not None:
                is_known = fact.planned_at > cut_at + ANSWER_AGE_S
                excused = self._disturbed | self._unnoticed | self._swallowed_since_cut
                if is_known and each.key not in excused:
                    self._check_truncated(each)

    def _check_truncated(self, each: OffsetRange) -> None:
        """Compare the rows of a range of a truncated log, which was planned since."""
        table = self.scene.table
        assert table is not None
        offsets = range(each.from_offset, each.until_offset)
        found = {offset: row for offset, row in table.rows.get(each.key, ()) if offset in offsets}
        expected = self.scene.storage.logs[each.key].rows(
            each.from_offset,
            each.until_offset,
            read_committed=bool(self.scene.swarm.read_committed),
        )
        if found != expected:
            self.fail(f"the table has other records of {each} than its log")

    @on(facts.Quiet)
    def _quiet(self, _fact: facts.Quiet) -> None:
        table = self.scene.table
        assert table is not None
        for of, covered in table.entries.items():
            self._check_rows(of, covered)
        for key, first in self.history.first.items():
            committed = self.scene.coordination.committed(key)
            if key not in self.scene.storage.logs or self._is_excused(key) or committed is None:
                continue
            reached, places = first, [*self._accepted.get(key, ())]
            entry = self._entry(key)
            if entry is not None:
                places.append((entry.start_offset, entry.next_offset))
            # Until a batch is refused, the table may lack the ranges that were swallowed last.
            last = entry.next_offset if entry else first
            places += [each for each in self._swallowed.get(key, ()) if each[1] > last]
            places.append((0, self.history.aged.get(key, 0)))
            for from_offset, until_offset in sorted(places):
                if from_offset <= reached:
                    reached = max(reached, until_offset)
            if reached < committed:
                self.fail(f"{key} is committed at {committed}, but the table has {entry}")

    def _entry(self, key: TopicIdPartition) -> Entry | None:
        assert self.scene.table is not None
        group_id = self.scene.coordination.group_id
        return self.scene.table.entries.get(FenceKey(group_id, key.topic_id, key.partition))

    def _is_excused(self, key: TopicIdPartition) -> bool:
        """Return whether a partition may lack records: its offsets were set, or its log was cut."""
        return key in self._disturbed or key in self.history.cut

    def _check_rows(self, of: FenceKey, entry: Entry) -> None:
        """Compare the rows of a partition with its log."""
        table, key = self.scene.table, TopicIdPartition(of.topic_id, of.partition)
        assert table is not None
        rows = table.rows.get(key, [])
        offsets, records = {row[0] for row in rows}, {row[1] for row in rows}
        if len(records) < len(rows) or len(offsets) < len(rows):
            self.fail(f"{key} has rows twice")
        if rows and max(offsets) >= entry.next_offset:
            self.fail(f"{key} has rows up to {max(offsets)}, but its entry is {entry}")
        log = self.scene.storage.logs.get(key)
        if log is None or key in self.history.cut:
            return
        found = {offset: record for offset, record in rows if offset >= entry.start_offset}
        expected = log.rows(
            entry.start_offset,
            entry.next_offset,
            read_committed=bool(self.scene.swarm.read_committed),
        )
        if found != expected:
            wrong = sorted(found.items() ^ expected.items())[0]
            self.fail(f"the rows of {key} differ from its log, first at {wrong[0]}: {entry}")
