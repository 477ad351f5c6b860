"""Strategies end to end, with poison records on a real broker and a real Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_groups
from spark_groups import AtLast, Fate, Recirculate, RecordProcessing, RetryTo, SkipOrDeadLetter
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import ProtocolError
from spark_groups.fence.entries import FenceKey
from spark_groups.spark.control.running_query import RunningQuery
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import ERROR, RETRIES, origin_of
from spark_groups.spark.processing.process import _committed_offsets
from spark_groups.spark.processing.strategies import Strategy
from spark_groups.spark.tables.write import GroupLogs
from spark_groups.types import OffsetRange, TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.spark.processing.topics import Seen, poisoned, records_in
from tests.spark.queries import READ_S, GroupQuery
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import Row, create_topic, produce, unstable_offset
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

PARTITIONS = 2
ROWS = 40
VALUES = [b"%d" % each for each in range(ROWS)]
POISON = {b"3", b"4", b"17"}
SOON_S = 2.0


@dataclass
class Scene:
    """A topic with rows, a group that processes it, and observations of both.

    Args:
        query: The query, of which a test uses source and checkpoint.
        seen: The processed records.
    """

    query: GroupQuery
    seen: Seen
    running: list[Any] = field(default_factory=list)

    @property
    def servers(self) -> str:
        return self.query.kafka.bootstrap_servers

    def topic(self, kind: str) -> str:
        """Return the name of one of the group's own topics."""
        return f"{self.query.topic}.{self.query.group_id}.{kind}"

    def create(self, kind: str, partitions: int = 1, **config: str) -> str:
        name = self.topic(kind)
        create_topic(self.servers, name, partitions, config)
        return name

    def start(self, take: Callable[[DataFrame, int], None], **trigger: Any) -> Any:
        writer = self.query.source().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(self.query.checkpoint))
        writer = writer.trigger(**(trigger or {"processingTime": "100 milliseconds"}))
        started = spark_groups.start(writer)
        self.running.append(started)
        return started

    def run_available(self, take: Callable[[DataFrame, int], None]) -> None:
        assert self.start(take, availableNow=True).awaitTermination(READ_S)

    def processing(
        self, strategy: Strategy, fail: Callable[[Record], object] | None = None
    ) -> RecordProcessing:
        """Return a function for foreachBatch; without `fail` some values are poison."""
        handle = self.seen.noting(fail or poisoned(POISON))
        return spark_groups.process_records(handle, strategy)

    def ends(self) -> dict[int, int]:
        return dict(Counter(each.partition for each in records_in(self.servers, self.query.topic)))


@pytest.fixture
def scene(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> Any:
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    rows = [
        Row(value, key=b"k" + value, partition=index % PARTITIONS, headers=(("trace", value),))
        for index, value in enumerate(VALUES)
    ]
    produce(kafka.bootstrap_servers, topic_name, rows)
    options = {"includeHeaders": "true", "maxOffsetsPerTrigger": "30"}
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path, options)
    made = Scene(query, Seen(tmp_path / "seen"))
    yield made
    for each in made.running:
        each.stop()


def test_batch_is_committed_without_a_listener_before_the_next_trigger(scene: Scene) -> None:
    processing = scene.processing(SkipOrDeadLetter(), lambda _: None)
    scene.start(processing, processingTime="1 hour")
    wait_until(lambda: sum(scene.query.committed().values()) == 30, READ_S, "the commit")
    assert not scene.query.offsets_file(1).exists()


