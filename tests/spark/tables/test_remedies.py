"""What errors, log lines and commands of tables tell people to do, done to the end.

Each test makes the state that prints commands, runs exactly these, and counts the rows.
"""

from __future__ import annotations

import logging
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest
from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.fence.compare import NEW_CHECKPOINT
from spark_groups.spark.tables.write import TableWriter
from tests.cli.printed import follow, printed
from tests.spark.tables.places import PostgresPlace, SqlitePlace
from tests.spark.tables.replaced import replace_table
from tests.spark.tables.write_setup import (
    PARTITIONS,
    ROWS,
    PlaceQuery,
    TableQuery,
    crash_after_the_tables_commit,
    expected,
    values_of,
)
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

MORE = 60
OLD, NEW = "checkpoint", "new"


@pytest.fixture
def query(
    spark: SparkSession, kafka: EmbeddedKafka, group_id: str, topic_name: str, tmp_path: Path
) -> TableQuery:
    """A query on a topic with rows: a batch has 20 offsets of each of three partitions."""
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    options = {"emit": "ranges", "maxOffsetsPerTrigger": "60"}
    made = TableQuery(spark, kafka, group_id, topic_name, tmp_path, options)
    made.produce(0, ROWS)
    return made


def reset(query: TableQuery, *words: str) -> str:
    """Reset the group; return what the command says about the next start."""
    query.await_left()
    command = shlex.join(("reset-offsets", query.group_id, *words, "--execute"))
    (view,) = follow([command], query.kafka.bootstrap_servers, {})
    return str(view["next_start"])


def obey(query: TableQuery, commands: list[str]) -> list[dict[str, object]]:
    """Run printed commands on the query's table and group."""
    query.await_left()
    names = {"TABLE": f"delta:{query.path}", "GROUP": query.group_id}
    return follow(commands, query.kafka.bootstrap_servers, names)


def delete(query: TableQuery, where: str) -> None:
    deltalake.DeltaTable(query.path).delete(where)


def skipping(query: TableQuery, offset: int) -> str:
    """Have the table refuse a batch that begins behind it; return the error."""
    assert query.run() == ""
    query.produce(ROWS, MORE)
    reset(query, "--all-topics", "--to-offset", str(offset))
    failure = query.run()
    assert "10 offsets would be missing" in failure
    return failure


def test_refused_batch_is_written_where_the_table_ends_as_the_error_says(query: TableQuery) -> None:
    failure = skipping(query, 50)
    *_, go_on = printed(failure)
    assert NEW_CHECKPOINT in failure
    (view,) = obey(query, [go_on])
    assert view["is_executed"]
    # Why the error names a new checkpoint.
    assert "10 offsets would be missing" in query.run()
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(ROWS + MORE)


@pytest.mark.parametrize("checkpoint", [OLD, NEW])
def test_gap_is_accepted_as_the_error_says(query: TableQuery, checkpoint: str) -> None:
    accept, _ = printed(skipping(query, 50))
    obey(query, [accept])
    assert query.run(checkpoint=checkpoint) == ""
    assert query.values() == expected(ROWS + MORE) - values_of(range(ROWS, ROWS + 30))


def beginning_late(query: TableQuery) -> str:
    """Have the table refuse a batch that begins before its first offsets; return the error."""
    starts = ", ".join(f'"{index}": 10' for index in range(PARTITIONS))
    query.options["startingOffsets"] = f'{{"{query.topic}": {{{starts}}}}}'
    assert query.run() == ""
    reset(query, "--all-topics", "--to-earliest")
    failure = query.run()
    assert "10 offsets before that cannot be added" in failure
    return failure


def test_records_before_the_start_are_written_as_the_error_says(query: TableQuery) -> None:
    add, _ = printed(beginning_late(query))
    delete(query, '"offset" >= 0')
    obey(query, [add])
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(ROWS)


def test_records_before_the_start_are_left_out_as_the_error_says(query: TableQuery) -> None:
    _, go_on = printed(beginning_late(query))
    obey(query, [go_on])
    query.produce(ROWS, MORE)
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(ROWS + MORE) - values_of(range(10 * PARTITIONS))


