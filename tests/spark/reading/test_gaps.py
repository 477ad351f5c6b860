"""Gaps of the librdkafka reader, compared with the log of a real broker."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import BrokerUnreachableError, RecordsError
from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reading import gaps, librdkafka_reader
from spark_groups.spark.reading.gaps import GapCheck
from spark_groups.types import OffsetRange, TopicId, TopicIdPartition
from spark_groups.wire.fetch.first_records import FirstRecordSearch
from spark_groups.wire.fetch.first_unread import Passed
from tests.spark.reading.both_readers import same_rows, table_of, topic_ids
from workshop.parts.brokers import (
    ANSWER_S,
    admin,
    create_topic,
    delete_topic,
    produce,
    produce_batch,
)
from workshop.parts.encoding import GZIP, Batch, Record, compress, encode_records

pytestmark = pytest.mark.broker


@pytest.fixture
def settings(kafka: EmbeddedKafka, topic_name: str) -> RangeSettings:
    create_topic(kafka.bootstrap_servers, topic_name)
    return RangeSettings(
        bootstrap_servers=(kafka.bootstrap_servers,), group_id=topic_name, poll_timeout_s=120.0
    )


@pytest.fixture
def key(settings: RangeSettings, topic_name: str) -> TopicIdPartition:
    return TopicIdPartition(topic_ids(settings, [topic_name])[topic_name], 0)


@pytest.fixture
def check(settings: RangeSettings) -> Iterator[GapCheck]:
    made = GapCheck(settings)
    yield made
    made.close()


def missed(check: GapCheck, key: TopicIdPartition, *missing: range, until: int) -> int | None:
    found = check.missed(key, Passed(range(until), missing), 120.0)
    return None if found is None else found.offset


@pytest.mark.parametrize("is_committed", [True, False])
def test_transactions_leave_gaps_behind_which_a_shortened_batch_is_found(
    settings: RangeSettings,
    key: TopicIdPartition,
    topic_name: str,
    is_committed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So that gaps are also compared before the end of a range.
    monkeypatch.setattr(librdkafka_reader, "GAPS_MAX", 3)
    (servers,) = settings.bootstrap_servers
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": topic_name, "log_level": 0}
    )
    producer.init_transactions(ANSWER_S)
    chance, end = random.Random(4), 0
    for _ in range(25):
        producer.begin_transaction()
        count = chance.choice((1, 1, 3, 40))
        for _ in range(count):
            producer.produce(topic_name, b"value")
        producer.flush()
        (producer.commit_transaction if chance.random() < 0.6 else producer.abort_transaction)()
        end += count + 1
    changes = {"read_committed": is_committed}
    whole = [OffsetRange(key.topic_id, topic_name, 0, 0, end)]
    rows = same_rows(settings, whole, **changes)
    assert 0 < rows.num_rows < end
    parts = [compress(GZIP, encode_records([Record(each, value=b"x")])) for each in range(2)]
    batch = Batch(0, (Record(0), Record(1)), codec=GZIP).encode(b"".join(parts))
    assert produce_batch(servers, topic_name, 0, batch) == 0
    produce(servers, topic_name, [b"behind"] * 9)
    longer = [OffsetRange(key.topic_id, topic_name, 0, 0, end + 9)]
    with pytest.raises(RecordsError, match=f"has offset {end + 1} has more records"):
        table_of(settings, longer, reader=ReaderChoice.LIBRDKAFKA, **changes)


def test_comparing_has_no_limit_while_it_makes_progress(
    settings: RangeSettings,
    key: TopicIdPartition,
    topic_name: str,
    check: GapCheck,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each marker of a transaction is a gap, so the whole range may have to be read again."""
    (servers,) = settings.bootstrap_servers
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": topic_name, "log_level": 0}
    )
    producer.init_transactions(ANSWER_S)
    for _ in range(12):
        producer.begin_transaction()
        producer.produce(topic_name, bytes(300_000))
        producer.commit_transaction(ANSWER_S)
    read = FirstRecordSearch._ask_each

    def slowly(*arguments: Any) -> None:
        read(*arguments)
        time.sleep(0.4)

    monkeypatch.setattr(FirstRecordSearch, "_ask_each", slowly)
    markers = [range(each, each + 1) for each in range(1, 24, 2)]
    assert check.missed(key, Passed(range(24), markers), 3.0) is None
    markers[-1] = range(22, 24)
    found = check.missed(key, Passed(range(24), markers), 3.0)
    assert found is not None
    assert found.offset == 22


def test_nothing_is_known_of_offsets_that_were_deleted_since(
    settings: RangeSettings, key: TopicIdPartition, topic_name: str, check: GapCheck
) -> None:
    (servers,) = settings.bootstrap_servers
    produce(servers, topic_name, [b"value"] * 10)
    assert missed(check, key, range(2, 3), until=10) == 2
    client = admin(servers)
    (deleted,) = client.delete_records([TopicPartition(topic_name, 0, 5)]).values()
    deleted.result(ANSWER_S)
    assert missed(check, key, range(2, 3), until=10) is None
    assert missed(check, key, range(2, 3), range(3, 4), range(7, 8), until=10) == 7


def test_a_topic_that_was_deleted_is_left_to_the_reader(
    settings: RangeSettings,
    key: TopicIdPartition,
    topic_name: str,
    check: GapCheck,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaps, "_TOPICS_S", 0.5)
    (servers,) = settings.bootstrap_servers
    delete_topic(servers, topic_name)
    assert missed(check, key, range(2, 3), until=10) is None


def test_a_log_that_cannot_be_read_is_an_error() -> None:
    closed = RangeSettings(bootstrap_servers=("127.0.0.1:1",), group_id="unused")
    check = GapCheck(closed)
    with pytest.raises(BrokerUnreachableError):
        check.missed(TopicIdPartition(TopicId(int=1), 0), Passed(range(9), [range(2, 4)]), 0.5)
