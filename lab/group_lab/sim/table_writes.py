"""The write of a batch to a table by a run of a query, and what an operator does if it is refused.

A commit may be refused, its answer may be lost, and it may arrive after its query has died, while
the next run already writes the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from group_lab.sim.facts import Swallowed, WriteRefused, Wrote
from group_lab.sim.scene import Scene
from group_lab.sim.tables import Rows, Table
from spark_groups.errors import TableChangedError, TableError
from spark_groups.fence.batch_write import (
    AskCommitted,
    AskKept,
    BatchWrite,
    CommitEntries,
    CommitRows,
    Pause,
    ReadFence,
    StageRows,
    Warn,
    Written,
)
from spark_groups.fence.beginnings import Batch, UnsavedEntries
from spark_groups.fence.compare import Decision, kept_of
from spark_groups.fence.entries import FenceKey, TableState
from spark_groups.group.ledger.commit_metadata import is_truncated
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import OffsetRange

READ_S: Final = (0.001, 0.02)
"""How long a read of the fence takes, or of the start of a log."""
COMMIT_S: Final = (0.001, 0.02, 0.3, 3.0, 12.0, 30.0)
"""How long a commit may be on its way; the last ones may be those of a dead query."""
TRY_AGAIN_S: Final = 0.5
"""After how long a request for committed offsets is repeated."""
SWALLOWS: Final = 0.5
"""The chance that the function around `write_table` swallows an error."""


class Writer(Protocol):
    """A run of a query that writes."""

    @property
    def name(self) -> str: ...

    @property
    def now(self) -> float: ...

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Act after a delay, if it is still alive."""


