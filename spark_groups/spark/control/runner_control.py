"""The runner's end of the control channel: finished batches in, changes of partitions out.

A listener in the driver process reports each batch when Spark reports its end, or the function that
Spark has called does when it is done. If the batch is the last plan, the run finishes it without
waiting for the next trigger. The run reports assigned,
revoked and lost partitions to the callbacks in the driver process; a revocation waits until the
callbacks return.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark_groups.errors import GroupError, OptionsError
from spark_groups.group.batches.proofs import Proofs
from spark_groups.group.counts import Count
from spark_groups.group.ledger.events import PartitionsGivenUp, RevocationHeld
from spark_groups.group.member.events import (
    Event,
    MemberEvent,
    MemberLeft,
    NameOf,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    listed,
)
from spark_groups.runtime.driver import GroupDriver
from spark_groups.spark.control.channel import ControlClient, Link, directories_of_runner
from spark_groups.spark.control.control_messages import (
    BatchAsked,
    BatchReported,
    BatchRunning,
    BatchWritten,
    Change,
    Drain,
    Draining,
    Introduced,
    Listening,
    Message,
    Names,
    NothingMoreReported,
    PartitionsChanged,
    QueryRefused,
    RecordsCounted,
    Released,
    RunEnded,
)
from spark_groups.spark.options.option_values import MoveWithState
from spark_groups.types import NO_PARTITIONS, Assignment, TopicIdPartition, topic_id_text

logger = logging.getLogger(__name__)

GREETING_S: Final = 1.0
"""How long a driver may take to send `Listening`."""
MAX_UNSENT: Final = 1_000
"""How many changes of partitions may wait until their topic names are known."""


class RunnerControl:
    """Connects one run of a query to the drivers that listen.

    Args:
        proofs: Those of the run's batches; guarded by this object's lock.
        move_with_state: The option `partitionMoveWithState`.
        answer: Returns the batch that Spark runs, for a function that may know it.
        jvm_pid: None means the parent of this process.
        directories: Where to look for drivers' sockets; None means the JVM's directories.
    """

    def __init__(
        self,
        driver: GroupDriver,
        proofs: Proofs,
        *,
        group_id: str,
        move_with_state: MoveWithState = MoveWithState.WARN,
        answer: Callable[[BatchAsked], BatchRunning | None] = lambda _: None,
        jvm_pid: int | None = None,
        directories: Sequence[Path] | None = None,
    ) -> None:
        self._driver = driver
        self._proofs = proofs
        self._group_id = group_id
        self._move_with_state = move_with_state
        self._answer = answer
        self._changed = threading.Condition()
        self._listening: dict[Link, Listening] = {}
        self.trigger_interval_s: float | None = None
        """Seconds between batch starts, 0 if not fixed; None before the first report."""
        self._is_stateful: bool | None = None
        """None before the first report."""
        self._unjudged: set[tuple[str, int]] = set()
        """Partitions that moved away before a report said whether the query is stateful."""
        self._is_draining = False
        self._failure: Exception | None = None
        self._held: dict[int, set[Link]] = {}
        self._reported_lost: set[TopicIdPartition] = set()
        self._unsent: deque[tuple[PartitionsChanged, tuple[TopicIdPartition, ...]]] = deque(
            maxlen=MAX_UNSENT
        )
        """Changes that wait for topic names, each with its partitions by topic id."""
        self._owned = NO_PARTITIONS
        self._member_id, self._member_epoch = "", 0
        self._name_of: NameOf = lambda _: None
        self._hold_lock = threading.Lock()
        self._parent_pid = os.getppid()
        self._client = ControlClient(
            self._parent_pid if jvm_pid is None else jvm_pid,
            Introduced(pid=os.getpid(), group_id=group_id),
            self._received,
            self._lost,
            directories_of_runner() if directories is None else directories,
        )

    def start(self) -> None:
        """Connect to the drivers that listen now, and to those that will later."""
        self._driver.observe(self._observe)
        found = self._client.start()
        with self._changed:
            self._changed.wait_for(lambda: len(self._listening) >= found, GREETING_S)
        if self._move_with_state is MoveWithState.FAIL and not self.is_reported_to:
            logger.warning(
                "partitionMoveWithState=fail has no effect without a listener: call"
                " spark_groups.listen(spark) before the query starts"
            )

    def close(self, last_line: str | None = None) -> None:
        """Close all links.

        Args:
            last_line: What this run logs last: a driver logs it, because Spark closes the stderr
                of a runner whose query it stops.
        """
        if last_line is not None and logger.isEnabledFor(logging.INFO):
            ended = RunEnded(group_id=self._group_id, query_id=self.query_id or "", line=last_line)
            # One driver is enough, even if several objects of it listen.
            for link in self._client.links()[:1]:
                link.send(ended)
        self._client.close()

    @property
    def query_id(self) -> str | None:
        """Spark's query ID, once a driver has reported a batch."""
        return self._proofs.query_id

    @property
    def is_reported_to(self) -> bool:
        """Whether a driver reports the finished batches of this query's group."""
        with self._changed:
            return self._is_reported_to()

    def _is_reported_to(self) -> bool:
        return any(self._group_id in each.reported_groups for each in self._listening.values())

    @property
    def spark_ui(self) -> str | None:
        """URL of the application's Spark UI, from a driver."""
        with self._changed:
            return next((e.spark_ui for e in self._listening.values() if e.spark_ui), None)

    @property
    def default_parallelism(self) -> int:
        """Spark's default number of tasks, from a driver; 0: unknown."""
        with self._changed:
            return max((e.default_parallelism for e in self._listening.values()), default=0)

    @property
    def application_name(self) -> str:
        """Spark's name of the application, from a driver; empty: unknown."""
        with self._changed:
            listening = self._listening.values()
            return next((e.application_name for e in listening if e.application_name), "")

    @property
    def is_draining(self) -> bool:
        """Whether the driver is ending the query."""
        return self._is_draining

    def check(self) -> None:
        """Raise the error that a driver's message caused.

        Raises:
            OptionsError: The driver refuses the query.
            GroupError: Partitions moved away from state, and `partitionMoveWithState` is `fail`.
        """
        if self._failure is not None:
            with self.changing() as proofs:
                proofs.expect_no_report()
            raise self._failure

    @contextmanager
    def changing(self) -> Iterator[Proofs]:
        """Hold the lock of the run's proofs; then wake the threads that wait for a report."""
        with self._changed:
            yield self._proofs
            self._changed.notify_all()

    def await_report(self, timeout_s: float) -> bool:
        """Wait until the last plan is reported, or no report can arrive.

        Returns:
            False if rows may have been read whose offsets will not be committed.
        """
        if os.getppid() != self._parent_pid:
            # The JVM is gone.
            timeout_s = 0.0
        with self._changed:
            proofs = self._proofs
            self._changed.wait_for(
                lambda: not proofs.unproven or proofs.is_query_over or not self._awaits_report(),
                timeout_s,
            )
            return not proofs.unproven or not proofs.unproven.ranges

    def _awaits_report(self) -> bool:
        # A drain ends with a report.
        return self._is_reported_to() or (self._is_draining and bool(self._listening))

    def _received(self, link: Link, message: Message) -> None:
        try:
            self._take(link, message)
        except Exception:
            logger.exception("cannot process a driver's message")

    def _take(self, link: Link, message: Message) -> None:
        match message:
            case Listening():
                self._greeted(link, message)
            case QueryRefused(group_id=group_id, reason=reason):
                if group_id == self._group_id:
                    self._failure = OptionsError(reason)
            case BatchReported() | BatchWritten():
                self._reported(message)
            case BatchAsked():
                self._send_batch(link, message)
            case RecordsCounted(plan=plan, counts=counts):
                with self._changed:
                    is_own = self._proofs.is_own(plan)
                if is_own:
                    self._driver.count({Count[name]: number for name, number in counts})
            case NothingMoreReported(query_id=query_id):
                with self.changing() as proofs:
                    proofs.query_ended(query_id, had_reports=message.had_reports)
            case Drain():
                with self._changed:
                    self._is_draining = True
                link.send(Draining())
            case Released(number=number):
                self._release(number, link)
            case _:
                logger.warning("ignoring a driver's message %s", type(message).__name__)

    def _send_batch(self, link: Link, asked: BatchAsked) -> None:
        if (batch := self._answer(asked)) is not None:
            link.send(batch)

    def _greeted(self, link: Link, listening: Listening) -> None:
        with self._changed:
            self._listening[link] = listening
            self._changed.notify_all()
        self._hold_or_not()
        if owned := tuple(sorted(self._owned)):
            link.send(replace(self._message(Change.ASSIGNED), partitions=self._names(owned)))

    def _reported(self, report: BatchReported | BatchWritten) -> None:
        with self._changed:
            if not self._proofs.is_own(report.plan):
                return
            query_id = None
            if isinstance(report, BatchReported):
                query_id = report.query_id
                unjudged, self._unjudged = sorted(self._unjudged), set()
                self._is_stateful = report.is_stateful
                self._judge(unjudged)
                self.trigger_interval_s = report.trigger_interval_s
        if report.trigger_interval_s:
            # Before finish(), because the pause until the next trigger starts there.
            self._driver.expect_calls_every(report.trigger_interval_s)
        with self._changed:
            plan = self._proofs.reported(report.plan, query_id)
        if plan is not None:
            self._driver.finish(plan)
            with self.changing() as proofs:
                proofs.finished(plan)

    def _release(self, number: int, link: Link) -> None:
        with self._changed:
            waiting = self._held.get(number)
            if waiting is None:
                return
            waiting.discard(link)
            if waiting:
                return
            del self._held[number]
        self._driver.release_revocation(number)

    def _lost(self, link: Link) -> None:
        with self._changed:
            self._listening.pop(link, None)
            numbers = list(self._held)
            self._changed.notify_all()
        for number in numbers:
            self._release(number, link)
        self._hold_or_not()

    def _hold_or_not(self) -> None:
        # One call at a time, so that the later of two concurrent changes wins.
        with self._hold_lock:
            with self._changed:
                is_wanted = any(each.holds_revocations for each in self._listening.values())
            self._driver.hold_revocations(is_wanted)

    # The member's driver holds its lock while it calls the methods below: they must not block.

    def _observe(self, event: Event, name_of: NameOf) -> None:
        try:
            self._name_of = name_of
            if isinstance(event, MemberEvent):
                self._member_id, self._member_epoch = event.member_id, event.member_epoch
            self._follow(event)
            self._send_changes()
        except Exception:
            # A failed report must not end the membership.
            logger.exception("cannot report an event to the driver")

    def _follow(self, event: Event) -> None:
        match event:
            case PartitionsAssigned(partitions=partitions):
                self._owned = self._owned | partitions
                self._note(Change.ASSIGNED, partitions)
            case RevocationHeld(partitions=held, deadline=deadline):
                self._reported_lost.update(held)
                left_s = deadline - event.at
                self._note(Change.REVOKED, held, number=event.number, deadline_s=left_s)
            case PartitionsGivenUp(partitions=released):
                self._reported_lost.update(released)
                self._note(Change.LOST, released, reason="released before they were committed")
            case PartitionsRevoked(partitions=partitions):
                self._note(
                    Change.REVOKED, [key for key in partitions if key not in self._reported_lost]
                )
                self._gone(partitions)
            case PartitionsLost(partitions=partitions, reason=reason):
                self._note(Change.LOST, partitions, reason=reason)
                self._gone(partitions)
            case MemberLeft():
                self._owned = NO_PARTITIONS

    def _gone(self, partitions: Assignment) -> None:
        self._owned = self._owned - partitions
        self._reported_lost.clear()
        with self._changed:
            names = self._names(partitions)
            if self._is_stateful is None and self._proofs.has_planned:
                # The first report will say whether the query is stateful.
                self._unjudged.update(names)
            else:
                self._judge(names)

    def _judge(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Warn or fail if partitions moved away from a stateful query."""
        if not partitions or not self._is_stateful or self._move_with_state is MoveWithState.IGNORE:
            return
        names = [f"{topic}-{partition}" for topic, partition in partitions]
        text = (
            f"{listed(names)} moved to other members of group {self._group_id!r},"
            " but this query is stateful, and its state does not move: the new owners start without"
            " it. Static members (kafka.group.instance.id) keep their partitions across restarts; a"
            " query that is alone in its group keeps all partitions"
        )
        if self._move_with_state is MoveWithState.WARN:
            logger.warning("%s", text)
        else:
            self._failure = GroupError(f"{text}; partitionMoveWithState is fail")

    def _note(
        self,
        change: Change,
        keys: Iterable[TopicIdPartition],
        *,
        number: int = 0,
        deadline_s: float = 0.0,
        reason: str = "",
    ) -> None:
        """Queue a change until its topic names are known."""
        if partitions := tuple(sorted(keys)):
            message = replace(
                self._message(change), number=number, deadline_s=float(deadline_s), reason=reason
            )
            self._unsent.append((message, partitions))

    def _message(self, change: Change) -> PartitionsChanged:
        return PartitionsChanged(
            change=change.value,
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._member_epoch,
        )

    def _send_changes(self) -> None:
        while self._unsent:
            message, keys = self._unsent[0]
            is_named = all(self._name_of(key.topic_id) for key in keys)
            is_assigned = message.change == Change.ASSIGNED.value
            if not is_named and is_assigned and len(self._unsent) == 1:
                return
            self._unsent.popleft()
            if message.number:
                with self._changed:
                    self._held[message.number] = {
                        link for link, each in self._listening.items() if each.holds_revocations
                    }
            self._client.broadcast(replace(message, partitions=self._names(keys)))

    def _names(self, keys: Iterable[TopicIdPartition]) -> Names:
        return tuple(
            (self._name_of(key.topic_id) or topic_id_text(key.topic_id), key.partition)
            for key in sorted(keys)
        )
