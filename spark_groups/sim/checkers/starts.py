"""Where a partition starts is committed before it is read or given up."""

from __future__ import annotations

from spark_groups.protocol.events import PartitionsRevoked
from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.history import History
from spark_groups.sim.scene import Listeners, Scene
from spark_groups.types import TopicPartition


class Starts(Checker):
    """Else "latest" would skip what arrives meanwhile; what is added later is read whole.

    A broker does not say of a topic id whether it is gone or may not be seen: a member without the
    right to see a topic gives it up as one that is gone, and has no start to commit. An offset that
    `startingOffsets` names is obeyed also for a partition that is added later (decision 0004).
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._plain: set[str] = set()
        """Member ids of plain consumers: they begin by committing what they have read."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.Triggered: self._triggered,
            facts.Happened: self._happened,
            facts.Consumed: lambda fact: self._plain.add(fact.member_id),
            facts.Committed: self._committed,
        }

    def _triggered(self, fact: facts.Triggered) -> None:
        for each in fact.plan.ranges if fact.plan else ():
            is_there = each.key in self.scene.storage.logs
            if is_there and self.scene.coordination.committed(each.key) is None:
                self.fail(f"{fact.who} planned {each} before its start was committed")

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
                self.fail(f"{fact.who} gave up {key} before its start was committed")

    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        name = self.scene.storage.name_of(each.key.topic_id) or ""
        named = self.scene.starting.by_partition.get(TopicPartition(name, each.key.partition))
        # Where the log ends before it, the partition starts at that end.
        if named is not None and each.committed_offset <= named:
            return
        is_first = each.before is None and each.key in self.history.added
        begins_late = each.committed_offset > self.history.aged.get(each.key, 0)
        if is_first and begins_late and each.member_id not in self._plain:
            self.fail(f"{each.key} was added later, but begins at {each.committed_offset}")
