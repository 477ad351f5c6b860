"""Runs a GroupClient with the real clock and real connections; Spark's runner calls it."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from spark_groups.errors import (
    DeadOwnershipError,
    SparkGroupsError,
)
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.client import GroupClient
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.counts import Count
from spark_groups.group.member.events import Event, NameOf
from spark_groups.group.member.member import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
    Node,
)
from spark_groups.group.snapshot import MemberSnapshot, take_snapshot
from spark_groups.group.trigger import (
    End,
    Patience,
    Planned,
    Trigger,
    WaitUntil,
)
from spark_groups.runtime.channel_threads import ChannelThreads
from spark_groups.runtime.engine import MAX_SLEEP_S, Engine, suspension_clock
from spark_groups.runtime.instance_lock import InstanceLock
from spark_groups.types import BatchPlan, TopicPartition
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.connection import RequestError
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from spark_groups.wire.security.security import Security
from spark_groups.wire.timeouts import USUAL_TIMEOUTS, Timeouts

logger = logging.getLogger(__name__)


class GroupDriver:
    """One member of a consumer group with its threads; one for each run of a query.

    Args:
        api_timeout_s: How long the first plan waits for the coordinator's first answer.
        timeouts: Of connections and requests.

    Attributes:
        identity: The cluster of this run: that of the checkpoint, or the first one met.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        bootstrap_servers: tuple[str, ...],
        client_id: str,
        security: Security,
        api_timeout_s: float = 60.0,
        timeouts: Timeouts = USUAL_TIMEOUTS,
    ) -> None:
        self.identity = ClusterIdentity()
        self._engine = Engine(config.member.group_id)
        self._config = config
        self._servers = bootstrap_servers
        self._client_id = client_id
        self._security = security
        self._api_timeout_s = api_timeout_s
        self._timeouts = timeouts
        self._trigger: Trigger | None = None
        self._available_now = False
        self._instance_lock: InstanceLock | None = None
        self._holds_revocations = False
        self._counted: Counter[Count] = Counter()

    def start(
        self,
        checkpointed: BatchPlan | None,
        *,
        warm_up_tasks: int = 0,
        client_id: str | None = None,
    ) -> None:
        """Join in the background; only the first call does anything.

        Args:
            checkpointed: The last plan of Spark's checkpoint; its member leaves the group first,
                and this run reads its cluster or none.
            warm_up_tasks: How many tasks warm this run up before it joins, if other members read
                meanwhile; 0: join at once.
            client_id: The name of the member; None: that of the constructor.

        Raises:
            GroupError: Another query of this host runs with the same instance id.
        """
        self._lock_instance()
        with self._engine.changed:
            if self._engine.client is not None:
                return
            self._client_id = client_id or self._client_id
            if checkpointed is not None:
                self.identity.expect(checkpointed.cluster_id)
            client = GroupClient(
                ClientParts(
                    self._config,
                    new_member_id=lambda: str(uuid.uuid4()),
                    checkpointed=checkpointed,
                    warm_up_tasks=warm_up_tasks,
                )
            )
            patience = Patience(
                answer_s=self._api_timeout_s,
                settled_s=self._config.available_now_wait.timeout_s,
            )
            self._trigger = Trigger(client, patience, self._servers)
            if self._available_now:
                self._trigger.prepare_available_now()
            if self._instance_lock is not None:
                self._instance_lock.note(member_id=client.parts.member.member_id)
            client.hold_revocations(self._holds_revocations, suspension_clock())
            threads = ChannelThreads(
                self._servers,
                client_id=self._client_id,
                security=self._security,
                answered=self._engine.answered,
                crashed=self._engine.crashed,
                timeouts=self._timeouts,
                identity=self.identity,
            )
            self._engine.run(client, threads)

    def replay(self, plan: BatchPlan) -> None:
        """Note that Spark runs an old plan again."""
        with self._changing() as client:
            client.replay(plan, suspension_clock())

    def finish(self, plan: BatchPlan) -> None:
        """Note that a batch is proven finished, and commit its offsets; idempotent."""
        trigger = self._started_trigger()
        with self._changing():
            trigger.finish(plan, suspension_clock())

    def count(self, counts: Mapping[Count, int]) -> None:
        """Add to the member's counters what only the query's application knows."""
        with self._engine.changed:
            self._counted.update(counts)

    def observe(self, observe: Callable[[Event, NameOf], None]) -> None:
        """Add an observer of events.

        Args:
            observe: Called under the lock with each event and a function that names topics; must
                not block.
        """
        self._engine.timeline.observers.append(observe)

    def expect_calls_every(self, gap_s: float) -> None:
        """Note that the query's trigger leaves `gap_s` seconds between two calls."""
        with self._engine.changed:
            self._engine.started().expect_calls_every(gap_s)
            self._engine.changed.notify_all()

    def hold_revocations(self, is_wanted: bool) -> None:
        """Hold each revocation until a rebalance listener releases it, or stop holding them."""
        with self._engine.changed:
            self._holds_revocations = is_wanted
            if self._engine.client is not None:
                self._engine.client.hold_revocations(is_wanted, suspension_clock())
                self._engine.pump()

    def release_revocation(self, number: int) -> None:
        """Release a held revocation; `number` is that of its `RevocationHeld`."""
        with self._engine.changed:
            if self._engine.client is not None:
                self._engine.client.release_revocation(number, suspension_clock())
                self._engine.pump()

    def prepare_available_now(self) -> None:
        """Read each partition up to its end at the time of its assignment, then end."""
        with self._engine.changed:
            self._available_now = True
            if self._trigger is not None:
                self._trigger.prepare_available_now()

    def plan(
        self, limit: PlanLimit, *, tasks: int = 0, trigger_interval_s: float | None = None
    ) -> BatchPlan | None:
        """Return the next plan, or None: nothing to read and nothing new to record.

        The first call waits, for a bounded time, until the member owns its target assignment; or it
        returns the warm-up plan, and the next call waits. Under AvailableNow each call that finds
        nothing waits.

        Args:
            limit: The query's limit of a batch.
            tasks: See `Trigger.begin`.
            trigger_interval_s: See `Trigger.begin`.

        Raises:
            GroupError: The coordinator refused the member; not retried.
            CheckpointError: The checkpoint is of another cluster, or of another group.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
            BrokerUnreachableError: No broker answered in time; names the addresses.
            AvailableNowError: AvailableNow cannot read all its records.
        """
        trigger = self._started_trigger()
        with self._engine.changed:
            trigger.begin(
                limit, suspension_clock(), tasks=tasks, trigger_interval_s=trigger_interval_s
            )
            self._engine.pump()
            try:
                end = self._carried(trigger)
            finally:
                trigger.ended(suspension_clock())
        return end.plan if isinstance(end, Planned) else None

    def await_commits(self, timeout_s: float) -> bool:
        """Wait until every finished batch is committed; return False after the timeout."""
        client, trigger = self._engine.started(), self._started_trigger()

        def all_committed() -> bool:
            self._check()
            trigger.check(suspension_clock())
            return not client.parts.commits.pending()

        return self._engine.wait_for(all_committed, timeout_s)

    def latest_offsets(self) -> dict[TopicPartition, int]:
        """Return the last listed log ends of this member's partitions."""
        with self._engine.changed:
            client = self._engine.client
            return {} if client is None else client.parts.planner.latest_offsets()

    def note_end(self) -> None:
        """Note in the instance lock that this run is leaving: its successor waits for its end."""
        if self._instance_lock is not None:
            self._instance_lock.note(leaving=True)

    def leave(self, timeout_s: float = 5.0, *, will_return: bool = False) -> str | None:
        """Commit finished batches and leave the group, best effort; then end all threads.

        Args:
            will_return: True for a static member that keeps its partitions.

        Returns:
            The line that sums the run up; None: it had not begun, has left before, or failed.
        """
        with self._engine.changed:
            client = self._engine.client
            if client is None or self._engine.is_closing:
                return None
            now = suspension_clock()
            self.note_end()
            if self._engine.crash is None:
                client.leave(now, leave_by=now + timeout_s, will_return=will_return)
                self._engine.pump()
        member = client.parts.member
        self._engine.wait_for(
            lambda: member.has_left or self._engine.crash is not None, timeout_s + 0.5
        )
        coordinator = client.parts.search.node
        if self._engine.crash is not None and not member.has_left and coordinator is not None:
            leave_at_once(
                self._config.member,
                member.member_id,
                coordinator,
                will_return=will_return,
                client_id=self._client_id,
                security=self._security,
                timeout_s=timeout_s,
                identity=self.identity,
            )
        is_static = self._config.member.instance_id is not None
        line = self._engine.end_line(will_return=will_return and is_static)
        self.close()
        return line

    def snapshot(self) -> MemberSnapshot:
        """Return the member's state."""
        with self._engine.changed:
            client, crash = self._engine.client, self._engine.crash
            if client is None:
                group_id, state = self._config.member.group_id, MemberState.UNSUBSCRIBED
                return MemberSnapshot(group=group_id, state=state)
            now = suspension_clock()
            snapshot = take_snapshot(client, now)
            tally = snapshot.tally
            assert tally is not None
            return replace(
                snapshot,
                failure=snapshot.failure
                if crash is None
                else f"a thread of the member failed: {crash!r}",
                tally=replace(tally, counts={**tally.counts, **self._counted}),
                timeline=self._engine.timeline.lines(),
            )

    def _started_trigger(self) -> Trigger:
        self._engine.started()
        assert self._trigger is not None
        return self._trigger

    def _carried(self, trigger: Trigger) -> End:
        """Wait as long as the trigger waits, and return its end; needs the lock."""
        while True:
            self._check()
            step = trigger.poll(suspension_clock())
            self._engine.send()
            if not isinstance(step, WaitUntil):
                return step
            # Every input of the client notifies, and so does the timer.
            left_s = max(0.0, step.at - suspension_clock())
            self._engine.changed.wait(min(MAX_SLEEP_S, left_s))

    def _lock_instance(self) -> None:
        instance_id = self._config.member.instance_id
        if instance_id is None or self._instance_lock is not None:
            return
        lock = InstanceLock(self._servers, self._config.member.group_id, instance_id)
        lock.acquire()
        self._instance_lock = lock

    @contextmanager
    def _changing(self) -> Iterator[GroupClient]:
        """Change the client under the lock, then send its requests."""
        with self._engine.changed:
            yield self._engine.started()
            self._engine.pump()

    def _check(self) -> None:
        if self._engine.crash is not None:
            raise DeadOwnershipError(
                f"a thread of the member failed: {self._engine.crash!r}"
            ) from self._engine.crash
        if self._engine.is_closing:
            raise DeadOwnershipError("the member has left the group")

    def close(self) -> None:
        """End all threads without leaving the group; a second call does nothing."""
        self._engine.close()
        if self._instance_lock is not None:
            self._instance_lock.release()


def leave_at_once(
    config: MemberConfig,
    member_id: str,
    coordinator: Node,
    *,
    will_return: bool,
    client_id: str,
    security: Security,
    timeout_s: float,
    identity: ClusterIdentity | None = None,
) -> bool:
    """Leave a group over a new connection, best effort; return whether the coordinator accepted.

    Args:
        will_return: True for a static member that keeps its partitions.
    """
    is_static = will_return and config.instance_id is not None
    request = HeartbeatRequest(
        group_id=config.group_id,
        member_id=member_id,
        member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH if is_static else LEAVE_GROUP_MEMBER_EPOCH,
        instance_id=config.instance_id,
    )
    connection = CoordinatorConnection(client_id=client_id, security=security, identity=identity)
    try:
        response = connection.send(coordinator, request, timeout_s)
    except (RequestError, SparkGroupsError) as error:
        logger.warning("could not leave the group; the session has to time out: %s", error)
        return False
    finally:
        connection.close()
    return getattr(response, "error_code", None) == 0
