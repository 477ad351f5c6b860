"""`spark_groups.listen(spark)`: connects the driver to the runners of its queries.

Through Spark Connect, the server runs the listener. A client's own is called on the client, which
may be another host. But the protocol also takes a pickled listener, which the server calls in a
Python process on its own host, a child of the JVM like the runners. It stays after the client has
ended, until its session ends.

Spark reports a batch when it is in the sink and, unless progress is tracked asynchronously, in its
commit log; the listener passes the report to the runner, which commits the batch's offsets at once
instead of at the next trigger. In return, the runner reports changes of partitions, which the
listener passes to the user's callbacks. Listening is optional.

`spark.sql.streaming.streamingQueryListeners` cannot name this listener, because it accepts only
classes of the JVM.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JNetworkError
from pyspark import __version__ as pyspark_version
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from spark_groups.errors import OptionsError
from spark_groups.group.counts import Count
from spark_groups.group.ledger.plan_text import parse_plan_text, planner_of
from spark_groups.spark.control.channel import (
    ControlServer,
    Link,
    directories_of_driver,
    directories_of_runner,
)
from spark_groups.spark.control.control_messages import (
    BatchReported,
    Change,
    Listening,
    Message,
    NothingMoreReported,
    PartitionsChanged,
    QueryRefused,
    RecordsCounted,
    Released,
)
from spark_groups.spark.control.jvm_connection import UNIX_SOCKETS
from spark_groups.spark.control.runner_process import log_to_stderr
from spark_groups.spark.control.running_query import groups_of, split_group, trigger_interval_s
from spark_groups.spark.control.served_query import end_with_server, is_served
from spark_groups.spark.control.spark_log import NOT_CANCELLED, drop_lines
from spark_groups.spark.schemas.row_formats import UNDECODABLE
from spark_groups.types import TopicPartition

logger = logging.getLogger(__name__)

MAX_WAITING_CHANGES: Final = 1_000
MAX_QUERIES: Final = 1_000
HAS_UNIX_SOCKETS: Final = not pyspark_version.startswith("4.0.")
EVENTS_TIMEOUT_S: Final = 5.0
"""How long close() waits for events that Spark has posted."""
RUNNERS_END_S: Final = 3.0
"""How long close() waits for the runners of queries that have ended."""
NO_THREADS_TIMEOUT_S: Final = 1.0
"""The same if no thread can start, when only an existing py4j connection can deliver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsMoved:
    """A change of a query's partitions.

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
"""Listeners that Spark calls; they must be closed while this process can serve calls."""


class GroupListener:
    """Connects the queries of one JVM to the driver's code; `listen` returns one.

    Args:
        directories: Candidate directories for the control socket, in order of preference.
        spark_ui: URL of the application's Spark UI, which runners publish in snapshots.
        application_name: Spark's name of the application, for members without a client id.
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
        application_name: str = "",
    ) -> None:
        self._callbacks = {
            Change.ASSIGNED: on_assigned,
            Change.REVOKED: on_revoked,
            Change.LOST: on_lost,
        }
        self._queries: dict[str, str] = {}
        """Query IDs by member ID, from reported batches."""
        self._groups: dict[str, frozenset[str]] = {}
        """The groups of the session's queries, by run ID."""
        self._ended: set[str] = set()
        """The groups of queries that have ended; a bounded number of them."""
        self._refused: dict[str, QueryRefused] = {}
        """Refusals by run ID."""
        self._waiting: queue.Queue[tuple[Link, PartitionsChanged, float] | None] = queue.Queue(
            MAX_WAITING_CHANGES
        )
        self._remove: Callable[[float], None] | None = None
        self._server = ControlServer(
            jvm_pid,
            Listening(
                reported_groups=(),
                holds_revocations=on_revoked is not None,
                spark_ui=spark_ui,
                application_name=application_name,
            ),
            self._received,
            directories,
            lambda: tuple(self._refused.values()),
        )

    def start(self) -> None:
        """Let runners connect, and serve callbacks."""
        self._server.start(
            "offsets are committed at the next trigger, Trigger.Once is refused, and rebalance"
            " callbacks are never called"
        )
        threading.Thread(target=self._serve, name="rebalance-listener", daemon=True).start()

    def note_groups(self, run_id: str, group_ids: frozenset[str]) -> None:
        """Tell runners that connect from now on whose batches Spark reports, until `ended`.

        Spark reports no queries of other sessions. Runners that are connected learn it, too: one
        of a Connect server connects before its query is known.
        """
        if self._groups.get(run_id) == group_ids:
            return
        if len(self._groups) >= MAX_QUERIES:
            del self._groups[next(iter(self._groups))]
        self._groups[run_id] = group_ids
        self._tell_groups()
        self._server.broadcast(self._server.listening)

    def _tell_groups(self) -> None:
        groups = tuple(sorted(frozenset().union(*self._groups.values())))
        self._server.listening = replace(self._server.listening, reported_groups=groups)

    def note_parallelism(self, default_parallelism: int) -> None:
        """Tell runners that connect from now on Spark's default number of tasks."""
        listening = self._server.listening
        self._server.listening = replace(listening, default_parallelism=default_parallelism)

    def report(
        self,
        query_id: str,
        ends: Iterable[str],
        *,
        is_stateful: bool,
        trigger_interval_s: float = 0.0,
        undecodable: int = 0,
    ) -> None:
        """Report a finished batch to the runners.

        Args:
            ends: End offsets of the batch, one per source, as in the checkpoint.
            trigger_interval_s: Seconds between batch starts; 0 if not fixed.
            undecodable: Records of the first source that were not decoded.
        """
        for end in ends:
            member_id = planner_of(end)
            if member_id is None:
                continue
            if len(self._queries) >= MAX_QUERIES:
                del self._queries[next(iter(self._queries))]
            self._queries[member_id] = query_id
            if undecodable:
                counts = ((Count.RECORDS_UNDECODABLE.name, undecodable),)
                self._server.broadcast(RecordsCounted(plan=end, counts=counts))
                undecodable = 0
            self._server.broadcast(
                BatchReported(
                    plan=end,
                    query_id=query_id,
                    is_stateful=is_stateful,
                    trigger_interval_s=trigger_interval_s,
                )
            )

    def refuse(self, run_id: str, group_id: str, reason: str) -> None:
        """Make a starting query fail, until `ended`."""
        if len(self._refused) < MAX_QUERIES:
            self._refused[run_id] = QueryRefused(group_id=group_id, reason=reason)

    def ended(self, query_id: str, run_id: str) -> None:
        """Report to the runners that a run of a query has ended; it may run again already."""
        self._refused.pop(run_id, None)
        if (groups := self._groups.pop(run_id, None)) is not None:
            if len(self._ended) < MAX_QUERIES:
                self._ended |= groups
            self._tell_groups()
        had_reports = query_id in self._queries.values()
        self._server.broadcast(NothingMoreReported(query_id=query_id, had_reports=had_reports))

    def on_close(self, remove: Callable[[float], None]) -> None:
        """Set a function for `close` to call with its timeout in seconds."""
        self._remove = remove

    def close(self, timeout_s: float = EVENTS_TIMEOUT_S) -> None:
        """Stop listening, after Spark has delivered its posted events; release held revocations.

        At exit, an application closes its listeners itself.

        Args:
            timeout_s: Seconds to wait for events that Spark has posted.
        """
        remove, self._remove = self._remove, None
        if remove is not None:
            with _reported("the session's listener could not be removed"):
                remove(timeout_s)
        _open_listeners.discard(self)
        # Their last messages say how their runs ended.
        ended = self._ended.difference(*self._groups.values())
        if not self._server.await_ends(ended, min(timeout_s, RUNNERS_END_S)):
            logger.info("runners of queries that have ended are still leaving their groups")
        self._server.close()
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            logger.warning("closing although a rebalance callback does not return")

    def _received(self, link: Link, message: Message) -> None:
        if not isinstance(message, PartitionsChanged):
            return
        try:
            self._waiting.put_nowait((link, message, time.monotonic() + message.deadline_s))
        except queue.Full:
            logger.warning(
                "a callback does not return: not reporting %s partitions", message.change
            )
            _release(link, message)

    def _serve(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            link, changed, deadline = waiting
            try:
                self._call(changed, deadline)
            except BaseException:
                # A failed callback must not hold the revocation, and one that calls sys.exit()
                # must not end this thread.
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
                partitions=tuple(TopicPartition(*partition) for partition in changed.partitions),
                query_id=self._queries.get(changed.member_id),
                deadline_s=left_s if change is Change.REVOKED else None,
                reason=changed.reason,
            )
        )


