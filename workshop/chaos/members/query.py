"""A query in a process of its own, which calls the package's run and reader as Spark does.

The calls, the offset log and the commit log have the order of Spark's micro-batches: latestOffset,
offsets/N, partitions, read, the sink, commits/N, a listener's report, latestOffset.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from spark_groups.errors import CheckpointError, DataLossError, TableGapError
from spark_groups.group.ledger.plan_text import NOTHING_PLANNED
from spark_groups.spark.control.channel import ControlServer, directories_of_runner
from spark_groups.spark.control.control_messages import BatchReported, Listening
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.spark.source.packing import pack
from spark_groups.spark.source.query_run import QueryRun
from spark_groups.types import OffsetRange
from spark_groups.wire.connection import AnotherClusterError
from workshop.chaos.faults.disks import is_disk_full
from workshop.chaos.faults.schedule import Point, QueryTraits
from workshop.chaos.member_plants import plant_in_member
from workshop.chaos.members.checkpoint import Checkpoint
from workshop.chaos.members.delivery import Delivery
from workshop.chaos.members.journal import Journal, Orders, Points
from workshop.chaos.members.member_notes import MemberNotes, digest
from workshop.chaos.plants import Plant
from workshop.chaos.results.facts import Note, RunKey, execution_name
from workshop.chaos.setting import Files, Setting
from workshop.chaos.systems.sinks import Row, SinkBatch, rows_digest

TASKS: Final = 2
FAILED: Final = 3
REFUSED_GAP: Final = 4
NO_ROOM: Final = 6
REFUSED_LOSS: Final = 7
REFUSED_CLUSTER: Final = 8
"""Exit codes."""
LED_AWAY_S: Final = 60.0
"""How long a task runs again that is led to another cluster."""
AGAIN_S: Final = 0.5


class Query:
    """One run of a query.

    Args:
        setting: The setting of the chaos run.
        files: The files of the chaos run.
        traits: The settings of this query.
        key: The member and the number of this run.
    """

    def __init__(self, setting: Setting, files: Files, traits: QueryTraits, key: RunKey) -> None:
        self._setting = setting
        self._traits = traits
        self._key = key
        self._ending = threading.Event()
        self._journal = Journal(files.journals, key)
        orders = Orders(files.orders(key.member))
        self._points = Points(self._journal, orders, self._is_interrupted)
        self._delivery = Delivery(setting, files, key.member, self._points)
        self._notes = MemberNotes(self._journal, self._points, setting.session_s)
        self._checkpoint = Checkpoint(files.checkpoint(key.member))
        self._options = SourceOptions.of(source_options(setting, traits))
        self._range_settings = self._options.range_settings()
        self._server = ControlServer(
            os.getppid(),
            Listening(reported_groups=(self._options.group_id,), holds_revocations=False),
            lambda *_: None,
            directories_of_runner(),
        )
        self._run = QueryRun(self._options, spark_passes_start=traits.spark_passes_start)

    def work(self) -> None:
        """Run batches until SIGTERM."""
        signal.signal(signal.SIGTERM, self._terminated)
        self._journal.note(Note.BEGINS, pid=os.getpid(), reports_batches=self._traits.listens)
        if self._traits.listens:
            self._server.start("batches are committed at the next trigger")
        self._run.control.start()
        self._notes.watch(self._run.driver)
        number, start = self._begin()
        trigger_at_s = 0.0
        while not self._ending.wait(max(0.0, trigger_at_s - time.monotonic())):
            trigger_at_s = time.monotonic() + self._traits.interval_s
            end = dict(self._run.latest_offset(start if self._traits.spark_passes_start else None))
            # The first batch runs even if it is empty.
            if end == start and number > 0:
                self._ending.wait(self._traits.trigger_s)
                continue
            self._points.reach(Point.BEFORE_OFFSET_LOG)
            self._notes.note_plan(number, start, end)
            self._checkpoint.plan(number, json.dumps(end))
            self._journal.note(Note.LOGGED, batch=number, plan=digest(end))
            self._points.reach(Point.AFTER_OFFSET_LOG)
            self._run_batch(number, start, end, is_replay=False)
            number, start = number + 1, end
        self.end_if_interrupted()
        self._leave()

    def end_if_interrupted(self) -> None:
        """Wait for the end of the process, if Spark has stopped the query during its batch."""
        if self._is_interrupted():
            threading.Event().wait()

    def fail(self, error: BaseException) -> None:
        """Note the error of the query, and leave the group as a runner does."""
        if isinstance(error, TableGapError):
            self._journal.note(Note.GAP, error=str(error))
        self._journal.note(Note.FAILS, error=f"{type(error).__name__}: {error}")
        self._run.leave()

    def _begin(self) -> tuple[int, dict[str, Any]]:
        """Continue where the checkpoint ends; return the next batch's number and start."""
        last = self._checkpoint.last_planned()
        if last is None:
            return 0, dict(NOTHING_PLANNED)
        end = self._checkpoint.offset(last)
        assert end is not None
        if self._checkpoint.last_committed() == last:
            if not self._traits.spark_passes_start:
                # Spark 4.0 and 4.1 pass the end of the last batch only in this call.
                self._run.batch(end, end)
            return last + 1, end
        start = (self._checkpoint.offset(last - 1) if last else None) or dict(NOTHING_PLANNED)
        self._run_batch(last, start, end, is_replay=True)
        return last + 1, end

    def _run_batch(
        self, number: int, start: dict[str, Any], end: dict[str, Any], *, is_replay: bool
    ) -> None:
        plan = self._run.batch(start, end)
        ranges = plan.ranges if plan is not None else ()
        self._journal.note_reads(number, digest(end), ranges, is_replay=is_replay)
        execution = execution_name(self._key, number)
        values = self._read(ranges, plan.cluster_id if plan is not None else None)
        # Retention may have deleted records of a short-lived topic when a batch runs again.
        lasting = [each for each in values if each.topic not in self._setting.short_lived]
        self._journal.note(Note.READ, batch=number, digest=rows_digest(lasting))
        self._points.reach(Point.AFTER_READ)
        steps: list[Callable[[], None]] = []
        if ranges:
            batch = SinkBatch(execution, self._setting.group_id, number, ranges, tuple(values))
            self._journal.note(Note.WRITES, batch=number)
            self._delivery.append(batch)
            steps.append(partial(self._delivery.write, batch))
        steps.append(partial(self._finish, number, end))
        for step in reversed(steps) if self._setting.plant is Plant.KAFKA_FIRST else steps:
            step()

    def _finish(self, number: int, end: dict[str, Any]) -> None:
        """Write commits/N, and report the batch as a listener does."""
        self._checkpoint.finish(number)
        self._journal.note(Note.FINISHED, batch=number)
        self._points.reach(Point.AFTER_COMMIT_LOG)
        if self._traits.listens:
            self._server.broadcast(
                BatchReported(
                    plan=json.dumps(end),
                    query_id=self._key.member,
                    is_stateful=False,
                    trigger_interval_s=0.0,
                )
            )

    def _read(self, ranges: tuple[OffsetRange, ...], cluster_id: str | None) -> list[Row]:
        """Read a batch; a task that is led to another cluster runs again, as in Spark."""
        settings = replace(self._range_settings, cluster_id=cluster_id)
        values: list[Row] = []
        for task in pack(ranges, default_tasks=TASKS):
            gives_up_at = time.monotonic() + LED_AWAY_S
            while (read := _rows(settings, task, gives_up_at)) is None:
                time.sleep(AGAIN_S)
            values += read
        return values

    def _is_interrupted(self) -> bool:
        return self._ending.is_set() and not self._traits.listens

    def _terminated(self, *_: object) -> None:
        # This thread may be in the middle of a wait, and hold the lock that is needed here.
        threading.Thread(target=self._end, name="chaos-end", daemon=True).start()

    def _end(self) -> None:
        if self._ending.is_set():
            return
        self._ending.set()
        if not self._traits.listens:
            # The JVM interrupts the batch and ends the runner, which receives no progress.
            self._leave_and_exit()

    def _leave_and_exit(self) -> None:
        self._leave()
        os._exit(0)

    def _leave(self) -> None:
        self._run.await_last_report()
        self._journal.note(Note.LEAVES)
        self._run.leave()
        self._notes.note_left(self._run.driver)


