"""A restart from a checkpoint after committed offsets, the group or the topic were changed."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Place
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.commit_metadata import mark_of
from spark_groups.group.ledger.plan_text import parse_plan_text
from spark_groups.spark.source.source import HAS_ADMISSION_CONTROL
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.cli.commands import invoke
from tests.runtime.members import queries
from tests.spark.queries import GroupQuery
from workshop.parts.brokers import ANSWER_S, Row, admin, create_topic, grow_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.skipif(
        not HAS_ADMISSION_CONTROL, reason="before Spark 4.2 a source cannot end by itself"
    ),
]

PARTITIONS = 2
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "reset_offsets.md"


@pytest.fixture
def query(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> GroupQuery:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=PARTITIONS)
    return GroupQuery(spark, kafka, group_id, topic_name, tmp_path)


def write(query: GroupQuery, count: int, *partitions: int) -> None:
    rows = [Row(b"v", partition=each) for each in partitions for _ in range(count)]
    produce(query.kafka.bootstrap_servers, query.topic, rows)


def rows_by_partition(query: GroupQuery) -> dict[int, int]:
    """Return how many rows of each partition were written, each time that one was."""
    return dict(Counter(row["partition"] for row in query.rows()))


def command(query: GroupQuery, *words: str) -> str:
    """Run a command of `spark-groups` as somebody would type it, and return what it printed."""
    done = invoke(*words, "--bootstrap-server", query.kafka.bootstrap_servers)
    assert done.exit_code == 0, done.output
    return done.stdout


def await_an_empty_group(query: GroupQuery) -> None:
    wait_until(lambda: query.members() == 0, what="an empty group")


def shift_back(query: GroupQuery) -> None:
    back = ("--shift-by=-10", "--execute")
    command(query, "reset-offsets", query.group_id, "--topic", query.topic, *back)


def places(query: GroupQuery) -> list[Place]:
    return [Place(query.topic, each, offset - 10) for each, offset in query.committed().items()]


def alter(query: GroupQuery) -> None:
    asked = ConsumerGroupTopicPartitions(query.group_id, places(query))
    client = admin(query.kafka.bootstrap_servers)
    (answer,) = client.alter_consumer_group_offsets([asked]).values()
    answer.result(ANSWER_S)


def commit_as_a_plain_consumer(query: GroupQuery) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": query.kafka.bootstrap_servers,
            "group.id": query.group_id,
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe([query.topic])
    wait_until(
        lambda: (consumer.poll(0.1), len(consumer.assignment()) == PARTITIONS)[1],
        what="an assignment",
    )
    consumer.commit(offsets=places(query), asynchronous=False)
    consumer.close()


@pytest.mark.parametrize(
    # The commits of `alter` and of a plain consumer both have no metadata.
    "change",
    [shift_back, alter, pytest.param(commit_as_a_plain_consumer, marks=pytest.mark.long)],
)
def test_partitions_added_after_a_change_of_offsets_are_read_whole(query, change) -> None:
    query.options["startingOffsets"] = "latest"
    query.run_available()
    write(query, 20, 0, 1)
    query.run_available()
    assert rows_by_partition(query) == {0: 20, 1: 20}
    await_an_empty_group(query)
    change(query)
    grow_topic(query.kafka.bootstrap_servers, query.topic, 4)
    write(query, 40, 2, 3)
    query.run_available()
    assert rows_by_partition(query) == {0: 30, 1: 30, 2: 40, 3: 40}
    assert query.committed() == {0: 20, 1: 20, 2: 40, 3: 40}


def as_version_1(query: GroupQuery) -> None:
    """Write the offsets of a checkpoint as an earlier version of this package has written them."""
    for path in (query.checkpoint / "offsets").glob("[0-9]*"):
        *header, text = path.read_text().splitlines()
        plan = json.loads(text)
        plan["version"] = 1
        plan.pop("cluster", None)
        for topic in plan["topics"].values():
            topic.pop("partitions", None)
            topic["ranges"] = re.sub(r"@[\w-]+", "", topic["ranges"])
        path.write_text("\n".join((*header, json.dumps(plan))))
        # Hadoop's checksum is that of the other text.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "unfinished"])
def test_a_checkpoint_of_version_1_is_continued(query: GroupQuery, is_finished: bool) -> None:
    query.options["startingOffsets"] = "latest"
    query.run_available()
    write(query, 20, 0, 1)
    query.run_available()
    as_version_1(query)
    last = max((query.checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    assert last.read_text().splitlines()[-1].startswith('{"version": 1, "group": ')
    if not is_finished:
        query.commits_file(int(last.name)).unlink()
        query.commits_file(int(last.name)).with_name(f".{last.name}.crc").unlink()
    await_an_empty_group(query)
    write(query, 5, 0, 1)
    query.run_available()
    assert rows_by_partition(query) == {0: 25, 1: 25}, "the sink knows the batch that ran again"
    assert query.committed() == {0: 25, 1: 25}
    last = max((query.checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    text = last.read_text().splitlines()[-1]
    plan = parse_plan_text(text)
    assert plan is not None
    assert json.loads(text)["version"] == 4
    assert [(each.name, each.known_count) for each in plan.topics] == [(query.topic, PARTITIONS)]


def test_a_checkpoint_of_version_1_without_a_count_begins_at_the_beginning(query) -> None:
    query.options["startingOffsets"] = "latest"
    query.run_available()
    write(query, 20, 0, 1)
    query.run_available()
    as_version_1(query)
    await_an_empty_group(query)
    alter(query)
    grow_topic(query.kafka.bootstrap_servers, query.topic, 4)
    write(query, 40, 2, 3)
    query.run_available()
    assert rows_by_partition(query) == {0: 30, 1: 30, 2: 40, 3: 40}


@pytest.mark.parametrize(
    ("starting", "is_finished"),
    [
        ("earliest", True),
        ("latest", False),
        # As the first one under earliest, and the second one with a finished batch.
        pytest.param("latest", True, marks=pytest.mark.long),
    ],
)
def test_a_checkpoint_of_another_group_is_refused_until_its_offsets_are_copied(
    query: GroupQuery, starting: str, is_finished: bool
) -> None:
    query.options["startingOffsets"] = starting
    query.run_available()
    write(query, 20, 0, 1)
    query.run_available()
    if not is_finished:
        last = max(int(each.name) for each in (query.checkpoint / "offsets").glob("[0-9]*"))
        query.commits_file(last).unlink()
        query.commits_file(last).with_name(f".{last}.crc").unlink()
    former, query.group_id = query.group_id, f"{query.group_id}-new"
    write(query, 30, 0, 1)
    with pytest.raises(StreamingQueryException, match="CheckpointError") as refused:
        query.run_available()
    assert query.committed() == {}
    assert rows_by_partition(query) == {0: 20, 1: 20}
    text = str(refused.value)
    assert f"'{former}'" in text
    assert f"'{query.group_id}'" in text
    with pytest.raises(StreamingQueryException, match="CheckpointError"):
        query.run_available()
    found = re.search(r"spark-groups (reset-offsets .*? --bootstrap-server \S+)", text)
    assert found is not None
    await_an_empty_group(query)
    copied = invoke(*shlex.split(found[1]))
    assert copied.exit_code == 0, copied.output
    query.run_available()
    assert rows_by_partition(query) == {0: 50, 1: 50}
    assert query.committed() == {0: 50, 1: 50}


def test_a_reset_is_not_undone(query: GroupQuery) -> None:
    write(query, 25, 0, 1)
    query.run_available()
    await_an_empty_group(query)
    where = ("--topic", query.topic, "--to-earliest")
    planned = command(query, "reset-offsets", query.group_id, *where)
    assert query.committed() == {0: 25, 1: 25}
    done = command(query, "reset-offsets", query.group_id, *where, "--execute")
    assert query.committed() == {0: 0, 1: 0}
    for line in (planned, done):
        assert "50 offsets are read again" in " ".join(line.split())
    query.run_available()
    assert rows_by_partition(query) == {0: 50, 1: 50}
    assert query.committed() == {0: 25, 1: 25}


def read_by_another_query(query: GroupQuery, offsets: int) -> None:
    """Let a member with a checkpoint of its own read and commit the first unread offsets."""
    with queries(query.kafka.bootstrap_servers, query.group_id, query.topic) as begin:
        other = begin()
        assert other.plan_rows(PlanLimit(max_offsets=offsets)).ranges
        other.finish()
        other.commit_all()
    await_an_empty_group(query)


def test_a_reset_is_not_undone_after_another_query_has_read_up_to_the_last_batch(query) -> None:
    """The committed offset is again the one at which the last batch of the checkpoint began."""
    for _ in range(2):
        write(query, 100, 0)
        query.run_available()
    await_an_empty_group(query)
    where = ("--topic", query.topic, "--to-earliest")
    command(query, "reset-offsets", query.group_id, *where, "--execute")
    read_by_another_query(query, offsets=100)
    assert query.committed() == {0: 100, 1: 0}
    query.run_available()
    read = Counter(row["offset"] for row in query.rows() if row["partition"] == 0)
    assert read == {**dict.fromkeys(range(100), 1), **dict.fromkeys(range(100, 200), 2)}
    assert query.committed()[0] == 200


def test_a_tool_that_keeps_the_metadata_of_the_offsets_that_it_replaces_is_honoured(query) -> None:
    for _ in range(2):
        write(query, 20, 0)
        query.run_available()
    await_an_empty_group(query)
    with Cluster(query.kafka.bootstrap_servers) as cluster:
        fetched = cluster.fetch_all_offsets(query.group_id)
        (key,) = (key for key in fetched if key.partition == 0)
        assert mark_of(fetched[key])
        kept = {key.topic_id: fetched[key].metadata}
        answer = commit_outside(cluster, query.group_id, {key: 20}, kept)
        assert set(answer.errors.values()) == {0}
    query.run_available()
    assert rows_by_partition(query) == {0: 60}


@pytest.mark.parametrize("is_pattern", [False, True], ids=["names", "pattern"])
def test_a_topic_that_appears_while_no_query_runs_is_read_whole_under_latest(
    query: GroupQuery, is_pattern: bool
) -> None:
    """As Spark's own source does, and as a running member does."""
    servers, first, later = query.kafka.bootstrap_servers, query.topic, f"{query.topic}-later"
    query.options["startingOffsets"] = "latest"
    query.chosen = {"subscribePattern": f"{first}.*"} if is_pattern else {}
    query.run_available()
    produce(servers, first, [Row(b"v", partition=0)] * 20)
    query.run_available()
    create_topic(servers, later, 1)
    produce(servers, later, [Row(b"v", partition=0)] * 51)
    produce(servers, first, [Row(b"v", partition=0)])
    await_an_empty_group(query)
    # AvailableNow wants each named topic to exist.
    query.topic = f"{first},{later}"
    query.run_available()
    assert Counter(row["topic"] for row in query.rows()) == {first: 21, later: 51}