class QueryEvents(StreamingQueryListener):
    """Receives events of all queries of a session, on Spark's thread."""

    def __init__(self, listener: GroupListener, spark: SparkSession) -> None:
        self._listener = listener
        self._session = spark
        self._intervals_s: dict[str, float] = {}
        """Seconds between batch starts, by run ID; 0 if not fixed. No event contains them."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Note what the query reads."""
        # Spark waits for this call before it creates the query's runners.
        self._safely(lambda: self._refuse_if_split(str(event.id), str(event.runId)))
        self._safely(lambda: self.note_groups(str(event.id), str(event.runId)))
        # It grows while executors register.
        self._safely(
            lambda: self._listener.note_parallelism(self._session.sparkContext.defaultParallelism)
        )
        self._safely(lambda: self._interval_s(str(event.runId), str(event.id)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the batch."""
        progress = event.progress

        def report() -> None:
            interval_s = self._interval_s(str(progress.runId), str(progress.id))
            self._listener.report(
                str(progress.id),
                [str(source.endOffset) for source in progress.sources],
                is_stateful=bool(progress.stateOperators),
                trigger_interval_s=interval_s,
                undecodable=_undecodable(progress),
            )

        self._safely(report)

    def onQueryIdle(self, event: object) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Report the end of the run."""
        self._intervals_s.pop(str(event.runId), None)
        self._safely(lambda: self._listener.ended(str(event.id), str(event.runId)))

    def note_groups(self, query_id: str, run_id: str) -> None:
        """Note the groups of a query of the session."""
        found: Any = self._session.streams.get(query_id)
        if found is not None:
            self._listener.note_groups(run_id, groups_of(found._jsq.streamingQuery()))

    def _refuse_if_split(self, query_id: str, run_id: str) -> None:
        found: Any = self._session.streams.get(query_id)
        split = split_group(found._jsq.streamingQuery()) if found is not None else None
        if split is not None:
            self._listener.refuse(run_id, *split)

    def _interval_s(self, run_id: str, query_id: str) -> float:
        known = self._intervals_s
        if run_id not in known:
            if len(known) >= MAX_QUERIES:
                del known[next(iter(known))]
            found: Any = self._session.streams.get(query_id)
            known[run_id] = trigger_interval_s(found._jsq.streamingQuery()) if found else 0.0
        return known[run_id]

    def _safely(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception:
            logger.exception("cannot process an event of a query")


def _undecodable(progress: StreamingQueryProgress) -> int:
    """Return how many records of a batch the query has observed that were not decoded."""
    observed = progress.observedMetrics.get(UNDECODABLE)
    return int(observed[0]) if observed is not None and isinstance(observed[0], int) else 0


class ServedListener:
    """A listener that a Spark Connect server runs; `listen` returns one there.

    Args:
        spark: The session of a client.
        callbacks: By the names of `listen`'s arguments.

    Raises:
        OptionsError: This PySpark has no listeners on the server.
    """

    def __init__(self, spark: SparkSession, callbacks: dict[str, OnMoved | None]) -> None:
        self._spark = spark
        self._id = uuid.uuid4().hex
        self._is_open = True
        pickling: Any = CloudPickleSerializer
        pickled = pickling().dumps(ServedEvents(callbacks))

        def fill(command: Any) -> None:
            command.add_listener.id = self._id
            payload = command.add_listener.python_listener_payload
            payload.command, payload.python_ver = pickled, "{}.{}".format(*sys.version_info[:2])

        self._send(fill)

    def close(self) -> None:
        """Have the server end it; reports that have not arrived are left to the next trigger."""
        if self._is_open:
            self._is_open = False
            self._send(lambda command: setattr(command.remove_listener, "id", self._id))

    def _send(self, fill: Callable[[Any], object]) -> None:
        try:
            # Only a client of Spark Connect has what this imports.
            from pyspark.sql.connect import proto  # noqa: PLC0415

            streams: Any = self._spark.streams
            send = streams._execute_streaming_query_manager_cmd
            command: Any = proto.StreamingQueryManagerCommand()
            fill(command)
        except (ImportError, AttributeError) as error:
            raise OptionsError(
                "listen() cannot start a listener on the server with this version of PySpark:"
                f" {error}. Queries run without it; offsets are committed at the next trigger, and"
                " by write_table, process_records and foreach_batch_rows at once"
            ) from error
        send(command)


class ServedEvents(QueryEvents):
    """Receives events of all queries of a session, in a process that the server starts.

    Args:
        callbacks: By the names of `listen`'s arguments.
        listener: Reports to runners; None: on the client.
    """

    def __init__(self, callbacks: dict[str, OnMoved | None], listener: Any = None) -> None:
        no_session: Any = None
        super().__init__(listener, no_session)
        self._callbacks = callbacks

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self._callbacks,)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: what the query reads is not known here yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the batch, and before the first one, of which groups batches are reported."""
        self._safely(lambda: self._note_groups(event))
        super().onQueryProgress(event)

    def _note_groups(self, event: QueryProgressEvent) -> None:
        ends = [str(each.endOffset) for each in event.progress.sources]
        plans = (parse_plan_text(end) for end in ends if planner_of(end) is not None)
        groups = frozenset(plan.group_id for plan in plans if plan is not None)
        if groups:
            self._listener.note_groups(str(event.progress.runId), groups)

    def _interval_s(self, run_id: str, query_id: str) -> float:  # noqa: ARG002
        """Return 0: Spark Connect does not say the trigger of a query."""
        return 0.0


def _received(callbacks: dict[str, OnMoved | None]) -> ServedEvents:
    """Return the events that came from a client; on the server's host, let runners connect."""
    if not is_served():
        return ServedEvents(callbacks)
    end_with_server()
    log_to_stderr(None, lambda: None, process="listener")
    called: Any = callbacks
    listener = GroupListener(os.getppid(), **called, directories=directories_of_runner())
    listener.start()
    return ServedEvents(callbacks, listener)


def listen(
    spark: SparkSession,
    *,
    on_assigned: OnMoved | None = None,
    on_revoked: OnMoved | None = None,
    on_lost: OnMoved | None = None,
) -> GroupListener | ServedListener:
    """Commit offsets as soon as a batch is finished, and call back when partitions change.

    Call it once per session, before queries start: Spark reports to it the batches of that
    session's queries alone, not those of a session that `newSession()` returns. Callbacks run in
    sequence on one thread, for all queries of the session's JVM. The member calls `on_revoked`
    before it releases partitions, when no task reads them and finished offsets are committed; the
    revocation waits until the call returns, for at most 90 % of the rebalance timeout. `on_lost` is
    best effort: other members may already own the partitions. A query that ends releases its
    partitions without a call; use Spark's `onQueryTerminated`. If no directory can hold the control
    socket, a warning reports it and queries run without a listener. Through Spark Connect, the
    server calls the callbacks in a process on its host, until the session ends.

    Args:
        spark: The session.
        on_assigned: Called with newly assigned partitions, and with all of them if listening begins
            later.
        on_revoked: Called before partitions are revoked.
        on_lost: Called when the member has lost partitions: fenced, expired, or released
            uncommitted.

    Raises:
        OptionsError: It is no session, or this PySpark cannot start a listener on the server.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        if not hasattr(spark, "client"):
            raise OptionsError(f"listen() requires a SparkSession, not {type(spark).__name__}")
        called = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        return ServedListener(spark, called)
    if HAS_UNIX_SOCKETS and context.getConf().get(UNIX_SOCKETS, "false") != "true":
        logger.info(
            "Spark calls its Python processes over TCP; unix sockets are quicker: set %s=true"
            " before the session starts",
            UNIX_SOCKETS,
        )
    driver_log_to_stderr()
    jvm: Any = context._jvm
    drop_lines(jvm, NOT_CANCELLED)
    jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
    listener = GroupListener(
        jvm_pid,
        on_assigned=on_assigned,
        on_revoked=on_revoked,
        on_lost=on_lost,
        directories=directories_of_driver(jvm),
        spark_ui=context.uiWebUrl or "",
        application_name=str(context.appName or ""),
    )
    events = QueryEvents(listener, spark)

    spark.streams.addListener(events)
    for each in spark.streams.active:
        events.note_groups(str(each.id), str(each.runId))
    listener.start()
    listener.on_close(lambda timeout_s: remove_listener(spark, events, timeout_s))
    # After the interpreter ends, Spark's calls would fail and be logged as errors.
    atexit.unregister(close_listeners)
    atexit.register(close_listeners)
    _open_listeners.add(listener)
    return listener


def driver_log_to_stderr() -> None:
    """Make this driver's process show this package's lines, unless it configures logging itself."""
    log_to_stderr(None, lambda: None, process="driver", is_terminal=sys.stderr.isatty())


def report_records(plan: str, counts: Mapping[str, int]) -> bool:
    """Report records that the driver's code has processed to the query's runner.

    Args:
        plan: The end offset of the current batch.
        counts: The increases of counters, by the names of `Count`.

    Returns:
        False if nothing listens.
    """
    message = RecordsCounted(plan=plan, counts=tuple(sorted(counts.items())))
    # Each listener reaches the same runners, which must count once.
    return any(open_listener._server.broadcast(message) for open_listener in tuple(_open_listeners))


def reported_groups() -> frozenset[str]:
    """Return the groups whose batches the open listeners of this process report."""
    groups = (each._server.listening.reported_groups for each in tuple(_open_listeners))
    return frozenset().union(*groups)


def close_listeners() -> None:
    """Close all open listeners of this process within one timeout."""
    timeout_s = EVENTS_TIMEOUT_S if _can_start_threads() else NO_THREADS_TIMEOUT_S
    deadline_s = time.monotonic() + timeout_s
    for open_listener in tuple(_open_listeners):
        open_listener.close(max(0.0, deadline_s - time.monotonic()))


def remove_listener(
    spark: SparkSession, events: StreamingQueryListener, timeout_s: float = EVENTS_TIMEOUT_S
) -> None:
    """Remove a listener from Spark, after its events are delivered or the timeout has passed."""
    deadline_s = time.monotonic() + timeout_s
    _await_events(spark, deadline_s)
    with _reported(
        "the session's listener could not be removed, and Spark may log errors when it calls it"
    ):
        spark.streams.removeListener(events)
    # Spark may be making its last call now.
    _await_events(spark, deadline_s)


def _await_events(spark: SparkSession, deadline_s: float) -> None:
    left_s = max(0.0, deadline_s - time.monotonic())
    with _reported(
        "Spark did not deliver all query events in time: the next run may have to commit the last"
        " batches"
    ):
        session: Any = spark
        session._jsparkSession.sparkContext().listenerBus().waitUntilEmpty(int(left_s * 1000))


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Log errors, so that close() continues."""
    try:
        yield
    except (Py4JNetworkError, ConnectionError) as error:
        # The JVM is gone.
        logger.debug("%s: %r", what, error)
    except Exception as error:
        logger.warning("%s: %r", what, error)


def _can_start_threads() -> bool:
    """Return whether threads can start, which Python 3.12 prevents at exit and py4j requires."""
    try:
        threading.Thread(target=int, daemon=True).start()
    except RuntimeError:
        return False
    return True


def _release(link: Link, changed: PartitionsChanged) -> None:
    if changed.number:
        link.send(Released(number=changed.number))
