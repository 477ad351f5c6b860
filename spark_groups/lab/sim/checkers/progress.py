"""Queries go on, and a run that is over has settled."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Final

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker, on
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Scene, restless
from spark_groups.lab.sim.storage import OLD_LEADER_ANSWERS_S
from spark_groups.protocol.events import PartitionsAssigned
from spark_groups.types import TopicIdPartition


class ComesToRest(Checker):
    """When faults stop, the group becomes stable within a bounded time, and current is target.

    Everything is stable, read and committed when the run is over.

    What a late commit has left, and nobody could tell, may stay as it is; so may what a plain
    consumer was given by the answer to a late join.
    """

    @on(facts.Quiet)
    def _quiet(self, _fact: facts.Quiet) -> None:
        reasons = list(restless(self.scene, self._is_excused))
        if reasons:
            self.fail("never came to rest: " + "; ".join(reasons))

    def _is_excused(self, key: TopicIdPartition, committed_offset: int | None) -> bool:
        late, holder = self.scene.late, self.scene.coordination.holder(key)
        return late.is_race(key, committed_offset) or late.is_untold(holder, key)


SETTLED_S: Final = 8.0
"""How long a member may take at most until it reads what it was given."""
TRIGGERS_MAX: Final = 6
"""In how many batches in a row a partition with records may be left out: an end may be unknown."""


class KeepsReading(Checker):
    """A member whose assignment does not change never stops reading.

    While nothing goes wrong, the batches have all that the member has held for some time.

    What others do to the group, joining, leaving, growing topics, must not hold it up. Where a
    leader or the coordinator moves it is looked for first.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        faults = scene.swarm.faults.items()
        self.applies = not any(measure for name, measure in faults if name != "moves")
        self._since: dict[tuple[str, TopicIdPartition], float] = {}
        """Since when a member has been able to read a partition."""
        self._left_out: Counter[tuple[str, TopicIdPartition]] = Counter()
        self._read_at: dict[str, float] = {}
        """When a query planned rows last, or was first asked for a batch: while little is to be
        read it may wait."""
        self._jobs: set[str] = set()
        """Queries that read what is there and no further."""

    @on(facts.Began)
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

    @on(facts.Incident)
    def _disturbed(self, fact: facts.Incident) -> None:
        if fact.what in {"elects", "move"}:
            self._since = dict.fromkeys(self._since, self.scene.now)

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        self._since = {
            (member.member_id, key): self._since.get((member.member_id, key), self.scene.now)
            for member in fact.group.members.values()
            for key in member.assigned
        }

    @on(facts.Triggered)
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


class ReadsAvailable(Checker):
    """A job reads what is there at its first batch of a partition, ends, and reads no further.

    Follows queries under AvailableNow.

    A leader that was deposed may have answered where a log ended, a moment late. A job that had to
    wait too long for what others own ends without it.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self.applies = bool(scene.swarm.available_now)
        self._jobs: dict[str, float] = {}
        """When the run of a query that lives began, if it is a job."""
        self._cut_at: dict[TopicIdPartition, float] = {}
        self._bounds: dict[tuple[str, TopicIdPartition], int] = {}
        """Where a log ended when a member planned a partition for the first time."""

    @on(facts.Began)
    def _began(self, fact: facts.Began) -> None:
        self._jobs.pop(fact.who, None)
        if fact.is_job:
            self._jobs[fact.who] = self.scene.now

    @on(facts.Cut)
    def _cut(self, fact: facts.Cut) -> None:
        self._cut_at[fact.key] = self.scene.now

    @on(facts.Happened)
    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, PartitionsAssigned):
            for key in event.partitions:
                self._bounds.pop((event.member_id, key), None)

    @on(facts.Triggered)
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

    @on(facts.Drained)
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


ROUNDING_S: Final = 0.01


class TriggerDelay(Checker):
    """Fewer records than `minOffsetsPerTrigger` are not read before `maxTriggerDelay`.

    Looks at how long after its last batch with rows a query plans a small one.

    A job waits for nothing, nor does the first batch of a run. That a small backlog is read at
    last, `KeepsReading` and `ComesToRest` watch.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._read_at: dict[str, float] = {}
        """When the run of a query planned rows last."""
        self._jobs: set[str] = set()

    @on(facts.Began)
    def _began(self, fact: facts.Began) -> None:
        self._read_at.pop(fact.who, None)
        self._jobs.discard(fact.who)
        if fact.is_job:
            self._jobs.add(fact.who)

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        swarm, now = self.scene.swarm, self.scene.now
        if fact.plan is None or not fact.plan.ranges or fact.who in self._jobs:
            return
        planned = sum(len(each) for each in fact.plan.ranges)
        waited_s = now - self._read_at.get(fact.who, now - swarm.max_delay_s)
        self._read_at[fact.who] = now
        # A limit may take less than there is.
        is_whole = not swarm.max_offsets
        least_s = swarm.max_delay_s * (1 - 2 * swarm.skew) - ROUNDING_S
        if is_whole and planned < swarm.min_offsets and waited_s < least_s:
            self.fail(f"{fact.who} planned {planned} records {waited_s:.1f} s after its last batch")
