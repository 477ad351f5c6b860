"""Applications that die in a batch, or are stopped in it for longer than their session timeout."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.runtime.snapshots import read_snapshots
from tests.brokers import ANSWER_S, Row, admin, create_topic, produce
from tests.processes import descendants, is_alive
from tests.spark.applications import kill_everything, start_module
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.places import PostgresPlace
from tests.spark.tables.rest_place import RestPlace, serving
from tests.spark.tables.test_delta import offsets
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

RUN_S = 240
PARTITIONS = 2
EACH = 45
Database = PostgresPlace | Lake | RestPlace
SHORT_SESSION = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
}


@dataclass(frozen=True)
class Place:
    """The topic and the table of applications of one group.

    Args:
        servers: The broker.
        topic: The topic.
        group_id: The group.
        directory: The directory of the table, the checkpoints and the logs.
        way: The stream's `emit`.
        database: The database or catalog of the table; None: a Delta table in the directory.
    """

    servers: str
    topic: str
    group_id: str
    directory: Path
    way: str
    database: Database | None

    @property
    def table(self) -> Path:
        return self.directory / "table"

    @property
    def given_table(self) -> str | dict[str, str]:
        """The table in the arguments of the application."""
        if self.database is None:
            return str(self.table)
        if isinstance(self.database, Lake):
            return self.database.name
        if isinstance(self.database, RestPlace):
            return {"port": str(self.database.port)}
        return {"dsn": self.database.dsn, "table": "rows"}

    def sign(self, name: str) -> Path:
        return self.directory / name

    @contextmanager
    def running(
        self, name: str, limit: int, checkpoint: str, hold: str = ""
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run an application; all its processes are killed at the end."""
        given: dict[str, Any] = {
            "options": {
                "kafka.bootstrap.servers": self.servers,
                "kafka.group.id": self.group_id,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(limit),
                "emit": self.way,
            },
            "checkpoint": str(self.directory / checkpoint),
            "table": self.given_table,
            **({"hold": hold, "signs": str(self.directory)} if hold else {}),
        }
        process = start_module("tests.spark.tables.table_application", given, self.log(name))
        try:
            yield process
        finally:
            if process.poll() is None:
                kill_everything(process)

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def finish(self, name: str, limit: int, checkpoint: str) -> None:
        """Run an application until it has written all records."""
        with self.running(name, limit, checkpoint) as process:
            assert process.wait(RUN_S) == 0, self.log(name).read_text()[-3000:]

    def await_held(self, name: str, process: subprocess.Popen[bytes]) -> None:
        held = self.sign("held")
        wait_until(lambda: held.exists() or process.poll() is not None, RUN_S, "its second batch")
        assert process.poll() is None, self.log(name).read_text()[-3000:]

    def let_spark_log(self) -> None:
        """Let the held batch end in Spark, while the runner can commit nothing to Kafka."""
        (member,) = read_snapshots(self.group_id)
        os.kill(member["pid"], signal.SIGSTOP)
        self.sign("go").touch()
        logged = self.directory / "first" / "commits" / "1"
        wait_until(logged.exists, RUN_S, "the batch in Spark's commit log")

    def check(self) -> None:
        """Check that each record is in the table once."""
        for partition in range(PARTITIONS):
            found = (
                offsets(self.table, partition)
                if self.database is None
                else self.database.offsets(partition)
            )
            assert found == list(range(EACH))

    def members(self) -> int:
        client = admin(self.servers)
        (answer,) = client.describe_consumer_groups([self.group_id]).values()
        return len(answer.result(ANSWER_S).members)


def filled(  # noqa: PLR0917
    servers: str,
    topic: str,
    group_id: str,
    directory: Path,
    way: str,
    database: Database | None,
) -> Place:
    """Return a place whose topic has rows."""
    create_topic(servers, topic, PARTITIONS)
    produce(servers, topic, [Row(b"%d" % i, partition=i % PARTITIONS) for i in range(90)])
    return Place(servers, topic, group_id, directory, way, database)


@pytest.fixture
def database(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Any:
    """The database or catalog of a kind of table; None: a Delta table in the directory."""
    if kind == "postgres":
        return request.getfixturevalue("on_postgres")
    if kind == "rest":
        return request.getfixturevalue("rest")
    return Lake.at(tmp_path / "lake") if kind == "iceberg" else None


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
    way: str,
    hold: str,
    checkpoint: str,
) -> None:
    """Its checkpoint is continued, or another one, whose batches end at other offsets."""
    place = filled(kafka.bootstrap_servers, topic_name, group_id, tmp_path, way, database)
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
        ("iceberg", "ranges"),
        ("rest", "records"),
    ],
)
def test_zombie_is_refused_by_the_table(
    topic_name: str,
    group_id: str,
    tmp_path: Path,
    database: Database | None,
    way: str,
) -> None:
    """It is stopped between staging and the table's commit, longer than its session timeout."""
    with EmbeddedKafka(server_properties=SHORT_SESSION) as broker:
        place = filled(broker.bootstrap_servers, topic_name, group_id, tmp_path, way, database)
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
