"""The running query of a function of `foreachBatch` through Spark Connect.

Spark calls the function in a process of its own on the server's host, which cannot ask the JVM for
the query. The query's runner is a process there, too. Over the control channel it answers with the
plan of the batch and with the stream's options, which so leave neither the host nor the processes
of the server's user. Only a function whose batch carries the key of the runner's `load()` is
answered, and only its socket has a runner connected.
"""

from __future__ import annotations

import atexit
import base64
import itertools
import os
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.utils import ForeachBatchFunction

from spark_groups.errors import OptionsError
from spark_groups.spark.control.channel import (
    ControlServer,
    Link,
    directories_of_runner,
    suffix_of,
)
from spark_groups.spark.control.control_messages import (
    BatchAsked,
    BatchRunning,
    BatchWritten,
    Listening,
    Message,
    RecordsCounted,
)
from spark_groups.spark.control.running_query import RunningQuery, query_between
from spark_groups.spark.options.packed import KEY_NAME, RANGE_COLUMNS

ANSWER_S: Final = 10.0
"""How long a runner may take to connect: it looks for new functions twice a second."""
LINKED_S: Final = 60.0
"""How long runners that are connected may take to answer."""
_SERVED: Final = "SPARK_CONNECT_LOCAL_URL"
"""Set in the environment of a process in which a Connect server calls functions."""
_COLUMNS: Final = [each.split()[0] for each in RANGE_COLUMNS.split(", ")]


def is_served() -> bool:
    """Return whether a Spark Connect server calls this process's function."""
    return _SERVED in os.environ


def is_called_by_spark(depth: int = 2) -> bool:
    """Return whether Spark, and no function of the user's, calls the function that asks this.

    The user's may be compiled, and have no frame: what Spark calls has to be what asks.

    Args:
        depth: How many calls above this one Spark's is.
    """
    asks, caller = sys._getframe(depth - 1), sys._getframe(depth)
    called: Any = None
    if caller.f_code is ForeachBatchFunction.call.__code__:
        called = caller.f_locals["self"].func
    elif Path(caller.f_code.co_filename).name == "foreach_batch_worker.py":
        called = caller.f_locals.get("func")
    codes = (getattr(each, "__code__", None) for each in (called, type(called).__call__))
    return asks.f_code in codes


class BatchChannel:
    """A function's end of the control channel.

    Args:
        jvm_pid: The process of the server.
        directories: Candidate directories for the socket, in order of preference.
        answer_s: How long a runner may take to connect and answer, in seconds.
        linked_s: How long it may take if any runner is connected, in seconds.
    """

    def __init__(
        self,
        jvm_pid: int,
        directories: Sequence[Path],
        *,
        answer_s: float = ANSWER_S,
        linked_s: float = LINKED_S,
    ) -> None:
        self._jvm_pid = jvm_pid
        self._directories = directories
        self._answer_s = answer_s
        self._linked_s = linked_s
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._asked = BatchAsked(number=0, key="")
        self._answers: list[BatchRunning] = []
        self._run_ids: set[str] = set()
        self._server: ControlServer | None = None

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def ask(self, key: str) -> BatchRunning:
        """Return the batch that Spark runs in the query of a stream.

        Args:
            key: That of the stream's `load()`.

        Raises:
            OptionsError: No runner has answered in time, or those of several queries have.
        """
        is_other = key != self._asked.key
        with self._changed:
            self._asked, self._answers = BatchAsked(number=next(self._numbers), key=key), []
        server = self._listen() if is_other or self._server is None else self._server
        server.broadcast(self._asked)
        began_at = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(lambda: self._answers, self._answer_s):
                limit_s = self._linked_s if server.has_runners else 0.0
                self._changed.wait_for(lambda: self._answers, limit_s - self._answer_s)
            answers, runs = [*self._answers], len(self._run_ids)
        waited_s = time.monotonic() - began_at
        if runs > 1:
            raise OptionsError(
                "several running queries read the stream of one load(): load it once for each query"
            )
        if not answers:
            raise OptionsError(
                f"the query's runner did not answer within {waited_s:.0f} s, so its function"
                " cannot learn the offsets of the batch. It has to run on the host of the Spark"
                " Connect server, as the same user, and both need a directory of this user that"
                " exists: set XDG_RUNTIME_DIR for the server, to one with mode 0700. The server"
                " needs the same version of spark-groups as the client"
            )
        return answers[0]

    def report(self, message: BatchWritten | RecordsCounted) -> bool:
        """Report to the runner, which alone knows the plan; return False if there is none."""
        return self._server is not None and self._server.broadcast(message) > 0

    def _listen(self) -> ControlServer:
        """Let the runners of a load connect, which are asked at once."""
        self.close()
        self._server = server = ControlServer(
            self._jvm_pid,
            Listening(reported_groups=(), holds_revocations=False),
            self._received,
            self._directories,
            lambda: [self._asked],
            suffix=suffix_of(self._asked.key),
        )
        server.start("a function of foreachBatch cannot learn its batch")
        return server

    def _received(self, _: Link, message: Message) -> None:
        with self._changed:
            if isinstance(message, BatchRunning) and message.number == self._asked.number:
                self._answers.append(message)
                self._run_ids.add(message.run_id)
                self._changed.notify_all()


@cache
def batch_channel() -> BatchChannel:
    """Return the channel of this process."""
    end_with_server()
    return BatchChannel(os.getppid(), directories_of_runner())


def end_with_server() -> None:
    """Let this process, which a server has started, end also if the server is gone.

    When Python ends, PySpark closes its connection to the server, which waits forever for threads
    of gRPC that have ended already (`SparkSession.__del__`, seen with PySpark 4.3).
    """
    server_pid = os.getppid()

    def end() -> None:
        if os.getppid() != server_pid:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    atexit.register(end)


def served_query(batch: DataFrame, caller: str, cure: str) -> RunningQuery:
    """Return the query that a batch belongs to, through Spark Connect.

    Whether the stream is as loaded shows in the rows alone: `range_rows` compares them.

    Args:
        batch: What Spark has passed to the function.
        caller: The function to name in errors.
        cure: Where changes of rows belong instead.

    Raises:
        OptionsError: The query is unknown, or is of another stream than one with `emit=ranges`.
    """
    fields = batch.schema.fields
    if [each.name for each in fields] != _COLUMNS or KEY_NAME not in fields[0].metadata:
        raise OptionsError(
            f"through Spark Connect, {caller} requires a stream of kafka-group with"
            f' .option("emit", "ranges"), as load() returned it: {cure}'
        )
    found = batch_channel().ask(fields[0].metadata[KEY_NAME])
    packed = base64.b64decode(found.options)
    return query_between(found.start, found.end, (), found.run_id, packed)
