"""An accepted commit implies that the partition was held since the plan, or was inherited."""

from __future__ import annotations

from collections import defaultdict

from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.coordination import AcceptedOffset
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.types import TopicIdPartition


class CommitOwnership(Checker):
    """Compares each accepted offset with who held the partition when it was planned.

    A batch is inherited where a client says so, and what was committed is where it, or a finished
    batch before it, began. Where a log was cut a member commits where, whatever it had planned.
    What comes late was planned in time, and is fenced by nothing but its epoch.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._holders: dict[TopicIdPartition, list[tuple[float, str | None]]] = {}
        """Since when each has held a partition, one after the other; None: nobody."""
        self._planned: dict[tuple[str, TopicIdPartition, int], float] = {}
        """When a member planned to read a partition up to an offset."""
        self._cuts: dict[TopicIdPartition, set[int]] = defaultdict(set)
        """Where a log was cut."""
        self._members: list[GroupMember] = []
        """Whose partitions are noted."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.GroupChanged: self._changed,
            facts.Triggered: self._triggered,
            facts.Consumed: self._consumed,
            facts.Committed: self._committed,
            facts.Cut: self._cut,
            facts.TakenBack: self._taken_back,
        }

    def _cut(self, fact: facts.Cut) -> None:
        self._cuts[fact.key].add(fact.end_offset)

    def _changed(self, fact: facts.GroupChanged) -> None:
        members = list(fact.group.members.values())
        if members == self._members:
            # Most changes are offsets.
            return
        self._members = members
        held: dict[TopicIdPartition, str | None] = dict.fromkeys(self._holders)
        for member in members:
            for key in (*member.assigned, *member.pending_revocation):
                held[key] = member.member_id
        for key, holder in held.items():
            holders = self._holders.setdefault(key, [])
            if not holders or holders[-1][1] != holder:
                holders.append((self.scene.now, holder))

    def _taken_back(self, fact: facts.TakenBack) -> None:
        self._members = []
        for holders in self._holders.values():
            while len(holders) > 1 and holders[-1][0] >= fact.since:
                holders.pop()

    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is not None:
            for each in fact.plan.ranges:
                by = (fact.plan.member_id, each.key, each.until_offset)
                self._planned[by] = self.scene.now

    def _consumed(self, fact: facts.Consumed) -> None:
        self._planned[fact.member_id, fact.key, fact.until_offset] = self.scene.now

    def _committed(self, fact: facts.Committed) -> None:
        each, late = fact.offset, self.scene.late
        if late.is_late(each) or late.undoes_late(each):
            return
        if each.holder != each.member_id:
            self.fail(f"{each.member_id} commits {each.key}, but {each.holder} has it")
        if each.before is None or each.committed_offset <= each.before:
            # A start, or nothing new; `CommittedNeverBack` looks at the rest.
            return
        if each.committed_offset in self._cuts[each.key]:
            return
        planned_at = self._planned.get((each.member_id, each.key, each.committed_offset))
        # It is told when it is replicated: by then somebody else may hold the partition.
        held_since = [since for since, _ in self._holders[each.key] if since <= each.at][-1]
        if planned_at is not None and planned_at >= held_since:
            return
        if not self._is_inherited(each):
            self.fail(
                f"{each.member_id} commits {each.key} at {each.committed_offset} over"
                f" {each.before}, planned at {planned_at}, held since {held_since}"
            )

    def _is_inherited(self, each: AcceptedOffset) -> bool:
        begins = {from_offset for from_offset, _ in self.history.finished.get(each.key, ())}
        taken = self.history.inherited.get(each.key, ())
        return each.before in begins and any(until == each.committed_offset for _, until in taken)
