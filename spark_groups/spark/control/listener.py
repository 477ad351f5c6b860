"""`spark_groups.listen(spark)`: what a driver sees of its queries, and what it wants to be told.

Spark reports a batch after it has written its commit log. The listener passes that on to the
runner, which commits the batch's offsets at once: with long triggers nothing waits for the next
one. The other way, partitions that come and go are handed to the driver's own code. Listening is
optional: without it everything works, later.

`spark.sql.streaming.streamingQueryListeners` cannot name this listener: it takes classes of the
JVM only, and starts no query if it is given anything else.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_groups.errors import OptionsError
from spark_groups.offsets.plan_text import planner_of
from spark_groups.spark.control.channel import ControlServer, Link, directories_of_driver
from spark_groups.spark.control.messages import (
    BatchReported,
    Change,
    Listening,
    Message,
    NothingMoreReported,
    PartitionsChanged,
    QueryRefused,
    Released,
)
from spark_groups.spark.source.running_query import split_group
from spark_groups.types import TopicPartition

logger = logging.getLogger(__name__)

MAX_WAITING_CHANGES: Final = 1_000
MAX_QUERIES: Final = 1_000
ASYNCHRONOUS: Final = "AsyncProgressTrackingMicroBatchExecution"
TIMED_TRIGGER: Final = "ProcessingTimeTrigger"
EVENTS_TIMEOUT_S: Final = 5.0
"""How long the end of listening waits for events that Spark has posted and not delivered."""
NO_THREADS_TIMEOUT_S: Final = 1.0
"""The same where no thread can be started: only a connection that py4j has already can deliver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsMoved:
    """Partitions that came to a query, or went away from it.

    Args:
        member_id: The query's member ID, which differs in each run.
        member_epoch: The member epoch at the time of the change.
        partitions: Several calls may share one member epoch.
        query_id: Spark's query ID; None before the first batch was reported.
        deadline_s: `on_revoked` only: seconds that the revocation waits; 0 if it does not wait.
        reason: `on_lost` only.
    """

    group_id: str
    member_id: str
    member_epoch: int
    partitions: tuple[TopicPartition, ...]
    query_id: str | None = None
    deadline_s: float | None = None
    reason: str = ""


OnMoved = Callable[[PartitionsMoved], object]
_open_listeners: Final[set[GroupListener]] = set()
"""Those that Spark calls: they have to be closed while this process can still be called."""


