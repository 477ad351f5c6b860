"""Planted bugs: a run with one of them has to fail, or the checks of runs prove nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from spark_groups.errors import TableChangedError
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import Entry, EntryChange, TableState
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.types import TopicId
from workshop.chaos.systems.tables import WrappedTable

if TYPE_CHECKING:
    pass


class Plant(str, Enum):
    """The bugs that a run may have."""

    EARLY_RELEASE = "early-release"
    NEWEST_EPOCH = "newest-epoch"
    KEEPS_FENCED = "keeps-fenced"
    TRUSTS_REPEATED = "trusts-repeated"
    COMMITS_PLANNED = "commits-planned"
    COMMITS_LOST = "commits-lost"
    KEEPS_POSITION = "keeps-position"
    VALUE_AS_EVIDENCE = "value-as-evidence"
    REPLAY_UNNOTED = "replay-unnoted"
    REPLAY_FINISHED = "replay-finished"
    LAST_RECORD = "last-record"
    BEYOND_RANGE = "beyond-range"
    BATCH_START = "batch-start"
    CUT_FETCH = "cut-fetch"
    NO_COMPARE = "no-compare"
    COMPARE_BEFORE = "compare-before"
    KAFKA_FIRST = "kafka-first"


class Part(Enum):
    """Where a bug is planted; the value is its name in a table."""

    CLIENT = "client"
    LEDGER = "ledger"
    READER = "reader"
    TABLES = "tables"


@dataclass(frozen=True, slots=True)
class Description:
    """What a bug is.

    Args:
        part: Where it is planted.
        text: What the part does wrong.
    """

    part: Part
    text: str


DESCRIPTIONS: Final[Mapping[Plant, Description]] = MappingProxyType(
    {
        Plant.EARLY_RELEASE: Description(
            Part.CLIENT, "A member acknowledges a revocation before its batch is committed."
        ),
        Plant.NEWEST_EPOCH: Description(
            Part.CLIENT, "A batch is committed with the current member epoch, not its plan's."
        ),
        Plant.KEEPS_FENCED: Description(
            Part.CLIENT, "A member keeps its partitions after its epoch was fenced."
        ),
        Plant.TRUSTS_REPEATED: Description(
            Part.CLIENT, "A commit that was repeated without an answer is not looked up."
        ),
        Plant.COMMITS_PLANNED: Description(
            Part.LEDGER, "The end of a batch is committed when the batch is planned."
        ),
        Plant.COMMITS_LOST: Description(
            Part.LEDGER, "A finished batch is committed even where another member owns it by now."
        ),
        Plant.KEEPS_POSITION: Description(
            Part.LEDGER, "A partition that returns continues at the position that it had before."
        ),
        Plant.VALUE_AS_EVIDENCE: Description(
            Part.LEDGER,
            "A restart takes any commit at the start of its last batch for the one before it.",
        ),
        Plant.REPLAY_UNNOTED: Description(
            Part.LEDGER, "Partitions are released while a replayed batch reads them."
        ),
        Plant.REPLAY_FINISHED: Description(
            Part.LEDGER, "After a restart, the batch without commits/N counts as finished."
        ),
        Plant.LAST_RECORD: Description(Part.READER, "The last record of a range is dropped."),
        Plant.BEYOND_RANGE: Description(
            Part.READER, "The record after a range is returned if it came with the others."
        ),
        Plant.BATCH_START: Description(
            Part.READER, "The fast reader returns records of Kafka's batch before the range."
        ),
        Plant.CUT_FETCH: Description(
            Part.READER,
            "The fast reader loses the rest of a range after a response, cut at 1,024 bytes.",
        ),
        Plant.NO_COMPARE: Description(
            Part.TABLES, "The entries of a table are ignored: a batch is written whole."
        ),
        Plant.COMPARE_BEFORE: Description(
            Part.TABLES,
            "A batch is compared, but its commit does not check that the entries are the same.",
        ),
        Plant.KAFKA_FIRST: Description(
            Part.TABLES, "commits/N and Kafka's commit come before the tables' commits."
        ),
    }
)


class CompareBefore(WrappedTable):
    """A table whose commit expects the current entries, instead of the compared ones."""

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Add the rows, even if another writer has committed since the comparison."""
        del state
        topic_ids = frozenset(each.key.topic_id for each in decision.changes)
        while True:
            now = self._table.read(attempt.group_id, topic_ids)
            changes = tuple(_unchecked(each, now) for each in decision.changes)
            try:
                self._table.commit(attempt, pieces, replace(decision, changes=changes), now)
            except TableChangedError:
                continue
            return


class NoCompare(CompareBefore):
    """A table that returns no entry, as if it had no batch."""

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the fence without its entries."""
        return replace(super().read(group_id, topic_ids), entries={})


def _unchecked(change: EntryChange, now: TableState) -> EntryChange:
    there = now.entries.get(change.key)
    if there is None:
        return replace(change, expected=None)
    start_offset = min(there.start_offset, change.entry.start_offset)
    next_offset = max(there.next_offset, change.entry.next_offset)
    return replace(change, expected=there, entry=Entry(start_offset, next_offset))


def planted(table: FencedTable, plant: Plant | None) -> FencedTable:
    """Return a table with a bug, if the bug is one of tables.

    Args:
        table: The table.
        plant: The bug; None: there is none.
    """
    match plant:
        case Plant.NO_COMPARE:
            return NoCompare(table)
        case Plant.COMPARE_BEFORE:
            return CompareBefore(table)
        case _:
            return table
