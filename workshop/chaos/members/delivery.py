"""The sinks of a member, and the points between them at which an order may kill the member."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spark_groups.cli.table_names import TableKind
from workshop.chaos.faults.schedule import Point
from workshop.chaos.members.journal import Points
from workshop.chaos.plants import planted
from workshop.chaos.setting import Files, Setting
from workshop.chaos.systems.sinks import AppendSink, SinkBatch, TableSink
from workshop.chaos.systems.tables import open_table, reach_in_commit


class Delivery:
    """All sinks of one member.

    Args:
        setting: The setting of the run.
        files: The files of the run.
        member: The member.
        points: The points at which an order may kill the member.
    """

    def __init__(self, setting: Setting, files: Files, member: str, points: Points) -> None:
        self._points = points
        self._short_lived = setting.short_lived
        self._append = AppendSink(
            files.appended / f"{member}.rows", partial(points.reach, Point.IN_APPEND)
        )
        self._tables = [self._opened(setting, files, TableKind(sink)) for sink in setting.sinks]
        self._writes = 0

    def append(self, batch: SinkBatch) -> None:
        """Append a batch to the member's file."""
        self._append.write(batch)
        self._points.reach(Point.AFTER_APPEND)

    def write(self, batch: SinkBatch) -> None:
        """Write a batch to each table, without short-lived topics; each begins with the next.

        Raises:
            TableError: A table refuses it.
        """
        lasting = tuple(
            offset_range
            for offset_range in batch.ranges
            if offset_range.topic not in self._short_lived
        )
        if not lasting:
            return
        batch = replace(batch, ranges=lasting)
        first = self._writes % len(self._tables)
        self._writes += 1
        for table in (*self._tables[first:], *self._tables[:first]):
            table.write(batch)
            self._points.reach(Point.AFTER_COMMIT)
        self._points.reach(Point.AFTER_SINKS)

    def _opened(self, setting: Setting, files: Files, kind: TableKind) -> TableSink:
        table = open_table(kind, setting.places(files))
        reach = self._points.reach
        reach_in_commit(table, kind, partial(reach, Point.IN_COMMIT))
        return TableSink(
            planted(table, setting.plant),
            partial(reach, Point.BEFORE_STAGING),
            partial(reach, Point.BEFORE_COMMIT),
        )