def test_dead_letters_say_everything_and_nothing_else_is_missing(scene: Scene) -> None:
    letters = scene.create("dead-letter", 3)
    processing = scene.processing(SkipOrDeadLetter(record_deadline_s=SOON_S))
    scene.run_available(processing)
    assert scene.seen.values() == Counter(set(VALUES) - POISON)
    assert scene.query.committed() == scene.ends() == dict.fromkeys(range(PARTITIONS), ROWS // 2)
    found = records_in(scene.servers, letters)
    originals = {each.value: each for each in records_in(scene.servers, scene.query.topic)}
    assert {each.value for each in found} == POISON
    assert len(found) == len(POISON)
    for letter in found:
        original = originals[letter.value]
        assert letter.key == original.key
        assert letter.headers[:1] == original.headers
        origin = origin_of(letter)
        assert (origin.topic, origin.partition) == (scene.query.topic, original.partition)
        assert (origin.offset, origin.timestamp_ms) == (original.offset, original.timestamp_ms)
        assert (origin.group_id, origin.retries) == (scene.query.group_id, 0)
        assert dict(letter.headers)[ERROR] == b"ValueError: poison"
    assert processing.totals == {Fate.PROCESSED: ROWS - 3, Fate.DEAD_LETTERED: 3}


def test_skipped_records_are_counted_and_reported(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = SkipOrDeadLetter(at_last=AtLast.SKIP, record_deadline_s=SOON_S)
    processing = scene.processing(strategy)
    scene.run_available(processing)
    assert scene.seen.values() == Counter(set(VALUES) - POISON)
    assert scene.query.committed() == scene.ends()
    assert processing.totals[Fate.SKIPPED] == len(POISON)
    skipped = [each for each in caplog.messages if "skipped" in each]
    assert any(
        f"{scene.query.topic}-0 skipped (offset 2): ValueError: poison" in t for t in skipped
    )


def test_record_that_hangs_does_not_block_others(scene: Scene) -> None:
    def hang(record: Record) -> None:
        if record.value == b"3":
            time.sleep(3_600)

    letters = scene.create("dead-letter")
    scene.run_available(scene.processing(SkipOrDeadLetter(record_deadline_s=SOON_S), hang))
    assert scene.seen.values() == Counter(set(VALUES) - {b"3"})
    (letter,) = records_in(scene.servers, letters)
    assert dict(letter.headers)[ERROR] == b"TimeoutError: not processed by its deadline, attempt 1"


def failing_twice(record: Record) -> None:
    """Fail for ever with one record, twice with another."""
    retries = int(dict(record.headers).get(RETRIES) or 0)
    if record.value == b"4" or (record.value == b"3" and retries < 2):
        raise ValueError("not yet")


@pytest.mark.parametrize("to", RetryTo)
def test_recirculated_records_come_again_and_not_for_ever(scene: Scene, to: RetryTo) -> None:
    letters, retries = scene.create("dead-letter"), scene.create("retry")
    strategy = Recirculate(to=to, max_retries=2, record_deadline_s=SOON_S / 2, expire_after_s=3_600)
    if to is RetryTo.GROUP_TOPIC:
        scene.query.topic += f",{retries}"
    processing = scene.processing(strategy, failing_twice)
    scene.start(processing)
    scene.query.topic = scene.query.topic.partition(",")[0]
    wait_until(lambda: scene.seen.values()[b"3"] == 1, READ_S, "the third attempt")
    wait_until(lambda: records_in(scene.servers, letters), READ_S, "the dead letter")
    wait_until(lambda: scene.query.committed() == scene.ends(), READ_S, "the last commit")
    assert scene.seen.values() == Counter(set(VALUES) - {b"4"})
    (letter,) = records_in(scene.servers, letters)
    origin = origin_of(letter)
    assert (letter.value, origin.offset, origin.retries) == (b"4", 2, 2)
    assert (origin.expires_ms or 0) - origin.timestamp_ms == 3_600_000
    recirculated = records_in(scene.servers, retries)
    if to is RetryTo.GROUP_TOPIC:
        assert sum(scene.ends().values()) == ROWS
    else:
        assert recirculated == []
        recirculated = records_in(scene.servers, scene.query.topic)
        recirculated = [each for each in recirculated if origin_of(each).retries]
    assert Counter(each.value for each in recirculated) == {b"3": 2, b"4": 2}
    assert processing.totals == {
        Fate.PROCESSED: ROWS - 1,
        Fate.RECIRCULATED: 4,
        Fate.DEAD_LETTERED: 1,
    }


def test_without_a_deadline_everything_waits_in_order(scene: Scene, tmp_path: Path) -> None:
    scene.query.options["kafka.max.poll.interval.ms"] = "2147483647"
    gate = str(tmp_path / "gate")

    def wait(record: Record) -> None:
        if record.value == b"4" and not Path(gate).exists():
            raise ValueError("not yet")

    processing = scene.processing(spark_groups.NoDeadline(), wait)
    scene.start(processing)
    # Value 4 stands in partition 0 at offset 2.
    wait_until(lambda: len(scene.seen.offsets()) >= 2, READ_S, "the first records")
    time.sleep(2.0)
    assert [o for _, p, o in scene.seen.offsets() if p == 0] == [0, 1]
    assert not any(scene.query.committed().values())
    Path(gate).touch()
    wait_until(lambda: scene.query.committed() == scene.ends(), READ_S, "the last commit")
    for partition in range(PARTITIONS):
        offsets = [offset for _, index, offset in scene.seen.offsets() if index == partition]
        # Batches are of different processes, whose notes have no order among each other.
        assert sorted(offsets) == list(range(ROWS // PARTITIONS))
    assert processing.totals == {Fate.PROCESSED: ROWS}


def test_letters_that_cannot_be_written_end_the_batch_uncommitted(scene: Scene) -> None:
    letters = scene.create("dead-letter", **{"max.message.bytes": "100"})
    processing = scene.processing(SkipOrDeadLetter(record_deadline_s=SOON_S))
    with pytest.raises(StreamingQueryException, match="the batch fails"):
        scene.run_available(processing)
    assert not any(scene.query.committed().values())
    assert records_in(scene.servers, letters) == []


def test_topic_that_is_missing_is_named_before_it_is_needed(scene: Scene) -> None:
    processing = scene.processing(SkipOrDeadLetter(record_deadline_s=SOON_S))
    missing = f"there is no topic {scene.topic('dead-letter')}"
    with pytest.raises(StreamingQueryException, match=missing):
        scene.run_available(processing)
    assert not scene.seen.offsets()


def test_options_that_a_strategy_cannot_do_with_fail_the_first_batch(scene: Scene) -> None:
    processing = scene.processing(spark_groups.ProgressDeadline())
    with pytest.raises(StreamingQueryException, match="maxBatchTime must be set"):
        scene.run_available(processing)


def test_exception_between_letter_and_commit_repeats_the_batch_and_loses_no_letter(
    scene: Scene,
) -> None:
    letters = scene.create("dead-letter")
    processing = scene.processing(SkipOrDeadLetter(record_deadline_s=SOON_S))

    def fail_afterwards(batch: DataFrame, batch_id: int) -> None:
        processing(batch, batch_id)
        raise RuntimeError("between the letters and the commit")

    with pytest.raises(StreamingQueryException, match="between the letters"):
        scene.run_available(fail_afterwards)
    first = scene.seen.offsets()
    before = Counter(each.value for each in records_in(scene.servers, letters))
    assert before
    assert not any(scene.query.committed().values())
    scene.run_available(processing)
    # The first batch came again with the same rows, and its letters with it; the others once.
    assert {each for each, count in Counter(scene.seen.offsets()).items() if count == 2} == set(
        first
    )
    assert set(scene.seen.values()) == set(VALUES) - POISON
    after = Counter(each.value for each in records_in(scene.servers, letters))
    assert after == Counter(POISON) + before
    assert scene.query.committed() == scene.ends()


@pytest.mark.broker
def test_offset_that_is_unknown_is_logged_because_records_are_processed_again(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing shows what another member has processed of that partition."""
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    options = {"kafka.bootstrap.servers": servers, "kafka.group.id": group_id}
    options["subscribe"] = topic_name
    with Cluster(servers) as cluster:
        topic = topic_id(cluster, topic_name)
        keys = [TopicIdPartition(topic, index) for index in range(2)]
        commit_outside(cluster, group_id, dict.fromkeys(keys, 5))
        ranges = tuple(OffsetRange(topic, topic_name, index, 0, 9) for index in range(2))
        running = RunningQuery(tuple(options.items()), "run", ranges, (), (), is_as_loaded=True)
        with unstable_offset(servers, group_id, topic_name, 0, 9):
            found = _committed_offsets(cluster, running)
            assert found == {TopicPartition(topic_name, 1): 5}
            assert f"unknown for {topic_name} 0: UNSTABLE_OFFSET_COMMIT" in caplog.text
            assert "are processed again" in caplog.text
            logs = GroupLogs(running)
            known, unknown = (FenceKey(group_id, topic, index) for index in (1, 0))
            assert list(logs.committed([known])) == [known], "the other one is of no concern"
            with pytest.raises(ProtocolError, match=f"unknown for {topic_name} 0: UNSTABLE"):
                logs.committed([unknown])