class GroupListener:
    """Connects the queries of one JVM to the driver's code; `listen` makes one.

    Args:
        directories: Candidate directories for the control socket, in order of preference.
        spark_ui: URL of the application's Spark UI, which runners publish in snapshots.
    """

    def __init__(
        self,
        jvm_pid: int,
        *,
        on_assigned: OnMoved | None = None,
        on_revoked: OnMoved | None = None,
        on_lost: OnMoved | None = None,
        directories: Sequence[Path],
        spark_ui: str = "",
    ) -> None:
        self._callbacks = {
            Change.ASSIGNED: on_assigned,
            Change.REVOKED: on_revoked,
            Change.LOST: on_lost,
        }
        self._queries: dict[str, str] = {}
        """Query ids by member id, as reported batches show them."""
        self._refused: dict[str, QueryRefused] = {}
        """Refusals by query id."""
        self._waiting: queue.Queue[tuple[Link, PartitionsChanged, float] | None] = queue.Queue(
            MAX_WAITING_CHANGES
        )
        self._remove: Callable[[float], None] | None = None
        self._server = ControlServer(
            jvm_pid,
            Listening(
                reports_batches=True,
                holds_revocations=on_revoked is not None,
                spark_ui=spark_ui,
            ),
            self._received,
            directories,
            self._refusals,
        )
        self._server.start(
            "offsets are committed at the next trigger, Trigger.Once is refused, and callbacks for"
            " partitions that come and go are never called"
        )
        threading.Thread(target=self._serve, name="rebalance-listener", daemon=True).start()

    def report(
        self,
        query_id: str,
        ends: Iterable[str],
        *,
        is_stateful: bool,
        is_asynchronous: bool,
        trigger_interval_s: float = 0.0,
    ) -> None:
        """Pass on that Spark has a batch in its commit log.

        Args:
            ends: End offsets of the batch, one per source, as in the checkpoint.
            trigger_interval_s: Seconds between batch starts; 0 if not fixed.
        """
        for end in ends:
            member_id = planner_of(end)
            if member_id is None:
                continue
            if len(self._queries) >= MAX_QUERIES:
                del self._queries[next(iter(self._queries))]
            self._queries[member_id] = query_id
            self._server.broadcast(
                BatchReported(
                    plan=end,
                    query_id=query_id,
                    is_stateful=is_stateful,
                    is_asynchronous=is_asynchronous,
                    trigger_interval_s=trigger_interval_s,
                )
            )

    def refuse(self, query_id: str, group_id: str, reason: str) -> None:
        """Have a query that is about to start end at once, until `ended`."""
        if len(self._refused) < MAX_QUERIES:
            self._refused[query_id] = QueryRefused(group_id=group_id, reason=reason)

    def ended(self, query_id: str) -> None:
        """Pass on that a query has ended: nothing more will be reported of it."""
        self._refused.pop(query_id, None)
        had_reports = query_id in self._queries.values()
        self._server.broadcast(NothingMoreReported(query_id=query_id, had_reports=had_reports))

    def on_close(self, remove: Callable[[float], None]) -> None:
        """Have something done when listening ends."""
        self._remove = remove

    def close(self, timeout_s: float = EVENTS_TIMEOUT_S) -> None:
        """Listen no more; what waits for a callback is let go.

        What Spark has posted before is delivered first. An application that ends without this
        call closes its listeners by itself.

        Args:
            timeout_s: Seconds to wait for events that Spark has posted.
        """
        remove, self._remove = self._remove, None
        if remove is not None:
            with _reported("the session's listener could not be removed"):
                remove(timeout_s)
        _open_listeners.discard(self)
        self._server.close()
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            logger.warning("changes of partitions still wait for a callback that does not return")

    def _refusals(self) -> list[QueryRefused]:
        return list(self._refused.values())

    def _received(self, link: Link, message: Message) -> None:
        if not isinstance(message, PartitionsChanged):
            return
        try:
            self._waiting.put_nowait((link, message, time.monotonic() + message.deadline_s))
        except queue.Full:
            logger.warning("a callback does not return: %s partitions are not told", message.change)
            _release(link, message)

    def _serve(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            link, changed, deadline = waiting
            try:
                self._call(changed, deadline)
            except BaseException:
                # Ownership is for the coordinator to decide, not for what went wrong here; and a
                # callback that wants to exit must not leave later ones to nobody.
                logger.exception("the callback for %s partitions failed", changed.change)
            _release(link, changed)

    def _call(self, changed: PartitionsChanged, deadline: float) -> None:
        change = Change(changed.change)
        callback = self._callbacks[change]
        if callback is None:
            return
        left_s = max(0.0, deadline - time.monotonic()) if changed.number else 0.0
        callback(
            PartitionsMoved(
                group_id=changed.group_id,
                member_id=changed.member_id,
                member_epoch=changed.member_epoch,
                partitions=tuple(TopicPartition(*each) for each in changed.partitions),
                query_id=self._queries.get(changed.member_id),
                deadline_s=left_s if change is Change.REVOKED else None,
                reason=changed.reason,
            )
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """What a query knows of itself and no event says."""

    is_asynchronous: bool = False
    trigger_interval_s: float = 0.0


class _QueryEvents(StreamingQueryListener):
    """Spark's side: events of all queries of a session, on Spark's own thread."""

    def __init__(self, listener: GroupListener, spark: SparkSession) -> None:
        self._listener = listener
        self._session = spark
        self._runs: dict[str, _Run] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        # Spark waits for this before it makes the query's runners.
        self._safely(lambda: self._refuse_if_split(str(event.id)))
        self._safely(lambda: self._run(str(event.runId), str(event.id)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress

        def report() -> None:
            run = self._run(str(progress.runId), str(progress.id))
            self._listener.report(
                str(progress.id),
                [str(source.endOffset) for source in progress.sources],
                is_stateful=bool(progress.stateOperators),
                is_asynchronous=run.is_asynchronous,
                trigger_interval_s=run.trigger_interval_s,
            )

        self._safely(report)

    def onQueryIdle(self, event: object) -> None:
        """Nothing is new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._runs.pop(str(event.runId), None)
        self._safely(lambda: self._listener.ended(str(event.id)))

    def _refuse_if_split(self, query_id: str) -> None:
        found: Any = self._session.streams.get(query_id)
        split = split_group(found._jsq.streamingQuery()) if found is not None else None
        if split is not None:
            self._listener.refuse(query_id, *split)

    def _run(self, run_id: str, query_id: str) -> _Run:
        """Ask the query itself, once."""
        if run_id not in self._runs:
            if len(self._runs) >= MAX_QUERIES:
                del self._runs[next(iter(self._runs))]
            self._runs[run_id] = self._ask(query_id)
        return self._runs[run_id]

    def _ask(self, query_id: str) -> _Run:
        found: Any = self._session.streams.get(query_id)
        if found is None:
            return _Run()
        execution = found._jsq.streamingQuery()
        trigger = execution.trigger()
        is_timed = trigger.getClass().getSimpleName() == TIMED_TRIGGER
        return _Run(
            is_asynchronous=execution.getClass().getSimpleName() == ASYNCHRONOUS,
            trigger_interval_s=trigger.intervalMs() / 1000 if is_timed else 0.0,
        )

    def _safely(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception:
            logger.exception("an event of a query could not be passed on")


def listen(
    spark: SparkSession,
    *,
    on_assigned: OnMoved | None = None,
    on_revoked: OnMoved | None = None,
    on_lost: OnMoved | None = None,
) -> GroupListener:
    """Have batches committed as soon as they are finished, and be told where partitions go.

    Call it before queries are started, once for each session. The callbacks run one after the
    other on a thread of their own, for all queries of the session's JVM. `on_revoked` is called
    before partitions are given up, when nothing reads them and what was finished is committed; the
    group waits until it returns, or until 90 % of the rebalance time-out are used up. `on_lost` is
    best effort: the partitions may be another's already. A query that ends gives up what it has
    without a call; Spark's own `onQueryTerminated` says so. Where no socket can be made that the
    queries' runners find, a warning says what is missing, and the queries run without it.

    Args:
        spark: A classic session, not Spark Connect.
        on_assigned: Called with newly assigned partitions, and with all of them if listening begins
            later.
        on_revoked: Called before partitions are revoked.
        on_lost: Called when the member has lost partitions: fenced, expired, or released
            uncommitted.

    Raises:
        OptionsError: The session is one of Spark Connect.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        raise OptionsError(
            "a session of Spark Connect cannot listen: its runners are on another machine. Offsets"
            " are committed at the next trigger"
        )
    jvm: Any = context._jvm
    jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
    listener = GroupListener(
        jvm_pid,
        on_assigned=on_assigned,
        on_revoked=on_revoked,
        on_lost=on_lost,
        directories=directories_of_driver(jvm),
        spark_ui=context.uiWebUrl or "",
    )
    events = _QueryEvents(listener, spark)

    spark.streams.addListener(events)
    listener.on_close(lambda timeout_s: remove_listener(spark, events, timeout_s))
    # Once the interpreter ends, Spark's calls would fail and be logged as errors.
    atexit.unregister(close_listeners)
    atexit.register(close_listeners)
    _open_listeners.add(listener)
    return listener


def close_listeners() -> None:
    """Close every listener of this process that is still open, within one time-out for all."""
    timeout_s = EVENTS_TIMEOUT_S if _can_start_threads() else NO_THREADS_TIMEOUT_S
    deadline_s = time.monotonic() + timeout_s
    for each in tuple(_open_listeners):
        each.close(max(0.0, deadline_s - time.monotonic()))


def remove_listener(
    spark: SparkSession, events: StreamingQueryListener, timeout_s: float = EVENTS_TIMEOUT_S
) -> None:
    """Have Spark call a listener no more, once it has delivered what it has posted.

    The listener is removed also if the events are not delivered in time.
    """
    deadline_s = time.monotonic() + timeout_s
    _await_events(spark, deadline_s)
    with _reported(
        "the session's listener could not be removed, and Spark may log errors when it calls it"
    ):
        spark.streams.removeListener(events)
    # Spark may be calling it at this moment, for the last time.
    _await_events(spark, deadline_s)


def _await_events(spark: SparkSession, deadline_s: float) -> None:
    """Wait until Spark has delivered the events that it has posted, or the time is over."""
    left_s = max(0.0, deadline_s - time.monotonic())
    with _reported(
        "Spark has not delivered all events of its queries in time: the last batches may be"
        " committed by the next run only"
    ):
        session: Any = spark
        session._jsparkSession.sparkContext().listenerBus().waitUntilEmpty(int(left_s * 1000))


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Log what goes wrong: the end of listening goes on."""
    try:
        yield
    except (Py4JNetworkError, ConnectionError) as error:
        # The JVM is gone: it calls nobody any more.
        logger.info("%s: %r", what, error)
    except Exception as error:
        logger.warning("%s: %r", what, error)


def _can_start_threads() -> bool:
    """Tell whether Python may start a thread: from 3.12 on it may not while it ends.

    py4j serves each connection from Java on a thread of its own.
    """
    try:
        threading.Thread(target=int, daemon=True).start()
    except RuntimeError:
        return False
    return True


def _release(link: Link, changed: PartitionsChanged) -> None:
    if changed.number:
        link.send(Released(number=changed.number))