def test_restored_table_is_written_again_as_the_error_and_the_command_say(
    query: TableQuery,
) -> None:
    assert query.run() == ""
    table = deltalake.DeltaTable(query.path)
    table.restore(table.version() - 1)
    query.produce(ROWS, MORE)
    failure = query.run()
    assert "was restored to its version" in failure
    (view,) = obey(query, printed(failure))
    assert NEW_CHECKPOINT in str(view["next_step"])
    obey(query, printed(str(view["next_step"])))
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(ROWS + MORE)


@pytest.mark.parametrize("is_adopted", [True, False])
def test_table_in_the_place_of_another_one_is_adopted_or_begun_again_as_the_error_says(
    query: TableQuery, is_adopted: bool
) -> None:
    assert query.run() == ""
    replace_table(query.path, keeps_rows=is_adopted)
    query.produce(ROWS, MORE)
    failure = query.run()
    assert "another table is in the place of" in failure
    adopt, *begin_again = dict.fromkeys(printed(failure))
    obey(query, [adopt] if is_adopted else begin_again)
    assert query.run(checkpoint=OLD if is_adopted else NEW) == ""
    assert query.values() == expected(ROWS + MORE)


def test_skipped_records_are_written_again_as_the_warning_says(
    query: TableQuery, caplog: pytest.LogCaptureFixture
) -> None:
    crash_after_the_tables_commit(query)
    query.produce(ROWS, MORE)
    reset(query, "--topic", f"{query.topic}:0", "--to-offset", "10")
    with caplog.at_level(logging.WARNING):
        assert query.run(checkpoint="another") == ""
    (warning,) = [
        each for each in caplog.messages if f"{query.topic}-0: the table has it up to" in each
    ]
    assert NEW_CHECKPOINT in warning
    delete(query, 'partition = 0 AND "offset" >= 10')
    obey(query, printed(warning))
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(ROWS + MORE)


def test_only_reset_partitions_are_written_again_as_the_reset_says(query: TableQuery) -> None:
    """The table is ahead of Kafka in all partitions, for a crash came between their commits."""
    crash_after_the_tables_commit(query)
    said = reset(query, "--topic", f"{query.topic}:0", "--to-offset", "10")
    delete(query, 'partition = 0 AND "offset" >= 10')
    (view,) = obey(query, printed(said))
    (row,) = view["rows"]  # type: ignore[misc]
    assert (row["partition"], row["new_next_offset"]) == (0, 10)
    assert "the table has 30 offsets there" in row["remark"]
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(ROWS)


def test_gap_is_accepted_as_the_reset_says(query: TableQuery) -> None:
    assert query.run() == ""
    query.produce(ROWS, MORE)
    said = reset(query, "--topic", f"{query.topic}:1", "--to-offset", "50")
    obey(query, printed(said))
    assert query.run(checkpoint=NEW) == ""
    missing = values_of(range(ROWS + 1, ROWS + 31, PARTITIONS))
    assert query.values() == expected(ROWS + MORE) - missing


def test_table_follows_to_another_group_as_the_reset_says(query: TableQuery) -> None:
    crash_after_the_tables_commit(query)
    old, query.group_id = query.group_id, f"{query.group_id}-other"
    said = reset(query, "--from-group", old, "--all-topics")
    obey(query, printed(said))
    query.produce(ROWS, MORE)
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(ROWS + MORE)


# Records that the table lacks although Spark or the group counts them as done.


def swallowing(
    query: TableQuery, monkeypatch: pytest.MonkeyPatch
) -> Callable[[DataFrame, int], None]:
    """Return a function around `write_table` that swallows the error of the first batch."""
    writer, stage = query.writer(), TableWriter._staged

    def fail_first(self: TableWriter, batch: DataFrame, *given: object) -> object:
        monkeypatch.setattr(TableWriter, "_staged", stage)
        raise RuntimeError("the first batch is not written")

    def write(batch: DataFrame, batch_id: int) -> None:
        try:
            writer(batch, batch_id)
        except RuntimeError as error:
            logging.getLogger(__name__).info("swallowed: %s", error)

    monkeypatch.setattr(TableWriter, "_staged", fail_first)
    return write


