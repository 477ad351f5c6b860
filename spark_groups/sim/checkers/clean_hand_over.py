"""A partition is given up when nothing reads it and all that was finished of it is committed."""

from __future__ import annotations

from spark_groups.protocol.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from spark_groups.protocol.membership import MemberState
from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.history import History
from spark_groups.sim.scene import Listeners, Scene
from spark_groups.types import BatchPlan, TopicIdPartition


class CleanHandOver(Checker):
    """Follows what each member has planned of a partition since it was assigned.

    A member may say that it gives partitions up uncommitted: then its time to revoke is over. Who
    leaves may have to leave something behind, too.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._running: dict[str, BatchPlan] = {}
        self._reached: dict[tuple[str, TopicIdPartition], int] = {}
        """Up to where a member has finished a partition since it was assigned."""
        self._committed: dict[TopicIdPartition, int] = {}

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.Triggered: self._triggered,
            facts.Finished: self._finished,
            facts.Committed: self._noted,
            facts.Happened: self._happened,
        }

    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is not None:
            self._running[fact.plan.member_id] = fact.plan

    def _finished(self, fact: facts.Finished) -> None:
        member_id = fact.plan.member_id
        if self._running.get(member_id) == fact.plan:
            del self._running[member_id]
            for each in fact.plan.ranges:
                self._reached[member_id, each.key] = each.until_offset

    def _noted(self, fact: facts.Committed) -> None:
        self._committed[fact.offset.key] = fact.offset.committed_offset

    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, PartitionsRevoked):
            for key in event.partitions.partitions - self.history.given_up:
                self._look(fact.who, event.member_id, key)
        if isinstance(event, PartitionsAssigned | PartitionsRevoked | PartitionsLost):
            for key in event.partitions:
                self._reached.pop((event.member_id, key), None)

    def _look(self, who: str, member_id: str, key: TopicIdPartition) -> None:
        members = [each.member for each in self.scene.participants if each.member]
        if not any(
            each.member_id == member_id and each.state is MemberState.ACKNOWLEDGING
            for each in members
        ):
            return
        plan = self._running.get(member_id)
        if plan is not None and key in plan.partitions():
            self.fail(f"{who} gave up {key} while a batch reads it")
        reached = self._reached.get((member_id, key), 0)
        if key in self.scene.storage.logs and self._committed.get(key, 0) < min(
            reached, self.history.floor(key, reached)
        ):
            self.fail(f"{who} gave up {key}, finished up to {reached}, which is not committed")
