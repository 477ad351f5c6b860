"""Streaming queries as Spark runs them: trigger, batch, commit log; killed, stopped, restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_groups.client import ClientConfig, GroupClient
from spark_groups.offsets.planning import PlanLimit
from spark_groups.offsets.starting import StartingOffsets
from spark_groups.protocol.config import MemberConfig
from spark_groups.protocol.subscription import Subscription
from spark_groups.types import BatchPlan

if TYPE_CHECKING:
    from tests.client.world import World

SESSION_S = 12.0


class Query:
    """A streaming query: its checkpoint outlives its incarnations.

    Args:
        world: Where it runs.
        name: For the trace.
    """

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.client: GroupClient | None = None
        self.incarnation = 0
        self.paused_until = 0.0
        self._world = world
        self._offsets_log: BatchPlan | None = None
        """The last plan that Spark wrote; it does so before the batch runs."""
        self._finished = True
        """Whether that batch is in Spark's commit log."""
        self._stop_for_s: float | None = None
        self._wake_at: float | None = None

    def start(self) -> None:
        """Start from the checkpoint: a batch that was planned and not finished runs again."""
        if self.client is not None:
            return
        world = self._world
        self.incarnation += 1
        self._wake_at = self._stop_for_s = None
        serial = iter(range(1, 1_000))
        config = ClientConfig(
            member=MemberConfig(
                group_id="g",
                subscription=Subscription.of_names("orders"),
                rebalance_timeout_ms=int(world.swarm.rebalance_timeout_s * 1000),
                session_timeout_ms=int(SESSION_S * 1000),
            ),
            starting_offsets=StartingOffsets(world.swarm.starting),
            fail_on_data_loss=not world.swarm.truncations,
        )
        self.client = client = GroupClient(
            config,
            new_member_id=lambda: f"{self.name}.{self.incarnation}.{next(serial)}",
            checkpointed=self._offsets_log,
        )
        world.say(f"{self.name} starts its incarnation {self.incarnation}")
        client.start(world.now)
        if self._offsets_log is not None and not self._finished:
            client.replay(self._offsets_log, world.now)
            self._run_batch(client, self._offsets_log)
        else:
            self._later(client, 0.0, self._trigger)
        self.pump()

    def kill(self, for_s: float) -> None:
        """End without a word; start again after some seconds."""
        self._world.say(f"{self.name} is killed")
        self.client, self.paused_until = None, 0.0
        self._world.at(self._world.now + for_s, self.start)

    def stop(self, for_s: float) -> None:
        """Let the running batch end, leave the group, start again after some seconds."""
        if self.client is not None and self._stop_for_s is None:
            self._stop_for_s = for_s
            if self._finished:
                self._leave(self.client, for_s)

    def _leave(self, client: GroupClient, for_s: float) -> None:
        world = self._world
        world.say(f"{self.name} leaves")
        if self._offsets_log is not None:
            client.finish(self._offsets_log, world.now)
        client.leave(world.now, leave_by=world.now + 5.0)
        self.pump()

        def gone() -> None:
            if self.client is client:
                self.client = None
                self.start()

        world.at(world.now + 5.0 + for_s, gone)

    def stand_still(self, for_s: float) -> None:
        """Do nothing, notice nothing, for some seconds."""
        world = self._world
        self.paused_until = world.now + for_s
        world.say(f"{self.name} stands still until {self.paused_until:.3f}")
        world.at(self.paused_until, self.pump)

    def deliver(self, client: GroupClient | None, take: object) -> None:
        """Hand something that came in to the incarnation it is for, once it is awake."""
        if client is None or self.client is not client:
            return
        if self._world.now < self.paused_until:
            self._world.at(self.paused_until, lambda: self.deliver(client, take))
            return
        take(client)  # type: ignore[operator]
        self.pump()

    def pump(self) -> None:
        """Send what is to be sent and ask to be woken."""
        client, world = self.client, self._world
        if client is None or world.now < self.paused_until:
            return
        for outgoing in client.poll_requests(world.now):
            world.send(self, outgoing)
        for event in client.poll_events():
            world.happened(self, event)
        wake_at = client.next_wakeup(world.now)
        if wake_at is not None and wake_at != self._wake_at:
            self._wake_at = wake_at
            world.at(wake_at, lambda: self._wake(client, wake_at))

    def _wake(self, client: GroupClient, wake_at: float) -> None:
        if self.client is client and self._wake_at == wake_at:
            self._wake_at = None
            self.pump()

    def _later(self, client: GroupClient, delay_s: float, act: object) -> None:
        """Act as the same incarnation, once it is awake."""

        def due() -> None:
            if self.client is not client:
                return
            if self._world.now < self.paused_until:
                self._world.at(self.paused_until, due)
                return
            act(client)  # type: ignore[operator]

        self._world.at(self._world.now + delay_s, due)

    def _trigger(self, client: GroupClient) -> None:
        """What Spark does between batches: latestOffset proves the last batch and plans."""
        world = self._world
        if self._stop_for_s is not None:
            return
        client.called(world.now)
        if self._offsets_log is not None and self._finished:
            client.finish(self._offsets_log, world.now)
        client.check()
        readable = sorted(client.readable(world.now))
        ends = {key: world.list_end(key) for key in readable if world.random.random() > 0.02}
        self._later(
            client,
            world.random.uniform(0.001, 0.05),
            lambda same: self._plan(same, ends),
        )
        self.pump()

    def _plan(self, client: GroupClient, ends: dict) -> None:  # type: ignore[type-arg]
        world = self._world
        few = world.random.choice((None, None, 10, 60))
        limit = PlanLimit(max_offsets=few if world.faults_on else None)
        plan = client.plan(
            limit,
            {key: end for key, (end, _) in ends.items()},
            world.now,
            {key: leader_epoch for key, (_, leader_epoch) in ends.items()},
        )
        self.pump()
        if self._stop_for_s is not None:
            return
        if plan is None:
            self._later(client, world.random.choice((0.05, 0.3, 1.0)), self._trigger)
            return
        world.check.planned(self.name, plan)
        self._offsets_log, self._finished = plan, False
        self._run_batch(client, plan)

    def _run_batch(self, client: GroupClient, plan: BatchPlan) -> None:
        world = self._world
        world.say(f"{self.name} runs {plan.ranges}")
        records = world.check.read(plan)

        def end(same: GroupClient) -> None:
            self._finished = True
            world.check.finished(plan, records)
            if self._stop_for_s is not None:
                self._leave(same, self._stop_for_s)
            else:
                self._trigger(same)

        longest_s = world.swarm.batch_s if world.faults_on else min(1.0, world.swarm.batch_s)
        self._later(client, world.random.uniform(0.01, longest_s), end)
