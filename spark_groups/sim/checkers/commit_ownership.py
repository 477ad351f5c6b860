"""An accepted commit implies that the partition was held since the plan, or was inherited."""

from __future__ import annotations

from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.coordination import AcceptedOffset
from spark_groups.sim.history import History
from spark_groups.sim.scene import Listeners, Scene
from spark_groups.types import TopicIdPartition


class CommitOwnership(Checker):
    """Compares each accepted offset with who held the partition when it was planned.

    A batch is inherited where it is finished and what was committed is where it, or a finished
    batch before it, began.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._since: dict[TopicIdPartition, tuple[str, float]] = {}
        """Who holds a partition, and since when."""
        self._planned: dict[tuple[str, TopicIdPartition, int], float] = {}
        """When a member planned to read a partition up to an offset."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.GroupChanged: self._changed,
            facts.Triggered: self._triggered,
            facts.Consumed: self._consumed,
            facts.Committed: self._committed,
        }

    def _changed(self, fact: facts.GroupChanged) -> None:
        since = {}
        for member in fact.group.members.values():
            for key in (*member.assigned, *member.pending_revocation):
                known = self._since.get(key)
                is_same = known is not None and known[0] == member.member_id
                since[key] = known if known and is_same else (member.member_id, self.scene.now)
        self._since = since

    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is not None:
            for each in fact.plan.ranges:
                by = (fact.plan.member_id, each.key, each.until_offset)
                self._planned[by] = self.scene.now

    def _consumed(self, fact: facts.Consumed) -> None:
        self._planned[fact.member_id, fact.key, fact.until_offset] = self.scene.now

    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        if each.holder != each.member_id:
            self.fail(f"{each.member_id} commits {each.key}, but {each.holder} has it")
        if each.before is None or each.committed_offset <= each.before:
            # A start, or nothing new; `CommittedNeverBack` looks at the rest.
            return
        if each.key in self.history.cut:
            # Where a log was cut a member commits where it was cut, whatever it had planned.
            return
        planned_at = self._planned.get((each.member_id, each.key, each.committed_offset))
        held_since = self._since[each.key][1] if each.key in self._since else each.at
        if planned_at is not None and planned_at >= held_since:
            return
        if not self._is_inherited(each):
            self.fail(
                f"{each.member_id} commits {each.key} at {each.committed_offset} over"
                f" {each.before}, planned at {planned_at}, held since {held_since}"
            )

    def _is_inherited(self, each: AcceptedOffset) -> bool:
        finished = self.history.finished.get(each.key, ())
        begins = any(from_offset == each.before for from_offset, _ in finished)
        return begins and any(until == each.committed_offset for _, until in finished)
