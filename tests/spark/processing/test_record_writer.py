"""Writing records on a real broker: acknowledged, or an error with the reason."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import DeliveryError
from spark_groups.spark.options.packed import columns
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing import record_writer
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import Letter
from spark_groups.spark.processing.record_writer import WRITERS, RecordWriter, send_records
from spark_groups.wire.timeouts import Timeouts
from tests.spark.processing.topics import records_in
from workshop.parts.brokers import admin, create_topic

pytestmark = pytest.mark.broker


def settings(kafka: EmbeddedKafka) -> RangeSettings:
    return RangeSettings(
        bootstrap_servers=(kafka.bootstrap_servers,),
        group_id="none",
        timeouts=Timeouts(request_s=20.0),
    )


def write_all(kafka: EmbeddedKafka, *letters: Letter) -> RecordWriter:
    """Write letters as a task does, and return the writer that was lent."""
    with WRITERS.borrow(settings(kafka)) as writer:
        for each in letters:
            writer.write(each)
        writer.await_delivery()
    return writer


def test_everything_is_there_after_the_wait(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 3)
    headers = (("h", b"1"), ("h", None))
    placed = Letter(topic_name, None, None, headers, partition=2)
    # Kafka's own producers send this key to partition 0 of 3: its murmur2 is -973932308.
    first = write_all(kafka, placed, Letter(topic_name, b"21", b"v", ()))
    found = records_in(kafka.bootstrap_servers, topic_name)
    assert [(each.partition, each.key, each.value, each.headers) for each in found] == [
        (0, b"21", b"v", ()),
        (2, None, None, headers),
    ]
    assert write_all(kafka, placed) is first


def test_what_the_broker_refuses_is_an_error_and_the_writer_is_not_kept(
    kafka: EmbeddedKafka, topic_name: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 1, {"max.message.bytes": "1000"})
    small = Letter(topic_name, None, b"x", ())
    first = write_all(kafka, small)
    with pytest.raises(DeliveryError, match=f"the batch fails: {topic_name}: .*too large"):
        write_all(kafka, Letter(topic_name, None, b"x" * 2_000, ()))
    assert write_all(kafka, small) is not first
    assert [each.value for each in records_in(kafka.bootstrap_servers, topic_name)] == [b"x"] * 2


def test_partition_that_is_not_there_is_an_error(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    with pytest.raises(DeliveryError, match=topic_name):
        write_all(kafka, Letter(topic_name, None, b"x", (), partition=7))


def test_only_so_much_waits_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "WAITING_BYTES_MAX", 100)
    nowhere = RangeSettings(
        bootstrap_servers=("localhost:1",), group_id="none", timeouts=Timeouts(request_s=0.2)
    )
    writer = RecordWriter(nowhere)
    writer.write(Letter("t", b"key", b"x" * 90, ()))
    with pytest.raises(DeliveryError, match="and 1 more"):
        writer.write(Letter("t", b"key", b"x" * 90, ()))
    writer.close()


def test_letters_that_no_topic_or_partition_takes(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    connection = RangeSettings(bootstrap_servers=(kafka.bootstrap_servers,), group_id="none")
    with WRITERS.borrow(connection) as writer:
        letters = [Letter(topic_name, b"k", b"v", (), each) for each in (1, 2, 10**17, None)]
        found = [writer.addressed(each) for each in letters]
        assert found == [letters[0], letters[3], letters[3], letters[3]]
        missing = Letter(f"{topic_name}-missing", b"k", b"v", (), 0)
        assert writer.addressed(missing) == (
            f"there is no topic {topic_name}-missing, or no right to see it"
        )
        for each in found:
            assert isinstance(each, Letter)
            writer.write(each)
        writer.await_delivery()
    assert len(records_in(kafka.bootstrap_servers, topic_name)) == 4
    assert f"{topic_name}-missing" not in admin(kafka.bootstrap_servers).list_topics().topics


@pytest.mark.spark
@pytest.mark.long
def test_each_record_goes_where_its_route_says(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    connection = RangeSettings(bootstrap_servers=(kafka.bootstrap_servers,), group_id="none")
    rows = [(None, b"%d" % each, "from", each % 2, each, None, 0, None) for each in range(6)]
    schema = columns(include_headers=True)
    batch = spark.createDataFrame(rows, schema).selectExpr(
        "* except (timestamp)", "timestamp_millis(5) AS timestamp"
    )

    def but_one(record: Record) -> Letter | str:
        if record.offset == 3:
            return "it is the third"
        return Letter(topic_name, record.key, record.value, record.headers, record.partition)

    with WRITERS.borrow(connection):
        # This process keeps a writer now, which is not sent to executors.
        pass
    send_records(batch, but_one, connection)
    found = records_in(kafka.bootstrap_servers, topic_name)
    # Two tasks wrote them, each in its order.
    assert sorted((each.partition, each.value or b"") for each in found) == [
        *((0, b"0"), (0, b"2"), (0, b"4"), (1, b"1"), (1, b"5"))
    ]
    assert [each for each in caplog.messages if "skipped" in each] == [
        "1 of from-1 skipped (offset 3): it is the third"
    ]
