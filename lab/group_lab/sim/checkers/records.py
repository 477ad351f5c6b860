"""Every record is read, and only as often as necessary."""

from __future__ import annotations

from group_lab.sim import facts
from group_lab.sim.checkers.checker import Checker, on
from group_lab.sim.history import History
from group_lab.sim.scene import Scene
from spark_groups.group.member.events import PartitionsRevoked
from spark_groups.types import BatchPlan, TopicIdPartition, TopicPartition


class NoGap(Checker):
    """Every record between a partition's start and its committed offset was in a finished batch.

    After a reset, the batch must have finished since: its records are wanted again.

    Checked at each commit, and for all records at the end. Exceptions: records removed by retention
    or with their topic; plans in a checkpoint, which have no leader epochs, so that a truncation
    inside one is not detected; and offsets set by an operator above a truncation, which skip the
    records in between, or below which a truncation is not detected until a query commits again.
    After a deletion of its committed offset a partition may start anywhere.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._skipped: dict[TopicIdPartition, list[tuple[int, int]]] = {}
        """Ranges that an operator skipped, by partition."""
        self._unnoticed: dict[TopicIdPartition, int] = {}
        """Where a log was truncated, until that or less is committed."""
        self._set_by_operator: dict[TopicIdPartition, int] = {}
        """Committed offsets set by an operator."""

    @on(facts.OffsetReset)
    def _reset(self, fact: facts.OffsetReset) -> None:
        cut_at = self._unnoticed.get(fact.key)
        if cut_at is not None and cut_at < fact.new_offset:
            self._skipped.setdefault(fact.key, []).append((cut_at, fact.new_offset))
        self._set_by_operator[fact.key] = fact.new_offset

    @on(facts.OffsetDeleted)
    def _deleted(self, fact: facts.OffsetDeleted) -> None:
        cut_at = self._unnoticed.pop(fact.key, None)
        if cut_at is not None:
            reached = max(cut_at, self.history.reached(fact.key))
            self._skipped.setdefault(fact.key, []).append((cut_at, reached))

    @on(facts.Cut)
    def _cut(self, fact: facts.Cut) -> None:
        self._unnoticed[fact.key] = min(
            fact.end_offset, self._unnoticed.get(fact.key, fact.end_offset)
        )
        set_to = self._set_by_operator.get(fact.key)
        if set_to is not None and fact.end_offset < set_to:
            self._skipped.setdefault(fact.key, []).append((fact.end_offset, set_to))

    @on(facts.Committed)
    def _committed(self, fact: facts.Committed) -> None:
        self._set_by_operator.pop(fact.offset.key, None)
        each, reached = fact.offset, self.history.reached(fact.offset.key)
        if each.committed_offset <= self._unnoticed.get(each.key, -1):
            del self._unnoticed[each.key]
        if each.committed_offset > reached:
            self.fail(
                f"{each.member_id} commits {each.key} at {each.committed_offset}, but only"
                f" {reached} is finished: rows skipped"
            )

    @on(facts.Quiet)
    def _quiet(self, _fact: facts.Quiet) -> None:
        history = self.history
        for key, log in self.scene.storage.logs.items():
            if self.scene.late.is_given_unaware(self.scene.coordination.holder(key), key):
                continue
            if self.is_left_unassigned(key):
                continue
            lowest = max(history.lowest.get(key, log.end_offset), log.start_offset)
            was_read = history.read.get(key, set())
            unread = [
                lowest + index
                for index, record in enumerate(log.read(lowest, log.end_offset))
                if record not in was_read
                and not log.hides(record, read_committed=bool(self.scene.swarm.read_committed))
                and not self._is_excused(key, lowest + index)
            ]
            if unread:
                self.fail(
                    f"{len(unread)} records of {key} were never read, the first at {unread[0]}"
                )

    def _is_excused(self, key: TopicIdPartition, offset: int) -> bool:
        history = self.history
        ranges = [*history.inherited.get(key, ()), *history.skipped.get(key, ())]
        ranges += self._skipped.get(key, ())
        return any(from_offset <= offset < until_offset for from_offset, until_offset in ranges)


class ReadOnce(Checker):
    """No plan contains committed records, and without faults no record is read twice.

    A warm-up plan replaces the last plan in the checkpoint, so the offsets of that batch must be
    committed: the next run could not continue after it.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._last: dict[str, BatchPlan] = {}
        """The last finished batch in the checkpoint of each query."""

    @on(facts.Finished)
    def _finished(self, fact: facts.Finished) -> None:
        self._last[fact.who] = fact.plan

    @on(facts.Forgotten, facts.NotReplayed)
    def _forgotten(self, fact: facts.Forgotten | facts.NotReplayed) -> None:
        self._last.pop(fact.who, None)

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is None or self.is_unaware(fact.plan.member_id):
            return
        if fact.plan.warm_up_tasks:
            self._check_last_batch(fact.who)
        for offset_range in fact.plan.ranges:
            committed = self.scene.coordination.committed(offset_range.key)
            if self.scene.late.overtook(offset_range.key, committed):
                continue
            floor = 0 if committed is None else self.history.floor(offset_range.key, committed)
            if offset_range.from_offset < floor:
                self.fail(f"{fact.who} planned {offset_range} again: {committed} is committed")

    def _check_last_batch(self, who: str) -> None:
        last = self._last.get(who)
        for each in last.ranges if last and not self.scene.swarm.resets else ():
            committed = self.scene.coordination.committed(each.key)
            if committed == each.from_offset and each.key not in self.history.cut:
                self.fail(f"{who} warms up, but only {committed} of {each} is committed")

    @on(facts.Quiet)
    def _quiet(self, _fact: facts.Quiet) -> None:
        history = self.history
        if self.scene.swarm.is_calm and not history.gave_up and history.read_again:
            self.fail(f"{history.read_again} ranges were read twice without a fault")


