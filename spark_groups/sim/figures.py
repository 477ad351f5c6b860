"""What a run costs: how long the group moves, who waits meanwhile, what is read twice."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from spark_groups.coordinator.group import GroupState
from spark_groups.sim import facts
from spark_groups.sim.scene import Listeners, Scene
from spark_groups.types import TopicIdPartition

PAUSE_S: Final = 1.0
"""For how long nobody owns a partition before that is called a pause, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was counted in a run; times in seconds.

    Args:
        unstable_s: How long the group was not stable, all in all.
        longest_unstable_s: The longest time at a stretch.
        partitions_moved: How often a partition went from one member to another.
        pauses: How often nobody owned a partition for more than a second.
        longest_pause_s: The longest of these times.
        records: Records that were read by finished batches.
        records_delayed: Those that had been waiting longer than ten seconds when they were.
        duplicates: Those that another finished batch had read before.
        batches: Finished batches.
    """

    unstable_s: float = 0.0
    longest_unstable_s: float = 0.0
    partitions_moved: int = 0
    pauses: int = 0
    longest_pause_s: float = 0.0
    records: int = 0
    records_delayed: int = 0
    duplicates: int = 0
    batches: int = 0


DELAYED_S: Final = 10.0
LONGEST: Final = ("longest_unstable_s", "longest_pause_s")
"""Figures of which the greatest counts; all others are means over the runs."""


def mean(all_figures: list[Figures]) -> Figures:
    """Return the figures of several runs as one: means, and the greatest of what is longest."""
    values: dict[str, float] = {}
    for each in fields(Figures):
        found = [getattr(figures, each.name) for figures in all_figures]
        average = sum(found) / len(found)
        is_count = isinstance(getattr(Figures(), each.name), int)
        values[each.name] = max(found) if each.name in LONGEST else average
        if is_count:
            values[each.name] = round(average)
    return replace(Figures(), **values)  # type: ignore[arg-type]


class FigureCounter:
    """Counts while a run goes on.

    Args:
        scene: The run.
    """

    def __init__(self, scene: Scene) -> None:
        self.figures = Figures()
        self._scene = scene
        self._unstable_since: float | None = None
        self._owner: dict[TopicIdPartition, str] = {}
        self._unowned_since: dict[TopicIdPartition, float] = {}
        self._read: dict[TopicIdPartition, set[int]] = {}

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.GroupChanged: self._changed,
            facts.Finished: self._finished,
            facts.Consumed: self._consumed,
        }

    def _add(self, **more: float) -> None:
        values = {name: getattr(self.figures, name) + value for name, value in more.items()}
        self.figures = replace(self.figures, **values)

    def _longest(self, name: str, value: float) -> None:
        if value > getattr(self.figures, name):
            self.figures = replace(self.figures, **{name: value})  # type: ignore[arg-type]

    def _changed(self, fact: facts.GroupChanged) -> None:
        now, group = self._scene.now, fact.group
        is_stable = group.state in (GroupState.STABLE, GroupState.EMPTY)
        if not is_stable and self._unstable_since is None:
            self._unstable_since = now
        elif is_stable and self._unstable_since is not None:
            took_s = now - self._unstable_since
            self._unstable_since = None
            self._add(unstable_s=took_s)
            self._longest("longest_unstable_s", took_s)
        assigned = {
            key: member.member_id for member in group.members.values() for key in member.assigned
        }
        for key in self._scene.storage.logs:
            self._follow(key, assigned.get(key), now)

    def _follow(self, key: TopicIdPartition, owner: str | None, now: float) -> None:
        if owner is None:
            if key in self._owner:
                self._unowned_since.setdefault(key, now)
            return
        before = self._owner.get(key)
        self._owner[key] = owner
        paused_s = now - self._unowned_since.pop(key, now)
        if before is not None and before != owner:
            self._add(partitions_moved=1)
        if paused_s > PAUSE_S:
            self._add(pauses=1)
            self._longest("longest_pause_s", paused_s)

    def _finished(self, fact: facts.Finished) -> None:
        self._add(batches=1)
        for key, records in fact.records.items():
            self._count(key, set(records))

    def _consumed(self, fact: facts.Consumed) -> None:
        self._count(fact.key, set(fact.records))

    def _count(self, key: TopicIdPartition, records: set[int]) -> None:
        known = self._read.setdefault(key, set())
        log = self._scene.storage.logs.get(key)
        oldest = self._scene.now - DELAYED_S
        late = sum(log.written_at(each) < oldest for each in records) if log else 0
        self._add(records=len(records), records_delayed=late, duplicates=len(records & known))
        known |= records
