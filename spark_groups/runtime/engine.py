"""Keeps a GroupClient running: one lock, the clock, and the threads of its channels and timer.

Spark's calls, answers from brokers and the timer all take the lock, change the client and send its
requests. Nothing waits while holding it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from spark_groups.errors import AccessError, CheckpointError
from spark_groups.group.client import GroupClient
from spark_groups.group.member.events import Event, NameOf
from spark_groups.group.member.messages import Node, RequestFailed, Response
from spark_groups.group.requests.channels import Outgoing
from spark_groups.group.run_lines import RunLines, awaited_at_start
from spark_groups.runtime.channel_threads import ChannelThreads
from spark_groups.wire.connection import AnotherClusterError

logger = logging.getLogger(__name__)

MAX_SLEEP_S: Final = 1.0
TIMELINE_LENGTH: Final = 100


class Engine:
    """The lock and the threads of a driver.

    Attributes:
        changed: The lock; notified after every change of the client.
        client: None until `run`.
        crash: The error with which a thread failed.
        is_closing: Whether `close` was called.
        timeline: The member's last events.
    """

    def __init__(self, group_id: str) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.client: GroupClient | None = None
        self.crash: BaseException | None = None
        self.is_closing = False
        self.timeline = Timeline(group_id)
        self._run_lines = RunLines(suspension_clock())
        self._threads: ChannelThreads | None = None
        self._coordinator: Node | None = None

    def run(self, client: GroupClient, threads: ChannelThreads) -> None:
        """Start the client, its timer and the threads that send its requests."""
        self.client, self._threads = client, threads
        self._run_lines = RunLines(suspension_clock())
        threads.start()
        threading.Thread(target=self._keep_time, name="kafka-group-timer", daemon=True).start()
        with self.changed:
            client.start(suspension_clock())
            self.pump()

    def started(self) -> GroupClient:
        """Return the client; the driver must be started."""
        if self.client is None:
            raise RuntimeError("the driver is not started")
        return self.client

    def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition holds, and return whether it does; it is called under the lock."""
        with self.changed:
            return self.changed.wait_for(condition, timeout_s)

    def answered(self, outgoing: Outgoing, answer: Response | RequestFailed) -> None:
        """Pass an answer, or the reason for a missing one, to the client."""
        with self.changed:
            now = suspension_clock()
            client = self.started()
            if isinstance(answer, RequestFailed):
                client.handle_failure(outgoing, answer, now)
            else:
                client.handle_response(outgoing, answer, now)
            self.pump()

    def crashed(self, error: BaseException) -> None:
        """Note the error with which a thread failed, or that a broker must not be used."""
        with self.changed:
            if isinstance(error, AnotherClusterError):
                error = CheckpointError(
                    f"the checkpoint is of another Kafka cluster: {error}. To read this cluster"
                    " instead, give the query a new checkpointLocation"
                )
            if isinstance(error, AccessError | CheckpointError):
                self.started().fail(error, suspension_clock())
            else:
                logger.error("the group member failed: %r", error, exc_info=error)
                self.crash = error
            self.changed.notify_all()

    def pump(self) -> None:
        """Send the client's requests, record its events and wake all threads; needs the lock."""
        self._send()
        self.changed.notify_all()

    def send(self) -> None:
        """Send the client's requests and record its events; needs the lock.

        Threads wake only if there were any: two that wait would otherwise wake each other forever.
        """
        if self._send():
            self.changed.notify_all()

    def _send(self) -> bool:
        client, threads = self.client, self._threads
        if client is None or threads is None or self.is_closing:
            return False
        requests = client.poll_requests(suspension_clock())
        for outgoing in requests:
            threads.send(outgoing)
        coordinator = client.parts.search.node
        if coordinator is not None and coordinator != self._coordinator:
            self._coordinator = coordinator
            threads.coordinator_is(coordinator)
        events = client.poll_events()
        for event in events:
            self.timeline.add(event, client.parts.topics.name)
            self._run_lines.note(event)
        for line in self._run_lines.due(
            suspension_clock(),
            is_committing=_is_committing(client),
            awaited=lambda: awaited_at_start(client.parts),
        ):
            self.timeline.say(line)
        return bool(requests or events)

    def end_line(self, *, will_return: bool) -> str | None:
        """Return the line of the run's end; None: the member has failed, or never joined.

        Args:
            will_return: Whether a static member left for a while.
        """
        with self.changed:
            client = self.started()
            parts = client.parts
            has_failed = self.crash is not None or parts.member.failure is not None
            if has_failed or not parts.metrics.joined_as:
                return None
            in_flight = parts.ledger.in_flight
            is_read = in_flight is not None and bool(in_flight.ranges)
            return self._run_lines.end(
                suspension_clock(),
                is_committed=not (_is_committing(client) or is_read),
                kept_s=parts.member.session_timeout_ms / 1000 if will_return else None,
                is_answered=parts.member.has_left and not parts.member.is_leave_unanswered,
            )

    def _keep_time(self) -> None:
        try:
            with self.changed:
                while not self.is_closing:
                    self.pump()
                    now = suspension_clock()
                    wake_at = self.started().next_wakeup(now)
                    sleep_s = MAX_SLEEP_S if wake_at is None else wake_at - now
                    self.changed.wait(min(MAX_SLEEP_S, max(0.001, sleep_s)))
        except Exception as error:
            self.crashed(error)

    def close(self) -> None:
        """End all threads; a second call does nothing."""
        with self.changed:
            if self.is_closing:
                return
            self.is_closing = True
            self.changed.notify_all()
        if self._threads is not None:
            self._threads.shutdown(timeout_s=1.0)


class Timeline:
    """Logs each event and keeps the last ones."""

    def __init__(self, group_id: str) -> None:
        self.observers: list[Callable[[Event, NameOf], None]] = []
        """Called with each event and a function that names topics; must not block."""
        self._group_id = group_id
        self._lines: deque[str] = deque(maxlen=TIMELINE_LENGTH)

    def say(self, text: str, level: int = logging.INFO) -> None:
        """Log a line that is no event."""
        logger.log(level, "group %s: %s", self._group_id, text)

    def add(self, event: Event, name_of: NameOf) -> None:
        """Log an event and pass it to the observers."""
        text = event.text(name_of)
        self.say(text, event.severity.value)
        self._lines.append(text)
        for observe in self.observers:
            observe(event, name_of)

    def lines(self) -> tuple[str, ...]:
        """Return the last events as text, the oldest first."""
        return tuple(self._lines)


def suspension_clock() -> float:
    """Return seconds of a monotonic clock; where possible it also runs while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _is_committing(client: GroupClient) -> bool:
    """Return whether a finished batch has offsets that this member has yet to commit."""
    parts = client.parts
    undecided = parts.ledger.undecided_runs()
    # Once it has its assignment, those of others' partitions are not its own to commit.
    is_deciding = bool(undecided) and not parts.next_batch.is_settled
    return parts.commits.is_pending or is_deciding or bool(undecided & parts.ledger.owned.keys())
