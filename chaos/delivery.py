"""The sinks that every batch is written to, one after the other, with the points between them.

A further sink is one more row of `Delivery`: how it is opened, and the points in it and behind it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from chaos.journal import Points
from chaos.schedule import Point
from chaos.setting import Files
from chaos.sinks import AppendSink, Sink, SinkBatch, SqliteSink


class Delivery:
    """All sinks of one member.

    Args:
        files: Where they lie.
        member: The member.
        points: Where an order may make it die.
    """

    def __init__(self, files: Files, member: str, points: Points) -> None:
        self._points = points
        append = AppendSink(
            files.appended / f"{member}.rows", partial(points.reach, Point.IN_APPEND)
        )
        sqlite = SqliteSink(files.database, partial(points.reach, Point.IN_SQLITE))
        self._sinks: Final[tuple[tuple[Sink, Point], ...]] = (
            (append, Point.AFTER_APPEND),
            (sqlite, Point.AFTER_SINKS),
        )

    def write(self, batch: SinkBatch) -> None:
        """Write a batch to every sink.

        Raises:
            GapError: A sink misses rows before it.
        """
        for sink, point_behind in self._sinks:
            sink.write(batch)
            self._points.reach(point_behind)