@dataclass(slots=True, kw_only=True)
class SimulatedWrite:
    """The write of one batch to a table: the steps of `BatchWrite` in virtual time.

    Args:
        run: The run of the query. A run that was replaced writes until it ends.
        is_strict: Whether `failOnDataLoss` is true.
        planned_at: When the batch was planned; None: another run has planned it.
        staging_s: How long tasks take for the rows.
        written: Called when the table has the batch.
        failed: Called when the batch fails.
        refused: Called when it fails, and an operator has done as the error says.
        lost: Called when tasks fail because their records are gone.
    """

    scene: Scene
    table: Table
    run: Writer
    batch: Batch
    unsaved: UnsavedEntries
    is_strict: bool
    planned_at: float | None
    staging_s: float
    written: Callable[[], None]
    failed: Callable[[], None]
    refused: Callable[[], None]
    lost: Callable[[], None]
    _began_at: float = 0.0
    _write: BatchWrite = field(init=False)
    _rows: Rows = field(default_factory=dict)
    """The rows that were staged last."""
    _is_truncated: frozenset[FenceKey] = frozenset()
    """Partitions whose committed offset is the end of a truncated log."""

    def begin(self) -> None:
        """Take the first step."""
        chance = self.scene.chance
        self._began_at = self.scene.now
        self._write = BatchWrite(self.batch, "the table", self.unsaved, chance.uniform)
        self._continue()

    def _continue(self) -> None:
        write, run = self._write, self.run
        try:
            step = write.step(run.now)
        except TableError as error:
            self._refuse(error)
            return
        match step:
            case ReadFence(topic_ids=topic_ids):
                self._soon(lambda: write.fence_read(self.table.read(topic_ids)))
            case AskCommitted(needed=needed):
                self._ask_committed(needed)
            case AskKept(ranges=ranges):
                self._soon(lambda: write.kept(self._kept(ranges)))
            case StageRows(ranges=ranges):
                run.after(self.staging_s, lambda: self._stage(ranges))
            case CommitEntries(decision=decision, state=state):
                self._commit({}, decision, state)
            case CommitRows(decision=decision, state=state):
                self._commit(self._rows, decision, state)
            case Pause(seconds=seconds):
                run.after(seconds, self._continue)
            case Warn():
                self._continue()
            case Written():
                kept = self._kept(self.batch.ranges)
                self.scene.publish(Wrote(run.name, kept, self._began_at, self.planned_at))
                self.written()

    def _soon(self, act: Callable[[], None]) -> None:
        def due() -> None:
            act()
            self._continue()

        self.run.after(self.scene.chance.uniform(*READ_S), due)

    def _kept(self, ranges: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        if self.is_strict:
            return ranges
        logs = self.scene.storage.logs
        return tuple(
            kept_of(
                offset_range,
                logs[offset_range.key].start_offset if offset_range.key in logs else None,
            )
            for offset_range in ranges
        )

    def _ask_committed(self, needed: frozenset[FenceKey]) -> None:
        scene, group_id = self.scene, self.batch.group_id
        request = m.OffsetFetchRequest(group_id=group_id, partitions=frozenset(scene.storage.logs))
        outgoing = Outgoing(Channel.OFFSETS, request, scene.coordination.node)

        def again(_: object = None) -> None:
            self.run.after(TRY_AGAIN_S, lambda: self._ask_committed(needed))

        def answered(answer: m.Response) -> None:
            assert isinstance(answer, m.OffsetFetchResponse)
            found = {
                FenceKey(group_id, key.topic_id, key.partition): each
                for key, each in answer.answers.items()
            }
            if answer.error_code or any(
                isinstance(found.get(key), m.PartitionError) for key in needed
            ):
                again()
                return
            committed = {
                key: each
                for key, each in found.items()
                if isinstance(each, m.OffsetAndMetadata) and each.committed_offset != m.NO_OFFSET
            }
            self._is_truncated = frozenset(
                key for key, each in committed.items() if is_truncated(each.metadata)
            )
            self._write.committed(committed)
            self._continue()

        scene.network.send(
            f"{self.run.name} table",
            outgoing,
            lambda answer: self.run.after(0.0, lambda: answered(answer)),
            again,
        )

    def _stage(self, ranges: tuple[OffsetRange, ...]) -> None:
        logs = self.scene.storage.logs
        if self.is_strict and any(
            offset_range.key not in logs
            or offset_range.from_offset < logs[offset_range.key].start_offset
            for offset_range in ranges
        ):
            self.lost()
            return
        if self._has_fault():
            self._fail()
            return
        read_committed = bool(self.scene.swarm.read_committed)
        if read_committed and any(
            logs[offset_range.key].stable_offset
            < offset_range.until_offset
            <= logs[offset_range.key].end_offset
            for offset_range in ranges
            if offset_range.key in logs
        ):
            # After a truncation, a batch that runs again may end above the last stable offset.
            self.failed()
            return
        self._rows = {
            offset_range.key: logs[offset_range.key].rows(
                max(offset_range.from_offset, logs[offset_range.key].start_offset),
                offset_range.until_offset,
                read_committed=read_committed,
            )
            for offset_range in ranges
            if offset_range.key in logs
        }
        self._continue()

    def _commit(self, rows: Rows, decision: Decision, state: TableState) -> None:
        """Send a commit. It arrives even if the run dies meanwhile."""
        chance, swarm = self.scene.chance, self.scene.swarm
        is_faulty = self.scene.is_faulty and swarm.table_errors > 0.0
        is_refused, is_unheard = self._has_fault(), self._has_fault()
        is_fatal = is_unheard and chance.random() < 0.5
        write = self._write

        def arrive() -> None:
            error: TableChangedError | None = None
            if is_refused:
                error = TableChangedError("another writer was first")
            else:
                try:
                    self.table.commit(rows, decision.changes, state)
                except TableChangedError as refused:
                    error = refused
            if is_unheard:
                error = TableChangedError("the result of the commit is unknown")
            self.run.after(0.001, lambda: answered(error))

        def answered(error: TableChangedError | None) -> None:
            if is_fatal:
                self._fail()
                return
            if error is not None:
                write.refused(error)
            self._continue()

        self.scene.schedule.after(chance.choice(COMMIT_S if is_faulty else COMMIT_S[:2]), arrive)

    def _has_fault(self) -> bool:
        swarm = self.scene.swarm
        return self.scene.is_faulty and self.scene.chance.random() < swarm.table_errors

    def _fail(self) -> None:
        """Fail, unless the function around `write_table` swallows the error."""
        # What a table that does not exist has begun is remembered by one run only.
        if self.table.is_there and self.scene.chance.random() < SWALLOWS:
            self.scene.publish(Swallowed(self.run.name, self.batch.ranges))
            self.written()
            return
        self.failed()

    def _refuse(self, error: TableError) -> None:
        """Have an operator do as the error says; then the query starts again."""
        found = dict(self._remedies())
        self.scene.publish(WriteRefused(self.run.name, self.batch, tuple(found), str(error)))
        for key, offset in found.items():
            self.table.accept(key, offset)
        self.refused()

    def _remedies(self) -> Iterable[tuple[FenceKey, int]]:
        """Yield the partitions that the table refuses, each with the offset to begin it at."""
        for each in self._kept(self.batch.ranges):
            key = FenceKey(self.batch.group_id, each.topic_id, each.partition)
            entry = self.table.entries.get(key)
            if entry is None or not len(each):
                continue
            is_covered = entry.start_offset <= each.from_offset <= entry.next_offset
            is_behind = each.from_offset < entry.next_offset and key in self._is_truncated
            if not is_covered or is_behind:
                yield key, each.from_offset
