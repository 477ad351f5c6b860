"""The cost of a deployment: delayed records, records read twice, partitions moved.

`Reading` and `Moves` count. They take events as arguments, so the same definitions hold for a
simulated run and a measured one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil, inf
from typing import Final, Generic, TypeVar

from group_lab.coordinator.metrics import Sensors
from group_lab.sim import facts
from group_lab.sim.coordination import STABLE_STATES
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import Swarm
from spark_groups.types import TopicIdPartition

SLACK_S: Final = 1.0
"""How much longer than usual a partition or a record may wait before it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of a run after its start-up; times in seconds.

    Args:
        counted_s: The time counted.
        pauses: How often a partition with records was in no batch for longer than usual.
        not_read_s: The sum of these pauses over all partitions.
        longest_not_read_s: The longest pause.
        records: Records written in the time counted; all of them were read.
        records_delayed: Records that waited longer than any record does without faults.
        delay_p50_s: Median time from the write of a record to the end of the batch that read it.
        delay_p99_s: The 99th percentile of these delays.
        delay_max_s: The longest delay.
        read_twice: Reads of a record by a further finished batch.
        partitions_moved: Moves of a partition from one application to another.
        moves_needed: Moves from an application that left, or to one that joined.
        moves_not_needed: Moves between two applications that stayed.
        unstable_s: The time in which the group was not stable.
        longest_unstable_s: The longest such period.
        batches: Finished batches.
        requests: Requests of the members to the coordinator.
    """

    counted_s: float = 0.0
    pauses: int = 0
    not_read_s: float = 0.0
    longest_not_read_s: float = 0.0
    records: int = 0
    records_delayed: int = 0
    delay_p50_s: float = 0.0
    delay_p99_s: float = 0.0
    delay_max_s: float = 0.0
    read_twice: int = 0
    partitions_moved: int = 0
    moves_needed: int = 0
    moves_not_needed: int = 0
    unstable_s: float = 0.0
    longest_unstable_s: float = 0.0
    batches: int = 0
    requests: int = 0


LONGEST: Final = ("longest_not_read_s", "delay_max_s", "longest_unstable_s")
"""Figures combined by their maximum; all others by their mean over the runs."""


def mean(all_figures: Sequence[Figures]) -> Figures:
    """Return the figures of several runs as one: means, and the maximum of the longest times."""
    values: dict[str, float] = {}
    for field_ in fields(Figures):
        found = [getattr(figures, field_.name) for figures in all_figures]
        average = sum(found) / len(found)
        is_count = isinstance(getattr(Figures(), field_.name), int)
        values[field_.name] = max(found) if field_.name in LONGEST else average
        if is_count:
            values[field_.name] = round(average)
    return Figures(**values)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Usual:
    """How long partitions and records wait without faults, in seconds.

    Args:
        pause_s: A partition, from one batch to the next.
        delay_s: A record written just after a batch was planned: until that batch ends or the
            trigger fires, the later of both, and until the next batch ends.
    """

    pause_s: float
    delay_s: float

    @classmethod
    def of(cls, batch_s: float, trigger_s: float) -> Usual:
        """Return the usual waits for a batch length and a trigger interval."""
        return cls(trigger_s + SLACK_S, max(batch_s, trigger_s) + batch_s + SLACK_S)


Partition = TypeVar("Partition", bound=Hashable)


class Reading(Generic[Partition]):
    """Counts pauses of partitions and delays of records.

    A partition is read while a batch with records of it runs, if that batch finishes. A pause lasts
    from the end of such a batch, or from the next record if that is later, to the start of the next
    such batch.
    """

    def __init__(self, begins_at: float, usual: Usual, ends_at: float = inf) -> None:
        self.pauses: dict[Partition, list[float]] = {}
        """The pauses of each partition; seconds."""
        self.delays: list[float] = []
        self.read_twice = 0
        self.batches = 0
        self._begins_at = begins_at
        self.ends_at = ends_at
        """Records written later are not counted."""
        self._usual = usual
        self._read_until: dict[Partition, float] = {}
        self._read: dict[Partition, set[int]] = {}

    def finished(
        self,
        began_at: float,
        ended_at: float,
        records: Mapping[Partition, Sequence[tuple[int, float]]],
    ) -> None:
        """Count a finished batch; batches must come in the order in which they end.

        Args:
            records: By partition the ids of the records read, each with the time of its write; in
                order.
        """
        self.batches += self._begins_at <= ended_at < self.ends_at
        for partition, found in records.items():
            if not found:
                continue
            self._pause(partition, max(self._read_until.get(partition, 0.0), found[0][1]), began_at)
            self._read_until[partition] = max(self._read_until.get(partition, 0.0), ended_at)
            known = self._read.setdefault(partition, set())
            for record, written_at in found:
                if not self._begins_at <= written_at < self.ends_at:
                    continue
                if record in known:
                    self.read_twice += 1
                else:
                    known.add(record)
                    self.delays.append(ended_at - written_at)

    def _pause(self, partition: Partition, from_s: float, until_s: float) -> None:
        lasted_s = min(until_s, self.ends_at) - max(from_s, self._begins_at)
        if lasted_s > self._usual.pause_s:
            self.pauses.setdefault(partition, []).append(lasted_s)

    def figures(self) -> dict[str, float]:
        """Return the counts by the names of `Figures`."""
        pauses = [each for found in self.pauses.values() for each in found]
        delays = sorted(self.delays)
        return {
            "pauses": len(pauses),
            "not_read_s": sum(pauses),
            "longest_not_read_s": max(pauses, default=0.0),
            "records": len(delays),
            "records_delayed": sum(each > self._usual.delay_s for each in delays),
            "delay_p50_s": quantile(delays, 0.5),
            "delay_p99_s": quantile(delays, 0.99),
            "delay_max_s": quantile(delays, 1.0),
            "read_twice": self.read_twice,
            "batches": self.batches,
        }


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return a quantile; 0 if there are no values.

    Args:
        ordered: Values in ascending order.
        part: Above 0, at most 1.
    """
    return ordered[ceil(part * len(ordered)) - 1] if ordered else 0.0


