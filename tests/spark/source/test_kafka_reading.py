"""The options with which Spark's own Kafka source reads the ranges of a batch."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.source.kafka_reading import TUNING, check_further, reading_options
from spark_groups.types import OffsetRange

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
def test_further_options_cannot_change_what_is_read(name: str) -> None:
    with pytest.raises(OptionsError, match=f"{name} cannot be an option of foreach_batch_rows"):
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
