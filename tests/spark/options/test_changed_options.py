"""An option that changes between two runs from one checkpoint: for each, what it does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import CheckpointError, OptionsError
from spark_groups.group.batches.proofs import PlanJson
from spark_groups.group.ledger.plan_text import NOTHING_PLANNED
from spark_groups.spark.options.declaring import OnRestart
from spark_groups.spark.options.source_options import DECLARED_OPTIONS, SourceOptions
from spark_groups.spark.source.query_run import QueryRun
from tests.runtime.members import committed, filled_topic
from tests.spark.source.query_run_setup import (
    Start,
    ranges,
    small_batches,
    spans,
    until_rows,
)
from workshop.parts.brokers import Row, produce
from workshop.parts.waiting import wait_until
from workshop.tools.docs_options import options_on_restart

ROWS = 10
FIRST = (0, 4)
"""The batch of the first run."""

CHANGED = {
    "minPartitions": "3",
    "maxRecordsPerPartition": "2",
    "reader": "librdkafka",
    "maxMemoryPerTask": "64m",
    "failOnDataLoss": "false",
    "partitionMoveWithState": "fail",
    "availableNowSettleTimeout": "1s",
    "availableNowUnsettled": "wait",
    "kafkaConsumer.pollTimeoutMs": "60000",
    "kafka.group.instance.id": "gate-1",
    "leaveOnStop": "true",
    "unreleasedInstance": "fail",
    "onUnreadableTimestamp": "null",
    "fastHeartbeats": "false",
    "maxIdleTime": "20m",
    "maxBatchTime": "30m",
    "logLevel": "debug",
    "metricsPort": "0",
    "metricsHost": "::1",
    "kafka.group.remote.assignor": "range",
    "kafka.client.rack": "zone-a",
    "kafka.client.id": "flights",
    "kafka.max.poll.interval.ms": "60000",
    "kafka.default.api.timeout.ms": "50000",
    "kafka.request.timeout.ms": "20000",
    "kafka.socket.connection.setup.timeout.ms": "5000",
    "kafka.socket.connection.setup.timeout.max.ms": "20000",
    "kafka.connections.max.idle.ms": "60000",
}
"""A changed value of each option that takes effect at once."""

LISTED = {
    OnRestart.CLUSTER: {"kafka.bootstrap.servers"},
    OnRestart.GROUP: {"kafka.group.id"},
    OnRestart.TOPICS: {"subscribe", "subscribePattern"},
    OnRestart.COLUMNS: {
        *("emit", "includeHeaders", "onUndecodable"),
        *("valueFormat", "valueSchema", "valueMessageName", "valueSubject"),
        *("valueSchemaVersion", "valueSchemaId"),
        *("keyFormat", "keySchema", "keyMessageName", "keySubject"),
        *("keySchemaVersion", "keySchemaId"),
    },
    OnRestart.ROWS: {"kafka.isolation.level", "schemaRegistryUrl"},
    OnRestart.NEXT_BATCH: {
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
    },
    OnRestart.NEW_PARTITIONS: {
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
    },
    OnRestart.BATCH_ONLY: {"endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"},
}
"""The options that a test below changes for a reason of their own."""

BATCH_ONLY = {
    "endingTimestamp": "1000",
    "endingOffsetsByTimestamp": '{"t": {"0": 1000}}',
    "endingOffsets": '{"t": {"0": 1}}',
}


def test_each_option_says_what_a_changed_value_does() -> None:
    by_option = {each.name: each.on_restart for each in DECLARED_OPTIONS}
    at_once = {name for name, kind in by_option.items() if kind is OnRestart.AT_ONCE}
    # It has one value.
    assert at_once - {"kafka.group.protocol"} == set(CHANGED)
    others = {name: kind for name, kind in by_option.items() if name not in at_once}
    assert others == {name: kind for kind, names in LISTED.items() for name in names}


def test_page_lists_the_options_that_do_not_simply_take_effect() -> None:
    *rows, last = options_on_restart().splitlines()[2:]
    shown = {}
    for row in rows:
        names, _, text = row.strip("| ").rpartition(" | ")
        shown[text] = set(re.findall(r"`([^`]+)`", names))
    assert shown == {kind.value: names for kind, names in LISTED.items()}
    assert last == f"| all others | {OnRestart.AT_ONCE.value} |"


@pytest.mark.parametrize("name", CHANGED)
def test_changed_option_reaches_the_run(name: str) -> None:
    needed = {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.group.id": "g",
        "subscribe": "t",
    }
    assert SourceOptions.of({**needed, name.lower(): CHANGED[name]}) != SourceOptions.of(needed)


@pytest.mark.parametrize("name", BATCH_ONLY)
def test_stream_refuses_an_end(name: str) -> None:
    needed = {"kafka.bootstrap.servers": "b:1", "kafka.group.id": "g", "subscribe": "t"}
    with pytest.raises(OptionsError, match=f"{name}: a stream has no end: use Trigger.AvailableN"):
        QueryRun(SourceOptions.of({**needed, name: BATCH_ONLY[name]}))


@pytest.fixture
def start(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> Iterator[Start]:
    with small_batches(kafka, topic_name, group_id) as started:
        yield started


def unfinished(start: Start, **options: str) -> PlanJson:
    """Let a first run plan a batch and die; return the plan."""
    first = start(**options)
    planned = until_rows(first, NOTHING_PLANNED)
    assert spans(planned) == [FIRST]
    first.driver.close()
    return planned


def next_plan(run: QueryRun, planned: PlanJson) -> PlanJson:
    """Return the next plan that reads something, after batches that only warm workers up.

    Without fast heartbeats, an assignment takes several intervals of 5 s.
    """
    ends = [planned]

    def reads() -> bool:
        end = run.latest_offset(ends[-1])
        if end == ends[-1]:
            return False
        run.batch(ends[-1], end)
        ends.append(end)
        return bool(spans(end))

    wait_until(reads, 400, "the next plan")
    return ends[-1]


def run_again(run: QueryRun, planned: PlanJson) -> None:
    """Run the unfinished batch of the checkpoint again; it has the same range."""
    again = ranges(run, NOTHING_PLANNED, planned)
    assert [(each.from_offset, each.until_offset) for each in again] == [FIRST]


@pytest.mark.broker
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(
            {name: CHANGED[name] for name in CHANGED if name != "fastHeartbeats"}, id="all"
        ),
        *(pytest.param({name: CHANGED[name]}, marks=pytest.mark.long, id=name) for name in CHANGED),
        pytest.param({"kafka.isolation.level": "read_committed"}, id="kafka.isolation.level"),
        pytest.param({"startingOffsets": "latest"}, id="startingOffsets"),
        pytest.param({"includeHeaders": "true"}, id="includeHeaders"),
        pytest.param({"emit": "ranges"}, id="emit"),
    ],
)
def test_batch_runs_again_and_the_next_follows(
    start: Start,
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    changed: dict[str, str],
) -> None:
    planned = unfinished(start)
    run = start(**changed)
    run_again(run, planned)
    assert spans(next_plan(run, planned)) == [(4, 8)]
    assert run.driver.await_commits(300)
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4


@pytest.mark.broker
@pytest.mark.parametrize(
    ("former", "now"), [(None, "gate-1"), ("gate-1", "gate-2"), ("gate-1", None)]
)
def test_another_instance_id_does_not_wait_for_the_former(
    start: Start, former: str | None, now: str | None
) -> None:
    name = "kafka.group.instance.id"
    planned = unfinished(start, **({name: former} if former else {}))
    run = start(**({name: now} if now else {}))
    run_again(run, planned)
    assert spans(next_plan(run, planned)) == [(4, 8)], "within less than a session timeout"


@pytest.mark.broker
def test_limits_of_a_batch_take_effect_with_the_next_plan(
    start: Start, kafka: EmbeddedKafka, topic_name: str
) -> None:
    planned = unfinished(start)
    smaller = start(maxOffsetsPerTrigger="3")
    run_again(smaller, planned)
    assert spans(next_plan(smaller, planned)) == [(4, 7)]
    smaller.leave(5.0)

    # The first plan of a run waits for no more offsets.
    least = {"minOffsetsPerTrigger": "7", "maxOffsetsPerTrigger": None}
    patient = start(**least)
    run_again(patient, planned)
    second = next_plan(patient, planned)
    assert spans(second) == [(4, ROWS)]
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v")] * 3)
    wait_until(
        lambda: (
            patient.latest_offset(second) != second
            or [*patient.driver.latest_offsets().values()] == [ROWS + 3]
        ),
        what="the log end",
    )
    assert patient.latest_offset(second) == second, "three offsets are too few"
    patient.leave(5.0)

    hasty = start(**least, maxTriggerDelay="1ms")
    run_again(hasty, planned)
    second = next_plan(hasty, planned)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v")])
    assert spans(next_plan(hasty, second)) == [(ROWS + 3, ROWS + 4)]


@pytest.mark.broker
@pytest.mark.parametrize("is_named", [False, True])
def test_topic_that_the_checkpoint_lacks_starts_at_its_beginning_or_where_it_is_named(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str, is_named: bool
) -> None:
    planned, added = unfinished(start), f"{topic_name}-added"
    filled_topic(kafka.bootstrap_servers, added, 1, ROWS)
    named = json.dumps({added: {"0": 7}})
    starts = {"startingOffsets": named if is_named else "latest", "maxOffsetsPerTrigger": None}
    run = start(subscribe=f"{topic_name},{added}", **starts)
    run_again(run, planned)
    first, read, end = 7 if is_named else 0, [], planned
    while len(read) < 2:
        end = next_plan(run, end)
        read += spans(end)
    assert sorted(read) == sorted([(first, ROWS), (4, ROWS)]), "in one batch, or in two"
    servers, key = kafka.bootstrap_servers, (added, 0)
    # Where the topics were read in two batches, the first one is committed.
    wait_until(
        lambda: committed(servers, group_id).get(key) in {first, ROWS},
        what="the start of the added topic",
    )


@pytest.mark.broker
def test_other_topics_wait_for_the_unfinished_batch(
    start: Start, kafka: EmbeddedKafka, topic_name: str
) -> None:
    planned, other = unfinished(start), f"{topic_name}-other"
    filled_topic(kafka.bootstrap_servers, other, 1, ROWS)
    topics: dict[str, str | None] = {"subscribe": other}
    for changed in (topics, {"subscribe": None, "subscribePattern": f"{topic_name}-o.*"}):
        refused = start(**changed)
        with pytest.raises(CheckpointError, match="Run the unchanged query once"):
            ranges(refused, NOTHING_PLANNED, planned)
        refused.leave(5.0)
    same = start(subscribe=None, subscribePattern=f"{topic_name}.*", maxOffsetsPerTrigger=None)
    run_again(same, planned)
    assert (4, ROWS) in spans(next_plan(same, planned)), "the pattern matches the topic"


@pytest.mark.broker
def test_another_group_is_refused_before_it_has_committed(
    start: Start, kafka: EmbeddedKafka, group_id: str
) -> None:
    planned, other = unfinished(start), f"{group_id}-other"
    run = start(**{"kafka.group.id": other})
    with pytest.raises(CheckpointError, match=f"--from-group {group_id}"):
        next_plan(run, planned)
    assert committed(kafka.bootstrap_servers, other) == {}


@pytest.mark.broker
def test_another_address_of_the_cluster_takes_effect_at_once(
    start: Start, kafka: EmbeddedKafka
) -> None:
    planned = unfinished(start)
    port = kafka.bootstrap_servers.rpartition(":")[2]
    run = start(**{"kafka.bootstrap.servers": f"localhost:{port}"})
    run_again(run, planned)
    assert spans(next_plan(run, planned)) == [(4, 8)]


@pytest.mark.broker
@pytest.mark.long
def test_another_cluster_is_refused(start: Start, topic_name: str) -> None:
    first = start()
    planned = until_rows(first, NOTHING_PLANNED)
    following = first.latest_offset(planned)
    assert spans(following) == [(4, 8)]
    first.driver.close()
    with EmbeddedKafka() as other:
        filled_topic(other.bootstrap_servers, topic_name, 1, ROWS)
        address = {"kafka.bootstrap.servers": other.bootstrap_servers}
        with pytest.raises(CheckpointError, match="give the query a new checkpointLocation"):
            start(**address).latest_offset(following)
        assert spans(until_rows(start(**address), NOTHING_PLANNED)) == [FIRST]
