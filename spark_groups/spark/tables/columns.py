"""The one comparison of the columns of rows with those of a table, of any kind.

Each conversion that is made is exact. Which types fit is decided before any row is staged; whether
a value fits, such as a null or a decimal number, before its record batch is staged. Executors
import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from spark_groups.errors import ColumnsChangedError, RecordRefusedError, TableError
from spark_groups.group.member.events import listed
from spark_groups.spark.tables.column_types import (
    MICROS,
    MICROS_UTC,
    TypeMisfitError,
    TypeRules,
    misfits,
)
from spark_groups.spark.tables.column_values import (
    IS_NULL,
    ValueMisfitError,
    converted,
    refuse_outside,
    refuse_where,
    shown_place,
)
from spark_groups.spark.tables.growth import grown, paths_in

if TYPE_CHECKING:
    # Only tasks of such a table import pyiceberg.
    from spark_groups.spark.tables.iceberg_partitions import PartitionTransforms

_EMPTY: Final = "is an empty text, which a partition column has as null, and must not be null"
_DAYS: Final = (-719_162, 2_932_896)
_DAY_US: Final = 86_400_000_000
_MICROS: Final = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)
_FOUR_DIGIT_YEARS: Final = {pa.date32(): _DAYS, MICROS: _MICROS, MICROS_UTC: _MICROS}
"""The years that text of a partition's value may have, since 1970, in days or microseconds."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table, to which rows are fitted; pickled to executors.

    Args:
        table: The name of the table in errors.
        rules: The types and names that this kind of table has.
        schema: Its columns, and which may be null, at each depth; None: there is no table yet.
        partition_by: The columns whose values are in the metadata of files.
        others: More types that a column takes, each exactly, before that of the schema.
        with_default: Columns that need no value, though they must not be null.
        not_written: Columns that no row may have, each with the reason.
        shown: The type of a column in the words of the table; missing: as in the schema.
        text_length_max: The most characters of a column.
        any_decimal: Columns of decimal numbers of any precision and scale.
        transforms: Values, computed from columns, by which rows are split into files.
        evolves: Whether the commit adds the columns, fields and wider types that a batch brings.
        needed: Columns that rows must have, without nulls, because they say what a row changes.
        hidden: Columns of staged rows that the table does not store.
        required: Columns that must not be null, but in rows that delete.
        mark: The column that marks rows which delete.
        gone: Columns and fields that the table had, and that may not come back by their names.
    """

    table: str
    rules: TypeRules
    schema: pa.Schema | None = None
    partition_by: tuple[str, ...] = ()
    others: Mapping[str, tuple[pa.DataType, ...]] = field(default_factory=dict)
    with_default: frozenset[str] = frozenset()
    not_written: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    text_length_max: Mapping[str, int] = field(default_factory=dict)
    any_decimal: frozenset[str] = frozenset()
    transforms: PartitionTransforms | None = None
    evolves: bool = False
    needed: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()
    mark: str = ""
    gone: frozenset[str] = frozenset()

    def check(self, given: pa.Schema) -> pa.Schema:
        """Return the columns in which rows are staged: in the order of the table.

        Args:
            given: The columns of the rows.

        Returns:
            Behind those of the table, the ones that the commit adds to it.

        Raises:
            TableError: They do not fit; it names each column, both types and the cure.
        """
        problems = self.rules.name_problems(given.names)
        fields: list[pa.Field] = []
        if not len(given):
            problems.append("it has no columns")
        if not problems:
            fits = self._new(given, problems) if self.schema is None else self._old(given, problems)
            fields = [*fits]
            if not fields and not problems:
                problems.append(f"the table stores nothing of {', '.join(given.names)}")
        if lacking := [each for each in self.needed if each not in given.names]:
            problems.append(
                f"it lacks {', '.join(lacking)}: with merge_on, rows have the key, and the topic,"
                " partition and offset of their record, which order them"
            )
        lacking = [each for each in self.partition_by if each not in given.names]
        if lacking and self.schema is None:
            problems.append(f"partition_by names {', '.join(lacking)}, which the batch lacks")
        if self.transforms is not None and self.schema is None and not problems:
            problems += self.transforms.problems(pa.schema(fields))
        if fields and all(field_.name in self.partition_by for field_ in fields):
            problems.append(
                f"it has no column besides {', '.join(self.partition_by)} of partition_by"
            )
        columns = pa.schema(fields) if self.schema is None else self.schema
        problems += [
            f"{each} has a type by which no table is partitioned: {columns.field(each).type}"
            for each in self.partition_by
            if each in columns.names and not _is_partitioned_by(columns.field(each).type)
        ]
        problems += [
            f"{each} of partition_by is a time with a zone, whose zone a merge does not write, so"
            " that other readers take it for that of their session: partition the table by a date"
            for each in self.partition_by
            if self.mark
            and each in columns.names
            and kinds.is_timestamp(of := columns.field(each).type)
            and of.tz
        ]
        if problems:
            cure = "" if self.schema is None else ", or the table with ALTER TABLE"
            if self.schema is not None and not self.evolves and self._lacks(given):
                cure += ', or give the table evolve="add", which adds new columns'
            raise TableError(
                f"the batch does not fit {self.table}: {listed(problems, most=20, joint='; ')}."
                f" Change the transform{cure}"
            )
        if back := [each for each in paths_in(fields) if each in self.gone]:
            raise TableError(
                f"the batch does not fit {self.table}: it would add {', '.join(back)}, which the"
                " table had before and which was renamed or dropped. Its files are read by the"
                " names of their columns, so a new column of that name would take the values of"
                " the old one. Change the transform: give it a new name, or leave it out"
            )
        return pa.schema(fields)

    def _new(self, given: Iterable[pa.Field], problems: list[str]) -> Iterator[pa.Field]:
        """Yield the columns of a new table, or new ones; all of them may be null."""
        for each in given:
            try:
                stored = self.rules.stored(each.type, each.name)
            except TypeMisfitError as error:  # noqa: PERF203
                problems.append(str(error))
            else:
                yield pa.field(each.name, stored, each.name not in self.needed)

    def _old(self, given: pa.Schema, problems: list[str]) -> Iterator[pa.Field]:
        """Yield the columns of the table that the rows have."""
        assert self.schema is not None
        lacks = self._lacks(given)
        if lacks and self.evolves:
            names = [*sorted(self.names), *(each.name for each in lacks)]
            problems += self.rules.name_problems(names)
        elif lacks:
            problems += [f"{each.name} is not a column of the table" for each in lacks]
        problems += [
            f"{name} {reason}" for name, reason in self.not_written.items() if name in given.names
        ]
        for each in self.schema:
            if kinds.is_null(each.type) and each.name in given.names:
                # A table without a type for a column takes only nulls, and no file has them.
                problems += misfits(given.field(each.name).type, each.type, each.name)
            elif each.name in given.names:
                problem, fit = self._fit(given.field(each.name).type, each)
                problems += problem
                yield fit
            elif not (each.nullable or each.name in {*self.with_default, *self.needed}):
                problems.append(f"{each.name} is missing, and must not be null")
        if self.evolves:
            yield from self._new(lacks, problems)

    def _lacks(self, given: pa.Schema) -> list[pa.Field]:
        return [each for each in given if each.name not in self.names]

    @property
    def names(self) -> frozenset[str]:
        """The names of the table's columns."""
        of_schema = () if self.schema is None else self.schema.names
        return frozenset(of_schema) | frozenset(self.not_written)

    def _fit(self, given: pa.DataType, wanted: pa.Field) -> tuple[list[str], pa.Field]:
        for each in () if kinds.is_null(given) else self.others.get(wanted.name, ()):
            if not misfits(given, each, wanted.name):
                return [], pa.field(wanted.name, each, wanted.nullable)
        plain = self.rules.plain_decimal(given)
        if wanted.name in self.any_decimal and plain is not None:
            return [], pa.field(wanted.name, plain, wanted.nullable)
        if self.evolves:
            try:
                wider = grown(given, wanted.type, self.rules, wanted.name)
            except TypeMisfitError as error:
                return [str(error)], wanted
            if self.transforms is None or not self.transforms.refusing(wanted.name, wider):
                wanted = wanted.with_type(wider)
        shown = self.shown.get(wanted.name, "")
        return misfits(given, wanted.type, wanted.name, shown), wanted

    def fitted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert record batches of a task to the columns in which they are staged.

        All that it yields has one schema: the first record batch has the columns of the others.

        Args:
            batches: The rows.

        Raises:
            TableError: A type or a value does not fit.
        """
        return map(TaskConversion(self).of, batches)

    def check_later(self, given: pa.Schema, names: Sequence[str], first: pa.Schema) -> None:
        """Refuse later rows of a task that cannot be staged as its first ones are.

        Args:
            given: Their columns.
            names: Those that the table stores.
            first: The columns in which the first rows are staged.

        Raises:
            TableError: They lack a column, or it has another of the types that the table takes.
        """
        problems = [f"first rows lack {name}" for name in names if name not in first.names]
        if self.mark:
            # Staged as null, it would replace the value of the table.
            lacking = {*first.names} - {*names, self.mark}
            problems += [f"later rows lack {name}" for name in sorted(lacking)]
        for each in first:
            if each.name in names:
                problems += misfits(given.field(each.name).type, each.type, each.name)
        if problems:
            raise TableError(
                f"the batch does not fit {self.table}: columns change within a task, where"
                f" {'; '.join(problems)}. Change the transform"
            )

    def check_staged(self, staged: Iterable[pa.Schema]) -> list[pa.Field]:
        """Refuse staged rows that do not fit the table; return what their commit changes of it.

        Args:
            staged: The columns of each piece of a batch; it was staged for the table as it was.

        Returns:
            All columns of a new table, or those that one lacks or has in another type.

        Raises:
            ColumnsChangedError: The table has changed; rows that are staged again may fit.
            TableError: The pieces differ, or do not fit.
        """
        if not (found := [*staged]):
            return []
        columns = self.now_with(found[0]) if self.schema is None else self
        for each in found if self.evolves else ():
            columns = columns._grown_by(columns.check(each))
        for each in found:
            fit = columns.check(each)
            if self.schema is not None and self.rules.casts:
                continue
            for has in each:
                wanted = fit.field(has.name)
                if has.type == wanted.type and (wanted.nullable or not has.nullable):
                    continue
                types = {of.field(has.name).type for of in found if has.name in of.names}
                if self.schema is None or len(types) > 1:
                    raise TableError(
                        f"tasks staged different columns for {self.table}: {has} and {wanted}."
                        " Change the transform"
                    )
                raise ColumnsChangedError(
                    "while the batch was staged, another writer changed the columns of"
                    f" {self.table}: {has} and {wanted}"
                )
        there = [*(self.schema or ())]
        return [each for each in columns.schema or () if each not in there]

    def now_with(self, schema: pa.Schema) -> TableColumns:
        """Return the columns of the table, once it has those of a batch.

        Args:
            schema: The columns that `check` returned for a new table.
        """
        return replace(self, schema=schema)

    def _grown_by(self, fit: pa.Schema) -> TableColumns:
        """Return the columns of the table, once it has those that `check` returned."""
        assert self.schema is not None
        # A commit that casts takes several types, and changes none.
        has = {} if self.rules.casts else {each.name: each for each in fit}
        old = [has.get(each.name, each) for each in self.schema]
        return self.now_with(pa.schema([*old, *self._lacks(fit)]))

    def converted(self, batch: pa.RecordBatch, staged: pa.Schema) -> pa.RecordBatch:
        """Convert a record batch.

        Args:
            batch: The rows, whose types fit.
            staged: The columns in which they are staged.

        Raises:
            RecordRefusedError: A value does not fit.
        """
        try:
            arrays = [self._column(batch, each) for each in staged]
            converted_rows = pa.RecordBatch.from_arrays(arrays, schema=staged)
            self._check_required(converted_rows)
        except ValueMisfitError as error:
            raise RecordRefusedError(
                f"the batch does not fit {self.table}: {error} ({shown_place(batch, error.row)})."
                " Change the transform",
                str(error),
            ) from None
        return converted_rows

    def _check_required(self, rows: pa.RecordBatch) -> None:
        """Refuse rows without a value that they must have, unless they delete.

        Raises:
            ValueMisfitError: There is one.
        """
        if not self.required:
            return
        stays = pa.repeat(pa.scalar(True), rows.num_rows)
        if self.mark in rows.schema.names:
            stays = pc.invert(pc.fill_null(rows.column(self.mark), False))
        for name in self.required:
            if name in rows.schema.names:
                column = rows.column(name)
                refuse_where(pc.and_(column.is_null(), stays), name, IS_NULL)
                if name in self.partition_by and kinds.is_string(column.type):
                    # Not null, as no null is left.
                    refuse_where(pc.and_(pc.equal(column, ""), stays), name, _EMPTY)
            elif name not in self.with_default:
                refuse_where(stays, name, "is missing, and must not be null")

    def _column(self, batch: pa.RecordBatch, staged: pa.Field) -> pa.Array:
        if staged.name in batch.schema.names:
            given = batch.column(staged.name)
        elif staged.name in self.with_default and batch.num_rows:
            raise ValueMisfitError(staged.name, 0, "is missing, though earlier rows have it")
        else:
            # Later rows of a task may lack a column of the first.
            given = pa.nulls(batch.num_rows)
        found = converted(given, staged, staged.name, self.rules.limits)
        self._check_value(found, staged)
        return found

    def _check_value(self, column: pa.Array, staged: pa.Field) -> None:
        """Refuse text that is too long, and values that a table cannot be partitioned by.

        Raises:
            ValueMisfitError: A value is refused.
        """
        if staged.name in self.text_length_max:
            length_max = self.text_length_max[staged.name]
            refuse_where(
                pc.greater(pc.utf8_length(column), length_max),
                staged.name,
                f"has more than {length_max} characters",
            )
        computed_from = () if self.transforms is None else self.transforms.columns
        if staged.name not in {*self.partition_by, *computed_from}:
            return
        if kinds.is_string(staged.type) and not staged.nullable and not computed_from:
            refuse_where(pc.equal(column, ""), staged.name, _EMPTY)
        if bounds := _FOUR_DIGIT_YEARS.get(staged.type):
            refuse_outside(column, bounds, staged.name, "is outside the years 1 to 9999")


class TaskConversion:
    """Converts record batches of a task, all of which are staged in the columns of the first one.

    Args:
        columns: The columns of the table.
    """

    def __init__(self, columns: TableColumns) -> None:
        self._columns = columns
        self._first: pa.Schema | None = None
        self._given: pa.Schema | None = None

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a record batch.

        Args:
            batch: The rows.

        Raises:
            TableError: A type does not fit.
            RecordRefusedError: A value does not fit.
        """
        if self._given is None or not batch.schema.equals(self._given):
            staged = self._columns.check(batch.schema)
            if self._first is None:
                self._first = staged
                if self._columns.schema is None:
                    self._columns = self._columns.now_with(staged)
            else:
                self._columns.check_later(batch.schema, staged.names, self._first)
            self._given = batch.schema
        assert self._first is not None
        return self._columns.converted(batch, self._first)


def _is_partitioned_by(column: pa.DataType) -> bool:
    """Return whether every reader reads the text of a partition's value of this type."""
    if kinds.is_decimal(column):
        # deltalake 1.6 fails at negative fractions, and at some with many digits.
        return not column.scale
    return not (kinds.is_nested(column) or kinds.is_binary(column) or kinds.is_null(column))


def schema_as_text(schema: pa.Schema) -> str:
    """Return a schema in hexadecimal digits, for the details of a piece.

    Args:
        schema: The schema.
    """
    text: str = schema.serialize().to_pybytes().hex()
    return text


def schema_of_text(text: str) -> pa.Schema:
    """Return the schema that `schema_as_text` was given.

    Args:
        text: What it returned.
    """
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text)))
