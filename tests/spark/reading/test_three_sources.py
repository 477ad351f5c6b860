"""Spark's own Kafka source and both readers have the same rows, through Spark."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pyspark
import pytest
from confluent_kafka import Producer

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.types import OffsetRange
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigResource
from tests.spark.reading.both_readers import rows_of_all_sorts, table_of, topic_ids
from tests.spark.reading.three_sources import ISOLATION
from workshop.parts.brokers import ANSWER_S, Row, create_topic, produce, stamp
from workshop.parts.connector import fetch_connector
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1000)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = 600
STAMPED: Final = {"message.timestamp.type": "LogAppendTime"}
CREATE_TIME, LOG_APPEND_TIME = "0", "1"
PROGRAM_S = 900
LARGE = {"message.max.bytes": 4_000_000}


def write_codec(servers: str, codec: str, config: Mapping[str, str]) -> str:
    """Write rows of all sorts, some of them large, and return the topic."""
    topic, chance = f"all-sorts-{codec}-{len(config)}", random.Random(codec)
    create_topic(servers, topic, 1, {"max.message.bytes": "4000000", **config})
    large = (Row(chance.randbytes(1_000_000)) for _ in range(2))
    sent = {"compression.type": codec, "batch.size": 20_000, **LARGE}
    for rows in (rows_of_all_sorts(chance, ROWS), large, rows_of_all_sorts(chance, ROWS)):
        produce(servers, topic, (replace(each, partition=0) for each in rows), sent)
    return topic


def write_stamped_later(servers: str) -> str:
    """Write a topic whose records have their producers' time, the brokers', then theirs again."""
    topic, chance = "stamped-later", random.Random(12)
    create_topic(servers, topic, 1)
    for codec, kind in (("lz4", "CreateTime"), ("zstd", "LogAppendTime"), ("none", "CreateTime")):
        stamp(servers, topic, kind)
        rows = (replace(each, partition=0) for each in rows_of_all_sorts(chance, ROWS))
        produce(servers, topic, rows, {"compression.type": codec, "batch.size": 20_000})
    return topic


def write_transactions(servers: str, config: Mapping[str, str]) -> str:
    """Write what transactions committed and aborted, between each other, and return the topic."""
    topic, chance = f"transactions-{len(config)}", random.Random(7)
    create_topic(servers, topic, 1, config)
    producers = [
        Producer(
            {"bootstrap.servers": servers, "transactional.id": uuid.uuid4().hex, "log_level": 0}
        )
        for _ in range(2)
    ]
    for each in producers:
        each.init_transactions(ANSWER_S)
    for step in range(10):
        for each in producers:
            each.begin_transaction()
        for _ in range(40):
            chance.choice(producers).produce(topic, b"%d" % step)
        for each in producers:
            each.flush(ANSWER_S)
            end = each.commit_transaction if chance.random() < 0.5 else each.abort_transaction
            end(ANSWER_S)
    return topic


def write_compacted(servers: str, config: Mapping[str, str]) -> str:
    """Write a topic that is compacted, and wait until it is; return its name."""
    topic = f"compacted-{len(config)}"
    create_topic(
        servers,
        topic,
        config={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            **config,
        },
    )
    settings = RangeSettings(bootstrap_servers=(servers,), group_id="compaction")
    topic_id = topic_ids(settings, [topic])[topic]
    # The kept records stand at the end of some batches, and at the beginning of others.
    keys = random.Random(1).choices(range(600), k=1200)
    produce(servers, topic, [Row(b"%d" % i, key=b"%d" % key) for i, key in enumerate(keys)])

    def compacted() -> bool:
        # Only a segment that is closed is compacted: a later record closes it.
        produce(servers, topic, [Row(b"x", key=b"other")])
        found = table_of(settings, [OffsetRange(topic_id, topic, 0, 0, len(keys))])
        return found.num_rows == len(set(keys))

    wait_until(compacted, what="compaction")
    with Cluster(servers) as cluster:
        # From now on it stays as it is.
        cluster.alter_configuration(ConfigResource.TOPIC, topic, {"cleanup.policy": "delete"})
    return topic


def test_all_sources_have_the_same_rows() -> None:
    with EmbeddedKafka(server_properties={"log.cleaner.backoff.ms": "100"}) as kafka:
        servers = kafka.bootstrap_servers
        created = [write_codec(servers, codec, {}) for codec in CODECS]
        stamped = [write_codec(servers, codec, STAMPED) for codec in CODECS]
        others = [
            write(servers, config)
            for write in (write_transactions, write_compacted)
            for config in ({}, STAMPED)
        ]
        topics = [*created, *stamped, *others, write_stamped_later(servers)]
        jars = ",".join(map(str, fetch_connector(pyspark.__version__)))
        program = [sys.executable, "-m", "tests.spark.reading.three_sources"]
        done = subprocess.run(
            [*program, servers, ",".join(topics), jars],
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for isolation, by_source in found.items():
        expected = by_source["jvm"]
        assert set(expected["topics"]) == set(topics)
        assert by_source == dict.fromkeys(by_source, expected), isolation
    uncommitted, committed = (counts_of(found[each]["jvm"]) for each in ISOLATION)
    for counts in (uncommitted, committed):
        assert [counts[topic] for topic in created] == [{CREATE_TIME: 2 * ROWS + 2}] * len(CODECS)
        assert [counts[each] for each in stamped] == [{LOG_APPEND_TIME: 2 * ROWS + 2}] * len(CODECS)
        assert counts["stamped-later"][CREATE_TIME] > 2 * ROWS
        assert counts["stamped-later"][LOG_APPEND_TIME] > ROWS
    for topic, kind in zip(others, (CREATE_TIME, LOG_APPEND_TIME) * 2, strict=True):
        assert list(committed[topic]) == list(uncommitted[topic]) == [kind]
        if topic.startswith("transactions"):
            assert uncommitted[topic][kind] == 400
            assert 0 < committed[topic][kind] < 400
        else:
            assert 0 < committed[topic][kind] < 1200


def counts_of(by_source: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return how many rows of each timestampType a source has of each topic."""
    return {
        topic: {kind: rows for kind, (rows, _) in by_kind.items()}
        for topic, by_kind in by_source["topics"].items()
    }
