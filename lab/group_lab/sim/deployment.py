"""Redeployments of applications: rolling, all at once, or autoscaling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from group_lab.sim import facts
from group_lab.sim.coordination import STABLE_STATES
from group_lab.sim.queries import LEAVE_S
from group_lab.sim.scene import Application, Listeners, Scene
from group_lab.sim.swarm import Deploy, Swarm

LOOK_S: Final = 0.1
"""How often a planned deployment looks at the group."""
PATIENCE_S: Final = 30.0
"""How much longer than the group's own timeouts a deployment waits before its next step."""

Act = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a planned deployment: the applications to stop, before it waits.

    Args:
        away_s: None stops them for good.
    """

    not_before: float
    queries: Sequence[Application]
    away_s: float | None


class Deployment:
    """Redeploys the applications of a run.

    In a drawn run the steps follow the clock. In a planned run they begin after the start-up, and
    each waits until the restarted applications read again and the group is stable.
    """

    def __init__(self, scene: Scene, queries: Sequence[Application]) -> None:
        self.is_over = not scene.swarm.planned
        """True after the last step and the end of the counted time."""
        self._scene = scene
        self._queries = queries
        self._unstable_at = 0.0
        """When the group was last seen unstable; seconds."""
        self._readers: set[str] = set()
        """Member ids that have finished a batch."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        if self.is_over:
            return {}
        return {facts.Finished: self._finished, facts.Consumed: self._consumed}

    def begin(self) -> None:
        """Schedule the deployment."""
        swarm = self._scene.swarm
        if swarm.planned:
            self._await(self._has_started, self._count, swarm.starts_s)
            return
        for when, step in steps_of(swarm, self._queries):
            self._scene.schedule.at(when, step)

    def _await(self, is_done: Callable[[], bool], then: Act, longest_s: float) -> None:
        """Act once a condition holds, or when the deadline passes.

        Args:
            longest_s: How long the condition may take, beside batches and the group's timeouts.
        """
        schedule, swarm = self._scene.schedule, self._scene.swarm
        batches_s = 4 * (swarm.batch_s + swarm.trigger_s)
        group_s = swarm.session_s + swarm.rebalance_s
        ends_at = schedule.now + longest_s + batches_s + group_s + PATIENCE_S

        def look() -> None:
            if is_done() or schedule.now >= ends_at:
                then()
            else:
                schedule.after(LOOK_S, look)

        schedule.after(0.0, look)

    def _is_stable(self) -> bool:
        return self._scene.coordination.state in STABLE_STATES

    def _has_started(self) -> bool:
        """Return whether all applications read and the group has been stable for two batches."""
        now, swarm = self._scene.now, self._scene.swarm
        if not self._is_stable() or not all(map(self._reads, self._queries)):
            self._unstable_at = now
        calm_s = 2 * (swarm.batch_s + swarm.trigger_s) + swarm.heartbeat_s
        return now >= swarm.starts_s and now - self._unstable_at >= calm_s

    def _finished(self, fact: facts.Finished) -> None:
        self._readers.add(fact.plan.member_id)

    def _consumed(self, fact: facts.Consumed) -> None:
        self._readers.add(fact.member_id)

    def _reads(self, query: Application) -> bool:
        """Return whether an application runs and has read, unless it has no partitions."""
        member = query.member
        if member is None or query.restless():
            return False
        return member.member_id in self._readers or not member.assigned

    def _count(self) -> None:
        scene = self._scene
        scene.publish(facts.CountingBegins())
        self._next(self._steps(), scene.now + scene.swarm.chaos_s)

    def _steps(self) -> Iterator[Step]:
        now, swarm, queries = self._scene.now, self._scene.swarm, self._queries
        match swarm.deploy:
            case Deploy.NONE:
                return
            case Deploy.ROLLING:
                for query in queries:
                    yield Step(now, [query], swarm.restart_s)
            case Deploy.ALL_AT_ONCE:
                yield Step(now, queries, swarm.restart_s)
            case Deploy.AUTOSCALE:
                part_s = swarm.chaos_s / 3
                yield Step(now, further(queries), part_s)
                yield Step(now + 2 * part_s, further(queries), None)

    def _next(self, steps: Iterator[Step], ends_at: float) -> None:
        """Schedule the next step, or after the last one the end of the counted time."""
        step = next(steps, None)
        if step is None:
            self._scene.schedule.at(ends_at, self._end)
        else:
            self._scene.schedule.at(step.not_before, lambda: self._take(step, steps, ends_at))

    def _take(self, step: Step, steps: Iterator[Step], ends_at: float) -> None:
        stopped = {query.name: query.current for query in step.queries}
        for query in step.queries:
            query.stop(None if step.away_s is None else step.away_s - LEAVE_S)

        def is_done() -> bool:
            for query in step.queries:
                is_new = query.current is None or query.current is not stopped[query.name]
                if not is_new or (query.is_wanted and not self._reads(query)):
                    return False
            return self._is_stable()

        self._await(is_done, lambda: self._next(steps, ends_at), step.away_s or LEAVE_S)

    def _end(self) -> None:
        self._scene.publish(facts.CountingEnds())
        self.is_over = True


def further(queries: Sequence[Application]) -> Sequence[Application]:
    """Return the applications that autoscaling adds: the second half."""
    return queries[(len(queries) + 1) // 2 :]


def steps_of(swarm: Swarm, queries: Sequence[Application]) -> Iterator[tuple[float, Act]]:
    """Yield the actions of a deployment by the clock, each with its instant."""
    begins_at = swarm.starts_s + (swarm.chaos_s - swarm.starts_s) / 4
    restart_s = swarm.restart_s - LEAVE_S
    match swarm.deploy:
        case Deploy.NONE:
            return
        case Deploy.ROLLING:
            for index, query in enumerate(queries):
                yield begins_at + index * swarm.deploy_every_s, partial(query.stop, restart_s)
        case Deploy.ALL_AT_ONCE:
            for query in queries:
                yield begins_at, partial(query.stop, restart_s)
        case Deploy.AUTOSCALE:
            # The second half leaves for a third of the time, returns, and leaves for good.
            part_s = (swarm.chaos_s - begins_at) / 3
            for index, query in enumerate(further(queries)):
                step_s = index * min(swarm.deploy_every_s, part_s / len(queries))
                yield begins_at + step_s, partial(query.stop, part_s)
                yield begins_at + 2 * part_s + step_s, partial(query.stop, None)
