"""Streaming queries as Spark runs them: trigger, batch, commit log; killed, stopped, restarted."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from math import inf
from typing import Final

from group_lab.sim.facts import (
    Began,
    Drained,
    Finished,
    Forgotten,
    NotReplayed,
    Read,
    Records,
    Triggered,
    Unavailable,
)
from group_lab.sim.incarnation import Incarnation
from group_lab.sim.scene import RestartedApplication, Scene
from group_lab.sim.schedule import EXACT, Clock
from group_lab.sim.spark_logs import SparkLogs
from group_lab.sim.storage import RECORD_BYTES
from group_lab.sim.swarm import Assignor
from group_lab.sim.table_writes import SimulatedWrite
from spark_groups.errors import (
    AvailableNowError,
    BrokerUnreachableError,
    DataLossError,
    GroupError,
)
from spark_groups.fence.beginnings import Batch, UnsavedEntries
from spark_groups.group.batches.available_now_wait import USUAL_WAIT
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.batches.proofs import PlanJson, Proofs
from spark_groups.group.client import GroupClient
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.checkpoint_refusals import CheckpointOwner
from spark_groups.group.ledger.plan_text import NOTHING_PLANNED, offset_text, parse_plan_text
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.trigger import (
    NothingToRead,
    Over,
    Patience,
    Planned,
    Trigger,
    WaitUntil,
)
from spark_groups.types import BatchPlan

RESTART_S: Final = 3.0
"""After how many seconds a failed query restarts."""
LEAVE_S: Final = 5.0
"""How long a stopped query may take to leave the group."""
NO_NEWS_S: Final = (0.05, 0.3, 1.0)
"""After how many seconds a query triggers again that found no records."""
JOB_EVERY_S: Final = (0.5, 5.0)
"""How long a job is away before it restarts."""

PATIENCE: Final = Patience(answer_s=60.0, settled_s=USUAL_WAIT.timeout_s, again_s=0.3)
"""That of a planned run; a drawn run sets four of these waits to 0 by chance."""
WARM_UP_TASKS: Final = 2
EMPTY_S: Final = 0.3
"""The longest empty batch of a planned run."""
FIRST_BATCH_BYTES: Final = 20 * RECORD_BYTES
PLANNED_LEAST: Final = 0.8
"""The shortest batch of a planned run, as a part of the longest."""

REPORTED_S: Final = (0.0, 0.0, 0.2, 5.0)
"""How long the report of a finished batch may take."""
STALLED_S: Final = 30.0
"""A trigger that waits longer, once there are no faults, waits for nothing that can come."""
ENDS_S: Final = (0.001, 0.001, 0.5)
"""How long after a table's commit Spark writes its commit log."""