@pytest.mark.parametrize("is_there", [False, True])
def test_batch_after_a_swallowed_error_is_refused_until_it_is_written_as_the_error_says(
    query: TableQuery, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if is_there:
        other = replace(query, group_id=f"{query.group_id}-other")
        assert other.run(checkpoint="other") == ""
    own = Counter(query.values()) if is_there else Counter()
    failure = query.run(swallowing(query, monkeypatch))
    assert "20 offsets would be missing" in failure
    assert (query.values() if is_there else Counter()) == own
    # A restart does not forget it.
    failure = query.run()
    assert "20 offsets would be missing" in failure
    *_, again = printed(failure)
    obey(query, [again])
    assert query.run(checkpoint=NEW) == ""
    assert query.values() - own == expected(ROWS)


def elsewhere(batch: DataFrame, batch_id: int) -> None:
    """Write a batch to another sink."""
    batch.collect()


def test_checkpoint_of_another_query_is_named_until_the_query_has_one_and_a_group_of_its_own(
    query: TableQuery,
) -> None:
    query.options.pop("emit")
    assert query.run(elsewhere) == ""
    query.produce(ROWS, MORE)
    for _ in range(2):
        failure = query.run()
        assert "this table does not exist, so it has nothing of this query" in failure
        assert "this query its own checkpointLocation and kafka.group.id" in failure
    query.group_id += "-own"
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(ROWS + MORE)


@pytest.mark.parametrize("may_lack", [False, True])
def test_dropped_delta_table_begins_again_as_the_error_says(
    query: TableQuery, may_lack: bool
) -> None:
    assert query.run() == ""
    shutil.rmtree(query.path)
    query.produce(ROWS, MORE)
    failure = query.run()
    assert "this table does not exist" in failure
    if not may_lack:
        everything, _ = dict.fromkeys(printed(failure))
        obey(query, [everything])
    assert query.run(checkpoint=NEW) == ""
    begins = ROWS if may_lack else 0
    assert query.values() == values_of(range(begins, ROWS + MORE))


def test_query_that_changed_its_group_goes_back_to_it_as_the_error_says(query: TableQuery) -> None:
    assert query.run() == ""
    former, query.group_id = query.group_id, f"{query.group_id}-other"
    query.options.pop("emit")
    assert query.run(elsewhere, checkpoint="elsewhere") == ""
    query.produce(ROWS, MORE)
    failure = query.run(checkpoint="elsewhere")
    assert "its entry is empty at offset" in failure
    assert f"The table has these topics of '{former}'" in failure
    query.group_id = former
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(ROWS + MORE)


def take(query: TableQuery, count: int) -> None:
    """Have a plain consumer of the group read so many records, and commit them."""
    consumer = Consumer(
        {
            "bootstrap.servers": query.kafka.bootstrap_servers,
            "group.id": query.group_id,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([query.topic])
    taken = 0
    while taken < count:
        messages = consumer.consume(count - taken, 30.0)
        assert messages, f"{taken} of {count} records within 30 s"
        taken += sum(not each.error() for each in messages)
    consumer.commit(asynchronous=False)
    consumer.close()


def test_records_that_a_plain_consumer_took_before_the_first_batch_of_a_partition_are_a_gap(
    query: TableQuery, topic_name: str
) -> None:
    query.topic = topic = f"{topic_name}-late"
    servers = query.kafka.bootstrap_servers
    create_topic(servers, topic, 2)
    produce(servers, topic, [Row(b"%d" % i, partition=0) for i in range(20)])
    assert query.run() == ""
    produce(servers, topic, [Row(b"%d" % i, partition=1) for i in range(20, 40)])
    take(query, 20)
    produce(servers, topic, [Row(b"%d" % i, partition=1) for i in range(40, 60)])
    failure = query.run()
    assert f"{topic}-1: its entry is empty at offset 0" in failure
    *_, go_on = printed(failure)
    obey(query, [go_on])
    assert query.run(checkpoint=NEW) == ""
    assert query.values() == expected(60)


# Tables that were dropped.


@pytest.fixture
def stored(  # noqa: PLR0917
    spark: SparkSession,
    kafka: EmbeddedKafka,
    group_id: str,
    topic_name: str,
    tmp_path: Path,
    postgres: str,
    request: pytest.FixtureRequest,
) -> PlaceQuery:
    """A query that writes to a table of a database."""
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    options = {"emit": "ranges", "maxOffsetsPerTrigger": "60"}
    is_file = request.param == "sqlite"
    place = SqlitePlace(tmp_path / "rows.db") if is_file else PostgresPlace(postgres)
    made = PlaceQuery(spark, kafka, group_id, topic_name, tmp_path, options, place=place)
    made.produce(0, ROWS)
    return made


# Tests of the other pairs are long.
@pytest.mark.parametrize(
    ("stored", "is_read_again"),
    [
        ("postgres", True),
        ("sqlite", False),
        pytest.param("postgres", False, marks=pytest.mark.long),
        pytest.param("sqlite", True, marks=pytest.mark.long),
    ],
    indirect=["stored"],
)
def test_dropped_table_begins_again_as_the_error_says(
    stored: PlaceQuery, is_read_again: bool
) -> None:
    assert stored.run() == ""
    stored.place.run("DROP TABLE rows")
    stored.produce(ROWS, MORE)
    failure = stored.run()
    assert NEW_CHECKPOINT in failure
    statement = re.search(r"(DELETE FROM .*?);", failure)
    assert statement is not None, failure
    stored.place.run(statement[1])
    if is_read_again:
        names = {"GROUP": stored.group_id}
        stored.await_left()
        follow(printed(failure), stored.kafka.bootstrap_servers, names)
    # With the partitions still at the last run's member, AvailableNow would have nothing to read.
    wait_until(lambda: not stored.members(), 400, "an empty group")
    assert stored.run(checkpoint=NEW) == ""
    begins = 0 if is_read_again else ROWS
    assert stored.values() == values_of(range(begins, ROWS + MORE))


@pytest.mark.parametrize("stored", ["postgres"], indirect=True)
def test_table_of_a_restored_dump_continues_as_the_error_says(stored: PlaceQuery) -> None:
    assert stored.run() == ""
    stored.place.run("CREATE TABLE dump AS SELECT * FROM rows")
    stored.place.run("DROP TABLE rows")
    stored.place.run("ALTER TABLE dump RENAME TO rows")
    stored.produce(ROWS, MORE)
    failure = stored.run()
    statement = re.search(r"(UPDATE .*? WHERE table_name = '\w+')\. ", failure)
    assert statement is not None, failure
    stored.place.run(statement[1])
    assert stored.run() == ""
    assert stored.values() == expected(ROWS + MORE)


@pytest.mark.parametrize("stored", ["sqlite"], indirect=True)
def test_records_after_a_backup_that_was_restored_are_written_again_as_the_error_says(
    stored: PlaceQuery, tmp_path: Path
) -> None:
    assert stored.run() == ""
    shutil.copy(tmp_path / "rows.db", tmp_path / "backup.db")
    stored.produce(ROWS, MORE)
    assert stored.run() == ""
    shutil.copy(tmp_path / "backup.db", tmp_path / "rows.db")
    stored.produce(ROWS + MORE, MORE)
    failure = stored.run()
    assert "as after a backup of the table was restored" in failure
    *_, go_on = printed(failure)
    names = {"TABLE": f"sqlite:{tmp_path / 'rows.db'}#rows"}
    stored.await_left()
    follow([go_on], stored.kafka.bootstrap_servers, names)
    assert stored.run(checkpoint=NEW) == ""
    assert stored.values() == expected(ROWS + 2 * MORE)
