"""Batches of a group that Spark's own Kafka source reads, on a real Spark with the connector."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import OptionsError
from spark_groups.group.member.messages import found_and_failed
from spark_groups.spark.source.foreach_batch_rows import (
    TUNING,
    check_further,
    connector_version,
    reading_options,
)
from spark_groups.types import OffsetRange
from spark_groups.wire.cluster import Cluster
from tests.secured import PASSWORDS, SecuredKafka
from tests.spark.queries import READ_S, GroupQuery
from workshop.parts.applications import REPOSITORY
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.connector import fetch_connector
from workshop.parts.processes import environment

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

PROGRAM_S = 540
PARTITIONS = 2
ROWS = 100
RECREATED = "was deleted after the batch was planned"


def filled_topic(servers: str) -> str:
    """Create a topic with rows of all sorts, and return its name."""
    topic = f"topic-{uuid.uuid4().hex[:12]}"
    create_topic(servers, topic, PARTITIONS)
    rows = [
        Row(
            None if i % 7 == 0 else b"%d" % i,
            key=None if i % 5 == 0 else b"k%d" % i,
            partition=i % PARTITIONS,
            headers=(("h", b"1"), ("h", b"")) if i % 3 == 0 else (),
        )
        for i in range(ROWS)
    ]
    produce(servers, topic, rows)
    return topic


def play(
    directory: Path,
    scenarios: Mapping[str, str],
    servers: str,
    options: Mapping[str, str],
    **variables: str,
) -> dict[str, Any]:
    """Run the application, and return what it saw."""
    jars = ",".join(map(str, fetch_connector(pyspark.__version__)))
    given = {"scenarios": scenarios, "servers": servers, "options": options, "jars": jars}
    (directory / "given.json").write_text(json.dumps(given))
    with (directory / "log").open("wb") as log:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.source.batch_rows_application", str(directory)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(PYSPARK_PYTHON=sys.executable, **variables),
            timeout=PROGRAM_S,
            check=False,
        )
    assert ended.returncode == 0, (directory / "log").read_text(errors="replace")[-6000:]
    seen: dict[str, Any] = json.loads((directory / "seen.json").read_text())
    return seen


def test_the_jvm_reads_exactly_the_ranges(
    kafka: EmbeddedKafka, group_id: str, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    names = ("reads", "proves", "refuses", "recreated")
    scenarios = {name: filled_topic(servers) for name in names}
    options = {
        "kafka.bootstrap.servers": servers,
        "kafka.group.id": group_id,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
        "includeHeaders": "true",
    }
    seen = play(tmp_path, scenarios, servers, options)

    reads = seen["reads"]
    assert reads["failure"] == ""
    full = [each for each in reads["batches"] if each["rows"]]
    assert [each["rows"] for each in full] == [40, 40, 20]
    assert {each["tasks"] for each in full} == {PARTITIONS}
    # The first batch made the consumers that all of them read with.
    assert len(full[0]["consumers"]) == PARTITIONS
    assert {tuple(each["consumers"]) for each in full} == {tuple(full[0]["consumers"])}
    # After a crash the last batch has the same rows again, read by consumers of the new run.
    replayed, *behind = reads["replayed"]
    assert (replayed["id"], replayed["rows"]) == (full[-1]["id"], 20)
    assert not [each for each in behind if each["rows"]]

    # The first batch, before the next trigger and without a listener.
    assert seen["proves"]["committed"] == 40

    refused = seen["refuses"]
    assert "requires a stream with" in refused["records"]
    assert "the stream that load() returned" in refused["filtered"]

    recreated = seen["recreated"]
    assert f"{scenarios['recreated']} {RECREATED}" in recreated["before"]
    assert f"{scenarios['recreated']} {RECREATED}" in recreated["meanwhile"]
    assert recreated["accepted"] == ""
    assert set(recreated["counts"]) <= {0, 40, 20}

    with Cluster(servers) as cluster:
        committed, _ = found_and_failed(cluster.fetch_all_offsets(group_id))
        groups = {each.group_id for each in cluster.list_groups()}
    ends = [each.committed_offset for each in committed.values()]
    assert ends.count(ROWS // PARTITIONS) == PARTITIONS
    # The JVM's consumers belong to no group.
    assert not [each for each in groups if each.startswith("spark-groups-")]


def test_security_of_the_stream_is_that_of_the_reading(
    secured: SecuredKafka, group_id: str, tmp_path: Path
) -> None:
    servers = secured.kafka.bootstrap_servers
    topic = filled_topic(servers)
    secured.allow("alice", "TOPIC", topic, "READ")
    secured.allow("alice", "GROUP", group_id, "READ")
    login = secured.login("SCRAM-SHA-512", password="${env:KAFKA_PASSWORD}")
    options = {
        "kafka.bootstrap.servers": secured.kafka.listener("LOGIN"),
        "kafka.group.id": group_id,
        "startingOffsets": "earliest",
        **{f"kafka.{name}": value for name, value in login.items()},
    }
    password = PASSWORDS["alice"]
    seen = play(tmp_path, {"secured": topic}, servers, options, KAFKA_PASSWORD=password)
    assert seen["secured"]["failure"] == ""
    assert sum(each["rows"] for each in seen["secured"]["batches"]) == ROWS
    secret = password.encode()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.parent.name == "offsets" for path in written)
    assert [path for path in written if secret in path.read_bytes()] == []


def test_missing_connector_is_named_with_its_coordinate(
    spark: SparkSession, kafka: EmbeddedKafka, group_id: str, tmp_path: Path
) -> None:
    topic = filled_topic(kafka.bootstrap_servers)
    query = GroupQuery(spark, kafka, group_id, topic, tmp_path, {"emit": "ranges"})
    running = (
        query.source()
        .writeStream.foreachBatch(spark_groups.foreach_batch_rows(lambda *_: None))
        .option("checkpointLocation", str(query.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    version = connector_version(pyspark.__version__)
    wanted = f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
    with pytest.raises(StreamingQueryException, match=wanted):
        running.awaitTermination(READ_S)
    assert query.committed() == dict.fromkeys(range(PARTITIONS), 0)


def test_outside_of_a_batch_there_is_no_query(spark: SparkSession) -> None:
    read = spark_groups.foreach_batch_rows(lambda *_: None)
    with pytest.raises(OptionsError, match="cannot identify the query"):
        read(spark.range(1), 0)


ORDERS, BILLS = uuid.UUID(int=1), uuid.UUID(int=2)
RANGES = (
    OffsetRange(ORDERS, "orders", 0, 5, 9),
    OffsetRange(ORDERS, "orders", 3, 0, 2**40),
    OffsetRange(BILLS, "bills", 0, 7, 8),
)
STREAM = {
    "kafka.bootstrap.servers": "localhost:9092",
    "kafka.group.id": "readers",
    "subscribePattern": "orders|bills",
    "emit": "ranges",
}


def reading(further: dict[str, str] | None = None, **stream: str) -> dict[str, str]:
    return reading_options({**STREAM, **stream}, further or {}, RANGES, "reading")


def test_exactly_the_ranges_are_named() -> None:
    options = reading()
    assert json.loads(options.pop("assign")) == {"orders": [0, 3], "bills": [0]}
    assert json.loads(options.pop("startingOffsets")) == {
        "orders": {"0": 5, "3": 0},
        "bills": {"0": 7},
    }
    assert json.loads(options.pop("endingOffsets")) == {
        "orders": {"0": 9, "3": 2**40},
        "bills": {"0": 8},
    }
    assert options == {
        **TUNING,
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.group.id": "reading",
    }


def test_what_reads_is_passed_on_and_what_plans_or_joins_is_not() -> None:
    passed = {
        "failondataloss": "false",
        "includeheaders": "true",
        "kafkaconsumer.polltimeoutms": "9000",
        "maxrecordsperpartition": "10",
        "minpartitions": "4",
        "kafka.isolation.level": "read_committed",
        "kafka.client.rack": "r1",
        "kafka.max.partition.fetch.bytes": "1048576",
    }
    kept = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
        "availableNowSettleTimeout": "1s",
        "kafka.group.instance.id": "one",
        "kafka.group.protocol": "consumer",
        "kafka.group.remote.assignor": "range",
        "kafka.max.poll.interval.ms": "1000",
    }
    given = {
        "failOnDataLoss": "false",
        "includeHeaders": "true",
        "kafkaConsumer.pollTimeoutMs": "9000",
        "maxRecordsPerPartition": "10",
        "minPartitions": "4",
        **{name: value for name, value in passed.items() if name.startswith("kafka.")},
    }
    options = reading(**given, **kept)
    assert {name: options[name] for name in passed} == passed
    assert json.loads(options["startingOffsets"])["bills"] == {"0": 7}
    absent = {*kept, *map(str.lower, kept)} - {"startingOffsets"}
    assert not absent & options.keys()


def test_a_jvm_cannot_call_a_token_provider() -> None:
    stream = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.provider": "entra",
        "kafka.sasl.oauthbearer.entra.client.secret": "hush-123456",
    }
    with pytest.raises(OptionsError, match=r"cannot call .*such as kafka\.sasl\.login\.callback"):
        reading(**stream)
    further = {"kafka.sasl.login.callback.handler.class": "org.example.Handler"}
    options = reading(further, **stream)
    assert options["kafka.sasl.mechanism"] == "OAUTHBEARER"
    assert "hush-123456" not in options.values()
    assert not any("oauthbearer" in name for name in options)


def test_further_options_go_before_those_of_the_stream() -> None:
    further = {
        "kafka.max.poll.records": "50",
        "kafka.Fetch.Max.Bytes": "2",
        "fetchOffset.numRetries": "1",
    }
    options = reading(further, **{"kafka.fetch.max.bytes": "1"})
    assert options["kafka.max.poll.records"] == "50"
    assert options["kafka.fetch.max.bytes"] == "2"
    assert options["fetchoffset.numretries"] == "1"


@pytest.mark.parametrize(
    "name",
    [
        "assign",
        "subscribe",
        "subscribePattern",
        "startingOffsets",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "groupIdPrefix",
        "kafka.group.id",
    ],
)
def test_further_options_cannot_change_the_rows(name: str) -> None:
    with pytest.raises(OptionsError, match=f"{name} cannot be set for foreach_batch_rows"):
        check_further({"failOnDataLoss": "true", name: "x"})


def test_security_is_passed_on_and_references_are_resolved_where_consumers_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_GROUPS_ALLOWED_PATHS", f"/secrets,{tmp_path}")
    authorities = tmp_path / "authorities"
    authorities.write_text("-----BEGIN CERTIFICATE-----\n")
    security = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": 'X required username="a" password="${env:PASSWORD}";',
        "kafka.ssl.truststore.location": str(authorities),
        "kafka.ssl.key.password": "${file:/secrets:key}",
    }
    options = reading(**security)
    assert {name: options[name] for name in security} == security
    # The JVM would take a file of certificates for a Java key store.
    assert options["kafka.ssl.truststore.type"] == "PEM"
    assert options["kafka.config.providers"] == "env,file"
    providers = "org.apache.kafka.common.config.provider."
    assert options["kafka.config.providers.env.class"] == f"{providers}EnvVarConfigProvider"
    assert options["kafka.config.providers.file.class"] == f"{providers}FileConfigProvider"


def test_what_references_may_read_where_consumers_run_is_what_the_driver_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_GROUPS_ALLOWED_PATHS", "/run/secrets, /etc/kafka")
    monkeypatch.setenv("SPARK_GROUPS_ALLOWLIST_PATTERN", "KAFKA_.*")
    options = reading(**{"kafka.sasl.jaas.config": "${env:KAFKA_A} ${directory:/run/secrets:b}"})
    providers = "kafka.config.providers"
    assert options[f"{providers}.directory.param.allowed.paths"] == "/run/secrets,/etc/kafka"
    assert options[f"{providers}.env.param.allowlist.pattern"] == "KAFKA_.*"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SPARK_GROUPS_CONFIG_PROVIDERS", "none", "provider file is not allowed"),
        ("SPARK_GROUPS_ALLOWED_PATHS", "", "SPARK_GROUPS_ALLOWED_PATHS .* names no path"),
    ],
)
def test_consumers_get_no_reference_that_the_driver_does_not_allow(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(OptionsError, match=said):
        reading(**{"kafka.client.id": "${file:/etc/passwd:root}"})


def test_stores_that_only_the_jvm_knows_are_left_to_it() -> None:
    further = {
        "kafka.ssl.truststore.location": "/not/there.jks",
        "kafka.ssl.truststore.type": "JKS",
    }
    assert reading(further)["kafka.ssl.truststore.type"] == "JKS"


@pytest.mark.parametrize(
    ("spark_version", "version"),
    [("4.0.1", "4.0.1"), ("4.1.1", "4.1.1"), ("4.3.0", "4.2.0"), ("4.10.0", "4.2.0")],
)
def test_the_newest_connector_that_is_published_is_named(spark_version: str, version: str) -> None:
    assert connector_version(spark_version) == version
