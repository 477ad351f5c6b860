"""What keeps a GroupClient going: one lock, the clock, the threads that carry and keep time.

The lock makes the client one thing at a time: Spark's calls, the answers that carriers bring and
the timer all take it, change the client and send what follows. Nothing waits while holding it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from spark_groups.client import GroupClient, Outgoing
from spark_groups.errors import AccessError
from spark_groups.protocol.messages import Node, RequestFailed, Response
from spark_groups.runtime.carriers import Carriers
from spark_groups.runtime.clock import suspension_clock
from spark_groups.runtime.timeline import Timeline

logger = logging.getLogger(__name__)

MAX_SLEEP_S: Final = 1.0


class Engine:
    """The moving parts of a driver.

    Args:
        group_id: The group.
    """

    def __init__(self, group_id: str) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._client: GroupClient | None = None
        self._carriers: Carriers | None = None
        self._coordinator: Node | None = None
        self._crash: BaseException | None = None
        self._closing = False
        self._timeline = Timeline(group_id)

    def _run(self, client: GroupClient, carriers: Carriers) -> None:
        """Begin to carry the client's requests and to keep its time."""
        self._client, self._carriers = client, carriers
        carriers.start()
        threading.Thread(target=self._keep_time, name="kafka-group-timer", daemon=True).start()
        with self._changed:
            client.start(suspension_clock())
            self._pump(suspension_clock())

    def _started(self) -> GroupClient:
        if self._client is None:
            raise RuntimeError("the driver has to be started first")
        return self._client

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

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
        with self._changed:
            if isinstance(error, AccessError):
                self._started().fail(str(error), suspension_clock())
            else:
                logger.error("the group member died of %r", error, exc_info=error)
                self._crash = error
            self._changed.notify_all()

    def _pump(self, now: float) -> None:
        client, carriers = self._client, self._carriers
        if client is None or carriers is None or self._closing:
            return
        for outgoing in client.poll_requests(now):
            carriers.send(outgoing)
        coordinator = client.coordinator
        if coordinator is not None and coordinator != self._coordinator:
            self._coordinator = coordinator
            carriers.coordinator_is(coordinator)
        for event in client.poll_events():
            self._timeline.add(event, client.topic_name)
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
        """End all threads; a second call does nothing."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        if self._carriers is not None:
            self._carriers.shutdown(timeout_s=1.0)
