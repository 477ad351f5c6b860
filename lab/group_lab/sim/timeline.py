"""The owners of each partition over time, and the batches: the data of a run's page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from group_lab.sim import facts
from group_lab.sim.scene import Listeners, Scene
from spark_groups.group.member.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from spark_groups.group.member.messages import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from spark_groups.types import TopicIdPartition


@dataclass(frozen=True, slots=True)
class Span:
    """A period in which one member held a partition, at one epoch.

    Args:
        is_revoking: Whether the partition is pending revocation.
    """

    member_id: str
    member_epoch: int
    is_revoking: bool
    begins: float
    ends: float = 0.0

    @property
    def is_away(self) -> bool:
        """True while a static member is away and will return: the partition is not read."""
        return self.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """A batch and its duration.

    Args:
        ends: Seconds; None if it never finished.
    """

    who: str
    ranges: Mapping[TopicIdPartition, tuple[int, int]]
    begins: float
    ends: float | None = None


@dataclass(slots=True)
class Timeline:
    """The history of each partition in a run."""

    names: dict[TopicIdPartition, str] = field(default_factory=dict)
    spans: dict[TopicIdPartition, list[Span]] = field(default_factory=dict)
    batches: list[BatchSpan] = field(default_factory=list)
    incidents: list[tuple[float, str]] = field(default_factory=list)
    ends_at: float = 0.0


class TimelineRecorder:
    """Records a timeline during a run."""

    def __init__(self, scene: Scene) -> None:
        self.timeline = Timeline()
        self._scene = scene
        self._open: dict[TopicIdPartition, Span] = {}
        self._running: dict[str, BatchSpan] = {}
        self._classic: dict[TopicIdPartition, Span] = {}
        """What the members of a classic group own, in their own view."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.GroupChanged: self._changed,
            facts.Read: self._read,
            facts.Finished: self._finished,
            facts.Consumed: self._consumed,
            facts.ClassicHappened: self._classic_happened,
            facts.Incident: self._incident,
            facts.CountingBegins: lambda _: self._mark("counting begins"),
            facts.CountingEnds: lambda _: self._mark("counting ends"),
        }

    def finish(self) -> Timeline:
        """Return the timeline of a run that is over."""
        self._follow({})
        self.timeline.batches += self._running.values()
        self.timeline.batches.sort(key=lambda each: each.begins)
        self.timeline.ends_at = self._scene.now
        return self.timeline

    def _changed(self, fact: facts.GroupChanged) -> None:
        if fact.group.in_memory:
            known = fact.group.in_memory.members
            gone = [key for key, span in self._classic.items() if span.member_id not in known]
            for key in gone:
                del self._classic[key]
            self._follow(self._classic)
            return
        now: dict[TopicIdPartition, Span] = {}
        for member in fact.group.members.values():
            for held, is_revoking in ((member.assigned, False), (member.pending_revocation, True)):
                for key in held:
                    began_at = self._scene.now
                    now[key] = Span(member.member_id, member.member_epoch, is_revoking, began_at)
        self._follow(now)

    def _follow(self, now: Mapping[TopicIdPartition, Span]) -> None:
        for key in self._open.keys() | now.keys():
            before, after = self._open.get(key), now.get(key)
            if before and after and replace(after, begins=before.begins) == before:
                continue
            if before is not None:
                del self._open[key]
                shown_id = self._scene.coordination.shown_id(before.member_id)
                ended = replace(before, member_id=shown_id, ends=self._scene.now)
                self.timeline.spans.setdefault(key, []).append(ended)
            if after is not None:
                self._open[key] = after
                name = self._scene.storage.name_of(key.topic_id) or str(key.topic_id)
                self.timeline.names.setdefault(key, f"{name}-{key.partition}")

    def _classic_happened(self, fact: facts.ClassicHappened) -> None:
        now, event = self._scene.now, fact.event
        match event:
            case PartitionsAssigned(partitions=partitions):
                span = Span(event.member_id, event.member_epoch, is_revoking=False, begins=now)
                self._classic.update(dict.fromkeys(partitions, span))
            case PartitionsRevoked(partitions=partitions) | PartitionsLost(partitions=partitions):
                for key in partitions:
                    self._classic.pop(key, None)
        if self._scene.coordination.group.in_memory:
            self._follow(self._classic)

    def _consumed(self, fact: facts.Consumed) -> None:
        batch = BatchSpan(fact.who, fact.ranges, fact.began_at, self._scene.now)
        self.timeline.batches.append(batch)

    def _read(self, fact: facts.Read) -> None:
        unfinished = self._running.get(fact.who)
        if unfinished is not None:
            self.timeline.batches.append(unfinished)
        ranges = {
            offset_range.key: (offset_range.from_offset, offset_range.until_offset)
            for offset_range in fact.plan.ranges
        }
        self._running[fact.who] = BatchSpan(fact.who, ranges, self._scene.now)

    def _finished(self, fact: facts.Finished) -> None:
        batch = self._running.pop(fact.who, None)
        if batch is not None and batch.ranges:
            self.timeline.batches.append(replace(batch, ends=self._scene.now))

    def _incident(self, fact: facts.Incident) -> None:
        self._mark(f"{fact.what} {fact.text}".rstrip())

    def _mark(self, text: str) -> None:
        self.timeline.incidents.append((self._scene.now, text))
