"""Shared by test_killed.py and other tests."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_groups.runtime.snapshot_sockets import read_snapshots
from tests.spark.tables.delta_setup import offsets
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.places import PostgresPlace
from tests.spark.tables.rest_place import RestPlace
from workshop.parts.applications import kill_everything, start_module
from workshop.parts.brokers import ANSWER_S, Row, admin, create_topic, produce
from workshop.parts.waiting import wait_until

RUN_S = 400


PARTITIONS = 2


EACH = 45


Database = PostgresPlace | Lake | RestPlace


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
    merge_on: tuple[str, ...] = ()

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
            "merge_on": self.merge_on,
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
        (member,) = wait_until(lambda: read_snapshots(self.group_id), what="a snapshot")
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
    merge_on: tuple[str, ...] = (),
) -> Place:
    """Return a place whose topic has rows."""
    create_topic(servers, topic, PARTITIONS)
    produce(servers, topic, [Row(b"%d" % i, partition=i % PARTITIONS) for i in range(90)])
    return Place(servers, topic, group_id, directory, way, database, merge_on)
