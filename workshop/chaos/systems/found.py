"""What the tables of a run have at its end: their fences, and rows as another client reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from spark_groups.cli.table_names import TableKind
from spark_groups.spark.tables.table import FencedTable
from spark_groups.types import parse_topic_id
from workshop.chaos.results.account import SinkRow, TableEvidence
from workshop.chaos.results.facts import Partition
from workshop.chaos.systems import evolving, upserted
from workshop.chaos.systems.tables import (
    Form,
    Places,
    open_routed,
    open_table,
    open_upserted,
    table_rows,
)


class Found:
    """The tables of a run.

    Args:
        places: Where they are.
        group_id: The group that has written them.
        topics: Ids of the topics, as Kafka's tools write them, by name.
        has_fields: Whether their columns are the fields of values.
    """

    def __init__(
        self, places: Places, group_id: str, topics: Mapping[str, str], *, has_fields: bool
    ) -> None:
        self._places = places
        self._group_id = group_id
        self._topics = {parse_topic_id(text): name for name, text in topics.items()}
        self._has_fields = has_fields

    def evidence(
        self, kinds: Iterable[TableKind], routed: Collection[str] = ()
    ) -> dict[str, TableEvidence]:
        """Return the tables that are to hold each record once, by name.

        Args:
            kinds: The kinds of the tables that hold all topics.
            routed: The topics that have a table each: together, these are one table.
        """
        found = {kind.value: self._of_kind(kind) for kind in kinds}
        if routed:
            of_topics = {topic: self._of_topic(topic) for topic in routed}
            found[Form.ROUTES.value] = as_one(of_topics)
        return found

    def upserted(
        self, log: Iterable[upserted.Row], ends: Mapping[Partition, int]
    ) -> tuple[int, list[str]]:
        """Return how many rows the table with keys has, and how it differs from the log.

        Args:
            log: The rows of all records.
            ends: The next offset to be written of each partition.
        """
        entries = self._entries(open_upserted(self._places))
        found = list(evolving.table_rows(self._places.upserted)) if entries else []
        wrong = upserted.unlike_ends(entries, ends)
        wrong += upserted.differences(upserted.replayed(log), found)
        return len(found), [f"upserted: {each}" for each in wrong]

    def _of_kind(self, kind: TableKind) -> TableEvidence:
        table = open_table(kind, self._places)
        if self._has_fields:
            return self._of_fields(table, self._places.delta)
        entries = self._entries(table)
        # Where no batch was ever written, there is no table.
        return TableEvidence(table_rows(kind, self._places) if entries else (), entries)

    def _of_topic(self, topic: str) -> TableEvidence:
        return self._of_fields(open_routed(self._places, topic), self._places.routed(topic))

    def _of_fields(self, table: FencedTable, path: Path) -> TableEvidence:
        entries = self._entries(table)
        return TableEvidence(evolving.delta_rows(path) if entries else (), entries)

    def _entries(self, table: FencedTable) -> dict[Partition, tuple[int, int]]:
        return {
            # A topic of another cluster has no name here: its entries fit no rows.
            (self._topics.get(key.topic_id, str(key.topic_id)), key.partition): (
                entry.start_offset,
                entry.next_offset,
            )
            for key, entry in table.read(self._group_id).entries.items()
        }


def as_one(of_topics: Mapping[str, TableEvidence]) -> TableEvidence:
    """Return the tables of topics as one: a row in the table of another topic is wrong.

    Args:
        of_topics: The table of each topic, by its name.
    """

    def rows_of(topic: str, table: TableEvidence) -> Iterator[SinkRow]:
        for row in table.rows:
            yield row._replace(is_right=row.is_right and row.topic == topic)

    return TableEvidence(
        chain.from_iterable(rows_of(topic, table) for topic, table in of_topics.items()),
        {
            # An entry of another topic fits no rows.
            (own if own == topic else f"{own} in the table of {topic}", index): entry
            for topic, table in of_topics.items()
            for (own, index), entry in table.entries.items()
        },
    )
