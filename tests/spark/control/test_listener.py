"""What the driver hears and says: callbacks by hand, then real queries on a real Spark."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import SparkSession

import spark_groups
from spark_groups import GroupListener, PartitionsMoved
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import OptionsError
from spark_groups.spark.control import listener as listener_module
from spark_groups.spark.control.channel import ControlClient, Link
from spark_groups.spark.control.control_messages import (
    BatchReported,
    Introduced,
    Listening,
    Message,
    NothingMoreReported,
    PartitionsChanged,
    QueryRefused,
    RecordsCounted,
    Released,
    RunEnded,
)
from spark_groups.spark.source.query_run import LAST_REPORT_TIMEOUT_S
from spark_groups.spark.source.source import HAS_ADMISSION_CONTROL
from spark_groups.types import TopicPartition
from tests.runtime.members import queries
from tests.spark.queries import READ_S, GroupQuery
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import SOON_S, wait_until

JVM = 4712
PLAN = '{"version": 1, "group": "g", "member": "m1", "member_epoch": 3, "topics": {}}'


class Runner:
    """A runner in the hands of a test."""

    def __init__(self, directory: Path) -> None:
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.client = ControlClient(
            JVM, Introduced(pid=1, group_id="g"), self._received, lambda link: None, [directory]
        )
        assert self.client.start() == 1

    def _received(self, link: Link, message: Message) -> None:
        self.messages.put(message)

    def next(self) -> Message:
        return self.messages.get(timeout=300)

    def change(self, change: str, *, number: int = 0, deadline_s: float = 0.0) -> None:
        self.client.broadcast(
            PartitionsChanged(
                change=change,
                number=number,
                group_id="g",
                member_id="m1",
                member_epoch=3,
                partitions=(("flights", 0), ("flights", 2)),
                deadline_s=deadline_s,
                reason="",
            )
        )


def opened(jvm_pid: int, **given: Any) -> GroupListener:
    listener = GroupListener(jvm_pid, **given)
    listener.start()
    return listener


@pytest.fixture
def moves() -> queue.SimpleQueue[PartitionsMoved]:
    return queue.SimpleQueue()


def test_partitions_are_handed_to_the_callbacks_as_values(
    moves: queue.SimpleQueue[PartitionsMoved], tmp_path: Path
) -> None:
    listener = opened(
        JVM,
        on_assigned=moves.put,
        on_revoked=moves.put,
        on_lost=moves.put,
        directories=[tmp_path],
        spark_ui="http://driver-1:4040",
    )
    runner = Runner(tmp_path)
    assert runner.next() == Listening(
        reported_groups=(), holds_revocations=True, spark_ui="http://driver-1:4040"
    )
    runner.change("assigned")
    expected = PartitionsMoved(
        group_id="g",
        member_id="m1",
        member_epoch=3,
        partitions=(TopicPartition("flights", 0), TopicPartition("flights", 2)),
    )
    assert moves.get(timeout=300) == expected
    listener.report(
        "q1",
        [PLAN, "7", "null"],
        is_stateful=True,
        trigger_interval_s=2.5,
    )
    assert runner.next() == BatchReported(
        plan=PLAN,
        query_id="q1",
        is_stateful=True,
        trigger_interval_s=2.5,
    )
    runner.change("revoked", number=5, deadline_s=100.0)
    moved = moves.get(timeout=300)
    assert moved.query_id == "q1"
    assert moved.deadline_s is not None
    assert 50 < moved.deadline_s <= 100
    assert runner.next() == Released(number=5)
    runner.change("lost")
    assert moves.get(timeout=300).deadline_s is None
    listener.ended("q1", "r1")
    assert runner.next() == NothingMoreReported(query_id="q1", had_reports=True)
    listener.close()


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_a_callback_that_raises_is_reported_and_the_revocation_continues(
    kind: type[BaseException], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def on_revoked(moved: PartitionsMoved) -> None:
        raise kind("no disk")

    listener = opened(JVM, on_revoked=on_revoked, directories=[tmp_path])
    runner = Runner(tmp_path)
    runner.next()
    for number in (1, 2):
        runner.change("revoked", number=number, deadline_s=100.0)
        assert runner.next() == Released(number=number)
    listener.close()
    assert caplog.text.count(f"{kind.__name__}: no disk") == 2
    assert "on_revoked" in caplog.text, "the traceback names the callback"


def test_without_callbacks_revocations_are_not_held(tmp_path: Path) -> None:
    listener = opened(JVM, directories=[tmp_path])
    runner = Runner(tmp_path)
    assert runner.next() == Listening(reported_groups=(), holds_revocations=False)
    runner.change("revoked", number=1)
    assert runner.next() == Released(number=1)
    listener.close()


def test_a_callback_that_does_not_return_keeps_no_more_than_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "MAX_WAITING_CHANGES", 1)
    hanging, released = threading.Event(), threading.Event()

    def on_revoked(moved: PartitionsMoved) -> None:
        hanging.set()
        released.wait(300)

    listener = opened(JVM, on_revoked=on_revoked, directories=[tmp_path])
    runner = Runner(tmp_path)
    runner.next()
    runner.change("revoked", number=1, deadline_s=100.0)
    assert hanging.wait(300)
    runner.change("revoked", number=2, deadline_s=100.0)
    runner.change("revoked", number=3, deadline_s=100.0)
    assert runner.next() == Released(number=3), "the change is dropped"
    assert "not reporting revoked" in caplog.text
    released.set()
    assert [runner.next(), runner.next()] == [Released(number=1), Released(number=2)]
    listener.close()


def test_a_refusal_is_reported_before_the_greeting_until_the_query_has_ended(
    tmp_path: Path,
) -> None:
    listener = opened(JVM, directories=[tmp_path])
    greeting = Listening(reported_groups=(), holds_revocations=False)
    listener.refuse("r1", "g", "it has two streams")
    refused = Runner(tmp_path)
    assert refused.next() == QueryRefused(group_id="g", reason="it has two streams")
    assert refused.next() == greeting
    listener.ended("q1", "r1")
    assert Runner(tmp_path).next() == greeting
    listener.close()


def test_runners_receive_the_parallelism_when_they_connect(tmp_path: Path) -> None:
    listener = opened(JVM, directories=[tmp_path])
    listener.note_parallelism(2)
    assert Runner(tmp_path).next().default_parallelism == 2
    listener.note_parallelism(16)
    assert Runner(tmp_path).next().default_parallelism == 16
    listener.close()


def test_runners_learn_the_groups_of_queries_until_their_runs_end(tmp_path: Path) -> None:
    listener = opened(JVM, directories=[tmp_path])
    listener.note_groups("r1", frozenset({"g", "h"}))
    # The same query starts again before Spark has reported the end of its first run.
    listener.note_groups("r2", frozenset({"g"}))
    assert Runner(tmp_path).next().reported_groups == ("g", "h")
    listener.ended("q1", "r1")
    assert Runner(tmp_path).next().reported_groups == ("g",)
    listener.ended("q1", "r2")
    assert Runner(tmp_path).next().reported_groups == ()
    listener.close(0.0)


def test_records_that_were_not_decoded_are_counted_by_one_runner_before_its_batch_is_reported(
    tmp_path: Path,
) -> None:
    with contextlib.closing(opened(JVM, directories=[tmp_path])) as listener:
        runner = Runner(tmp_path)
        assert isinstance(runner.next(), Listening)
        listener.report("q", [PLAN, PLAN], is_stateful=False, undecodable=2)
        listener.report("q", [PLAN], is_stateful=False)
        kinds = [runner.next() for _ in range(4)]
        runner.client.close()
    assert kinds[0] == RecordsCounted(plan=PLAN, counts=(("RECORDS_UNDECODABLE", 2),))
    assert {type(each) for each in kinds[1:]} == {BatchReported}


def test_driver_logs_the_end_of_a_run_and_waits_for_it_before_it_closes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = opened(JVM, directories=[tmp_path])
    listener.note_groups("r1", frozenset({"g"}))
    runner = Runner(tmp_path)
    runner.next()
    listener.ended("q1", "r1")
    with caplog.at_level(logging.INFO):
        closing = threading.Thread(target=listener.close)
        closing.start()
        runner.client.broadcast(RunEnded(group_id="g", query_id="q1", line="left the group"))
        runner.client.close()
        closing.join(300)
    assert [each.message for each in caplog.records] == ["group g: left the group"]
    assert [each.query_id for each in caplog.records] == ["q1"]  # type: ignore[attr-defined]


def test_runners_learn_the_name_of_the_application(tmp_path: Path) -> None:
    listener = opened(JVM, directories=[tmp_path], application_name="flights 1")
    assert Runner(tmp_path).next().application_name == "flights 1"
    listener.close()


def test_listening_ends_also_when_the_session_is_gone(tmp_path: Path) -> None:
    listener = opened(JVM, directories=[tmp_path])

    def remove(timeout_s: float) -> None:
        raise ConnectionError("no JVM")

    listener.on_close(remove)
    listener.close()
    listener.close()
    assert not list(tmp_path.iterdir())


class BusySession:
    """A session whose events are never delivered; it notes what it is asked."""

    def __init__(self, removal: Exception | None = None) -> None:
        self.removal = removal
        self.waited_ms: list[int] = []
        self.removed: list[object] = []
        self.streams = self._jsparkSession = self

    def sparkContext(self) -> BusySession:
        return self

    def listenerBus(self) -> BusySession:
        return self

    def waitUntilEmpty(self, timeout_ms: int) -> None:
        self.waited_ms.append(timeout_ms)
        raise TimeoutError("the event queue is not empty")

    def removeListener(self, events: object) -> None:
        if self.removal is not None:
            raise self.removal
        self.removed.append(events)


def test_listener_is_removed_also_if_events_are_not_delivered_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = BusySession()
    events = object()
    listener_module.remove_listener(session, events, 3.0)  # type: ignore[arg-type]
    assert session.removed == [events]
    assert session.waited_ms[0] <= 3_000
    assert "did not deliver all query events" in caplog.text


@pytest.mark.parametrize(
    ("removal", "level"),
    [(RuntimeError("no"), logging.WARNING), (ConnectionError("no JVM"), logging.DEBUG)],
)
def test_listener_that_cannot_be_removed_is_warned_about_unless_the_jvm_is_gone(
    removal: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        events = object()
        listener_module.remove_listener(BusySession(removal), events)  # type: ignore[arg-type]
    levels = [each.levelno for each in caplog.records if "not be removed" in each.message]
    assert levels == [level]


@pytest.mark.parametrize("can_start", [True, False])
def test_all_listeners_share_one_timeout_which_is_short_where_no_thread_starts(
    can_start: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    allowed_s: list[float] = []

    def remove(timeout_s: float) -> None:
        allowed_s.append(timeout_s)
        clock.append(clock[-1] + 0.75 * timeout_s)

    listeners = [opened(JVM, directories=[tmp_path / name]) for name in ("a", "b", "c")]
    for each in listeners:
        each.on_close(remove)
    clock = [100.0]
    monkeypatch.setattr(listener_module, "_open_listeners", set(listeners))
    with monkeypatch.context() as patched:
        if not can_start:
            patched.setattr(threading.Thread, "start", refuse)
        patched.setattr(time, "monotonic", lambda: clock[-1])
        listener_module.close_listeners()
    most_s = listener_module.EVENTS_TIMEOUT_S if can_start else listener_module.NO_THREADS_TIMEOUT_S
    assert allowed_s == pytest.approx([most_s, most_s / 4, most_s / 16])


def test_a_listener_without_a_channel_names_the_missing_functions(
    moves: queue.SimpleQueue[PartitionsMoved], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").touch()
    listener = opened(JVM, on_assigned=moves.put, directories=[tmp_path / "taken"])
    for text in ("committed at the next trigger", "Trigger.Once is refused", "XDG_RUNTIME_DIR"):
        assert text in caplog.text
    listener.report("q1", [PLAN], is_stateful=False)
    listener.ended("q1", "r1")
    listener.close()


def test_another_object_than_a_session_is_refused() -> None:
    with pytest.raises(OptionsError, match="requires a SparkSession, not object"):
        spark_groups.listen(object())  # type: ignore[arg-type]


# Real queries.

needs_spark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]
PARTITIONS = 2


@pytest.fixture
def query(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> GroupQuery:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=PARTITIONS)
    rows = [Row(b"%d" % each, partition=each % PARTITIONS) for each in range(30)]
    produce(kafka.bootstrap_servers, topic_name, rows)
    return GroupQuery(spark, kafka, group_id, topic_name, tmp_path)


@pytest.fixture
def listening(
    spark: SparkSession, moves: queue.SimpleQueue[PartitionsMoved]
) -> Iterator[GroupListener]:
    listener = spark_groups.listen(
        spark, on_assigned=moves.put, on_revoked=moves.put, on_lost=moves.put
    )
    yield listener
    listener.close()


class TestOnSpark:
    """Queries that are listened to."""

    pytestmark = needs_spark

    @pytest.mark.skipif(
        not HAS_ADMISSION_CONTROL, reason="before Spark 4.2 a source sees no trigger"
    )
    def test_trigger_once_of_a_session_that_no_listener_hears_is_refused(
        self, query: GroupQuery, listening: GroupListener
    ) -> None:
        session = query.spark
        query.spark = session.newSession()
        with query.running(once=True) as unheard, pytest.raises(StreamingQueryException) as caught:
            unheard.awaitTermination(READ_S)
        assert "Trigger.Once is refused" in str(caught.value)
        query.spark = session
        with query.running(once=True) as heard:
            assert heard.awaitTermination(READ_S)
        wait_until(lambda: query.members() == 0, READ_S, "an empty group")
        assert sum(query.committed().values()) == 30

    def test_with_a_long_trigger_the_batch_is_committed_and_handed_over_at_once(
        self,
        query: GroupQuery,
        listening: GroupListener,
        moves: queue.SimpleQueue[PartitionsMoved],
    ) -> None:
        servers = query.kafka.bootstrap_servers
        with query.running(processingTime="1 hour") as running:
            wait_until(query.commits_file(0).exists, READ_S, "the end of the batch")
            wait_until(lambda: sum(query.committed().values()) == 30, 400, "the commit")
            latency_s = time.time() - query.commits_file(0).stat().st_mtime
            assert latency_s < SOON_S
            # What no event says is asked of the query itself.
            events = listener_module.QueryEvents(listening, query.spark)
            assert events._interval_s(str(running.runId), str(running.id)) == 3600.0
            came = moves.get(timeout=300)
            assert len(came.partitions) == PARTITIONS
            with queries(servers, query.group_id, query.topic) as start:
                second = start()
                going = moves.get(timeout=READ_S)
                assert going.query_id == str(running.id)
                assert going.deadline_s is not None
                assert len(going.partitions) == 1
                wait_until(lambda: second.assigned, what="the hand-over")
                assert second.assigned == {str(going.partitions[0])}

    def test_trigger_once_reads_all_and_its_only_batch_is_committed(
        self, query: GroupQuery, listening: GroupListener
    ) -> None:
        if HAS_ADMISSION_CONTROL:
            # Before Spark 4.2 a source does not see that it is the only batch.
            query.options["maxOffsetsPerTrigger"] = "5"
        with query.running(once=True) as running:
            assert running.awaitTermination(READ_S)
        assert len(query.rows()) == 30
        wait_until(lambda: query.members() == 0, READ_S, "an empty group")
        assert sum(query.committed().values()) == 30

    def test_available_now_commits_its_last_batch_on_every_spark(
        self, query: GroupQuery, listening: GroupListener
    ) -> None:
        query.run_available()
        assert len(query.rows()) == 30
        wait_until(lambda: query.members() == 0, READ_S, "an empty group")
        assert sum(query.committed().values()) == 30

    def test_a_query_that_is_stopped_in_its_batch_leaves_without_waiting_for_a_report(
        self, query: GroupQuery, listening: GroupListener
    ) -> None:
        slow = query.source().selectExpr("java_method('java.lang.Thread', 'sleep', 1000L)")
        writer = slow.writeStream.format("noop").option("checkpointLocation", str(query.checkpoint))
        running = writer.start()
        wait_until(query.offsets_file(0).exists, READ_S, "a batch")
        wait_until(lambda: query.member() and query.members() == 1, what="the member")
        running.stop()
        # Before Spark 4.2 it takes until the tasks have ended.
        stopped_at = time.monotonic()
        wait_until(lambda: query.members() == 0, what="an empty group")
        assert time.monotonic() - stopped_at < LAST_REPORT_TIMEOUT_S - 0.5
        # Tasks that ended in time may have been the end of the batch, too: Spark's log knows.
        is_finished = (query.checkpoint / "commits" / "0").exists()
        assert sum(query.committed().values()) == (30 if is_finished else 0)

    def test_partitions_that_move_away_from_state_fail_the_query_if_that_is_wanted(
        self, query: GroupQuery, listening: GroupListener
    ) -> None:
        query.options["partitionMoveWithState"] = "fail"
        counted = query.source().groupBy("partition").count()
        writer = counted.writeStream.format("noop").outputMode("complete")
        running = writer.option("checkpointLocation", str(query.checkpoint)).start()
        try:
            wait_until(lambda: sum(query.committed().values()) == 30, READ_S, "the first batch")
            with queries(query.kafka.bootstrap_servers, query.group_id, query.topic) as start:
                start()
                with pytest.raises(StreamingQueryException) as caught:
                    running.awaitTermination(READ_S)
        finally:
            running.stop()
        assert "its state does not move" in str(caught.value)
        assert query.topic in str(caught.value)

    def test_asynchronous_progress_tracking_commits_batches_in_the_sink(
        self, query: GroupQuery, listening: GroupListener
    ) -> None:
        writer = query.source().writeStream.format("noop").trigger(processingTime="1 hour")
        writer = writer.option("asyncProgressTrackingEnabled", "true")
        running = writer.option("checkpointLocation", str(query.checkpoint)).start()
        try:
            wait_until(lambda: sum(query.committed().values()) == 30, READ_S, "the commit")
        finally:
            running.stop()

    def test_asynchronous_progress_tracking_is_refused_by_spark_before_a_fenced_table(
        self, query: GroupQuery
    ) -> None:
        writer = query.source().writeStream.foreachBatch(lambda *_: None)
        writer = writer.option("asyncProgressTrackingEnabled", "true")
        with pytest.raises(IllegalArgumentException, match="does not support async progress"):
            writer.option("checkpointLocation", str(query.checkpoint)).start()

    def test_who_listens_no_more_hears_nothing(
        self, query: GroupQuery, listening: GroupListener, caplog: pytest.LogCaptureFixture
    ) -> None:
        listening.close()
        with caplog.at_level(logging.ERROR), query.running():
            query.await_rows(30)
            wait_until(lambda: sum(query.committed().values()) == 30, what="the commit")
        assert caplog.text == ""
