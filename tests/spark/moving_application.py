"""A Spark application that moves from Spark's own source to a group and back, as the how-to does.

    python -m tests.spark.moving_application DIRECTORY SERVERS GROUP TOPIC

It fails if a step of the how-to fails, or a row of the table is missing or there twice.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import deltalake
import pyspark
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_groups
from tests.cli.commands import invoke
from tests.documents import ROOT, Block, blocks_of, commands_of, run_python
from tests.runtime.members import describe
from tests.spark.queries import READ_S
from workshop.parts.brokers import Row, create_topic, grow_topic, produce
from workshop.parts.connector import fetch_connector
from workshop.parts.waiting import wait_until

HOW_TO = ROOT / "docs" / "how-to" / "move_from_sparks_source.md"
PRINTED = '{"flights":{"0":1200,"1":1187}}'
PARTITIONS = 2


class HowTo:
    """The blocks and commands of the how-to, with the names of a test in them."""

    def __init__(self, names: dict[str, str], namespace: dict[str, Any]) -> None:
        self.names = names
        self.namespace = namespace
        blocks = list(blocks_of(HOW_TO.read_text(encoding="utf-8")))
        self._python = iter([each for each in blocks if each.language == "python"])
        texts = [
            each for block in blocks if block.language == "bash" for each in commands_of(block)
        ]
        self._commands = [each for each in texts if "localhost:9092" in each]

    def run_next(self) -> None:
        """Run the next block of Python."""
        block: Block = next(self._python)
        run_python([block], self.names, self.namespace, HOW_TO.name)

    def command(self, *words: str) -> str:
        """Run the command that has these words, without further options; returns what it prints."""
        given = [shlex.split(each) for each in self._commands]
        fits = [each for each in given if set(words) <= set(each)]
        found = min(fits, key=len)
        done = invoke(*(self._named(each) for each in found[1:]))
        assert done.exit_code == 0, done.output
        return done.stdout

    def _named(self, word: str) -> str:
        plain = {written.strip('"'): name.strip('"') for written, name in self.names.items()}
        for written in ("localhost:9092", "flight-readers", "/data"):
            word = word.replace(written, plain[written])
        return word


def writes_once(table: Path) -> Callable[[DataFrame, int], None]:
    """Return what the old query does: append each batch to a Delta table, once."""

    def write(rows: DataFrame, batch_id: int) -> None:
        app_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        if DeltaTable.is_deltatable(str(table)):
            done = DeltaTable(str(table)).transaction_version(app_id)
            if done is not None and done >= batch_id:
                return
        properties = CommitProperties(app_transactions=[Transaction(app_id, batch_id)])
        deltalake.write_deltalake(
            str(table), rows.toArrow(), mode="append", commit_properties=properties
        )

    return write


def session_with_own_source() -> SparkSession:
    """Start Spark with its own Kafka source."""
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, fetch_connector(pyspark.__version__))))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def main(directory: Path, servers: str, group_id: str, topic: str) -> None:
    """Move a running query to a group and back, while its topic is written to."""
    spark = session_with_own_source()
    create_topic(servers, topic, PARTITIONS)
    table = directory / "lake" / "flights"
    numbers = count()

    def more(rows: int, partitions: int = PARTITIONS) -> None:
        new = [Row(b"%d" % next(numbers), partition=each % partitions) for each in range(rows)]
        produce(servers, topic, new)

    def read() -> Counter[bytes]:
        if not DeltaTable.is_deltatable(str(table)):
            return Counter()
        return Counter(DeltaTable(str(table)).to_pyarrow_table()["value"].to_pylist())

    names = {
        PRINTED: "",
        "localhost:9092": servers,
        '"flights"': f'"{topic}"',
        "flight-readers": group_id,
        "/data": str(directory),
    }
    write = writes_once(table)
    how_to = HowTo(names, {"spark": spark, "write": write})

    more(60)
    running = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "20")
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{directory}/checkpoints/flights")
        .start()
    )
    wait_until(lambda: len(read()) >= 20, READ_S, "a batch of the old query")
    running.stop()
    more(20)
    how_to.run_next()
    assert len(read()) == 80

    grow_topic(servers, topic, 3)
    more(30, partitions=3)
    refused_with_the_command(spark, servers, group_id, topic, directory)
    plan = how_to.command("reset-offsets", "/data/checkpoints/flights")
    assert "it is read from its beginning" in plan
    assert "is planned, but not committed" not in plan
    how_to.command("reset-offsets", "/data/checkpoints/flights", "--execute")

    how_to.run_next()
    wait_until(lambda: len(read()) >= 110, READ_S, "the first batch of the new query")
    how_to.command("lag")
    assert "DIFFERENCE" in how_to.command("table", "offsets")
    more(30, partitions=3)
    how_to.run_next()
    assert len(read()) == 140

    # The runner of a query that has ended leaves the group a moment later.
    wait_until(lambda: not describe(servers, group_id).members, READ_S, "the group to be empty")
    names[PRINTED] = how_to.command("describe", "--starting-offsets").strip()
    assert set(json.loads(names[PRINTED])[topic]) == set("012")
    more(30, partitions=3)
    how_to.run_next()
    assert read() == Counter(b"%d" % each for each in range(next(numbers)))
    spark.stop()


def refused_with_the_command(
    spark: SparkSession, servers: str, group_id: str, topic: str, place: Path
) -> None:
    """Start a group's query from the old checkpoint, which is left as it was."""
    query = spark_groups.start(
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", group_id)
        .option("subscribe", topic)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", f"{place}/checkpoints/flights")
        .trigger(availableNow=True)
    )
    command = f"spark-groups reset-offsets {group_id} --from-checkpoint CHECKPOINT --execute"
    with pytest.raises(StreamingQueryException, match=command):
        query.awaitTermination(READ_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