def source_options(setting: Setting, traits: QueryTraits) -> dict[str, str]:
    """Return the options of the source.

    Args:
        setting: The setting of the run.
        traits: The settings of the query.
    """
    options = {
        "kafka.bootstrap.servers": setting.servers_of(traits.name),
        "kafka.group.id": setting.group_id,
        "kafka.client.id": traits.name,
        "kafka.max.poll.interval.ms": str(setting.rebalance_timeout_ms),
        "subscribe": ",".join(setting.subscribed),
        "startingOffsets": traits.starting_offsets,
        "reader": traits.reader,
        "failOnDataLoss": str(not setting.short_lived and traits.fails_on_loss).lower(),
        "leaveOnStop": str(traits.leave_on_stop).lower(),
        "emit": traits.emit,
    }
    if traits.max_offsets is not None:
        options["maxOffsetsPerTrigger"] = str(traits.max_offsets)
    if traits.instance_id is not None:
        options["kafka.group.instance.id"] = traits.instance_id
    return options


def _rows(
    settings: RangeSettings, task: Sequence[OffsetRange], gives_up_at: float
) -> list[Row] | None:
    """Return the rows of a task; None if it was led to another cluster and may run again."""
    rows: list[Row] = []
    try:
        for batch in read_ranges(settings, task):
            columns = (batch.column(each) for each in ("topic", "partition", "offset", "value"))
            rows += map(Row._make, zip(*(column.to_pylist() for column in columns), strict=True))
    except AnotherClusterError:
        if time.monotonic() >= gives_up_at:
            raise
        return None
    return rows


def main(files: Files, key: RunKey) -> int:
    """Run a query until SIGTERM; return the exit code.

    Args:
        files: The files of the chaos run.
        key: The member and the number of this run.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    setting = Setting.load(files.directory)
    traits = setting.queries[key.member]
    logging.info("run %s, pid %d: %s", key, os.getpid(), traits)
    plant_in_member(setting.plant)
    query = Query(setting, files, traits, key)
    try:
        query.work()
    except Exception as error:
        query.end_if_interrupted()
        logging.exception("the query failed")
        query.fail(error)
        return failed_as(error)
    return 0


def failed_as(error: BaseException) -> int:
    """Return the exit code of a member that an error ends.

    Args:
        error: The error.
    """
    if isinstance(error, TableGapError):
        return REFUSED_GAP
    # An error of a source reaches a Spark application as text.
    if isinstance(error, DataLossError) or DataLossError.__name__ in str(error):
        return REFUSED_LOSS
    if isinstance(error, CheckpointError) and "another Kafka cluster" in str(error):
        return REFUSED_CLUSTER
    return NO_ROOM if is_disk_full(error) else FAILED
