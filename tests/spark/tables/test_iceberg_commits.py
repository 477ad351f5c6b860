"""Commits of an Iceberg table: crashes, unknown outcomes, false refusals and odd values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.update import update_table_metadata
from requests import Timeout

from spark_groups.errors import TableChangedError
from spark_groups.fence.beginnings import Batch
from spark_groups.fence.entries import Entry
from spark_groups.spark.tables.iceberg import iceberg_table
from spark_groups.spark.tables.table import Attempt
from spark_groups.spark.tables.write import Notices
from spark_groups.types import OffsetRange
from tests.spark.tables.batches_setup import AFTER_PYTHON, GROUP, KEY, reads, rows
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.places import Writer
from workshop.parts.table_write import write_batch


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path)


@pytest.mark.parametrize("is_first", [True, False])
def test_commit_that_was_sent_twice_keeps_the_files_of_the_first(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """A gateway sends a request again after its response was lost, and reports a conflict.

    Args:
        is_first: Whether the commit creates the table.
    """
    if not is_first:
        Writer(lake).write(reads(0, 10))
    start = 0 if is_first else 10
    writer = Writer(lake)
    catalog = writer.table._catalog
    commit_table = catalog.commit_table

    def sent_twice(*given: Any) -> Any:
        commit_table(*given)
        return commit_table(*given)

    writer.look(reads(start, start + 10))
    pieces = writer.stage()
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit_table", sent_twice)
        with pytest.raises(TableChangedError, match="another writer has committed"):
            writer.table.commit(writer.attempt, pieces, writer.decision, writer.state)
    assert lake.offsets() == list(range(start + 10))
    assert writer.write(reads(start, start + 10)).write == ()
    writer.write(reads(start + 10, start + 20))
    assert lake.offsets() == list(range(start + 20))
    assert lake.entries() == {KEY: Entry(0, start + 20)}


def test_manifests_of_a_refused_commit_are_kept(tmp_path: Path, lake: Lake) -> None:
    """The catalog may have accepted the same commit before it refused it."""
    owner, zombie = Writer(lake), Writer(lake)
    owner.write(reads(0, 10))
    zombie.look(reads(10, 20))
    pieces = zombie.stage()
    owner.write(reads(10, 20))
    metadata = tmp_path / "warehouse" / "lake" / "rows" / "metadata"
    before = set(metadata.glob("*.avro"))
    with pytest.raises(TableChangedError):
        zombie.table.commit(zombie.attempt, pieces, zombie.decision, zombie.state)
    assert len(set(metadata.glob("*.avro")) - before) == 2
    assert lake.offsets() == list(range(20))


class DiesError(Exception):
    """The driver dies here."""


@pytest.mark.parametrize(
    ("step", "is_committed"),
    [
        ("files", False),
        ("manifests", False),
        ("metadata", False),
        ("catalog", True),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_crash_between_two_steps_leaves_each_record_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str, is_committed: bool, is_first: bool
) -> None:
    """A driver dies after each step of a commit.

    Args:
        step: The last step before it dies.
        is_committed: Whether the table has the batch then.
        is_first: Whether the commit creates the table.
    """
    if not is_first:
        Writer(lake).write(reads(0, 10))
    start = 0 if is_first else 10
    writer = Writer(lake)
    writer.look(reads(start, start + 10))
    pieces = writer.stage()

    def before(*_: object, **__: object) -> None:
        raise DiesError

    def after(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> None:
            real(*given, **named)
            raise DiesError

        return call

    catalog = writer.table._catalog
    with monkeypatch.context() as patch:
        if step == "files":
            patch.setattr(writer.table, "_begun", before)
        elif step == "manifests":
            patch.setattr(catalog, "commit_table", before)
        elif step == "metadata":
            patch.setattr(catalog, "_write_metadata", after(catalog._write_metadata))
        else:
            patch.setattr(catalog, "commit_table", after(catalog.commit_table))
        with pytest.raises(DiesError):
            writer.table.commit(writer.attempt, pieces, writer.decision, writer.state)
    again = Writer(lake)
    assert bool(again.write(reads(start, start + 10)).write) is not is_committed
    again.write(reads(start + 10, start + 20))
    assert lake.offsets() == list(range(start + 20))
    assert lake.entries() == {KEY: Entry(0, start + 20)}


@pytest.mark.parametrize("is_committed", [True, False])
def test_commit_with_an_unknown_outcome_is_compared_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    writer = Writer(lake)
    writer.write(reads(0, 10))
    catalog = writer.table._catalog
    real, calls = catalog.commit_table, iter(range(100))

    def commit_table(*given: Any) -> Any:
        is_lost = next(calls) == 0
        answer = real(*given) if is_committed or not is_lost else None
        if is_lost:
            raise CommitStateUnknownException("the gateway has timed out")
        return answer

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    staged: list[Attempt] = []

    def stage(ranges: Sequence[OffsetRange], attempt: Attempt) -> Any:
        staged.append(attempt)
        batches = [rows(each) for each in ranges]
        return [*writer.table.task_writer(attempt).write(batches, "0")]

    batch = Batch(GROUP, 1, (reads(10, 20),))
    write_batch(writer.table, batch, stage, Notices(), pause=lambda _: None)
    assert len(staged) == 1
    assert lake.offsets() == list(range(20))


class OnceAnswering(BaseHTTPRequestHandler):
    """A REST catalog that answers how it is configured, and then nothing."""

    released: threading.Event

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            body = b'{"defaults": {}, "overrides": {}}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.released.wait()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def test_rest_catalog_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_groups.spark.tables.iceberg.REST_WAIT_S", 0.5)
    monkeypatch.setattr(OnceAnswering, "released", threading.Event(), raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), OnceAnswering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        uri = f"http://127.0.0.1:{server.server_port}"
        table = iceberg_table("lake.rows", "rest", {"type": "rest", "uri": uri})
        try:
            with pytest.raises(TableChangedError, match=r"does not answer: .*read timeout=0\.5"):
                table.read(GROUP)
        finally:
            OnceAnswering.released.set()
            server.shutdown()
            thread.join()


def test_commit_that_got_no_answer_in_time_is_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.at(tmp_path)
    writer = Writer(lake)
    writer.write(reads(0, 10))
    catalog = writer.table._catalog
    commit_table = catalog.commit_table

    def unanswered(*given: Any) -> Any:
        commit_table(*given)
        raise Timeout("the read timed out")

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit_table", unanswered)
        with pytest.raises(TableChangedError, match="does not know whether it has committed"):
            writer.write(reads(10, 20))
    assert writer.write(reads(10, 20)).write == ()
    assert lake.offsets() == list(range(20))


def test_times_that_python_does_not_have_are_written_without_bounds(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    writer = Writer(lake)
    far = range(AFTER_PYTHON, AFTER_PYTHON + 20)
    # The first commit creates the table.
    for start in far[::10]:
        writer.write(reads(start, start + 10))
    assert lake.offsets() == list(far)
    assert not [each for each in lake.table().properties if "metrics" in each]
    fields = {each.name: each.field_id for each in lake.table().schema().fields}
    for bounds in lake.table().inspect.files()["lower_bounds"].to_pylist():
        assert fields["offset"] in dict(bounds)
        assert fields["timestamp"] not in dict(bounds)
    writer.write(reads(far.stop, far.stop + 1, partition=1))
    assert lake.offsets(1) == [far.stop]


def test_commit_copies_the_snapshots_once_for_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library copies the metadata, with all snapshots, each time that it looks at them."""
    writer = Writer(Lake.at(tmp_path))
    writer.write(reads(0, 10))
    copies = []

    def counted(*given: Any) -> Any:
        copies.append(given)
        return update_table_metadata(*given)

    monkeypatch.setattr("pyiceberg.table.update_table_metadata", counted)
    writer.write(reads(10, 20))
    # None, the entries, and the files.
    assert len(copies) == 3