class Moves(Generic[Partition]):
    """Counts how often partitions move from one application to another.

    A restarted application is the same one, and a static member that is away is still in the
    group: a partition that waits for it did not move.
    """

    def __init__(self) -> None:
        self.needed = 0
        self.not_needed = 0
        self._owner: dict[Partition, str] = {}
        self._members: frozenset[str] = frozenset()
        self._joined: set[str] = set()
        """Applications that joined since the group was last stable."""
        self._left: set[str] = set()

    def seen(
        self, members: Iterable[str], owners: Mapping[Partition, str], *, is_stable: bool
    ) -> None:
        """Compare the group with its last state.

        Args:
            members: The applications that are members, also static ones that are away.
        """
        now = frozenset(members)
        self._joined |= now - self._members
        self._left |= self._members - now
        self._members = now
        for partition, owner in owners.items():
            before = self._owner.get(partition, owner)
            self._owner[partition] = owner
            if before != owner and (before in self._left or owner in self._joined):
                self.needed += 1
            elif before != owner:
                self.not_needed += 1
        if is_stable:
            self._joined.clear()
            self._left.clear()

    def forget(self) -> None:
        """Reset the counts."""
        self.needed = self.not_needed = 0

    def figures(self) -> dict[str, float]:
        """Return the counts by the names of `Figures`."""
        return {
            "partitions_moved": self.needed + self.not_needed,
            "moves_needed": self.needed,
            "moves_not_needed": self.not_needed,
        }


def application_of(member_id: str) -> str:
    """Return the application of a simulated member id, such as q1.2.1, k1.2-uuid or k1-uuid."""
    return member_id.replace("-", ".").partition(".")[0]


def usual_of(swarm: Swarm) -> Usual:
    """Return the usual waits of a run."""
    return Usual.of(swarm.batch_s, swarm.trigger_s)


