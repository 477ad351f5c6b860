"""A Spark application with one query of the group, as a user would write it, with notes.

It writes each batch to the same sinks as the other members: the rows that it collects to the append
sink, and the batch to the tables, by `write_table`. With `emit=ranges` it reads the ranges for the
append sink itself, and the tasks of `write_table` read them again. It runs as a process of its own
(`python -m workshop.chaos.members.application`), under
`workshop.chaos.members.application_session`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql.functions import lit

import spark_groups
from spark_groups.cli.table_names import TableKind
from spark_groups.errors import TableGapError
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import TableState
from spark_groups.group.ledger.plan_text import plan_from_json
from spark_groups.spark.control.running_query import running_query
from spark_groups.spark.control.shutdown import stop_on_sigterm
from spark_groups.spark.reading.reader import read_decoded
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece, TaskWriter
from spark_groups.spark.tables.write import TableWriter
from spark_groups.types import OffsetRange
from workshop.chaos.faults.schedule import Point
from workshop.chaos.members.application_session import send_to_all
from workshop.chaos.members.checkpoint import Checkpoint
from workshop.chaos.members.journal import Journal, Orders, Points
from workshop.chaos.members.member_notes import digest
from workshop.chaos.members.noting_source import NotingDataSource, own_run
from workshop.chaos.members.query import REFUSED_GAP, failed_as, source_options
from workshop.chaos.plants import planted
from workshop.chaos.results.facts import Note, RunKey, execution_name
from workshop.chaos.setting import Files, Setting
from workshop.chaos.systems import evolving
from workshop.chaos.systems.record import is_right
from workshop.chaos.systems.sinks import SCHEMA, AppendSink, Row, SinkBatch, rows_digest
from workshop.chaos.systems.tables import (
    Form,
    WrappedTable,
    open_routed,
    open_table,
    open_upserted,
    reach_in_commit,
)

MEMORY = "600m"
ERROR_MAX = 4_000
"""How many characters of an error are noted: with the command that it prints."""
KEPT_BATCHES = 1_000_000
"""All: the commit log tells afterwards when a batch was finished."""


class ReachingTable(WrappedTable):
    """A table with the points between the steps of `write_table`.

    Args:
        table: The table.
        points: The points.
    """

    def __init__(self, table: FencedTable, points: Points) -> None:
        super().__init__(table)
        self._points = points

    def task_writer(self, attempt: Attempt) -> TaskWriter:
        """Return the task writer, which stages the rows of ranges."""
        self._points.reach(Point.BEFORE_STAGING)
        return super().task_writer(attempt)

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Stage rows as the table does."""
        self._points.reach(Point.BEFORE_STAGING)
        return super().write_rows(rows, attempt)

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Commit as the table does; without rows it is no step of a batch."""
        if pieces:
            self._points.reach(Point.BEFORE_COMMIT)
        super().commit(attempt, pieces, decision, state)
        if pieces:
            self._points.reach(Point.AFTER_COMMIT)


class Application:
    """One run of an application.

    Args:
        setting: The setting of the chaos run.
        files: The files of the chaos run.
        key: The member and the number of this run.
    """

    def __init__(self, setting: Setting, files: Files, key: RunKey) -> None:
        self.refused_gap = False
        self._setting = setting
        self._files = files
        self._key = key
        self._traits = setting.queries[key.member]
        self._journal = Journal(files.journals, key)
        self._checkpoint = Checkpoint(files.checkpoint(key.member))
        last = self._checkpoint.last_planned()
        is_finished = last is None or last == self._checkpoint.last_committed()
        self._replayed = None if is_finished else last
        self._points = points = Points(
            self._journal, Orders(files.orders(key.member)), send=send_to_all
        )
        self._append = AppendSink(
            files.appended / f"{key.member}.rows",
            partial(points.reach, Point.IN_APPEND),
            evolving.is_right_row if setting.registry else is_right,
        )
        self._execution = ""
        places = setting.places(files)
        self._tables = [
            self._writer(TableKind(sink), open_table(TableKind(sink), places))
            for sink in setting.sinks
        ]
        if Form.UPSERTS in setting.forms:
            table = self._reaching(TableKind.DELTA, open_upserted(places))
            self._tables.append(spark_groups.write_table(table, evolving.fields_of_values))
        if Form.ROUTES in setting.forms:
            route = {
                topic: self._reaching(TableKind.DELTA, open_routed(places, topic))
                for topic in setting.subscribed
            }
            self._tables.append(spark_groups.write_table(route, expand="value"))

    def work(self) -> None:
        """Run the query until SIGTERM.

        Raises:
            StreamingQueryException: The query failed.
        """
        self._journal.note(Note.BEGINS, pid=os.getpid())
        traits, registry = self._traits, self._setting.registry
        spark = self._session()
        spark.dataSource.register(NotingDataSource)
        if traits.listens:
            spark_groups.listen(spark)
        end = stop_on_sigterm(spark)
        options = source_options(self._setting, traits)
        options |= evolving.source_options(registry) if registry else {}
        rows = spark.readStream.format("kafka-group").options(**options).load()
        writer = rows.writeStream.foreachBatch(self.write)
        writer = writer.option("checkpointLocation", str(self._files.checkpoint(self._key.member)))
        interval = f"{traits.interval_s * 1000:.0f} milliseconds"
        query = spark_groups.start(writer.trigger(processingTime=interval))
        end.await_termination(query)

    def fail(self, error: BaseException) -> None:
        """Note the error that ended the query."""
        self._journal.note(Note.FAILS, error=f"{type(error).__name__}: {error}"[:ERROR_MAX])

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch to all sinks, each time beginning with another table.

        Args:
            batch: The rows.
            number: Spark's number of the batch.

        Raises:
            TableError: A table refuses it.
        """
        offset = self._checkpoint.offset(number) or {}
        plan = plan_from_json(offset)
        ranges = plan.ranges if plan is not None else ()
        self._execution = execution_name(self._key, number)
        planned, is_replay = digest(offset), number == self._replayed
        self._journal.note(Note.LOGGED, batch=number, plan=planned)
        self._points.reach(Point.AFTER_OFFSET_LOG)
        self._journal.note_reads(number, planned, ranges, is_replay=is_replay)
        rows = self._read(batch, ranges)
        self._journal.note(Note.READ, batch=number, digest=rows_digest(rows))
        self._points.reach(Point.AFTER_READ)
        if ranges:
            written = SinkBatch(self._execution, self._setting.group_id, number, ranges, rows)
            self._journal.note(Note.WRITES, batch=number)
            self._append.write(written)
            self._points.reach(Point.AFTER_APPEND)
        first = number % len(self._tables)
        try:
            for write in (*self._tables[first:], *self._tables[:first]):
                write(batch, number)
        except TableGapError as error:
            self.refused_gap = True
            self._journal.note(Note.GAP, error=str(error))
            raise
        self._points.reach(Point.AFTER_SINKS)

    def _read(self, batch: DataFrame, ranges: tuple[OffsetRange, ...]) -> tuple[Row, ...]:
        """Return the rows of a batch, as its plane reads them."""
        if self._traits.emit == "records":
            collected = batch.select(*Row._fields).collect()
            found = [Row(each[0], each[1], each[2], _plain(each[3])) for each in collected]
        else:
            settings = running_query(batch, "chaos").reading_settings()
            found = [
                Row(**row)
                for each in read_decoded(settings, ranges)
                for row in each.rows.select([*Row._fields]).to_pylist()
            ]
        return tuple(sorted(found, key=lambda row: row[:3]))

    def _reaching(self, kind: TableKind, table: FencedTable) -> ReachingTable:
        reach_in_commit(table, kind, partial(self._points.reach, Point.IN_COMMIT))
        return ReachingTable(planted(table, self._setting.plant), self._points)

    def _writer(self, kind: TableKind, table: FencedTable) -> TableWriter:
        reaching = self._reaching(kind, table)
        if self._setting.registry:
            return spark_groups.write_table(reaching, expand="value")
        return spark_groups.write_table(reaching, self._marked)

    def _marked(self, rows: DataFrame) -> DataFrame:
        """Return the columns of a table, with the execution that writes them."""
        return rows.select(lit(self._execution).alias(SCHEMA.names[0]), *Row._fields)

    def _session(self) -> SparkSession:
        own = str(self._files.sockets / self._key.member)
        # A JVM that lives for a minute starts sooner without its second compiler.
        java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={own}"
        settings: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": MEMORY,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": java,
            "spark.local.dir": own,
            "spark.sql.warehouse.dir": own,
            "spark.sql.streaming.minBatchesToRetain": KEPT_BATCHES,
        }
        builder = SparkSession.builder.master("local[1]").appName(self._key.member)
        return builder.config(map=settings).getOrCreate()


def _plain(value: Any) -> Any:
    """Return a collected value as bytes, or as a dictionary of its fields."""
    if value is None:
        return None
    return value.asDict(recursive=True) if isinstance(value, SparkRow) else bytes(value)


def main() -> int:
    """Run an application until SIGTERM; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    files, key = own_run()
    application = Application(Setting.load(files.directory), files, key)
    try:
        application.work()
    except Exception as error:
        logging.exception("the application failed")
        application.fail(error)
        return REFUSED_GAP if application.refused_gap else failed_as(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
