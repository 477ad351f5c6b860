"""The package's source with notes: the reader in Spark's runner notes what its member does."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_groups.spark.source.source import KafkaGroupDataSource, KafkaGroupStreamReader
from workshop.chaos.members.application_session import RUN
from workshop.chaos.results.facts import RunKey
from workshop.chaos.setting import Files, Setting

if TYPE_CHECKING:
    from spark_groups.spark.source.query_run import QueryRun
    from workshop.chaos.members.runner_notes import RunnerNotes


def own_run() -> tuple[Files, RunKey]:
    """Return the run of which this is a process, and its files."""
    directory, sockets, member, number = json.loads(os.environ[RUN])
    return Files(Path(directory), Path(sockets)), RunKey(member, number)


class NotingDataSource(KafkaGroupDataSource):
    """The source under its own name."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader of one query."""
        return NotingReader(self._load)


class NotingReader(KafkaGroupStreamReader):
    """The reader of one query."""

    _is_leaving = False

    @cached_property
    def _notes(self) -> RunnerNotes:
        from workshop.chaos.members.runner_notes import RunnerNotes  # noqa: PLC0415

        files, key = own_run()
        return RunnerNotes(files, key, Setting.load(files.directory).session_s)

    def latestOffset(self, *given: Any) -> dict[str, Any]:
        """Return the next plan, and note it before Spark knows it."""
        self._notes.before_plan()
        end = super().latestOffset(*given)
        self._notes.note_plan(self.initialOffset(), end)
        return end

    def stop(self) -> None:
        """Leave the group; Spark calls this more than once."""
        is_first = self._run is not None and not self._is_leaving
        if is_first:
            self._is_leaving = True
            self._notes.note_end()
        super().stop()
        if is_first and self._run is not None:
            self._notes.of_member.note_left(self._run.driver)

    def _live(self) -> QueryRun:
        is_new = self._run is None
        run = super()._live()
        if is_new:
            self._notes.of_member.watch(run.driver)
        return run