class Query(RestartedApplication[Incarnation]):
    """A streaming query: its checkpoint outlives its incarnations.

    Args:
        is_job: Whether it is an AvailableNow job, restarted until the faults end.
    """

    def __init__(
        self,
        scene: Scene,
        name: str,
        subscription: Subscription,
        instance_id: str | None,
        *,
        is_job: bool = False,
    ) -> None:
        super().__init__(scene, name)
        self._subscription = subscription
        self._instance_id = instance_id
        self._is_job = is_job
        self._drains = False
        """Whether this run is an AvailableNow run."""
        self._began_at = 0.0
        self._forgives = False
        """Whether the next run has `failOnDataLoss` set to false."""
        self._is_strict = False
        """Whether this run fails on data loss."""
        self._incarnations = 0
        self._logs = SparkLogs(scene, 0.0 if is_job else scene.swarm.log_every_s)
        self._is_finished = True
        """Whether that batch is finished."""
        self._running: BatchPlan | None = None
        """The batch that Spark runs, unless it fails."""
        self._triggered_at = 0.0
        """When Spark asked for the last batch; seconds."""
        self._calls: Trigger | None = None
        """The triggers of this run."""
        self._proofs = self._new_proofs()
        """The proofs of the batches of this run."""
        self._offset: PlanJson = NOTHING_PLANNED
        """Where the last batch of the checkpoint ended."""
        self._unsaved = UnsavedEntries()
        """Where this run has begun partitions of a table that did not exist."""
        self._before: BatchPlan | None = None
        """The plan of the batch before the last one."""
        self._refused: BatchPlan | None = None
        """The last batch that the table refused."""
        self._polls_at = inf
        """When a trigger that waits is polled without an input; seconds of the run's clock."""

    @property
    def member(self) -> Member | None:
        return self.current.client.parts.member if self.current else None

    # Actions from outside.

    def start(self) -> None:
        """Start from the checkpoint; a planned but unfinished batch runs again."""
        if self.current is not None or not self.is_wanted:
            return
        scene = self._scene
        if scene.now < self._down_until:
            scene.schedule.at(self._down_until, self.start)
            return
        logs = self._logs
        logs.begin()
        logged = logs.last_plan
        plan = parse_plan_text(logged) if logged is not None else None
        if plan != self.plan or (logs.is_finished and not self._is_finished):
            scene.publish(NotReplayed(self.name))
        self.plan, self._is_finished = plan, logs.is_finished
        self._incarnations += 1
        self._stop_for_s = None
        self._drains = self._is_job and scene.is_faulty
        self._began_at = scene.now
        swarm = scene.swarm
        loses = swarm.truncations or swarm.retentions or swarm.vanishings or swarm.deletions
        self._is_strict = (bool(swarm.strict) or not loses) and not self._forgives
        self._forgives = False
        name = f"{self.name}.{self._incarnations}"
        serial = count(1)
        client = GroupClient(
            ClientParts(
                self._config(),
                new_member_id=lambda: f"{name}.{next(serial)}",
                checkpointed=plan,
                warm_up_tasks=WARM_UP_TASKS if swarm.warm else 0,
            )
        )
        self.current = current = Incarnation(scene, name, client, self._clock())
        self._calls = calls = Trigger(client, self._patience())
        self._proofs = self._new_proofs()
        self._offset = NOTHING_PLANNED if logged is None else json.loads(logged)
        self._unsaved = UnsavedEntries()
        before = logs.plan_before
        self._before = parse_plan_text(before) if before is not None else None
        self._say(current, "starts", "from", logged)
        scene.publish(Began(self.name, name, client, self._drains))
        if self._drains:
            calls.prepare_available_now()
        client.start(current.now)
        client.hold_revocations(bool(scene.swarm.holds), current.now)
        if not self._is_finished:
            self._run_batch(current, self._given(current, NOTHING_PLANNED))
        else:
            current.after(0.0, lambda: self._trigger(current))
        current.pump()

    def kill(self, for_s: float, *, forget: bool) -> None:
        """End without a leave; restart after some seconds.

        Args:
            forget: Whether it restarts with a new checkpoint.
        """
        if self.current is not None:
            self._suffer(self.current, "dies", "forgets" if forget else "")
            self.current.die()
            self.current = None
        if forget:
            self.plan, self._is_finished = None, True
            self._logs.forget()
            self._scene.publish(Forgotten(self.name))
        self._scene.schedule.after(for_s, self.start)

    def restore(self, backup: Query) -> None:
        """Replace the checkpoint of a query that does not run by one that was copied.

        Args:
            backup: Whose it is; this query: an older one.
        """
        if self.current is None:
            self._scene.log.add(self._scene.now, self.name, "", "restores", backup.name)
            self._logs.restore(backup._logs, self._scene.chance)
            text = self._logs.last_plan
            copied = parse_plan_text(text) if text is not None else None
            if backup is not self and copied is not None:
                self._scene.late.copied_member_ids.add(copied.member_id)

    def stop(self, for_s: float | None) -> None:
        """Finish the running batch, leave the group, and restart after some seconds.

        Args:
            for_s: Added to the time a leave may take; None stops the query for good.
        """
        if for_s is None:
            self.is_wanted = False
        if self.current is not None and self._stop_for_s is None:
            self._stop_for_s = for_s or 0.0
            if self._is_finished:
                self._leave(self.current)

    def fail(self, for_s: float) -> None:
        """Fail the running batch: the query leaves, restarts, and runs it again."""
        if self.current is not None and self._stop_for_s is None:
            self._suffer(self.current, "fails")
            self._running = None
            self._stop_for_s = for_s
            self._leave(self.current)

    def restless(self) -> str:
        """Return why it is not settled, or ""."""
        if self.current is None:
            return f"{self.name} is down" if self.is_wanted else ""
        parts = self.current.client.parts
        # Without DESCRIBE permission a member without partitions never knows it is complete.
        has_nothing = parts.target.is_refused and not parts.member.owned
        is_stable = parts.member.state is MemberState.STABLE
        if not parts.next_batch.is_settled and not (has_nothing and is_stable):
            return f"{self.name} is not settled ({parts.member.state.name})"
        if self.current.waits is not None and self._scene.now - self._triggered_at > STALLED_S:
            return f"{self.name} has waited in a trigger since {self._triggered_at:.3f}"
        # A client that has not seen a new leader cannot detect truncation.
        logs = self._scene.storage.logs
        for key, owned in parts.ledger.owned.items():
            if key in logs and owned.leader_epoch < logs[key].leader_epoch:
                return f"{self.name} has not seen the leader of {key}"
        return ""

    # Actions of Spark.

    def _trigger(self, current: Incarnation) -> None:
        """Call latestOffset between batches: it commits the last batch and plans the next."""
        if self._is_stale(current):
            return
        self._triggered_at = self._scene.now
        proof = self._proofs.asked(self._offset)
        assert self._calls is not None
        if proof.is_new:
            if proof.plan is not None:
                self._calls.finish(proof.plan, current.now)
            self._proofs.proven(proof)
        self._calls.begin(self._limit(), current.now)
        self._poll(current)

    def _poll(self, current: Incarnation) -> None:
        """Carry a trigger to its next wait, or to its end."""
        current.waits = None
        if self._is_stale(current):
            return
        assert self._calls is not None
        try:
            step = self._calls.poll(current.now)
        except (GroupError, BrokerUnreachableError):
            self.kill(RESTART_S, forget=False)
            return
        except DataLossError:
            current.pump()
            self._forgive()
            return
        except AvailableNowError as error:
            self._fail_unavailable(error)
            return
        current.pump()
        match step:
            case WaitUntil(at=at):
                self._wait(current, at)
            case Planned(plan=plan):
                self._planned(current, plan)
            case NothingToRead():
                self._found_nothing(current)
            case Over():
                self._drained(current)

    def _wait(self, current: Incarnation, at: float) -> None:
        """Poll after the next input, or at a time of the run's clock."""
        current.waits = lambda: self._poll(current)
        self._polls_at = at
        delay_s = max(0.0, current.clock.instant(at) - self._scene.now)

        def due() -> None:
            if current.waits is not None and self._polls_at == at:
                self._poll(current)

        current.after(delay_s, due)

    def _is_stale(self, current: Incarnation) -> bool:
        return self.current is not current or self._stop_for_s is not None

    def _limit(self) -> PlanLimit:
        scene, swarm = self._scene, self._scene.swarm
        few = scene.chance.choice((None, swarm.max_offsets or None))
        has_own = few or swarm.min_offsets or swarm.planned
        return PlanLimit(
            max_offsets=few if scene.is_faulty else None,
            first_bytes=None if has_own else FIRST_BATCH_BYTES,
            min_offsets=swarm.min_offsets or None,
            max_trigger_delay_s=swarm.max_delay_s,
        )

    def _patience(self) -> Patience:
        chance = self._scene.chance
        if self._scene.swarm.planned:
            return PATIENCE
        return replace(
            PATIENCE,
            first_assignment_s=chance.choice((0.0, PATIENCE.first_assignment_s)),
            under_way_s=chance.choice((0.0, PATIENCE.under_way_s)),
            resolving_s=chance.choice((0.0, PATIENCE.resolving_s)),
            validation_s=chance.choice((0.0, PATIENCE.validation_s)),
        )

    def _fail_unavailable(self, error: AvailableNowError) -> None:
        self._scene.publish(Unavailable(self.name, str(error)))
        self.kill(RESTART_S, forget=False)

    def _forgive(self) -> None:
        """End because of data loss; the next run ignores it."""
        self._forgives = True
        self.kill(RESTART_S, forget=False)

    def _planned(self, current: Incarnation, plan: BatchPlan) -> None:
        self._end_call(current, plan)
        before, self._offset = self._offset, self._proofs.planned(plan)
        self._before = self.plan
        self.plan, self._is_finished = plan, False
        self._logs.began(offset_text(self._offset), current.after)
        self._run_batch(current, self._given(current, before))

    def _given(self, current: Incarnation, start: PlanJson) -> BatchPlan:
        """Return the plan of the batch that Spark runs, from `start` to the last offset."""
        run = self._proofs.batch_to_run(start, self._offset)
        assert run.plan is not None
        if run.is_replay:
            current.client.replay(run.plan, current.now)
            self._proofs.replayed(self._offset, run.plan)
        return run.plan

    def _found_nothing(self, current: Incarnation) -> None:
        self._end_call(current, None)
        wait_s = self._scene.chance.choice(NO_NEWS_S)
        if self._scene.swarm.planned and self._scene.swarm.trigger_s:
            wait_s = self._until_trigger_s()
        current.after(wait_s, lambda: self._trigger(current))

    def _drained(self, current: Incarnation) -> None:
        """End a job that has read everything."""
        scene, client = self._scene, current.client
        self._end_call(current, None)
        scene.publish(
            Drained(
                self.name,
                client,
                self._began_at,
                client.parts.next_batch.is_settled,
                self._triggered_at,
            )
        )
        self._stop_for_s = scene.chance.choice(JOB_EVERY_S)
        self._leave(current)

    def _end_call(self, current: Incarnation, plan: BatchPlan | None) -> None:
        assert self._calls is not None
        self._calls.ended(current.now)
        self._scene.publish(Triggered(self.name, current.client, plan))

    def _run_batch(self, current: Incarnation, plan: BatchPlan) -> None:
        scene = self._scene
        self._running = plan
        self._say(current, "runs", *plan.ranges)
        logs = scene.storage.logs
        if self._is_strict and any(
            span.key not in logs
            or span.from_offset < min(logs[span.key].start_offset, span.until_offset)
            for span in plan.ranges
        ):
            # Its tasks fail: their records are gone.
            current.after(0.01, lambda: self._fail_for_loss(current))
            return
        read_committed = bool(scene.swarm.read_committed)
        records: Records = {
            span.key: logs[span.key].shown(
                span.from_offset, span.until_offset, read_committed=read_committed
            )
            for span in plan.ranges
            if span.key in logs
        }
        scene.publish(Read(self.name, plan, records))

        def end() -> None:
            if self.current is not current or self._running is not plan:
                return
            self._running, self._is_finished = None, True
            self._logs.finished(current.after)
            scene.publish(Finished(self.name, plan, records))
            if self._stop_for_s is not None:
                self._leave(current)
                return
            if scene.swarm.listener:
                self._report_late(current, offset_text(self._offset))
            wait_s = scene.chance.uniform(0.0, scene.swarm.trigger_s)
            if scene.swarm.planned:
                wait_s = self._until_trigger_s()
            current.after(wait_s, lambda: self._trigger(current))

        longest_s = scene.swarm.batch_s if scene.is_faulty else min(1.0, scene.swarm.batch_s)
        least_s = 0.01
        if scene.swarm.planned:
            longest_s = longest_s if plan.ranges else min(EMPTY_S, longest_s)
            least_s = PLANNED_LEAST * longest_s
        runs_s = scene.chance.uniform(least_s, longest_s)
        if scene.table is None:
            current.after(runs_s, end)
            return
        before = self._before.ranges if self._before else ()
        SimulatedWrite(
            scene=scene,
            table=scene.table,
            run=current,
            batch=Batch(
                scene.coordination.group_id,
                self._logs.batch_id,
                plan.ranges,
                topics=plan.topics,
                before=before,
                run_id=current.name,
            ),
            unsaved=self._unsaved,
            is_strict=self._is_strict,
            planned_at=self._triggered_at if current.name in plan.member_id else None,
            staging_s=runs_s,
            written=lambda: current.after(scene.chance.choice(ENDS_S), end),
            failed=lambda: self._fail_batch(current, plan),
            refused=lambda: self._refuse_batch(current, plan),
            lost=lambda: self._fail_for_loss(current),
        ).begin()

    def _refuse_batch(self, current: Incarnation, plan: BatchPlan) -> None:
        """Fail because the table refuses a batch; if it does so twice, begin a new checkpoint."""
        is_again, self._refused = plan == self._refused, plan
        if is_again and self.current is current and self._running is plan:
            self.kill(RESTART_S, forget=True)
        else:
            self._fail_batch(current, plan)

    def _fail_batch(self, current: Incarnation, plan: BatchPlan) -> None:
        """Fail because a batch cannot be written."""
        if self.current is not current or self._running is not plan:
            return
        if self._stop_for_s is None:
            self.fail(RESTART_S)
        else:
            self._running = None
            self._leave(current)

    def _report_late(self, current: Incarnation, text: str) -> None:
        """Have the driver report a finished batch: at once, or after Spark's next call."""
        scene, proofs = self._scene, self._proofs

        def report() -> None:
            current.take(lambda _, __: self._report(current, proofs, text))

        delay_s = 0.0 if scene.swarm.planned else scene.chance.choice(REPORTED_S)
        current.after(delay_s, report)

    def _report(self, current: Incarnation, proofs: Proofs, text: str) -> None:
        plan = proofs.reported(text, self.name)
        if plan is not None:
            assert self._calls is not None
            self._calls.finish(plan, current.now)
            proofs.finished(plan)

    def _until_trigger_s(self) -> float:
        """Return the time until Spark's processing-time trigger: the next multiple of its interval.

        Source: Spark's ProcessingTimeExecutor.
        """
        interval_s = self._scene.swarm.trigger_s
        if not interval_s:
            return 0.0
        due_at = (self._triggered_at // interval_s + 1) * interval_s
        return max(0.0, due_at - self._scene.now)

    def _fail_for_loss(self, current: Incarnation) -> None:
        if self.current is current:
            self._forgive()

    def _leave(self, current: Incarnation) -> None:
        self._suffer(current, "leaves")
        self._logs.flush()
        client = current.client
        if self._is_finished:
            # The driver reports the last batch before the run leaves.
            self._report(current, self._proofs, offset_text(self._offset))
        client.leave(
            current.now,
            leave_by=current.now + LEAVE_S,
            will_return=self._instance_id is not None and self.is_wanted,
        )
        current.pump()

        def gone() -> None:
            current.die()
            if self.current is current:
                self.current = None
                self.start()

        self._scene.schedule.after(LEAVE_S + (self._stop_for_s or 0.0), gone)

    def _new_proofs(self) -> Proofs:
        return Proofs(
            CheckpointOwner(self._scene.coordination.group_id, self._subscription, "simulated")
        )

    def _config(self) -> ClientConfig:
        swarm = self._scene.swarm
        return ClientConfig(
            member=MemberConfig(
                group_id=self._scene.coordination.group_id,
                subscription=self._subscription,
                instance_id=self._instance_id,
                rebalance_timeout_ms=int(swarm.rebalance_s * 1000),
                server_assignor=swarm.assignor.value if swarm.assignor is Assignor.RANGE else None,
                session_timeout_ms=int(swarm.session_s * 1000),
            ),
            starting_offsets=self._scene.starting,
            read_committed=bool(swarm.read_committed),
            fail_on_data_loss=self._is_strict,
        )

    def _clock(self) -> Clock:
        swarm, chance = self._scene.swarm, self._scene.chance
        if not swarm.skew:
            return EXACT
        return Clock(chance.uniform(0.0, 1e6), 1 + chance.uniform(-swarm.skew, swarm.skew))

    def _epoch(self, run: Incarnation) -> str:
        return str(run.client.parts.member.member_epoch)
