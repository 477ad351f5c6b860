"""Where the tasks of a Kafka Streams application run, and where their state is restored first.

Tasks spread evenly over the members and move as little as possible. A task with state moves to
another instance only when that instance has nearly all of the state; until then it stays where it
has state, and the other one warms up. If no member has state, there is nothing to wait for.

Source: KIP-848, "Streams"; the configuration and its defaults are those of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final
from uuid import UUID

from group_lab.assignors.streams_metadata import TaskId

FURTHEST: Final = (True, inf)


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """The configuration of Kafka Streams that an assignment depends on.

    Args:
        acceptable_recovery_lag: `acceptable.recovery.lag`, in records: a member whose state lags no
            more than that has caught up.
        max_warmup_replicas: `max.warmup.replicas`, at one time in the whole group.
        num_standby_replicas: `num.standby.replicas`, of each task.
    """

    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 0

    def __post_init__(self) -> None:
        if (
            self.max_warmup_replicas < 1
            or min(self.acceptable_recovery_lag, self.num_standby_replicas) < 0
        ):
            raise ValueError(f"{self}: at least one warm-up replica, and nothing below 0")


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member in the input of a placement.

    Args:
        process_id: Its instance; the state of a task belongs to all members of an instance.
        active: Its active tasks, by its current target.
        lags: The lags that it reported last, in records.
        gave_up: Whether it reported a warm-up whose lag only grows.
    """

    process_id: UUID
    active: frozenset[TaskId] = frozenset()
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    gave_up: bool = False


@dataclass(slots=True)
class Tasks:
    """The tasks of a member."""

    active: set[TaskId] = field(default_factory=set)
    standby: set[TaskId] = field(default_factory=set)
    warmup: set[TaskId] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.active) + len(self.standby) + len(self.warmup)


def place(
    tasks: Collection[TaskId],
    stateful: frozenset[TaskId],
    members: Mapping[str, StreamsMember],
    config: StreamsConfig,
) -> dict[str, Tasks]:
    """Return the tasks of every member.

    Args:
        tasks: All tasks.
        stateful: Those with state.
        members: By member id, at least one.
    """
    return _Placement(tasks, stateful, members, config).placed()


class _Placement:
    """One computation."""

    def __init__(
        self,
        tasks: Collection[TaskId],
        stateful: frozenset[TaskId],
        members: Mapping[str, StreamsMember],
        config: StreamsConfig,
    ) -> None:
        self._tasks = sorted(tasks)
        self._stateful = stateful
        self._members = members
        self._config = config
        self._owners = {
            task: member_id for member_id, member in members.items() for task in member.active
        }
        self._lags: dict[tuple[UUID, TaskId], int] = {}
        """By instance: 0 where the task is active, otherwise the least lag reported."""
        for member in members.values():
            for task, lag in [*member.lags.items(), *((task, 0) for task in member.active)]:
                key = (member.process_id, task)
                self._lags[key] = min(lag, self._lags.get(key, lag))
        self._placed = {member_id: Tasks() for member_id in members}

    def placed(self) -> dict[str, Tasks]:
        wanted = self._balanced()
        waiting = []
        for task in self._tasks:
            caught_up = [member for member in self._members if self._has_caught_up(member, task)]
            place = wanted[task]
            if caught_up and place not in caught_up:
                waiting.append(task)
                place = self._owners.get(task) or min(caught_up, key=self._load)
            self._placed[place].active.add(task)
        # The warm-up that is nearest to its end comes first, so that it ends.
        waiting.sort(key=lambda task: (self._distance(wanted[task], task), task))
        for task in waiting[: self._config.max_warmup_replicas]:
            self._placed[wanted[task]].warmup.add(task)
        for task in self._tasks:
            if task in self._stateful:
                self._place_standbys(task)
        return self._placed

    def _balanced(self) -> dict[TaskId, str]:
        """Return the member that each task is to run on in the end.

        Members keep their tasks up to their quota. They give up those whose state is nearest to
        a member with room, so that a task that has begun to move continues to.
        """
        kept: dict[str, list[TaskId]] = {member_id: [] for member_id in self._members}
        for task in self._tasks:
            if task in self._owners:
                kept[self._owners[task]].append(task)
        by_load = sorted(kept, key=lambda each: (-len(kept[each]), each))
        quota, extras = divmod(len(self._tasks), len(by_load))
        rooms = {each: quota + (at < extras) for at, each in enumerate(by_load)}
        gaining = [each for each in by_load if len(kept[each]) < rooms[each]]

        def by_nearest(task: TaskId) -> tuple[tuple[bool, float], TaskId]:
            return min((self._distance(each, task) for each in gaining), default=FURTHEST), task

        wanted: dict[TaskId, str] = {}
        for member_id in by_load:
            given_up = max(0, len(kept[member_id]) - rooms[member_id])
            stay = sorted(kept[member_id], key=by_nearest)[given_up:]
            wanted |= dict.fromkeys(stay, member_id)
            rooms[member_id] -= len(stay)
        for task in sorted((each for each in self._tasks if each not in wanted), key=by_nearest):
            wanted[task] = min(
                (each for each in by_load if rooms[each]),
                key=lambda each: (self._distance(each, task), -rooms[each], each),
            )
            rooms[wanted[task]] -= 1
        return wanted

    def _distance(self, member_id: str, task: TaskId) -> tuple[bool, float]:
        """Return how far a member is from the state of a task; if it gave up, further than any."""
        if task not in self._stateful:
            return False, 0
        member = self._members[member_id]
        lag = self._lags.get((member.process_id, task), inf)
        gave_up = member.gave_up and task in member.lags
        return gave_up and lag > self._config.acceptable_recovery_lag, lag

    def _has_caught_up(self, member_id: str, task: TaskId) -> bool:
        _, lag = self._distance(member_id, task)
        return lag <= self._config.acceptable_recovery_lag

    def _load(self, member_id: str) -> tuple[int, str]:
        return len(self._placed[member_id]), member_id

    def _place_standbys(self, task: TaskId) -> None:
        """Keep copies of a task on instances that do not have it otherwise."""
        used = {
            self._members[each].process_id
            for each, tasks in self._placed.items()
            if task in tasks.active or task in tasks.warmup
        }
        for _ in range(self._config.num_standby_replicas):
            others = [
                member for member in self._members if self._members[member].process_id not in used
            ]
            if not others:
                return
            chosen = min(others, key=lambda each: (self._distance(each, task), self._load(each)))
            self._placed[chosen].standby.add(task)
            used.add(self._members[chosen].process_id)
