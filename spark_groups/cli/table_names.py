"""The names of tables in commands, and what commands need of a table in addition to its fence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, runtime_checkable

from spark_groups.errors import OptionsError, SparkGroupsError, TableError
from spark_groups.fence.compare import check_not_restored
from spark_groups.fence.entries import Entry, FenceKey, TableState
from spark_groups.masking import Secrets, without_logins
from spark_groups.spark.tables.table import FencedTable, Orphan
from spark_groups.types import TopicIdPartition


class TableKind(Enum):
    """The kinds of table, by the beginning of their names."""

    DELTA = "delta"
    POSTGRES = "postgres"
    ICEBERG = "iceberg"
    SQLITE = "sqlite"


_REASON_CHARACTERS_MAX: Final = 300
FORMS: Final = (
    "delta:PATH, postgres:DSN#schema.table, iceberg:CATALOG/namespace.table or sqlite:FILE#table"
)


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table in a command.

    Args:
        kind: Its kind.
        place: Its path, its database, or its catalog; may hold a password.
        name: Its name in the database or the catalog; empty for a Delta table.
    """

    kind: TableKind
    place: str
    name: str = ""


class MaintainedTable(FencedTable, Protocol):
    """A table whose entries and orphans the commands can read and change."""

    def orphans(self, older_than_s: float) -> Sequence[Orphan]:
        """Return files or staging tables of crashed or refused attempts.

        Args:
            older_than_s: Younger orphans may belong to a batch in progress.
        """

    def remove(self, orphans: Sequence[Orphan]) -> None:
        """Delete orphans.

        Args:
            orphans: From `orphans`.
        """


@runtime_checkable
class RestorableTable(Protocol):
    """A table that keeps its entries while a RESTORE or a rollback removes rows."""

    def held(self, group_id: str, restored_to: int | None = None) -> dict[FenceKey, Entry]:
        """Return the group's entries in the version whose rows the table has.

        Args:
            group_id: The group.
            restored_to: The version that a restore to a time went back to, if the log has only the
                time.
        """


def parse_table(text: str) -> TableName:
    """Parse the name of a table.

    Args:
        text: `delta:PATH`, `postgres:DSN#schema.table`, `iceberg:CATALOG/namespace.table` or
            `sqlite:FILE#table`.

    Raises:
        OptionsError: It has another form.
    """
    scheme, colon, rest = text.partition(":")
    kinds = {each.value: each for each in TableKind}
    if not colon or not rest or scheme not in kinds:
        raise OptionsError(f"{without_logins(text)!r} is not {FORMS}")
    kind = kinds[scheme]
    if kind is TableKind.DELTA:
        return TableName(kind, rest)
    if kind is TableKind.ICEBERG:
        place, mark, name = rest.partition("/")
    else:
        place, mark, name = rest.rpartition("#")
    if not mark or not place or not name:
        # A database's place may hold a password.
        raise OptionsError(f"the name that begins with {scheme}: is not {FORMS}")
    return TableName(kind, place, name)


def opened_table(text: str) -> MaintainedTable:
    """Return a table by its name.

    Args:
        text: The name, in a form that `parse_table` accepts.

    Raises:
        OptionsError: It has another form, or the library of its kind is missing.
    """
    named = parse_table(text)
    # Each kind needs a library of its own.
    match named.kind:
        case TableKind.DELTA:
            from spark_groups.spark.tables.delta import delta_table  # noqa: PLC0415

            return delta_table(named.place)
        case TableKind.POSTGRES:
            from spark_groups.spark.tables.postgres import postgres_table  # noqa: PLC0415

            return postgres_table(named.place, named.name)
        case TableKind.ICEBERG:
            from spark_groups.spark.tables.iceberg import iceberg_table  # noqa: PLC0415

            with reached(f"the Iceberg catalog {named.place}"):
                return iceberg_table(named.name, named.place)
        case TableKind.SQLITE:
            from spark_groups.spark.tables.sqlite import sqlite_table  # noqa: PLC0415

            return sqlite_table(named.place, named.name)


@contextmanager
def reached(name: str) -> Iterator[None]:
    """Turn any error of a catalog or an object store into a TableError.

    Args:
        name: The name of the table or the catalog in the error.

    Raises:
        TableError: It cannot be reached.
    """
    try:
        yield
    except SparkGroupsError:
        raise
    except Exception as error:
        secrets = Secrets()
        reason = secrets.line(error)[:_REASON_CHARACTERS_MAX] or type(error).__name__
        raise TableError(f"{name} cannot be reached: {reason}") from secrets.cause(error)


def read_existing(table: MaintainedTable, group_id: str) -> TableState:
    """Return the fence of a table that has to exist.

    Args:
        table: The table.
        group_id: The group whose last commit `recorded_version` is about.

    Raises:
        TableError: There is no such table, or it cannot be read.
    """
    with reached(str(table)):
        state = table.read(group_id)
    if state.version is None and not state.entries:
        raise TableError(f"there is no table, or it has no entries: {table}")
    return state


def next_offsets(text: str, group_id: str) -> dict[TopicIdPartition, int]:
    """Return a group's next offsets in a table.

    Args:
        text: The table's name.
        group_id: The group.

    Raises:
        OptionsError: The name has another form.
        TableRestoredError: The table was restored to a version before the group's last commit.
        TableError: The table cannot be read.
    """
    table = opened_table(text)
    state = read_existing(table, group_id)
    check_not_restored(group_id, state, table=str(table))
    return {
        TopicIdPartition(key.topic_id, key.partition): entry.next_offset
        for key, entry in state.entries.items()
        if key.group_id == group_id
    }
