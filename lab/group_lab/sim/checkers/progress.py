"""Queries make progress, and a finished run has settled."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Final

from group_lab.sim import facts
from group_lab.sim.checkers.checker import Checker, on
from group_lab.sim.history import History
from group_lab.sim.scene import Scene, restless
from group_lab.sim.storage import OLD_LEADER_ANSWERS_S
from spark_groups.group.batches.available_now_wait import USUAL_WAIT
from spark_groups.group.member.events import PartitionsAssigned
from spark_groups.types import TopicIdPartition

CLOCK_ERROR: Final = 0.05
"""How much faster the clock of a query may run, as a part."""


class GroupSettles(Checker):
    """When faults stop, everything is soon stable, owned, read and committed.

    Exceptions are effects of delayed commits that no member can detect, partitions that a plain
    consumer received in the answer to a delayed join, and `is_left_unassigned`.
    """

    @on(facts.Quiet)
    def _quiet(self, _fact: facts.Quiet) -> None:
        reasons = list(restless(self.scene, self._is_excused, self.is_left_unassigned))
        if reasons:
            self.fail("the group did not settle: " + "; ".join(reasons))

    def _is_excused(self, key: TopicIdPartition, committed_offset: int | None) -> bool:
        late, holder = self.scene.late, self.scene.coordination.holder(key)
        is_late = late.is_race(key, committed_offset) or late.is_given_unaware(holder, key)
        return is_late or self.is_left_unassigned(key)


SETTLED_S: Final = 8.0
"""Maximum time from assignment to first read."""
TRIGGERS_MAX: Final = 6
"""Maximum batches in a row without a partition that has records: its end may be unknown."""


class KeepsReading(Checker):
    """A member whose assignment does not change never stops reading.

    Without faults, batches contain every partition held for some time, while other members join or
    leave and topics grow. A move of a leader or of the coordinator restarts that time.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        faults = scene.swarm.faults.items()
        self.applies = not any(measure for name, measure in faults if name != "moves")
        self._since: dict[tuple[str, TopicIdPartition], float] = {}
        """When a member became able to read a partition."""
        self._left_out: Counter[tuple[str, TopicIdPartition]] = Counter()
        self._read_at: dict[str, float] = {}
        """When a query last planned rows, or was first triggered."""
        self._jobs: set[str] = set()
        """Queries under AvailableNow."""

    @on(facts.Began)
    def _began(self, fact: facts.Began) -> None:
        (self._jobs.add if fact.is_job else self._jobs.discard)(fact.who)

    def _may_wait(self, fact: facts.Triggered) -> bool:
        """Return whether a query may leave records unread: a job, or one with too few."""
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
        parts, logs = fact.client.parts, self.scene.storage.logs
        may_wait = self._may_wait(fact)
        planned = fact.plan.partitions() if fact.plan else frozenset()
        for key in parts.member.assigned.partitions & logs.keys():
            owned, held = parts.ledger.owned.get(key), (parts.member.member_id, key)
            is_stable = parts.config.read_committed
            end = logs[key].stable_offset if is_stable else logs[key].end_offset
            has_all = may_wait or (owned is not None and owned.position >= end)
            has_time = self.scene.now - self._since.get(held, self.scene.now) > SETTLED_S
            if key in planned or has_all or not has_time:
                self._left_out[held] = 0
                continue
            self._left_out[held] += 1
            if self._left_out[held] >= TRIGGERS_MAX:
                since = self._since[held]
                self.fail(f"{fact.who} has held {key} since {since:.1f} and does not read it")


class AvailableNowBounds(Checker):
    """An AvailableNow job reads a partition up to its end when first planned, and no further.

    A deposed leader may have reported the end a moment late. A job that waited too long for the
    partitions of other members ends without them.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self.applies = bool(scene.swarm.available_now)
        self._jobs: dict[str, float] = {}
        """When the current run of a job began."""
        self._cut_at: dict[TopicIdPartition, float] = {}
        self._bounds: dict[tuple[str, TopicIdPartition], int] = {}
        """The end of the log when a member first planned a partition."""

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
        for offset_range in fact.plan.ranges:
            # The job may read up to the end before the truncation.
            if offset_range.key not in logs or self._cut_at.get(offset_range.key, -inf) >= since:
                continue
            by = (fact.plan.member_id, offset_range.key)
            bound = self._bounds.setdefault(
                by, max(logs[offset_range.key].end_offset, offset_range.until_offset)
            )
            if offset_range.until_offset > bound:
                self.fail(
                    f"{fact.who} planned {offset_range}, but its log ended at {bound} when it began"
                )

    @on(facts.Drained)
    def _drained(self, fact: facts.Drained) -> None:
        if not fact.is_settled:
            waited_s = self.scene.now - fact.asked_at
            if waited_s < (1 - CLOCK_ERROR) * USUAL_WAIT.timeout_s:
                self.fail(f"{fact.who} waited {waited_s:.1f} s for its target assignment, and ends")
            return
        since = fact.began_at - OLD_LEADER_ANSWERS_S
        logs, parts = self.scene.storage.logs, fact.client.parts
        for key in parts.member.assigned.partitions & logs.keys():
            if key in self.history.cut:
                continue
            available = logs[key].available(since, read_committed=parts.config.read_committed)
            owned = parts.ledger.owned.get(key)
            if owned is None or owned.position < available:
                position = None if owned is None else owned.position
                self.fail(f"{fact.who} ends at {position} of {key}, available are {available}")


ROUNDING_S: Final = 0.01


class TriggerDelay(Checker):
    """Fewer records than `minOffsetsPerTrigger` are not read before `maxTriggerDelay`.

    Jobs and the first batch of a run do not wait. `KeepsReading` and `GroupSettles` check that a
    small backlog is read in the end.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._read_at: dict[str, float] = {}
        """When the current run of a query last planned rows."""
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
        planned = sum(len(offset_range) for offset_range in fact.plan.ranges)
        waited_s = now - self._read_at.get(fact.who, now - swarm.max_delay_s)
        self._read_at[fact.who] = now
        # maxOffsetsPerTrigger may admit fewer records than available.
        is_whole = not swarm.max_offsets
        least_s = swarm.max_delay_s * (1 - 2 * swarm.skew) - ROUNDING_S
        if is_whole and planned < swarm.min_offsets and waited_s < least_s:
            self.fail(f"{fact.who} planned {planned} records {waited_s:.1f} s after its last batch")
