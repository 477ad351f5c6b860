"""Rows that replace or delete those of a table with the same key: which of a batch are the last.

A fence has the batches of a partition in order, so only rows of one batch need to be compared: in
each task, then on the driver. Executors import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from spark_groups.errors import OptionsError, TableError
from spark_groups.spark.tables.column_values import PLACE
from spark_groups.spark.tables.columns import TableColumns

DELETED: Final = "_deleted"
"""The boolean column that marks rows which delete, unless another one is named."""
CHANGES_BYTES_MAX: Final = 1024**3
"""The most bytes of the last rows of a batch: they are merged on the driver."""
_ROW: Final = "row"


@dataclass(frozen=True, slots=True)
class Upsert:
    """How rows change those of a table that have the same key.

    Args:
        merge_on: The columns of the key.
        delete_when: The boolean column of rows that delete; the table does not store it.
        order_by: The column whose greatest value is the last; None: the greatest offset is.
    """

    merge_on: tuple[str, ...]
    delete_when: str = DELETED
    order_by: str | None = None

    @property
    def compared(self) -> tuple[str, ...]:
        """The stored columns that say what a row changes, and whether."""
        return tuple(dict.fromkeys(filter(None, (*self.merge_on, self.order_by))))

    def staged(self, columns: TableColumns) -> TableColumns:
        """Return the columns in which rows are staged: with those that the table does not store.

        Args:
            columns: The columns of the table.

        Raises:
            TableError: It lacks columns that are named.
        """
        needed = tuple(dict.fromkeys((*self.compared, *PLACE)))
        if columns.schema is None:
            hidden = {*PLACE, self.delete_when}.difference(self.compared)
            return replace(columns, needed=needed, hidden=frozenset(hidden), mark=self.delete_when)
        names = columns.schema.names
        if lacking := [each for each in self.compared if each not in names]:
            unfilled = columns.not_written
            why = "".join(f"; {each} {unfilled[each]}" for each in lacking if each in unfilled)
            raise TableError(
                f"{columns.table} has no {', '.join(lacking)}, which merge_on and order_by name"
                + why
            )
        added = [
            pa.field(name, of, nullable=name == self.delete_when)
            for name, of in {**PLACE, self.delete_when: pa.bool_()}.items()
            if name not in names
        ]
        fields = [each.with_nullable(each.name not in needed) for each in columns.schema]
        required = (each.name for each in columns.schema if not each.nullable)
        return replace(
            columns,
            schema=pa.schema([*fields, *added]),
            needed=needed,
            hidden=frozenset({*(each.name for each in added), self.delete_when}),
            required=tuple(each for each in required if each not in needed),
            mark=self.delete_when,
        )

    def check(self, schema: pa.Schema) -> None:
        """Refuse types whose values are not known to be equal, or to be the last.

        Args:
            schema: The columns of staged rows.

        Raises:
            TableError: There is one.
        """
        problems = [
            f"{name} of {place} is {schema.field(name).type}"
            for place, names in (("merge_on", self.merge_on), ("order_by", (self.order_by,)))
            for name in filter(None, names)
            if kinds.is_nested(of := schema.field(name).type)
            or (kinds.is_floating(of) and place == "merge_on")
        ]
        problems += [
            f"{name} is {schema.field(name).type}, not the integer of the record"
            for name in ("partition", "offset")
            if not kinds.is_integer(schema.field(name).type)
        ]
        mark = schema.get_field_index(self.delete_when)
        if mark >= 0 and not kinds.is_boolean(schema.field(mark).type):
            problems.append(f"{self.delete_when} of delete_when is {schema.field(mark).type}")
        if problems:
            raise TableError(f"rows cannot be merged: {'; '.join(problems)}. Change the transform")

    def last(self, rows: pa.Table) -> pa.Table:
        """Return the last row of each key: of each of its partitions, unless a column orders all.

        Args:
            rows: Staged rows.

        Raises:
            TableError: The types of columns are wrong.
        """
        self.check(rows.schema)
        by, order = [*self.merge_on, "topic", "partition"], ["offset"]
        if self.order_by is not None:
            by, order = [*self.merge_on], [self.order_by, *PLACE]
        # Stable: of the rows that a transform makes of one record, the last one is the last.
        ranks = _numbered(rows, order)
        ranked = pc.sort_indices(
            ranks, sort_keys=[(each, "ascending") for each in ranks.column_names[:-1]]
        )
        last = _of_each(_numbered(rows, by, ranked), "max")[f"{_ROW}_max"]
        return rows.take(ranked.take(last))

    def changes(self, staged: Iterable[pa.Table], table: str) -> pa.Table | None:
        """Return the last row of each key of a batch; None: there is no row.

        Args:
            staged: The rows of each piece.
            table: The name of the table in errors.

        Raises:
            TableError: A key has rows of several partitions, which no column orders; or there are
                too many rows, or their columns differ.
        """
        found: pa.Table | None = None
        for each in staged:
            if found is not None and found.schema != each.schema:
                raise TableError(different_columns(table))
            found = self.last(each if found is None else pa.concat_tables([found, each]))
            if found.nbytes > CHANGES_BYTES_MAX:
                raise TableError(
                    f"the batch changes rows of more than {CHANGES_BYTES_MAX} bytes, which the"
                    f" driver would merge into {table} at once. Begin with a new checkpointLocation"
                    " and a lower maxOffsetsPerTrigger"
                )
        if found is not None and self.order_by is None:
            places = _of_each(_numbered(found, self.merge_on), "min", "max")
            several = places.filter(pc.not_equal(places[f"{_ROW}_min"], places[f"{_ROW}_max"]))
            for each in several.slice(0, 1).to_pylist():
                records = found.select([*PLACE]).take([each[f"{_ROW}_min"], each[f"{_ROW}_max"]])
                shown = sorted(
                    "{topic}-{partition} offset {offset}".format(**record)
                    for record in records.to_pylist()
                )
                raise TableError(self.several_partitions(table, shown))
        return found

    def several_partitions(self, table: str, records: Sequence[str]) -> str:
        """Return the error of a key with records of several partitions.

        Args:
            table: The name of the table.
            records: Some of them.
        """
        return (
            f"{table}: one batch has the same {', '.join(self.merge_on)} in several partitions, as"
            f" in the records {' and '.join(records[:3])}, and offsets do not order these. Give"
            " order_by a column whose greatest value is the last, or produce all records of a key"
            " to one partition"
        )


def _numbered(rows: pa.Table, names: Sequence[str], order: pa.Array | None = None) -> pa.Table:
    """Return columns under the names 0, 1, ..., which no other column has, and numbers of rows.

    Args:
        rows: The rows.
        names: The columns.
        order: The numbers of the rows in the order that they get; None: as they are.
    """
    found = pa.table([rows[each] for each in names], names=[f"{n}" for n in range(len(names))])
    found = found if order is None else found.take(order)
    return found.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))


def _of_each(numbered: pa.Table, *functions: str) -> pa.Table:
    """Return functions of the numbers of the rows whose other columns are equal."""
    grouped = numbered.group_by(numbered.column_names[:-1], use_threads=False)
    return grouped.aggregate([(_ROW, each) for each in functions])


def different_columns(table: str) -> str:
    """Return the error of tasks whose rows cannot be compared."""
    return f"tasks staged different columns for {table}: change the transform"


def upsert_of(
    merge_on: str | Sequence[str], delete_when: str, order_by: str | None
) -> Upsert | None:
    """Return how rows change a table; None: they are added.

    Args:
        merge_on: The columns of the key; none: rows are added.
        delete_when: The boolean column of rows that delete.
        order_by: The column that orders rows of a key.

    Raises:
        OptionsError: They do not fit each other.
    """
    names = (merge_on,) if isinstance(merge_on, str) else tuple(merge_on)
    if not names:
        if order_by is not None or delete_when != DELETED:
            raise OptionsError("delete_when and order_by need merge_on, which names the key")
        return None
    if (
        not all(names)
        or len({*names}) < len(names)
        or delete_when in {"", order_by, *names, *PLACE}
    ):
        raise OptionsError(
            f"merge_on is {list(names)}, delete_when {delete_when!r} and order_by {order_by!r}: the"
            " names of the key differ, and the column that marks deletes is another one"
        )
    return Upsert(names, delete_when, order_by)
