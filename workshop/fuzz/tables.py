"""Random rows for real tables: they come back equal from each reader, or are refused by name.

An input is a seed: it draws columns of all of Arrow's types, values, and a table that nearly fits
them. The expected values come from the rows alone, not by the converter of this package.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import tempfile
import uuid
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from spark_groups.errors import TableError
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import TableState
from spark_groups.spark.tables.table import Attempt
from workshop.fuzz.rows import Case, drawn_case, rows_as_text
from workshop.parts.stores import DeltaStore, IcebergStore, PostgresStore, Store

_ATTEMPT: Final = Attempt("g", 0, "a")


def play(store: Store, case: Case) -> str:
    """Write a case to a table of its own, and read it; return how it ended.

    Args:
        store: An empty place for a table.
        case: The case.

    Raises:
        AssertionError: Rows differ, or were refused without a reason.
    """
    if case.existing is not None and not store.create(case.existing, case.partition_by):
        return "no such table"
    table = store.table(case.partition_by)
    try:
        state: TableState = table.read("g")
    except TableError:
        # It has a feature, such as nanoseconds, that this writer does not have.
        return "no such table"
    try:
        pieces = [*table.task_writer(_ATTEMPT).write(case.batches, "0")]
        table.commit(_ATTEMPT, pieces, Decision(), state)
    except TableError as error:
        names = {name for batch in case.batches for name in batch.schema.names}
        names |= {*case.partition_by, *(() if case.existing is None else case.existing.names)}
        if case.is_plain and not store.refuses(case):
            raise AssertionError(f"{store.name} refused plain rows: {error}") from error
        if not any(name in str(error) for name in names if name) and "" not in names:
            raise AssertionError(f"{store.name} named no column: {error}") from error
        return "refused"
    blank = case.partition_by if isinstance(store, DeltaStore) else ()
    for reader, found in store.rows():
        # pyiceberg 0.12 returns an empty list for a null list of structs.
        is_exact = reader != "pyiceberg"
        wanted = rows_as_text(case.batches, blank, is_exact=is_exact)
        has = rows_as_text(found, (), is_exact=is_exact)
        if has != wanted:
            raise AssertionError(f"{reader} read {has}, not {wanted}")
    return "equal"


@cache
def _server() -> str:
    """Start a PostgreSQL that ends with this process; return how it is reached."""
    from workshop.parts.postgres import running_postgres  # noqa: PLC0415

    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running_postgres())


def _quiet() -> None:
    """Drop the libraries' warnings, of which each case may cause some."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def feed_delta(seed: bytes) -> None:
    """Play a case with a Delta table.

    Args:
        seed: Any bytes.
    """
    _in_a_directory(DeltaStore, seed)


def feed_iceberg(seed: bytes) -> None:
    """Play a case with an Iceberg table.

    Args:
        seed: Any bytes.
    """
    _in_a_directory(IcebergStore, seed)


def _in_a_directory(store: Callable[[Path], Store], seed: bytes) -> None:
    _quiet()
    with tempfile.TemporaryDirectory() as directory:
        play(store(Path(directory) / "t"), drawn_case(seed))


def feed_postgres(seed: bytes) -> None:
    """Play a case with a PostgreSQL table.

    Args:
        seed: Any bytes.
    """
    import psycopg  # noqa: PLC0415

    _quiet()
    schema = f"s{uuid.uuid4().hex[:12]}"
    with psycopg.connect(_server(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            play(PostgresStore(_server(), schema), drawn_case(seed))
        finally:
            connection.execute("SET client_min_messages = error")
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def seeds() -> list[bytes]:
    """Return inputs from which others are drawn."""
    return [b"%d" % number for number in range(40)]
