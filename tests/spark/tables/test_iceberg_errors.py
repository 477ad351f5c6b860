"""Errors of an Iceberg catalog: those that pass, and those that stop a query."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from spark_groups.errors import TableChangedError, TableError
from spark_groups.fence.beginnings import Batch
from spark_groups.fence.entries import Entry
from spark_groups.spark.tables.iceberg import IcebergTable, iceberg_table
from spark_groups.spark.tables.table import Attempt
from spark_groups.spark.tables.write import Notices
from spark_groups.types import OffsetRange
from tests.spark.tables.batches_setup import GROUP, KEY, reads, rows
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.places import Writer
from workshop.parts.table_write import write_batch

TOKEN = "hush/hush+1"


class Answering(BaseHTTPRequestHandler):
    """A REST catalog that answers tables with a status."""

    status = 503
    message = "not now"

    def do_GET(self) -> None:
        is_config = self.path.startswith("/v1/config")
        body = b'{"defaults": {}, "overrides": {}}'
        if not is_config:
            error = {"message": self.message, "type": "T", "code": self.status}
            body = json.dumps({"error": error}).encode()
        self.send_response(200 if is_config else self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def rest_table(status: int, message: str = "not now") -> Iterator[IcebergTable]:
    """Yield a table whose catalog answers with a status."""
    handler = type("Handler", (Answering,), {"status": status, "message": message})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        uri = f"http://127.0.0.1:{server.server_port}"
        try:
            yield iceberg_table("lake.rows", "rest", {"type": "rest", "uri": uri, "token": TOKEN})
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_catalog_that_does_not_answer_now_is_asked_again(status: int) -> None:
    with rest_table(status) as table, pytest.raises(TableChangedError, match="does not answer"):
        table.read(GROUP)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_login_stops_the_query_with_the_cure(status: int) -> None:
    with rest_table(status) as table, pytest.raises(TableError, match="Renew the token") as refused:
        table.read(GROUP)
    assert not isinstance(refused.value, TableChangedError)


@pytest.mark.parametrize("status", [400, 401, 409, 503])
def test_token_that_a_catalog_repeats_is_in_no_error(status: int) -> None:
    message = f"the token {TOKEN} ({quote(TOKEN, safe='')}) is over"
    with rest_table(status, message) as table, pytest.raises(TableError) as raised:
        table.read(GROUP)
    text = "".join(traceback.format_exception(raised.value))
    assert "the token *** (***) is over" in text
    assert "hush" not in text


def test_catalog_that_refuses_at_the_start_is_named_without_its_credential() -> None:
    refused = {"type": "rest", "uri": "http://127.0.0.1:1", "credential": "me:hush-1"}
    with pytest.raises(TableError, match=r"the catalog of lake\.rows") as raised:
        iceberg_table("lake.rows", "rest", refused)
    assert "hush-1" not in "".join(traceback.format_exception(raised.value))


def test_catalog_that_never_answers_ends_the_batch_with_the_reason() -> None:
    clock = iter(range(0, 10_000, 100))
    with (
        rest_table(503) as table,
        pytest.raises(TableError, match=r"batch 1 could not be written for 300 s.*does not answer"),
    ):
        write_batch(
            table,
            Batch(GROUP, 1, (reads(0, 10),)),
            lambda *_: [],
            Notices(),
            pause=lambda _: None,
            now=lambda: float(next(clock)),
        )


@pytest.fixture
def on_postgres(tmp_path: Path, postgres: str) -> Lake:
    return Lake.on_postgres(tmp_path, postgres)


def end_connections(postgres: str) -> None:
    """End all connections of catalogs, as a restart of the server does."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )


@pytest.mark.parametrize("is_after", [True, False])
def test_catalog_in_a_database_that_loses_connections_recovers(
    on_postgres: Lake, postgres: str, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    end_connections(postgres)
    with pytest.raises(TableChangedError, match="does not answer"):
        writer.look(reads(10, 20))
    catalog = writer.table._catalog
    real, calls = catalog.commit_table, iter(range(100))

    def lost(*given: Any) -> Any:
        is_first = next(calls) == 0
        if is_first and not is_after:
            end_connections(postgres)
        answer = real(*given)
        if is_first:
            end_connections(postgres)
            catalog.load_table("lake.rows")
        return answer

    monkeypatch.setattr(catalog, "commit_table", lost)

    def stage(ranges: Sequence[OffsetRange], attempt: Attempt) -> Any:
        batches = [rows(each) for each in ranges]
        return [*writer.table.task_writer(attempt).write(batches, "0")]

    batch = Batch(GROUP, 1, (reads(10, 20),))
    write_batch(writer.table, batch, stage, Notices(), pause=lambda _: None)
    assert on_postgres.offsets() == list(range(20))
    assert on_postgres.entries() == {KEY: Entry(0, 20)}


def test_format_version_3_is_refused_before_anything_is_staged(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    Writer(lake).write(reads(0, 10))
    metadata = Path(lake.table().metadata_location.removeprefix("file://"))
    upgraded = {**json.loads(metadata.read_text()), "format-version": 3, "next-row-id": 0}
    metadata.write_text(json.dumps(upgraded))
    with pytest.raises(TableError, match=r"format version 3.*one with format version 2"):
        Writer(lake).look(reads(10, 20))
