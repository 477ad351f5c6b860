"""`spark_groups.listen(spark)` through Spark Connect: the server runs the listener.

A client's own listener is called on the client, which may be another host. But the protocol of
Spark Connect also takes a pickled listener, which the server calls in a Python process on its own
host, a child of the JVM like the runners. There it opens a control channel, as a driver does. It
stays after the client has ended, until its session ends.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent

from spark_groups.errors import OptionsError
from spark_groups.group.ledger.plan_text import parse_plan_text, planner_of
from spark_groups.spark.control.channel import directories_of_runner
from spark_groups.spark.control.listener import GroupListener, OnMoved, QueryEvents
from spark_groups.spark.control.runner_process import log_to_stderr
from spark_groups.spark.control.served_query import is_served


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
        """Have the server end it. Reports that have not arrived are left to the next trigger."""
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
    log_to_stderr(None, lambda: None, process="listener")
    called: Any = callbacks
    listener = GroupListener(os.getppid(), **called, directories=directories_of_runner())
    listener.start()
    return ServedEvents(callbacks, listener)
