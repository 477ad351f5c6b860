"""Applications that die in a batch, or are stopped in it for longer than their session timeout."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.spark.tables.every_table_setup import BY_KEY, RECORD
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.killed_setup import PARTITIONS, RUN_S, Database, filled
from tests.spark.tables.rest_place import RestPlace, serving
from workshop.parts.brokers import SHORT_SESSION
from workshop.parts.processes import descendants, is_alive
from workshop.parts.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
]


@pytest.fixture
def database(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Any:
    """The database or catalog of a kind of table; None: a Delta table in the directory."""
    if kind.startswith("postgres"):
        return request.getfixturevalue("on_postgres")
    if kind == "rest":
        return request.getfixturevalue("rest")
    return Lake.at(tmp_path / "lake") if kind == "iceberg" else None


@pytest.fixture
def merge_on(kind: str) -> tuple[str, ...]:
    return RECORD if kind in BY_KEY else ()


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestPlace]:
    with serving(tmp_path) as place:
        yield place


@pytest.mark.parametrize(
    ("kind", "way", "hold", "checkpoint"),
    [
        ("delta", "records", "planned", "first"),
        ("delta", "ranges", "task", "first"),
        ("delta", "records", "task", "second"),
        ("delta", "records", "before", "first"),
        ("delta", "ranges", "after", "first"),
        ("delta", "records", "after", "second"),
        ("delta", "ranges", "after", "second"),
        ("delta", "ranges", "logged", "first"),
        ("delta", "records", "logged", "second"),
        ("delta by key", "ranges", "before", "first"),
        ("delta by key", "records", "after", "second"),
        ("postgres by key", "ranges", "after", "second"),
        ("postgres", "ranges", "before", "first"),
        ("postgres", "records", "after", "second"),
        ("iceberg", "ranges", "before", "first"),
        ("iceberg", "ranges", "after", "second"),
        ("rest", "records", "before", "first"),
        ("rest", "records", "after", "second"),
    ],
)
def test_killed_application_leaves_each_record_once(  # noqa: PLR0917
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    tmp_path: Path,
    database: Database | None,
    merge_on: tuple[str, ...],
    way: str,
    hold: str,
    checkpoint: str,
) -> None:
    """Its checkpoint is continued, or another one, whose batches end at other offsets."""
    servers = kafka.bootstrap_servers
    place = filled(servers, topic_name, group_id, tmp_path, way, database, merge_on)
    with place.running("killed", 20, "first", "after" if hold == "logged" else hold) as process:
        place.await_held("killed", process)
        if hold == "logged":
            place.let_spark_log()
    if checkpoint != "first":
        wait_until(lambda: not place.members(), RUN_S, "the end of its session")
    place.finish("next", 30, checkpoint)
    place.check()
    warnings = place.log("next").read_text().count("are skipped")
    is_read_again = hold == "after" or (hold == "logged" and checkpoint != "first")
    assert warnings == (PARTITIONS if is_read_again else 0)


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("delta", "ranges"),
        ("delta", "records"),
        ("postgres", "ranges"),
        ("delta by key", "ranges"),
        ("postgres by key", "ranges"),
        ("iceberg", "ranges"),
        ("rest", "records"),
    ],
)
def test_zombie_is_refused_by_the_table(  # noqa: PLR0917
    topic_name: str,
    group_id: str,
    tmp_path: Path,
    database: Database | None,
    merge_on: tuple[str, ...],
    way: str,
) -> None:
    """It is stopped between staging and the table's commit, longer than its session timeout."""
    with EmbeddedKafka(server_properties=SHORT_SESSION) as broker:
        servers = broker.bootstrap_servers
        place = filled(servers, topic_name, group_id, tmp_path, way, database, merge_on)
        with place.running("zombie", 20, "first", "before") as zombie:
            place.await_held("zombie", zombie)
            pids = [each for each in (zombie.pid, *descendants(zombie.pid)) if is_alive(each)]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: not place.members(), RUN_S, "the end of its session")
            place.finish("owner", 30, "second")
            place.check()
            place.sign("go").touch()
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            assert zombie.wait(RUN_S) == 0, place.log("zombie").read_text()[-3000:]
        assert place.sign("refused").exists()
        assert place.log("zombie").read_text().count("are skipped") == PARTITIONS
        place.check()
