"""A runner's part in the talk with the driver: what Spark has committed, and where partitions go.

The driver's listener reports batches as soon as Spark has them in its commit log; the one that is
the plan last handed out is finished at once, not at the next trigger. The other way, partitions
that come and go are told to the driver's rebalance listener, whose word a revocation waits for.
Without a listener nothing of this happens, and everything still works, later.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_groups.errors import GroupError, OptionsError
from spark_groups.offsets.events import PartitionsGivenUp, RevocationHeld
from spark_groups.offsets.plan_text import plan_text
from spark_groups.protocol.events import (
    Event,
    MemberEvent,
    MemberLeft,
    NameOf,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from spark_groups.runtime.driver import GroupDriver
from spark_groups.spark.control.channel import ControlClient, Link, directories_of_runner
from spark_groups.spark.control.messages import (
    BatchReported,
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
    Released,
)
from spark_groups.spark.options.values import MoveWithState
from spark_groups.types import NO_PARTITIONS, Assignment, BatchPlan, TopicIdPartition, topic_id_text

logger = logging.getLogger(__name__)

GREETING_S: Final = 1.0
"""How long a driver that listens may take to say so."""
MAX_UNTOLD: Final = 1_000
"""How many changes wait for the names of their topics."""
MAX_RECENT: Final = 16
SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class _Untold:
    change: Change
    number: int
    who: tuple[str, int]
    partitions: tuple[TopicIdPartition, ...]
    deadline_s: float
    reason: str


class RunnerControl:
    """Connects one run of a query to the drivers that listen.

    Args:
        move_with_state: The option `partitionMoveWithState`.
        jvm_pid: None means the parent of this process.
        directories: Where to look for drivers' sockets; None means the JVM's directories.
    """

    def __init__(
        self,
        driver: GroupDriver,
        *,
        group_id: str,
        move_with_state: MoveWithState = MoveWithState.WARN,
        jvm_pid: int | None = None,
        directories: Sequence[Path] | None = None,
    ) -> None:
        self._driver = driver
        self._group_id = group_id
        self._move_with_state = move_with_state
        self._changed = threading.Condition()
        self._listening: dict[Link, Listening] = {}
        self._expected: BatchPlan | None = None
        self._expected_text: str | None = None
        self._recent: deque[int] = deque(maxlen=MAX_RECENT)
        self._query_id: str | None = None
        self._is_stateful: bool | None = None
        """None before the first report."""
        self._unjudged: set[tuple[str, int]] = set()
        """Partitions that moved away between the first plan and the first report."""
        self._is_over = False
        self._is_draining = False
        self._failure: Exception | None = None
        self._held: dict[int, set[Link]] = {}
        self._told: set[TopicIdPartition] = set()
        self._untold: deque[_Untold] = deque(maxlen=MAX_UNTOLD)
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

    # What the run wants.

    def start(self) -> None:
        """Connect to the drivers that listen, and to those that will."""
        self._driver.observe(self._observe)
        found = self._client.start()
        with self._changed:
            self._changed.wait_for(lambda: len(self._listening) >= found, GREETING_S)
        if self._move_with_state is MoveWithState.FAIL and not self.is_reported_to:
            logger.warning(
                "partitionMoveWithState=fail cannot be kept: only a listener sees whether the query"
                " keeps state; call spark_groups.listen(spark) before the query starts"
            )

    def close(self) -> None:
        """End all links."""
        self._client.close()

    @property
    def query_id(self) -> str | None:
        """Spark's id of the query, once a driver has reported a batch of it."""
        return self._query_id

    @property
    def is_reported_to(self) -> bool:
        """Whether a driver reports what Spark has committed."""
        with self._changed:
            return any(each.reports_batches for each in self._listening.values())

    @property
    def spark_ui(self) -> str | None:
        """Where the application's Spark UI is, by the word of a driver that listens."""
        with self._changed:
            return next((e.spark_ui for e in self._listening.values() if e.spark_ui), None)

    @property
    def is_draining(self) -> bool:
        """Whether the driver asked for an end: then nothing more is planned."""
        return self._is_draining

    def check(self) -> None:
        """Raise what a driver's report makes it impossible to go on with.

        Raises:
            OptionsError: The driver refuses the query, or it tracks its progress asynchronously.
            GroupError: Partitions moved away from state, and `partitionMoveWithState` is `fail`.
        """
        if self._failure is not None:
            # Its end need not wait for another report.
            self.expect(None)
            raise self._failure

    def expect(self, plan: BatchPlan | None) -> None:
        """Say which plan was handed to Spark: its report is what finishes it.

        Args:
            plan: None means that Spark has finished the previous plan.
        """
        with self._changed:
            self._expected = plan
            self._expected_text = None
            # The end that was told of was another query's: this one goes on.
            self._is_over = False
            if plan is not None:
                self._expected_text = plan_text(plan)
                # A report that comes after the next call still says what kind of query it is.
                self._recent.append(hash(self._expected_text))
            self._changed.notify_all()

    def await_report(self, timeout_s: float) -> bool:
        """Wait until the plan in Spark's hands is reported, or it is certain that it will not be.

        Returns:
            False if rows may have been read that nobody will commit.
        """
        if os.getppid() != self._parent_pid:
            # Nobody reports for a JVM that is gone.
            timeout_s = 0.0
        with self._changed:
            self._changed.wait_for(
                lambda: self._expected is None or self._is_over or not self._may_hear(), timeout_s
            )
            return self._expected is None or not self._expected.ranges

    def _may_hear(self) -> bool:
        """Whether a report is still to be expected; a drain ends with one."""
        reports = any(each.reports_batches for each in self._listening.values())
        return reports or (self._is_draining and bool(self._listening))

    # What drivers say.

    def _received(self, link: Link, message: Message) -> None:
        try:
            self._take(link, message)
        except Exception:
            logger.exception("what a driver said could not be followed")

    def _take(self, link: Link, message: Message) -> None:
        match message:
            case Listening():
                self._greeted(link, message)
            case QueryRefused(group_id=group_id, reason=reason):
                if group_id == self._group_id:
                    self._failure = OptionsError(reason)
            case BatchReported():
                self._reported(message)
            case NothingMoreReported(query_id=query_id):
                with self._changed:
                    mine = query_id in ("", self._query_id)
                    # A query that ended without any report may be this one.
                    maybe = self._query_id is None and not message.had_reports
                    self._is_over = self._is_over or mine or maybe
                    self._changed.notify_all()
            case Drain():
                with self._changed:
                    self._is_draining = True
                link.send(Draining())
            case Released(number=number):
                self._release(number, link)
            case _:
                logger.warning("a driver said %s, which means nothing here", type(message).__name__)

    def _greeted(self, link: Link, listening: Listening) -> None:
        with self._changed:
            self._listening[link] = listening
            self._changed.notify_all()
        self._hold_or_not()
        if owned := tuple(sorted(self._owned)):
            who = (self._member_id, self._member_epoch)
            link.send(self._message(_Untold(Change.ASSIGNED, 0, who, owned, 0.0, "")))

    def _reported(self, report: BatchReported) -> None:
        with self._changed:
            if hash(report.plan) not in self._recent:
                return
            unjudged, self._unjudged = sorted(self._unjudged), set()
            self._is_stateful = report.is_stateful
            self._judge(unjudged)
            self._query_id = report.query_id
            if report.is_asynchronous:
                self._failure = OptionsError(
                    "asyncProgressTrackingEnabled is refused: with it Spark says that a batch is"
                    " finished before it is in the commit log, so that rows could be lost; take"
                    " the option away from writeStream"
                )
                return
            plan = self._expected if report.plan == self._expected_text else None
        if report.trigger_interval_s:
            # Before the batch is finished: the pause that follows is as long as the trigger's.
            self._driver.expect_calls_every(report.trigger_interval_s)
        if plan is None:
            return
        self._driver.finish(plan)
        with self._changed:
            if self._expected is plan:
                self._expected = self._expected_text = None
            self._changed.notify_all()

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
        # Two links at once must not leave behind what the earlier one knew.
        with self._hold_lock:
            with self._changed:
                is_wanted = any(each.holds_revocations for each in self._listening.values())
            self._driver.hold_revocations(is_wanted)

    # What happens to the member; called with the driver's lock, so nothing here may wait.

    def _observe(self, event: Event, name_of: NameOf) -> None:
        try:
            self._name_of = name_of
            if isinstance(event, MemberEvent):
                self._member_id, self._member_epoch = event.member_id, event.member_epoch
            self._follow(event)
            self._tell()
        except Exception:
            # The membership must not die of what is only told.
            logger.exception("an event could not be told to the driver")

    def _follow(self, event: Event) -> None:
        match event:
            case PartitionsAssigned(partitions=partitions):
                self._owned = self._owned | partitions
                self._note(Change.ASSIGNED, partitions)
            case RevocationHeld(partitions=held, release_by=release_by):
                self._told.update(held)
                left_s = release_by - event.at
                self._note(Change.REVOKED, held, number=event.number, deadline_s=left_s)
            case PartitionsGivenUp(partitions=given_up):
                self._told.update(given_up)
                self._note(Change.LOST, given_up, reason="given up before they were committed")
            case PartitionsRevoked(partitions=partitions):
                self._note(Change.REVOKED, [key for key in partitions if key not in self._told])
                self._gone(partitions)
            case PartitionsLost(partitions=partitions, reason=reason):
                self._note(Change.LOST, partitions, reason=reason)
                self._gone(partitions)
            case MemberLeft():
                self._owned = NO_PARTITIONS

    def _gone(self, partitions: Assignment) -> None:
        self._owned = self._owned - partitions
        self._told.clear()
        with self._changed:
            names = self._names(partitions)
            if self._is_stateful is None and self._recent:
                # The first report may come after a partition of its batch has moved away.
                self._unjudged.update(names)
            else:
                self._judge(names)

    def _judge(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Warn or fail if partitions moved away from a query that keeps state."""
        if not partitions or not self._is_stateful or self._move_with_state is MoveWithState.IGNORE:
            return
        names = [f"{topic}-{partition}" for topic, partition in partitions]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        text = (
            f"{', '.join(names[:SHOWN])}{more} went to other members of group {self._group_id!r},"
            " but the query keeps state, which stays here: the new owners begin without it. Static"
            " members (kafka.group.instance.id) keep their partitions over restarts; a query that"
            " is alone in its group never loses any"
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
        """Keep a change until the names of its topics are known: metadata may come later."""
        if partitions := tuple(sorted(keys)):
            who = (self._member_id, self._member_epoch)
            self._untold.append(_Untold(change, number, who, partitions, deadline_s, reason))

    def _tell(self) -> None:
        while self._untold:
            untold = self._untold[0]
            is_named = all(self._name_of(key.topic_id) for key in untold.partitions)
            if not is_named and untold.change is Change.ASSIGNED and len(self._untold) == 1:
                return
            self._untold.popleft()
            if untold.number:
                with self._changed:
                    self._held[untold.number] = {
                        link for link, each in self._listening.items() if each.holds_revocations
                    }
            self._client.broadcast(self._message(untold))

    def _message(self, untold: _Untold) -> PartitionsChanged:
        member_id, member_epoch = untold.who
        return PartitionsChanged(
            change=untold.change.value,
            number=untold.number,
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            partitions=self._names(untold.partitions),
            deadline_s=float(untold.deadline_s),
            reason=untold.reason,
        )

    def _names(self, keys: Iterable[TopicIdPartition]) -> Names:
        return tuple(
            (self._name_of(key.topic_id) or topic_id_text(key.topic_id), key.partition)
            for key in sorted(keys)
        )
