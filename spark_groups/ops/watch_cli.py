"""`spark-groups watch`: a group as it changes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.observation.frames import Frame
from spark_groups.observation.watching import GroupWatch
from spark_groups.ops.connecting import Brokers, GroupArgument, JsonFlag, connects
from spark_groups.ops.output import console
from spark_groups.ops.render_frame import clock_time, render_frame, summary_line

INTERVAL_S: Final = 2.0
SUMMARY_EVERY_S: Final = 10.0


Show = Callable[[Frame], None]


class EventLines:
    """A line for each event, and one of figures now and then, for logs and pipes.

    Args:
        console: Where they are written.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._summary_at_s: float | None = None

    def show(self, frame: Frame) -> None:
        """Write what happened since the frame before.

        Args:
            frame: The frame.
        """
        for each in frame.new_events:
            self._write(frame.at_s, printable(each.text))
        last_s = self._summary_at_s
        if frame.new_events or last_s is None or frame.at_s - last_s >= SUMMARY_EVERY_S:
            self._summary_at_s = frame.at_s
            self._write(frame.at_s, summary_line(frame))

    def _write(self, at_s: float, text: str) -> None:
        self._console.print(f"{clock_time(at_s)}  {text}", soft_wrap=True)
        self._console.file.flush()


def write_frame(frame: Frame) -> None:
    """Write a frame as one JSON document on one line of standard output.

    Args:
        frame: The frame.
    """
    sys.stdout.write(json.dumps(frame.to_json(), separators=(",", ":")) + "\n")
    sys.stdout.flush()


@contextmanager
def drawing(screen: Console) -> Iterator[Show]:
    """Give what draws a terminal anew for each frame; the last one is left on it.

    Args:
        screen: The terminal.
    """
    shown: RenderableType = Text()

    def show(frame: Frame) -> None:
        nonlocal shown
        shown = render_frame(frame, width=screen.width, height=screen.height)
        live.update(shown, refresh=True)

    try:
        with Live(console=screen, auto_refresh=False, screen=True) as live:
            yield show
    finally:
        screen.print(shown)


@connects
def watch(  # noqa: PLR0917
    group: GroupArgument,
    brokers: Brokers,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between two looks.")
    ] = INTERVAL_S,
    count: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Look so many times, then end.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="End after so many seconds.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a group as it changes: members, partitions, lag, and what happened.

    A terminal is drawn anew at each look; elsewhere there is a line for each event. With --json
    each look is one document on a line of its own. What cannot be read leaves the last good view,
    marked stale; a group that is not there yet is waited for.

    Example: spark-groups watch flight-readers --interval 1

    Exit code 1 if nothing could be read before --count or --duration was over; 130 after Ctrl-C.
    """
    has_seen = False
    looking = closing(GroupWatch(brokers.observer(), group))
    with looking as group_watch, _showing(as_json=as_json) as show:
        for frame in _frames(group_watch, interval, count, duration):
            has_seen = has_seen or frame.view is not None
            show(frame)
    if not has_seen:
        raise typer.Exit(1)


@contextmanager
def _showing(*, as_json: bool) -> Iterator[Show]:
    screen = console()
    if as_json:
        yield write_frame
    elif screen.is_terminal:
        with drawing(screen) as show:
            yield show
    else:
        yield EventLines(screen).show


def _frames(
    group_watch: GroupWatch, interval_s: float, count: int | None, duration_s: float | None
) -> Iterator[Frame]:
    began_s = time.monotonic()
    looks = 0
    while True:
        due_s = time.monotonic() + interval_s
        yield group_watch.look()
        looks += 1
        if looks == count or (duration_s is not None and due_s - began_s > duration_s):
            return
        time.sleep(max(0.0, due_s - time.monotonic()))
