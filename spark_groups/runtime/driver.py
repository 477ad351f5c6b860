"""Runs a GroupClient with the real clock and real connections; Spark's runner calls it."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from spark_groups.errors import (
    DeadOwnershipError,
    ErrorCode,
    GroupError,
    ProtocolError,
    Reaction,
    SparkGroupsError,
    rule_for,
)
from spark_groups.group.batches.batch_bytes import BytesSearch, Sample
from spark_groups.group.batches.planning import PlanLimit
from spark_groups.group.client import GroupClient
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.member.events import Event, NameOf
from spark_groups.group.member.member import MemberConfig
from spark_groups.group.member.membership import MemberState
from spark_groups.group.member.messages import (
    LATEST_TIMESTAMP,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
    ListOffsetsRequest,
    Node,
    found_and_failed,
)
from spark_groups.group.metrics import Count
from spark_groups.group.parts import MemberParts
from spark_groups.group.requests.open_requests import OpenRequests
from spark_groups.group.snapshot import MemberSnapshot, take_snapshot
from spark_groups.group.trigger import (
    End,
    Ends,
    ListEnds,
    NothingToRead,
    Over,
    Patience,
    Planned,
    SampleRecords,
    Trigger,
    WaitUntil,
)
from spark_groups.runtime.channel_threads import ChannelThreads
from spark_groups.runtime.engine import MAX_SLEEP_S, Engine, suspension_clock
from spark_groups.runtime.instance_lock import InstanceLock
from spark_groups.types import BatchPlan, TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.connection import RequestError
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from spark_groups.wire.fetch.first_records import FirstRecords
from spark_groups.wire.security.security import Security
from spark_groups.wire.timeouts import USUAL_TIMEOUTS, Timeouts

logger = logging.getLogger(__name__)

LOG_ENDS: Final = "ListOffsetsRequest (the log ends of a plan)"


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
        self._ends: LogEnds | None = None
        self._trigger: Trigger | None = None
        self._open_requests = OpenRequests(config.request_timeout_s)
        self._available_now = False
        self._instance_lock: InstanceLock | None = None
        self._holds_revocations = False
        self._counted: Counter[Count] = Counter()

    def start(self, checkpointed: BatchPlan | None, *, warm_up_tasks: int = 0) -> None:
        """Join in the background; only the first call does anything.

        Args:
            checkpointed: The last plan of Spark's checkpoint; its member leaves the group first,
                and this run reads its cluster or none.
            warm_up_tasks: How many tasks warm this run up before it joins, if other members read
                meanwhile; 0: join at once.

        Raises:
            GroupError: Another query of this host runs with the same instance id.
        """
        self._lock_instance()
        with self._engine.changed:
            if self._engine.client is not None:
                return
            if checkpointed is not None:
                self.identity.expect(checkpointed.cluster_id)
            client = GroupClient(
                MemberParts(
                    self._config,
                    new_member_id=lambda: str(uuid.uuid4()),
                    checkpointed=checkpointed,
                    warm_up_tasks=warm_up_tasks,
                    open_requests=self._open_requests,
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
            self._ends = LogEnds(
                Cluster(
                    self._servers,
                    client_id=self._client_id,
                    security=self._security,
                    timeouts=self._timeouts,
                    identity=self.identity,
                ),
                read_committed=self._config.read_committed,
            )
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
        with self._changing() as client:
            client.finish(plan, suspension_clock())

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

    def plan(self, limit: PlanLimit) -> BatchPlan | None:
        """Return the next plan, or None: nothing to read and nothing new to record.

        The first call waits, for a bounded time, until the member owns its target assignment; or it
        returns the warm-up plan, and the next call waits. Under AvailableNow each call that finds
        nothing waits.

        Raises:
            GroupError: The coordinator refused the member; not retried.
            CheckpointError: The checkpoint is of another cluster, or of another group.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
            BrokerUnreachableError: No broker answered in time; names the addresses.
            AvailableNowError: AvailableNow cannot read all its records.
        """
        trigger = self._started_trigger()
        with self._engine.changed:
            trigger.begin(limit, suspension_clock())
            self._engine.pump()
        try:
            while True:
                step = self._next_step(trigger)
                match step:
                    case ListEnds():
                        self._list_ends(trigger, step)
                    case SampleRecords():
                        self._sample(trigger, step)
                    case Planned(plan=plan):
                        return plan
                    case NothingToRead() | Over():
                        return None
        finally:
            with self._engine.changed:
                trigger.ended(suspension_clock())

    @property
    def sizes(self) -> BytesSearch[TopicIdPartition] | None:
        """How the last plan was limited in bytes; None: it was not."""
        return None if self._trigger is None else self._trigger.sizes

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

    def leave(self, timeout_s: float = 5.0, *, will_return: bool = False) -> None:
        """Commit finished batches and leave the group, best effort; then end all threads.

        Args:
            will_return: True for a static member that keeps its partitions.
        """
        with self._engine.changed:
            client = self._engine.client
            if client is None or self._engine.is_closing:
                return
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
        self.close()

    def snapshot(self) -> MemberSnapshot:
        """Return the member's state."""
        with self._engine.changed:
            client, crash = self._engine.client, self._engine.crash
            if client is None:
                group_id, state = self._config.member.group_id, MemberState.UNSUBSCRIBED
                return MemberSnapshot(group=group_id, state=state)
            now = suspension_clock()
            snapshot, tally = take_snapshot(client, now), client.parts.metrics.snapshot(now)
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

    def _next_step(self, trigger: Trigger) -> End | ListEnds | SampleRecords:
        """Wait as long as the trigger waits, and return what it needs then, or its end."""
        with self._engine.changed:
            while True:
                self._check()
                step = trigger.poll(suspension_clock())
                self._engine.send()
                if not isinstance(step, WaitUntil):
                    return step
                # Every input of the client notifies, and so does the timer.
                left_s = max(0.0, step.at - suspension_clock())
                self._engine.changed.wait(min(MAX_SLEEP_S, left_s))

    def _list_ends(self, trigger: Trigger, asked: ListEnds) -> None:
        """List log ends, as an open request: the timer reports a slow one."""
        assert self._ends is not None
        began_at = suspension_clock()
        with self._engine.changed:
            self._open_requests.asked(LOG_ENDS, 0.0, began_at)
            self._engine.changed.notify_all()
        ends = self._ends.list(asked.keys, asked.shown)
        with self._engine.changed:
            now, problem = suspension_clock(), self._ends.problem
            if problem:
                self._open_requests.failed(LOG_ENDS, problem, now - began_at, now)
            else:
                self._open_requests.answered(LOG_ENDS, now - began_at)
            trigger.listed(ends, problem)

    def _sample(self, trigger: Trigger, asked: SampleRecords) -> None:
        assert self._ends is not None
        found = self._ends.sample(asked.offsets, asked.timeout_s)
        with self._engine.changed:
            trigger.sampled(*found)

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
        if self._ends is not None:
            self._ends.shutdown()
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