class SameRows(Checker):
    """A replayed plan has the same rows until it is finished, except for retention.

    Asynchronous progress tracking may lose the plan in a crash: then another one is made.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._unfinished: dict[str, facts.Read] = {}

    @on(facts.Read)
    def _read(self, fact: facts.Read) -> None:
        before = self._unfinished.setdefault(fact.who, fact)
        if before.plan != fact.plan:
            self.fail(f"{fact.who} replays {fact.plan.ranges} for {before.plan.ranges}")
        logs = self.scene.storage.logs
        for key in logs.keys() & before.records.keys():
            is_whole = key not in self.history.cut and key not in self.history.aged
            if is_whole and fact.records.get(key) != before.records[key]:
                self.fail(f"{fact.who} replays a plan with other rows of {key}")

    @on(facts.Finished, facts.Forgotten, facts.NotReplayed)
    def _over(self, fact: facts.Finished | facts.Forgotten | facts.NotReplayed) -> None:
        self._unfinished.pop(fact.who, None)


class StartsCommitted(Checker):
    """Starts are committed before the first read or a revocation; added partitions are read whole.

    Otherwise "latest" would skip records that arrive meanwhile. A broker does not distinguish a
    deleted topic from a topic that the member may not see, so a member without permission releases
    the topic without committing a start. `startingOffsets` also applies to partitions added later
    (decision 0004).
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._plain: set[str] = set()
        """Member ids of plain consumers: their first commit is of records they have read."""

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        for each in fact.plan.ranges if fact.plan else ():
            is_there = each.key in self.scene.storage.logs
            if is_there and self.scene.coordination.committed(each.key) is None:
                self.fail(f"{fact.who} planned {each} before its start was committed")

    @on(facts.Happened)
    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if not isinstance(event, PartitionsRevoked) or not self.scene.swarm.from_latest:
            return
        rights, storage = self.scene.rights, self.scene.storage
        since = self.scene.now - self.scene.swarm.rebalance_s
        for key in event.partitions.partitions & storage.logs.keys():
            if rights.topic_missed_since(storage.name_of(key.topic_id), since):
                continue
            is_committed = self.scene.coordination.committed(key) is not None
            if not is_committed and key not in self.history.given_up:
                self.fail(f"{fact.who} released {key} before its start was committed")

    @on(facts.Consumed)
    def _consumed(self, fact: facts.Consumed) -> None:
        self._plain.add(fact.member_id)

    @on(facts.Committed)
    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        name = self.scene.storage.name_of(each.key.topic_id) or ""
        named = self.scene.starting.by_partition.get(TopicPartition(name, each.key.partition))
        # If the log ends before that offset, the partition starts at its end.
        if named is not None and each.committed_offset <= named:
            return
        # The offsets of the other partitions show how many the topic had when the group began.
        is_known = each.key.topic_id not in {key.topic_id for key in self.history.deleted}
        is_first = each.before is None and each.key in self.history.added and is_known
        begins_late = each.committed_offset > self.history.aged.get(each.key, 0)
        if is_first and begins_late and each.member_id not in self._plain:
            self.fail(f"{each.key} was added later, but begins at {each.committed_offset}")


class StartingOffsetsUsed(Checker):
    """A partition with an offset in `startingOffsets` starts there.

    Checked at the first commit of each partition that existed at the beginning. Partitions created
    later are others, even under the same name. A truncated log may end before that offset; a plain
    consumer does not know it.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        by_partition = scene.starting.by_partition
        self._wanted: dict[TopicIdPartition, int] = {}
        for key in scene.storage.logs:
            name = scene.storage.name_of(key.topic_id) or ""
            wanted = by_partition.get(TopicPartition(name, key.partition), -1)
            if wanted >= 0:
                self._wanted[key] = wanted

    @on(facts.Committed)
    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        swarm = self.scene.swarm
        if swarm.consumers or swarm.classic:
            return
        if each.before is not None or each.key in self.history.deleted:
            return
        if each.key in self.history.cut:
            return
        wanted = self._wanted.get(each.key)
        if wanted is not None and each.committed_offset != wanted:
            self.fail(f"{each.key} begins at {each.committed_offset}, not at {wanted}")