class FigureCounter:
    """Counts the figures of a run from the end of its start-up."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._usual = usual_of(scene.swarm)
        self._reading: Reading[TopicIdPartition] = Reading(inf, self._usual)
        self._moves: Moves[TopicIdPartition] = Moves()
        self._began_at: float | None = None
        self._counted_s = 0.0
        self._is_over = False
        self._requests = 0
        self._batch_began_at: dict[str, float] = {}
        self._is_stable = True
        self._unstable_since: float | None = None
        self._unstable: list[float] = []
        self._metrics: Mapping[str, float] = {}

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.CountingBegins: self._begin,
            facts.CountingEnds: self._end,
            facts.GroupChanged: self._changed,
            facts.Sent: self._sent,
            facts.Read: self._batch_begins,
            facts.Finished: self._finished,
            facts.Consumed: self._consumed,
        }

    @property
    def figures(self) -> Figures:
        """The figures so far."""
        values: dict[str, float] = {
            **self._reading.figures(),
            **self._moves.figures(),
            "counted_s": self._counted_s,
            "unstable_s": sum(self._unstable),
            "longest_unstable_s": max(self._unstable, default=0.0),
            "requests": self._requests,
        }
        return Figures(**values)  # type: ignore[arg-type]

    @property
    def coordinator_metrics(self) -> Mapping[str, float]:
        """The coordinator's metrics over the time counted, by the names of its profile."""
        return self._metrics or self._scene.coordination.metrics()

    def _begin(self, _fact: facts.CountingBegins) -> None:
        self._began_at = self._scene.now
        self._scene.coordination.sensors = Sensors(self._scene.now, window_s=inf)
        self._reading = Reading(self._began_at, self._usual)
        self._moves.forget()
        self._unstable_since = None if self._is_stable else self._began_at

    def _end(self, _fact: facts.CountingEnds) -> None:
        assert self._began_at is not None
        self._counted_s = self._scene.now - self._began_at
        self._reading.ends_at = self._scene.now
        if self._unstable_since is not None:
            self._unstable.append(self._scene.now - self._unstable_since)
        self._metrics = self._scene.coordination.metrics()
        self._is_over = True

    def _changed(self, fact: facts.GroupChanged) -> None:
        if self._is_over:
            return
        now, group = self._scene.now, fact.group
        self._is_stable = (group.in_memory or group).state.value in STABLE_STATES
        if group.in_memory:
            owners = self._scene.coordination.assigned
            # A cooperative rebalance leaves partitions to the next generation.
            self._is_stable &= not owners or len(owners) == len(self._scene.storage.logs)
        else:
            owners = {
                key: member.member_id
                for member in group.members.values()
                for key in member.assigned
            }
        shown_id = self._scene.coordination.shown_id
        self._moves.seen(
            (application_of(shown_id(member)) for member in (group.in_memory or group).members),
            {key: application_of(shown_id(owner)) for key, owner in owners.items()},
            is_stable=self._is_stable,
        )
        if self._began_at is None:
            return
        if not self._is_stable and self._unstable_since is None:
            self._unstable_since = now
        elif self._is_stable and self._unstable_since is not None:
            self._unstable.append(now - self._unstable_since)
            self._unstable_since = None

    def _sent(self, fact: facts.Sent) -> None:
        is_counted = self._began_at is not None and not self._is_over
        self._requests += is_counted and fact.outgoing.channel.leads_to_coordinator

    def _batch_begins(self, fact: facts.Read) -> None:
        self._batch_began_at[fact.who] = self._scene.now

    def _finished(self, fact: facts.Finished) -> None:
        self._count(self._batch_began_at[fact.who], fact.records)

    def _consumed(self, fact: facts.Consumed) -> None:
        self._count(fact.began_at, fact.records)

    def _count(self, began_at: float, records: facts.Records) -> None:
        logs = self._scene.storage.logs
        found = {
            key: [(number, logs[key].written_at(number)) for number in numbers]
            for key, numbers in records.items()
            if key in logs
        }
        self._reading.finished(began_at, self._scene.now, found)
