"""Drives a GroupClient with the real clock and real connections: what Spark's runner talks to.

One lock makes the client one thing at a time: Spark's calls, the answers that carriers bring and
the timer all take it, change the client and send what follows. Nothing waits while holding it.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from spark_groups.client import ClientConfig, GroupClient, Outgoing
from spark_groups.client.narration import NameOf, narrate
from spark_groups.client.parts import Event
from spark_groups.client.snapshot import take_snapshot
from spark_groups.errors import (
    BrokerUnreachableError,
    DeadOwnershipError,
)
from spark_groups.kafka.carriers import Carriers
from spark_groups.kafka.cluster import Cluster
from spark_groups.kafka.log_ends import LogEnds
from spark_groups.kafka.security import Security
from spark_groups.offsets.planning import PlanLimit
from spark_groups.protocol.messages import (
    Node,
    RequestFailed,
    Response,
)
from spark_groups.types import BatchPlan, TopicIdPartition, TopicPartition

logger = logging.getLogger(__name__)

FIRST_ASSIGNMENT_S: Final = 3.0
"""How long the first plan waits for partitions that others still own."""
OUTAGE_S: Final = 300.0
"""How long a query that was running goes on without any broker answering."""
TIMELINE_LENGTH: Final = 100
MAX_SLEEP_S: Final = 1.0
POLL_AGAIN_S: Final = 0.1


def suspension_clock() -> float:
    """Return seconds of a clock that counts the time a machine sleeps, where there is one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class GroupDriver:
    """One member of a consumer group with its threads; one for each run of a query.

    Args:
        config: How the client behaves.
        bootstrap_servers: `host:port` of one or more brokers.
        client_id: What brokers call this client.
        security: How connections are secured.
        api_timeout_s: Seconds in which the first answer must come.
        request_timeout_s: Seconds that listing log ends may take.
        settle_timeout_s: Seconds that AvailableNow waits for its assignment.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        bootstrap_servers: tuple[str, ...],
        client_id: str,
        security: Security,
        api_timeout_s: float = 60.0,
        request_timeout_s: float = 30.0,
        settle_timeout_s: float = 10.0,
    ) -> None:
        self._config = config
        self._servers = bootstrap_servers
        self._client_id = client_id
        self._security = security
        self._api_timeout_s = api_timeout_s
        self._request_timeout_s = request_timeout_s
        self._settle_timeout_s = settle_timeout_s
        self._changed = threading.Condition(threading.RLock())
        self._client: GroupClient | None = None
        self._carriers: Carriers | None = None
        self._ends: LogEnds | None = None
        self._coordinator: Node | None = None
        self._crash: BaseException | None = None
        self._closing = False
        self._available_now = False
        self._first_wait_until: float | None = None
        self._timeline: deque[str] = deque(maxlen=TIMELINE_LENGTH)
        self._observe: Callable[[Event, NameOf], None] | None = None
        self._holds_revocations = False

    def start(self, checkpointed: BatchPlan | None) -> None:
        """Join in the background; only the first call does anything.

        Args:
            checkpointed: The plan that Spark's checkpoint ended at; its member id is released.
        """
        with self._changed:
            if self._client is not None:
                return
            now = suspension_clock()
            self._client = GroupClient(
                self._config,
                new_member_id=lambda: str(uuid.uuid4()),
                checkpointed=checkpointed,
            )
            if self._available_now:
                self._client.prepare_available_now()
            self._client.hold_revocations(self._holds_revocations, now)
            self._ends = LogEnds(
                Cluster(
                    self._servers,
                    client_id=self._client_id,
                    security=self._security,
                    request_timeout_s=self._request_timeout_s,
                ),
                read_committed=self._config.read_committed,
            )
            self._carriers = Carriers(
                self._servers,
                client_id=self._client_id,
                security=self._security,
                answered=self._answered,
                crashed=self._crashed,
            )
            self._carriers.start()
            threading.Thread(target=self._keep_time, name="kafka-group-timer", daemon=True).start()
            self._client.start(now)
            self._pump(now)

    def replay(self, plan: BatchPlan) -> None:
        """Take it that Spark runs an old plan again."""
        with self._changed:
            self._started().replay(plan, suspension_clock())
            self._pump(suspension_clock())

    def finish(self, plan: BatchPlan) -> None:
        """Take it as proven that a batch is finished, and commit its offsets; idempotent."""
        with self._changed:
            self._started().finish(plan, suspension_clock())
            self._pump(suspension_clock())

    def observe(self, observe: Callable[[Event, NameOf], None]) -> None:
        """Have a function called with each event, and with what names topics.

        Args:
            observe: Called with the lock of this driver: it must not wait for anything.
        """
        self._observe = observe

    def hold_revocations(self, is_wanted: bool) -> None:
        """Hold each revocation until it is released, or do so no more.

        Args:
            is_wanted: Whether a rebalance listener wants to be told before partitions are gone.
        """
        with self._changed:
            self._holds_revocations = is_wanted
            if self._client is not None:
                self._client.hold_revocations(is_wanted, suspension_clock())
                self._pump(suspension_clock())

    def release_revocation(self, number: int) -> None:
        """Let a held revocation go; `number` is that of its `RevocationHeld`."""
        with self._changed:
            if self._client is not None:
                self._client.release_revocation(number, suspension_clock())
                self._pump(suspension_clock())

    def prepare_available_now(self) -> None:
        """Read up to what is there when each partition becomes ours, then end."""
        with self._changed:
            self._available_now = True
            if self._client is not None:
                self._client.prepare_available_now()

    def plan(self, limit: PlanLimit) -> BatchPlan | None:
        """Return the next plan, or None: nothing to read and nothing new to record.

        The first call waits until the member has what it is meant to have, for a bounded time;
        under AvailableNow each call that finds nothing does.

        Raises:
            GroupError: The coordinator refused the member for good.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
            BrokerUnreachableError: No broker answered for too long; names the addresses.
        """
        client = self._started()
        with self._changed:
            client.called(suspension_clock())
        first_wait_s = self._settle_timeout_s if self._available_now else FIRST_ASSIGNMENT_S
        if self._first_wait_until is None:
            self._await_first_answer(client)
            self._first_wait_until = suspension_clock() + first_wait_s
            self._await(lambda: self._may_begin(client), first_wait_s)
        if not self._available_now:
            return self._plan_from(client, limit, self._readable_ends(client))
        return self._plan_available_now(client, limit)

    def await_commits(self, timeout_s: float) -> bool:
        """Wait until every finished batch is committed.

        Returns:
            False if that did not happen in time.
        """
        client = self._started()
        return self._await(lambda: not client.commits.pending(), timeout_s)

    def latest_offsets(self) -> dict[TopicPartition, int]:
        """Return the ends of this member's partitions, as last listed."""
        with self._changed:
            if self._client is None:
                return {}
            topics = self._client.topics
            return {
                TopicPartition(topics.name(key.topic_id) or "", key.partition): end
                for key, end in self._client.planner.log_ends.items()
            }

    def leave(self, timeout_s: float = 5.0, *, will_return: bool = False) -> None:
        """Commit what is finished and leave the group, best effort; then end all threads.

        Args:
            timeout_s: Seconds that it may take.
            will_return: True for a static member that keeps its partitions.
        """
        with self._changed:
            client = self._client
            if client is None or self._closing:
                return
            now = suspension_clock()
            if self._crash is None:
                client.leave(now, leave_by=now + timeout_s, will_return=will_return)
                self._pump(now)
        if self._crash is None:
            self._wait_for(lambda: client.has_left, timeout_s + 0.5)
        self._close()

    def snapshot(self) -> dict[str, Any]:
        """Return what the member is and does right now, as plain values."""
        with self._changed:
            if self._client is None:
                return {"group": self._config.member.group_id, "state": "UNSUBSCRIBED"}
            view = take_snapshot(self._client, suspension_clock())
            view["timeline"] = list(self._timeline)
            return view

    def _plan_available_now(self, client: GroupClient, limit: PlanLimit) -> BatchPlan | None:
        """Plan until it is certain that nothing is left: an unanswered question is no end."""
        began_at = suspension_clock()
        while True:
            ends = self._readable_ends(client)
            with self._changed:
                plan = self._plan_from(client, limit, ends)
                can_tell = client.can_tell(ends, suspension_clock())
            waited_s = suspension_clock() - began_at
            if plan is not None or (can_tell and client.is_settled):
                return plan
            if can_tell and waited_s >= self._settle_timeout_s:
                return None
            if waited_s >= max(self._settle_timeout_s, self._api_timeout_s):
                raise BrokerUnreachableError(
                    f"what is left to be read could not be found out within {waited_s:.0f} s from"
                    f" {', '.join(self._servers)}: {self._what_is_unknown()}"
                )
            self._await(lambda: client.is_settled, POLL_AGAIN_S)
            # Settled but unanswered: the next question waits a moment, not for the coordinator.
            self._wait_for(lambda: self._closing, 0 if can_tell else POLL_AGAIN_S)

    def _readable_ends(self, client: GroupClient) -> dict[TopicIdPartition, int]:
        with self._changed:
            self._check(client)
            keys = client.readable(suspension_clock())
        return self._ends.list(keys) if self._ends is not None else {}

    def _plan_from(
        self, client: GroupClient, limit: PlanLimit, ends: dict[TopicIdPartition, int]
    ) -> BatchPlan | None:
        with self._changed:
            now = suspension_clock()
            plan = client.plan(limit, ends, now)
            self._pump(now)
            return plan

    def _what_is_unknown(self) -> str:
        return (self._ends.problem if self._ends is not None else "") or "no proof of membership"

    def _may_begin(self, client: GroupClient) -> bool:
        readable = not self._available_now and client.readable(suspension_clock())
        return bool(readable) or client.is_settled

    def _await_first_answer(self, client: GroupClient) -> None:
        if not self._await(lambda: client.member.member_epoch > 0, self._api_timeout_s):
            with self._changed:
                raise BrokerUnreachableError(self._unreachable(client, self._api_timeout_s))

    def _await(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        client = self._started()

        def met_or_failed() -> bool:
            self._check(client)
            return condition()

        return self._wait_for(met_or_failed, timeout_s)

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

    def _started(self) -> GroupClient:
        if self._client is None:
            raise RuntimeError("the driver has to be started first")
        return self._client

    def _check(self, client: GroupClient) -> None:
        if self._crash is not None:
            raise DeadOwnershipError(
                f"the thread that keeps the membership alive died: {self._crash!r}"
            ) from self._crash
        if self._closing:
            raise DeadOwnershipError("the member has left the group")
        client.check()
        since = client.exchange.failing_since
        if since is not None and suspension_clock() - since > max(OUTAGE_S, self._api_timeout_s):
            raise BrokerUnreachableError(self._unreachable(client, OUTAGE_S))

    def _unreachable(self, client: GroupClient, waited_s: float) -> str:
        reason = client.exchange.last_failure or "the coordinator did not answer a join"
        return (
            f"no broker of {', '.join(self._servers)} let group"
            f" {self._config.member.group_id!r} in within {waited_s:.0f} s: {reason}"
        )

    def _answered(self, outgoing: Outgoing, answer: Response | RequestFailed) -> None:
        with self._changed:
            now = suspension_clock()
            client = self._started()
            if isinstance(answer, RequestFailed):
                client.handle_failure(outgoing, answer, now)
            else:
                client.handle_response(outgoing, answer, now)
            self._pump(now)

    def _crashed(self, error: BaseException) -> None:
        logger.error("the group member died of %r", error, exc_info=error)
        with self._changed:
            self._crash = error
            self._changed.notify_all()

    def _pump(self, now: float) -> None:
        client, carriers = self._client, self._carriers
        if client is None or carriers is None or self._closing:
            return
        for outgoing in client.poll_requests(now):
            carriers.send(outgoing)
        coordinator = client.parts.coordinator
        if coordinator is not None and coordinator != self._coordinator:
            self._coordinator = coordinator
            carriers.coordinator_is(coordinator)
        for event in client.poll_events():
            severity, text = narrate(event, client.topics.name)
            logger.log(severity.value, "group %s: %s", self._config.member.group_id, text)
            self._timeline.append(text)
            if self._observe is not None:
                self._observe(event, client.topics.name)
        self._changed.notify_all()

    def _keep_time(self) -> None:
        try:
            with self._changed:
                while not self._closing:
                    now = suspension_clock()
                    self._pump(now)
                    wake_at = self._started().next_wakeup(now)
                    sleep_s = MAX_SLEEP_S if wake_at is None else wake_at - now
                    self._changed.wait(min(MAX_SLEEP_S, max(0.001, sleep_s)))
        except Exception as error:
            self._crashed(error)

    def _close(self) -> None:
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        if self._carriers is not None:
            self._carriers.shutdown(timeout_s=1.0)
        if self._ends is not None:
            self._ends.shutdown()
