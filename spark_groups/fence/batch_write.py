"""The steps in which a batch is written to a table, with every wait between.

The caller calls `step` until that returns `Written`; before the next call it does what the step
says, and passes on the answer. `BatchWrite` has no clock, no thread and no table; `write_table` and
the simulation drive the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias

from spark_groups.errors import ColumnsChangedError, TableChangedError
from spark_groups.fence.beginnings import Batch, UnsavedEntries, beginnings
from spark_groups.fence.compare import (
    Decision,
    Skip,
    check_not_restored,
    check_not_truncated,
    compare,
    other_groups,
)
from spark_groups.fence.entries import EntryChange, FenceKey, TableState
from spark_groups.group.member.backoff import FIRST_BACKOFF_S, MAX_BACKOFF_S
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.types import OffsetRange, TopicId

COMMIT_WAIT_S: Final = 300.0
"""For how long a batch is compared again because other writers commit to the same table, in
seconds, besides the time in which its rows are staged: as long as the default of
`kafka.max.poll.interval.ms`, after which other members own its partitions."""


@dataclass(frozen=True, slots=True)
class ReadFence:
    """Read the fence, then call `fence_read`, or `refused`."""

    topic_ids: frozenset[TopicId]


@dataclass(frozen=True, slots=True)
class AskCommitted:
    """Fetch the group's committed offsets, then call `committed`.

    Args:
        needed: Partitions whose offset must not be unknown.
    """

    needed: frozenset[FenceKey]


@dataclass(frozen=True, slots=True)
class AskKept:
    """Ask which records of the ranges were deleted, then call `kept`."""

    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class Warn:
    """Warn of skipped offsets, and of other groups.

    Args:
        others: A sentence for each other group.
    """

    skips: tuple[Skip, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StageRows:
    """Stage the rows of these ranges, in place of those that were staged before."""

    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class CommitEntries:
    """Commit changes of entries without rows; call `refused` if the table refuses."""

    decision: Decision
    state: TableState


@dataclass(frozen=True, slots=True)
class CommitRows:
    """Commit the staged rows with changes of entries; call `refused` if the table refuses."""

    decision: Decision
    state: TableState


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Written:
    """The end: the table has the whole batch."""


Step: TypeAlias = (
    ReadFence
    | AskCommitted
    | AskKept
    | Warn
    | StageRows
    | CommitEntries
    | CommitRows
    | Pause
    | Written
)


class BatchWrite:
    """The write of one batch.

    Args:
        batch: The batch.
        table: The name of the table in errors.
        unsaved: Remembers where the group began partitions, while the table does not exist.
        spread: Returns a random number between two.
    """

    def __init__(
        self,
        batch: Batch,
        table: str,
        unsaved: UnsavedEntries,
        spread: Callable[[float, float], float],
    ) -> None:
        self._batch = batch
        self._table = table
        self._unsaved = unsaved
        self._spread = spread
        self._now_s = 0.0
        """The time of the current call."""
        self._state = TableState()
        self._committed: Mapping[FenceKey, OffsetAndMetadata] = {}
        self._kept: tuple[OffsetRange, ...] = ()
        self._refusal: TableChangedError | None = None
        self._staged: tuple[OffsetRange, ...] | None = None
        """The ranges whose rows are staged."""
        self._remaining = self._steps()

    def step(self, now_s: float) -> Step:
        """Return what comes next.

        Args:
            now_s: The time, in seconds of any clock.

        Raises:
            TableError: The batch cannot be written.
        """
        self._now_s = now_s
        return next(self._remaining, Written())

    def fence_read(self, state: TableState) -> None:
        """Take the fence that was read."""
        self._state = state

    def committed(self, offsets: Mapping[FenceKey, OffsetAndMetadata]) -> None:
        """Take the group's committed offsets."""
        self._committed = offsets

    def kept(self, ranges: tuple[OffsetRange, ...]) -> None:
        """Take the ranges without records that were deleted."""
        self._kept = ranges

    def refused(self, error: TableChangedError) -> None:
        """Take the table's refusal: the batch is compared again, and may be staged again."""
        self._refusal = error
        if isinstance(error, ColumnsChangedError):
            self._staged = None

    def _steps(self) -> Generator[Step, None, None]:
        batch, table = self._batch, self._table
        deadline_s = self._now_s + COMMIT_WAIT_S
        for tries in count():
            state = yield from self._fence(deadline_s)
            if state is None:
                continue
            yield AskKept(batch.ranges)
            ranges = self._kept
            decision = compare(batch.group_id, ranges, state, table=table)
            if decision.skips:
                yield AskCommitted(frozenset(skip.key for skip in decision.skips))
                check_not_truncated(decision.skips, self._committed, table=table)
            others = other_groups(batch.group_id, batch.topic_names(), state)
            yield Warn(decision.skips, tuple(others))
            if not decision.write:
                return
            if self._staged != decision.write:
                self._staged, began_s = decision.write, self._now_s
                yield StageRows(decision.write)
                deadline_s += self._now_s - began_s
                yield AskKept(batch.ranges)
                if self._kept != ranges:
                    # Brokers may have deleted records before a task read them.
                    continue
            yield CommitRows(decision, state)
            if not self._is_refused(deadline_s):
                self._unsaved.note(decision.changes)
                return
            # Writers that were refused at the same time must not try again at the same time. A
            # longer pause would make a batch later than the refusals that it avoids.
            longest_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(tries, 10))
            yield Pause(self._spread(0, longest_s))

    def _fence(self, deadline_s: float) -> Generator[Step, None, TableState | None]:
        """Return the fence, or None if it must be read again: an entry began, or it changed."""
        batch = self._batch
        yield ReadFence(frozenset(batch.topic_names()))
        if self._is_refused(deadline_s):
            yield Pause(self._spread(0, FIRST_BACKOFF_S))
            return None
        state = self._unsaved.read(batch, self._state)
        check_not_restored(batch.group_id, state, table=self._table)
        needed = self._unsaved.look(batch, state, self._now_s)
        if needed is None:
            return state
        yield AskCommitted(needed)
        yield AskKept(batch.ranges)
        entries = beginnings(batch, self._committed, self._kept, state)
        first = tuple(EntryChange(key, None, entries[key]) for key in sorted(entries))
        if not first:
            return state
        # Before any row: a batch that fails must not look like one that was not planned.
        if state.is_there:
            yield CommitEntries(Decision(changes=first), state)
            if self._is_refused(deadline_s):
                yield Pause(self._spread(0, FIRST_BACKOFF_S))
                return None
        self._unsaved.note(first)
        return None

    def _is_refused(self, deadline_s: float) -> bool:
        """Return whether the table has refused.

        Raises:
            TableChangedError: It has refused for too long.
        """
        error, self._refusal = self._refusal, None
        if error is not None and self._now_s >= deadline_s:
            raise TableChangedError(
                f"batch {self._batch.batch_id} could not be written for {COMMIT_WAIT_S:g} s. The"
                f" last reason: {error}"
            ) from error
        return error is not None
