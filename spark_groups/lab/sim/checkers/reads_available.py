"""A job reads what is there at its first batch of a partition, ends, and reads no further."""

from __future__ import annotations

from math import inf

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.lab.sim.storage import OLD_LEADER_ANSWERS_S
from spark_groups.protocol.events import PartitionsAssigned
from spark_groups.types import TopicIdPartition


class ReadsAvailable(Checker):
    """Follows queries under AvailableNow.

    A leader that was deposed may have answered where a log ended, a moment late. A job that had to
    wait too long for what others own ends without it.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._jobs: dict[str, float] = {}
        """When the run of a query that lives began, if it is a job."""
        self._cut_at: dict[TopicIdPartition, float] = {}
        self._bounds: dict[tuple[str, TopicIdPartition], int] = {}
        """Where a log ended when a member planned a partition for the first time."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        if not self.scene.swarm.available_now:
            return {}
        return {
            facts.Began: self._began,
            facts.Cut: self._cut,
            facts.Happened: self._happened,
            facts.Triggered: self._triggered,
            facts.Drained: self._drained,
        }

    def _began(self, fact: facts.Began) -> None:
        self._jobs.pop(fact.who, None)
        if fact.is_job:
            self._jobs[fact.who] = self.scene.now

    def _cut(self, fact: facts.Cut) -> None:
        self._cut_at[fact.key] = self.scene.now

    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, PartitionsAssigned):
            for key in event.partitions:
                self._bounds.pop((event.member_id, key), None)

    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is None or fact.who not in self._jobs:
            return
        since = self._jobs[fact.who] - OLD_LEADER_ANSWERS_S
        logs = self.scene.storage.logs
        for each in fact.plan.ranges:
            # The job may read up to where the log ended before it was cut.
            if each.key not in logs or self._cut_at.get(each.key, -inf) >= since:
                continue
            by = (fact.plan.member_id, each.key)
            bound = self._bounds.setdefault(by, max(logs[each.key].end_offset, each.until_offset))
            if each.until_offset > bound:
                self.fail(f"{fact.who} planned {each}, but its log ended at {bound} when it began")

    def _drained(self, fact: facts.Drained) -> None:
        if not fact.is_settled:
            return
        since = fact.began_at - OLD_LEADER_ANSWERS_S
        logs, client = self.scene.storage.logs, fact.client
        for key in client.assigned.partitions & logs.keys():
            if key in self.history.cut:
                continue
            available = logs[key].available(since, read_committed=client.config.read_committed)
            owned = client.partitions.get(key)
            if owned is None or owned.position < available:
                stands = "nowhere" if owned is None else f"at {owned.position}"
                self.fail(f"{fact.who} ends and stands {stands} of {key}, available {available}")
