"""The transforms of this package: columns from the fields of a column, and marks of deletes.

Executors import this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_groups.errors import TableError
from spark_groups.spark.tables.column_values import PLACE
from spark_groups.spark.tables.upserts import Upsert

if TYPE_CHECKING:
    # Tasks import this module, and need no DataFrame.
    from pyspark.sql import DataFrame

_KEY: Final = "key"
_VALUE: Final = "value"
_NO_KEY: Final = (
    "a record of Debezium without a value deletes the row of its key: set the stream's keyFormat,"
    " and expand to ('key', 'value')"
)
_OPERATIONS: Final = ("c", "u", "r", "d")
"""Those of Debezium that are about one row: create, update, read of a snapshot, delete."""
_NO_ROW: Final = "no row is changed by an op of Debezium: "


@dataclass(frozen=True, slots=True)
class Expanded:
    """A transform, of record batches or of DataFrames, that makes columns of fields.

    Of two fields with one name, the table gets that of the first column.

    Args:
        columns: The columns whose fields are taken; none: rows keep their columns.
        upsert: How rows change the table: they also get the columns of their records that order
            them, and a record without a value is marked as a delete. None: rows are added.
        is_envelope: Whether values are those of Debezium: the row is `after`, or `before` where a
            row was deleted. A record without a value follows a delete, and compaction may have kept
            only that one: it deletes the row of its key, which therefore has to have fields.
    """

    columns: tuple[str, ...]
    upsert: Upsert | None = None
    is_envelope: bool = False

    def __call__(self, rows: Any) -> Any:
        """Return the changed rows.

        Args:
            rows: A record batch or a DataFrame.

        Raises:
            TableError: A column has no fields, or a field has a name that is needed.
            ValueError: A value of Debezium is about no row.
        """
        if isinstance(rows, pa.RecordBatch):
            return self._of_arrow(rows)
        return self._of_frame(rows)

    def _of_arrow(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        deleted = rows.column(_VALUE).is_null()
        if self.is_envelope:
            if _KEY not in self.columns and pc.any(deleted).as_py():
                raise ValueError(_NO_KEY)
            value = self._struct(rows, _VALUE)
            _check_envelope(value.type)
            # Unlike `StructArray.field`, this has nulls where the value is null.
            operation = pc.struct_field(value, "op")
            given = pc.unique(operation.filter(value.is_valid()))
            if others := [each for each in given.to_pylist() if each not in _OPERATIONS]:
                raise ValueError(_NO_ROW + str(others[0] or "none"))
            deleted = pc.or_(deleted, pc.fill_null(pc.equal(operation, "d"), False))
            image = pc.if_else(
                deleted, pc.struct_field(value, "before"), pc.struct_field(value, "after")
            )
            rows = rows.set_column(rows.schema.get_field_index(_VALUE), _VALUE, image)
        found: list[tuple[pa.Field, pa.Array]] = []
        for name in self.columns:
            column = self._struct(rows, name)
            taken = {each.name for each, _ in found}
            fields = zip(column.type, column.flatten(), strict=True)
            found += [each for each in fields if each[0].name not in taken]
        if not self.columns:
            found = [*zip(rows.schema, rows.columns, strict=True)]
        if self.upsert is not None:
            more = self._more({each.name: index for index, (each, _) in enumerate(found)})
            found += [(rows.schema.field(name), rows.column(name)) for name in more]
            mark = self.upsert.delete_when
            for each, column in found:
                if each.name == mark:
                    if not pa.types.is_boolean(each.type):
                        raise TableError(f"{mark} of delete_when is {each.type}, not a boolean")
                    deleted = pc.or_(deleted, pc.fill_null(column, False))
            found = [each for each in found if each[0].name != mark]
            found.append((pa.field(mark, pa.bool_()), deleted))
        schema = pa.schema([each for each, _ in found])
        return pa.RecordBatch.from_arrays([column for _, column in found], schema=schema)

    def _of_frame(self, rows: DataFrame) -> DataFrame:
        # Tasks import this module, and need no session.
        from pyspark.sql import functions as f  # noqa: PLC0415

        col, lit = f.col, f.lit

        deleted = col(_VALUE).isNull()
        if self.is_envelope:
            operation = col(f"{_VALUE}.op")
            problem = f.concat(lit(_NO_ROW), f.coalesce(operation, lit("none")))
            is_tombstone, deleted = deleted, f.coalesce(deleted | (operation == "d"), lit(False))
            before = col(f"{_VALUE}.before")
            image = (
                f.when(
                    is_tombstone, before if _KEY in self.columns else f.raise_error(lit(_NO_KEY))
                )
                .when(deleted, before)
                .when(operation.isin(*_OPERATIONS), col(f"{_VALUE}.after"))
                .otherwise(f.raise_error(problem))
            )
            rows = rows.withColumn("_is_delete", deleted)
            rows, deleted = rows.withColumn(_VALUE, image), col("_is_delete")
        found: dict[str, Any] = {}
        for name in self.columns:
            for each in rows.select(f"`{name}`.*").columns:
                found.setdefault(each, col(f"`{name}`").getField(each).alias(each))
        if not self.columns:
            found = {each: col(f"`{each}`") for each in rows.columns}
        if self.upsert is not None:
            found |= {name: col(name) for name in self._more(found)}
            mark = self.upsert.delete_when
            if mark in found:
                deleted |= f.coalesce(found.pop(mark), lit(False))
            found[mark] = deleted.alias(mark)
        return rows.select(*found.values())

    def _struct(self, rows: pa.RecordBatch, name: str) -> pa.StructArray:
        place = rows.schema.get_field_index(name)
        if place < 0 or not pa.types.is_struct(rows.schema.field(place).type):
            raise TableError(
                f"expand is {name}, which is no column with fields: set the stream's {name}Format"
            )
        return rows.column(place)

    def _more(self, found: Mapping[str, Any]) -> list[str]:
        """Return the columns of records that the rows get besides those of fields.

        Raises:
            TableError: A field has the name of one that orders rows.
        """
        assert self.upsert is not None
        if not self.columns:
            return []
        if taken := [name for name in PLACE if name in found]:
            raise TableError(
                f"the field {taken[0]} has the name of a column that orders records: give"
                " write_table a transform that renames it, instead of expand"
            )
        by_time = self.upsert.order_by == "timestamp" and "timestamp" not in found
        return [*PLACE, *(["timestamp"] if by_time else [])]


def _check_envelope(value: pa.StructType) -> None:
    """Refuse values that are no envelope of Debezium.

    Raises:
        TableError: They lack a field, or have another one.
    """
    wanted = ("op", "before", "after")
    if lacking := [each for each in wanted if value.get_field_index(each) < 0]:
        raise TableError(
            f"values of Debezium have op, before and after, and these lack {', '.join(lacking)}:"
            " set valueSchema to those, and schemas.enable=false in Debezium"
        )
    before, after = (value.field(each).type for each in wanted[1:])
    if before != after:
        raise TableError(
            f"before and after of Debezium are rows of one table, not {before} and {after}"
        )
