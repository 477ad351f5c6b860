"""A driver that listens, without Spark: it says what a test wants a runner to hear."""

from __future__ import annotations

import itertools
import json
import queue
from pathlib import Path
from typing import Any

from spark_groups.group.batches.proofs import PlanJson
from spark_groups.spark.control.channel import ControlServer, Link
from spark_groups.spark.control.control_messages import (
    BatchReported,
    Drain,
    Draining,
    Introduced,
    Listening,
    Message,
    NothingMoreReported,
    PartitionsChanged,
    Released,
)

_jvm_pids = itertools.count(900_000)
QUERY_ID = "the query"


class Driver:
    """A driver's end of the control channel, in the hands of a test.

    Args:
        directory: Where its socket lies.
        group_id: The group whose batches it reports; empty: it reports none.
        holds_revocations: What it says of itself.
        spark_ui: What it says of its application.
        default_parallelism: What it says of its application.
        application_name: What it says of its application.
    """

    def __init__(
        self,
        directory: Path,
        *,
        group_id: str = "",
        holds_revocations: bool = False,
        spark_ui: str = "",
        default_parallelism: int = 0,
        application_name: str = "",
    ) -> None:
        self.jvm_pid = next(_jvm_pids)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.server = ControlServer(
            self.jvm_pid,
            Listening(
                reported_groups=(group_id,) if group_id else (),
                holds_revocations=holds_revocations,
                spark_ui=spark_ui,
                default_parallelism=default_parallelism,
                application_name=application_name,
            ),
            self._received,
            [directory],
        )
        self.server.start("tests lack it")

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    def next(self, kind: type[Message]) -> Any:
        """Return the next message of a kind; others before it are left out."""
        while not isinstance(message := self._messages.get(timeout=300), kind):
            pass
        return message

    def changed(self, change: str) -> PartitionsChanged:
        """Return the next change of partitions, which has to be of that kind."""
        message = self.next(PartitionsChanged)
        assert isinstance(message, PartitionsChanged)
        assert message.change == change, message
        return message

    def report(
        self,
        end: PlanJson,
        *,
        is_stateful: bool = False,
        trigger_interval_s: float = 0.0,
    ) -> None:
        """Say that a batch is finished."""
        self.server.broadcast(
            BatchReported(
                plan=json.dumps(dict(end)),
                query_id=QUERY_ID,
                is_stateful=is_stateful,
                trigger_interval_s=trigger_interval_s,
            )
        )

    def end_query(self, query_id: str = QUERY_ID, *, had_reports: bool = True) -> None:
        """Say that a query has ended."""
        self.server.broadcast(NothingMoreReported(query_id=query_id, had_reports=had_reports))

    def release(self, number: int) -> None:
        """Let a revocation go."""
        self.server.broadcast(Released(number=number))

    def drain(self) -> None:
        """Ask for an end, and wait until the runner obeys."""
        self.next(Introduced)
        self.server.broadcast(Drain())
        self.next(Draining)

    def _received(self, link: Link, message: Message) -> None:
        self._messages.put(message)