def test_a_plain_consumer_that_commits_the_beginning_of_the_last_batch_wins(query) -> None:
    write(query, 10, 0, 1)
    query.run_available()
    await_an_empty_group(query)
    commit_as_a_plain_consumer(query)
    assert query.committed() == {0: 0, 1: 0}
    query.run_available()
    assert rows_by_partition(query) == {0: 20, 1: 20}


def commands_of_the_how_to(query: GroupQuery) -> list[list[str]]:
    """Return the commands that the how-to shows, in its order, about the group of a query."""
    names = {
        "flight-readers": query.group_id,
        "new-readers": f"{query.group_id}-new",
        "flights": query.topic,
    }
    blocks = re.findall(r"```bash\n(.*?)```", HOW_TO.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [[names.get(word, word) for word in shlex.split(line)[1:]] for line in lines]


def test_the_how_to_does_what_it_says(query: GroupQuery, tmp_path: Path) -> None:
    show, reset, copy, forget, delete = commands_of_the_how_to(query)
    write(query, 10, 0, 1)
    query.run_available()
    await_an_empty_group(query)
    command(query, *show)
    assert query.committed() == {0: 10, 1: 10}
    command(query, *reset)
    query.run_available()
    assert rows_by_partition(query) == {0: 20, 1: 20}
    await_an_empty_group(query)
    command(query, *copy)
    assert replace(query, group_id=copy[1]).committed() == query.committed() == {0: 10, 1: 10}

    command(query, *forget)
    with pytest.raises(StreamingQueryException, match="DataLossError") as lost:
        query.run_available()
    for remedy in ("spark-groups reset-offsets", "new checkpointLocation", "failOnDataLoss=false"):
        assert remedy in str(lost.value)
    await_an_empty_group(query)
    command(query, *reset)
    query.run_available()
    assert rows_by_partition(query) == {0: 30, 1: 30}
    await_an_empty_group(query)
    command(query, *delete)
    restarted = replace(query, directory=tmp_path / "restarted")
    restarted.run_available()
    assert rows_by_partition(restarted) == {0: 10, 1: 10}
