"""The demo's output: members, partitions, and rows written by each application.

In a terminal the view of `spark-groups watch` is redrawn twice a second; in a pipe there is a line
for each change, and a progress line periodically.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from demo.applications import Application
from demo.picture import Caption, Look
from demo.spark_log import RowCounter
from spark_groups.cli.watch_cli import render_frame
from spark_groups.observation.frames import Frame, GroupWatch
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.views import GroupView, MemberView
from spark_groups.types import TopicPartition

POLL_S = 0.5
OBSERVE_TIMEOUT_S = 5.0
_LINE_EVERY_S = 10.0
_NOTHING = "—"


class DemoTimeoutError(Exception):
    """Something that the demo waits for did not happen in time."""


@dataclass(frozen=True)
class Seen:
    """One look at the group and at what the applications have written.

    Args:
        frame: The group, and what happened in it.
        rows: Rows of finished batches, by application.
    """

    frame: Frame
    rows: dict[str, int]

    @property
    def view(self) -> GroupView | None:
        """The group now; None before its first member, and while it cannot be read."""
        return self.frame.view if self.frame.stale is None else None

    @property
    def members(self) -> tuple[MemberView, ...]:
        """The members of the group."""
        return self.view.members if self.view is not None else ()

    def owned(self, name: str) -> tuple[TopicPartition, ...]:
        """Return what an application's member owns.

        Args:
            name: The application, which is its member's client id.
        """
        return tuple(each for member in self.members_of(name) for each in member.current)

    def members_of(self, name: str) -> list[MemberView]:
        """Return an application's members: one, or a dead one and its successor."""
        return [member for member in self.members if member.client_id == name]

    @property
    def is_settled(self) -> bool:
        """Whether every partition is owned by the member that shall have it."""
        totals = self.view.totals if self.view is not None else None
        return bool(totals and totals.partitions) and not (
            totals.moving_partitions or totals.unassigned_partitions
        )

    @property
    def lag(self) -> int | None:
        """The total lag; None if unknown."""
        return self.view.totals.lag if self.view is not None else None


class Watch:
    """Polls the group, and shows it.

    Args:
        console: Where it is shown.
        bootstrap_servers: The broker.
        group_id: The group.
        applications: The applications, running or not.
        partitions: How many partitions the topic has.
    """

    def __init__(
        self,
        console: Console,
        bootstrap_servers: str,
        group_id: str,
        applications: Sequence[Application],
        partitions: int,
    ) -> None:
        self._console = console
        self._partitions = partitions
        self._applications = applications
        self._counters = {each.name: RowCounter(each.output) for each in applications}
        self._started_s = time.monotonic()
        observer = GroupObserver(bootstrap_servers, timeout_s=OBSERVE_TIMEOUT_S)
        self._group = GroupWatch(observer, group_id, lambda: self.elapsed_s)
        self.looks: list[Look] = []
        """All polls, for the picture."""
        self.captions: list[Caption] = []
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._last_line = ""
        self._last_line_s = 0.0

    def __enter__(self) -> Watch:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._group.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began to watch."""
        return time.monotonic() - self._started_s

    def say(self, text: str) -> None:
        """Write a line of the demo's own.

        Args:
            text: What happens.
        """
        self._console.print(f"[{self.elapsed_s:5.1f} s] {text}", markup=False)

    def announce(self, text: str) -> None:
        """Write what the demo does, which becomes a caption of its picture.

        Args:
            text: What happens.
        """
        self.captions.append(Caption(self.elapsed_s, text))
        self.say(text)

    def until(
        self,
        condition: Callable[[Seen], bool],
        what: str,
        *,
        running: Iterable[Application],
        timeout_s: float,
    ) -> Seen:
        """Show the group until a condition holds.

        Args:
            condition: The condition.
            what: Its description.
            running: Applications that must not end meanwhile.
            timeout_s: When to give up.

        Returns:
            The group when the condition held.

        Raises:
            DemoTimeoutError: The condition did not hold in time.
            ApplicationError: One of the running ones ended.
        """
        must_run = tuple(running)
        deadline_s = time.monotonic() + timeout_s
        while True:
            seen = self._look()
            self._show(seen)
            if condition(seen):
                return seen
            for application in must_run:
                application.check()
            if time.monotonic() > deadline_s:
                raise DemoTimeoutError(f"not within {timeout_s:g} s: {what}")
            time.sleep(POLL_S)

    def _look(self) -> Seen:
        frame = self._group.look()
        self._note(frame.view)
        return Seen(frame, {name: counter.rows() for name, counter in self._counters.items()})

    def _note(self, view: GroupView | None) -> None:
        owners = {
            each.partition: member.client_id
            for member in (view.members if view is not None else ())
            for each in member.current
        }
        named = tuple(owners.get(partition, "") for partition in range(self._partitions))
        self.looks.append(Look(self.elapsed_s, named))

    def _show(self, seen: Seen) -> None:
        if self._console.is_terminal:
            self._live.update(as_screen(seen, self._console), refresh=True)
            return
        line = as_line(seen, self._applications)
        reads = ", ".join(
            f"{member.client_id} {_reading(member)}" for member in seen.members if member.local
        )
        rows = ", ".join(f"{name} {rows:,}" for name, rows in seen.rows.items() if rows)
        now_s = time.monotonic()
        written = [f"written: {rows}"] if rows else []
        is_due = bool(rows) and now_s - self._last_line_s > _LINE_EVERY_S
        if line != self._last_line or is_due:
            self.say("; ".join([line, *([f"reads: {reads}"] if reads else []), *written]))
            self._last_line, self._last_line_s = line, now_s


def as_line(seen: Seen, applications: Iterable[Application]) -> str:
    """Return the assignment as one line.

    Args:
        seen: The group.
        applications: Its applications.
    """
    if seen.view is None:
        return "no group yet"
    parts = [f"{seen.view.group_state}, group epoch {seen.view.group_epoch}"]
    for application in applications:
        parts += [
            f"{application.name} {_doing(member)}" for member in seen.members_of(application.name)
        ]
    return "; ".join(parts)


def as_screen(seen: Seen, console: Console) -> Group:
    """Return the group as `spark-groups watch` shows it, and the written rows.

    Args:
        seen: The group.
        console: The terminal.
    """
    rows = "  ".join(f"{name} {rows:,}" for name, rows in seen.rows.items())
    shown = render_frame(
        seen.frame,
        width=console.width,
        height=console.height - 1,
        clock=lambda at_s: f"{at_s:5.1f} s",
    )
    return Group(Text(f"rows written: {rows}"), shown)


def as_ranges(partitions: Iterable[TopicPartition]) -> str:
    """Return partition numbers as ranges: 0-5, 8.

    Args:
        partitions: Partitions of one topic.
    """
    ranges: list[list[int]] = []
    for number in sorted(each.partition for each in partitions):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges) or _NOTHING


def _doing(member: MemberView) -> str:
    parts = [f"owns {as_ranges(member.current)}"]
    if member.pending:
        parts.append(f"waits for {as_ranges(member.pending)}")
    if member.revoking:
        parts.append(f"gives up {as_ranges(member.revoking)}")
    return " ".join(parts)


def _reading(member: MemberView) -> str:
    local = member.local
    if local is None:
        return _NOTHING
    if not local.in_flight_partitions:
        return "between batches"
    return f"{local.in_flight_offsets:,} of {local.in_flight_partitions} partitions"