class LogEnds:
    """Lists log ends for each plan; omits those that cannot be listed, and logs the reason once.

    Args:
        cluster: A cluster with connections of its own.
        read_committed: True for last stable offsets.
    """

    def __init__(self, cluster: Cluster, *, read_committed: bool) -> None:
        self.problem = ""
        """Why the last listing lacks partitions; empty if it is complete."""
        self._sampling_problem = ""
        self._cluster = cluster
        self._read_committed = read_committed

    def list(
        self,
        keys: frozenset[TopicIdPartition],
        shown: frozenset[TopicIdPartition] = frozenset(),
    ) -> Ends:
        """Return the ends of partitions with their leader epochs.

        Args:
            shown: Those that no plan uses: their errors are ignored.

        Raises:
            GroupError: A broker refuses to list them; not retried.
        """
        if not keys:
            return {}
        request = ListOffsetsRequest(
            partitions=keys,
            timestamp_ms=LATEST_TIMESTAMP,
            read_committed=self._read_committed,
        )
        try:
            response = self._cluster.list_offsets(request)
        except (RequestError, ProtocolError) as error:
            self._note(str(error))
            return {}
        found, failed = found_and_failed(response.answers)
        errors = {key: code for key, code in failed.items() if key not in shown}
        codes = sorted(set(errors.values()))
        problem = ", ".join(ErrorCode.name_of(code) for code in codes)
        self._note(f"{len(errors)} partitions: {problem}" if codes else "")
        for code in codes:
            if rule_for(code).lookup is Reaction.FAIL:
                raise GroupError(f"log ends cannot be listed: {problem}: {rule_for(code).remedy}")
        return found

    def sample(
        self, offsets: Mapping[TopicIdPartition, int], timeout_s: float
    ) -> tuple[Mapping[TopicIdPartition, Sample], Mapping[TopicIdPartition, int]]:
        """Return the size of the records at offsets, and offsets before which there is none.

        Partitions that cannot be read are omitted.
        """
        try:
            found = self._cluster.sample_records(
                offsets, read_committed=self._read_committed, timeout_s=timeout_s
            )
            problem = ", ".join(sorted({*found.unknown.values()}))
        except (RequestError, ProtocolError) as error:
            found, problem = FirstRecords(), str(error)
        if problem and problem != self._sampling_problem:
            logger.warning(
                "%d partitions could not be sampled, so the size of this batch may be far from"
                " maxBytesPerTrigger: %s",
                len(offsets) - len(found.samples),
                problem,
            )
        self._sampling_problem = problem
        return found.samples, found.reached

    def shutdown(self) -> None:
        """Make the current call and all later ones fail at once; for any thread."""
        self._cluster.shutdown()

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.warning("log ends could not be listed: %s", problem)
        self.problem = problem
