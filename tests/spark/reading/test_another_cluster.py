"""Both readers, and the writer of letters, where the address leads to another cluster."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from spark_groups.errors import BrokerUnreachableError, DeliveryError
from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.processing.letters import Letter
from spark_groups.spark.processing.record_writer import RecordWriter
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.types import OffsetRange
from spark_groups.wire.timeouts import Timeouts
from tests.runtime.proxy import Switched
from tests.spark.reading.both_readers import topic_ids
from workshop.parts.brokers import create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker

ROWS = 40_000
ROW_BYTES = 500
LITTLE_AT_A_TIME = (
    ("max.partition.fetch.bytes", "200000"),
    ("queued.min.messages", "1"),
    ("queued.max.messages.kbytes", "200"),
)


@pytest.fixture(params=[ReaderChoice.FAST, ReaderChoice.LIBRDKAFKA], ids=lambda each: each.value)
def reader(request: pytest.FixtureRequest) -> ReaderChoice:
    chosen: ReaderChoice = request.param
    return chosen


@pytest.fixture
def settings(switched: Switched, group_id: str, reader: ReaderChoice) -> RangeSettings:
    return RangeSettings(
        bootstrap_servers=(switched.proxy.address,),
        cluster_id=switched.cluster_id(switched.one),
        group_id=group_id,
        reader=reader,
        poll_timeout_s=60.0,
        timeouts=Timeouts(request_s=2.0),
        tuning=LITTLE_AT_A_TIME,
    )


def planned(switched: Switched, settings: RangeSettings, topic: str, rows: int) -> OffsetRange:
    """Fill a topic of both clusters, and plan all rows of that in the first one."""
    for kafka, value in ((switched.one, b"one"), (switched.other, b"other")):
        create_topic(kafka.bootstrap_servers, topic)
        produce(kafka.bootstrap_servers, topic, [value.ljust(ROW_BYTES)] * rows)
    direct = replace(settings, bootstrap_servers=(switched.one.bootstrap_servers,))
    return OffsetRange(topic_ids(direct, [topic])[topic], topic, 0, 0, rows)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_nothing_is_read_from_another_cluster(
    switched: Switched,
    settings: RangeSettings,
    topic_name: str,
    fail_on_data_loss: bool,
) -> None:
    whole = planned(switched, settings, topic_name, 100)
    chosen = replace(settings, fail_on_data_loss=fail_on_data_loss)
    switched.lead_to(switched.other)
    ids = switched.cluster_id(switched.other), settings.cluster_id
    with pytest.raises(BrokerUnreachableError, match=f"cluster {ids[0]}, not to {ids[1]}"):
        list(read_ranges(chosen, [whole]))
    switched.lead_to(switched.one)
    assert sum(each.num_rows for each in read_ranges(chosen, [whole])) == 100


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_range_is_read_on_where_it_began_when_the_address_leads_there_again(
    switched: Switched,
    settings: RangeSettings,
    topic_name: str,
    fail_on_data_loss: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = planned(switched, settings, topic_name, ROWS)
    chosen = replace(settings, fail_on_data_loss=fail_on_data_loss)
    batches = read_ranges(chosen, [whole])
    read = [next(batches)]
    switched.lead_to(switched.other)
    other_id = switched.cluster_id(switched.other)

    def lead_back() -> None:
        wait_until(lambda: f"leads to the Kafka cluster {other_id}" in caplog.text)
        switched.lead_to(switched.one)

    back = threading.Thread(target=lead_back)
    back.start()
    read += batches
    back.join()
    values = [value.strip() for each in read for value in each.column("value").to_pylist()]
    assert set(values) == {b"one"}
    offsets = [offset for each in read for offset in each.column("offset").to_pylist()]
    assert offsets == list(range(ROWS))


def test_a_cached_consumer_that_has_been_elsewhere_is_replaced(
    switched: Switched, settings: RangeSettings, topic_name: str
) -> None:
    whole = planned(switched, settings, topic_name, 100)
    for _ in range(3):
        assert sum(each.num_rows for each in read_ranges(settings, [whole])) == 100
        switched.lead_to(switched.other)
        switched.lead_to(switched.one)


@pytest.mark.parametrize("reader", [ReaderChoice.AUTO])
def test_letters_that_another_cluster_has_taken_fail_the_batch(
    switched: Switched, settings: RangeSettings, topic_name: str
) -> None:
    planned(switched, settings, topic_name, 1)
    writer = RecordWriter(settings)
    try:
        letter = Letter(topic_name, b"key", b"value", ())
        writer.write(letter)
        writer.await_delivery()
        switched.lead_to(switched.other)
        writer.write(letter)
        with pytest.raises(DeliveryError, match="leads to the Kafka cluster"):
            writer.await_delivery()
    finally:
        writer.close()
