"""A member whose assignment does not change never stops reading."""

from __future__ import annotations

from collections import Counter
from typing import Final

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.types import TopicIdPartition

SETTLED_S: Final = 8.0
"""How long a member may take at most until it reads what it was given."""
TRIGGERS_MAX: Final = 6
"""In how many batches in a row a partition with records may be left out: an end may be unknown."""


class KeepsReading(Checker):
    """While nothing goes wrong, the batches have all that the member has held for some time.

    What others do to the group, joining, leaving, growing topics, must not hold it up. Where a
    leader or the coordinator moves it is looked for first.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._since: dict[tuple[str, TopicIdPartition], float] = {}
        """Since when a member has been able to read a partition."""
        self._left_out: Counter[tuple[str, TopicIdPartition]] = Counter()
        self._read_at: dict[str, float] = {}
        """When a query planned rows last, or was first asked for a batch: while little is to be
        read it may wait."""
        self._jobs: set[str] = set()
        """Queries that read what is there and no further."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        if any(measure for name, measure in self.scene.swarm.faults.items() if name != "moves"):
            return {}
        return {
            facts.GroupChanged: self._changed,
            facts.Triggered: self._triggered,
            facts.Began: self._began,
            facts.Incident: self._disturbed,
        }

    def _began(self, fact: facts.Began) -> None:
        (self._jobs.add if fact.is_job else self._jobs.discard)(fact.who)

    def _may_wait(self, fact: facts.Triggered) -> bool:
        """Tell whether a query may leave out what is to be read: a job, or one with too little."""
        swarm, now = self.scene.swarm, self.scene.now
        if fact.plan is not None and fact.plan.ranges:
            self._read_at[fact.who] = now
        waited_s = now - self._read_at.setdefault(fact.who, now)
        is_short = bool(swarm.min_offsets) and waited_s <= swarm.max_delay_s
        return fact.who in self._jobs or is_short

    def _disturbed(self, fact: facts.Incident) -> None:
        if fact.what in {"elects", "move"}:
            self._since = dict.fromkeys(self._since, self.scene.now)

    def _changed(self, fact: facts.GroupChanged) -> None:
        self._since = {
            (member.member_id, key): self._since.get((member.member_id, key), self.scene.now)
            for member in fact.group.members.values()
            for key in member.assigned
        }

    def _triggered(self, fact: facts.Triggered) -> None:
        client, logs = fact.client, self.scene.storage.logs
        may_wait = self._may_wait(fact)
        planned = fact.plan.partitions() if fact.plan else frozenset()
        for key in client.assigned.partitions & logs.keys():
            owned, held = client.partitions.get(key), (client.member_id, key)
            is_stable = client.config.read_committed
            end = logs[key].stable_offset if is_stable else logs[key].end_offset
            has_all = may_wait or (owned is not None and owned.position >= end)
            has_time = self.scene.now - self._since.get(held, self.scene.now) > SETTLED_S
            if key in planned or has_all or not has_time:
                self._left_out[held] = 0
                continue
            self._left_out[held] += 1
            if self._left_out[held] >= TRIGGERS_MAX:
                since = self._since[held]
                self.fail(f"{fact.who} has had {key} since {since:.1f} and does not read it")
