"""Lost data is told, and nobody goes on after it with `failOnDataLoss` true."""

from __future__ import annotations

from typing import Final

from spark_groups.offsets.events import DataLost
from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.history import History
from spark_groups.sim.scene import Listeners, Scene
from spark_groups.sim.storage import OLD_LEADER_ANSWERS_S
from spark_groups.types import TopicIdPartition

HEARD_S: Final = OLD_LEADER_ANSWERS_S + 0.1
"""How long after an election a plan may be made from what the leader before has answered."""


class LossIsTold(Checker):
    """Follows logs that were cut below what is committed of them.

    No query reads on from the old position before it was told: other records stand there now. It is
    over when a query that was told commits, or anybody commits below the cut. An offset that an
    operator sets has no leader epoch: until a query has committed again nobody can tell that the
    log was cut below it.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._untold: dict[TopicIdPartition, tuple[int, float]] = {}
        """Where a log was cut below what is committed, and when."""
        self._told: set[tuple[str, TopicIdPartition]] = set()
        """Which incarnations were told of it: a commit of one may be accepted after its end."""
        self._set_by_operator: set[TopicIdPartition] = set()
        """Partitions whose committed offset was set by an operator."""
        self._strict: set[str] = set()
        """Incarnations with `failOnDataLoss`."""
        self._stopped: dict[str, str] = {}
        """What an incarnation that has to end says is lost, by query."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.Began: self._began,
            facts.Cut: self._cut,
            facts.Happened: self._happened,
            facts.OffsetReset: self._reset,
            facts.Committed: self._committed,
            facts.Triggered: self._triggered,
        }

    def _began(self, fact: facts.Began) -> None:
        self._stopped.pop(fact.who, None)
        if fact.client.config.fail_on_data_loss:
            self._strict.add(fact.incarnation)

    def _reset(self, fact: facts.OffsetReset) -> None:
        self._set_by_operator.add(fact.key)
        self._forget(fact.key)

    def _forget(self, key: TopicIdPartition) -> None:
        self._untold.pop(key, None)
        self._told = {each for each in self._told if each[1] != key}

    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        self._set_by_operator.discard(each.key)
        if each.key in self._untold:
            is_told = (_incarnation(each.member_id), each.key) in self._told
            if is_told or each.committed_offset <= self._untold[each.key][0]:
                self._forget(each.key)

    def _cut(self, fact: facts.Cut) -> None:
        if fact.key in self._set_by_operator:
            return
        committed = self.scene.coordination.committed(fact.key)
        end, _ = self._untold.get(fact.key, (fact.end_offset, 0.0))
        if committed is not None and committed > fact.end_offset:
            self._forget(fact.key)
            self._untold[fact.key] = (min(end, fact.end_offset), self.scene.now)

    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if not isinstance(event, DataLost):
            return
        query = fact.who.rpartition(".")[0]
        for key in self._untold:
            name = f"{self.scene.storage.name_of(key.topic_id)}-{key.partition}"
            if f" {name} " in f" {event.message}":
                self._told.add((fact.who, key))
        if fact.who in self._strict:
            self._stopped[query] = event.message

    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is None or not fact.plan.ranges:
            return
        if fact.who in self._stopped:
            self.fail(f"{fact.who} goes on, although {self._stopped[fact.who]}")
        for each in fact.plan.ranges:
            if (_incarnation(fact.plan.member_id), each.key) in self._told:
                continue
            end, cut_at = self._untold.get(each.key, (each.from_offset, 0.0))
            if each.from_offset > end and self.scene.now - cut_at > HEARD_S:
                self.fail(f"{fact.who} planned {each}, but its log was cut at {end}, untold")


def _incarnation(member_id: str) -> str:
    """Return the incarnation of a query that a member id belongs to."""
    return member_id.rpartition(".")[0]
