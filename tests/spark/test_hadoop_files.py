"""Files of Hadoop's file systems: ViewFileSystem, in this JVM, and in one that a command starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.checkpoint_files import opened_checkpoint
from spark_groups.cli.checkpoint_log import CheckpointFiles, SourceOffsets, read_checkpoint
from spark_groups.errors import CheckpointError
from spark_groups.spark.hadoop_files import HadoopFiles, HadoopFolder, opened_folder
from spark_groups.types import TopicPartition
from tests.cli.commands import invoke
from tests.cli.reset_cli_setup import written_checkpoint
from tests.runtime.members import committed
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.processes import descendants, is_alive

pytestmark = pytest.mark.spark

MOUNT = "fs.viewfs.mounttable.cluster.link./checkpoints"
PLACE = "viewfs://cluster/checkpoints/flights é"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint that stands at offset 7 of flights-0."""
    return written_checkpoint(tmp_path / "flights é", '{"flights": {"0": 7}}', commits=1)


def test_a_checkpoint_is_read_from_any_file_system(spark: SparkSession, folder: Path) -> None:
    jvm = spark.sparkContext._jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration(
        spark.sparkContext._jsc.hadoopConfiguration()
    )
    configuration.set(MOUNT, folder.parent.as_uri())
    files = HadoopFiles(jvm, configuration)
    found: CheckpointFiles = HadoopFolder(files, f"{PLACE}/", file_bytes_max=100)
    assert found.names("missing") == []
    assert found.names("offsets") == ["0"]
    assert read_checkpoint(found, PLACE).sources == (
        SourceOffsets("0", {TopicPartition("flights", 0): 7}),
    )
    assert files.qualified(PLACE) == PLACE
    with pytest.raises(CheckpointError, match="offsets/0 has more than 4 bytes"):
        HadoopFolder(files, PLACE, file_bytes_max=4).read("offsets/0")


@pytest.mark.parametrize("pins_threads", ["true", "false"])
def test_the_jvm_of_spark_submit_survives(
    spark: SparkSession, folder: Path, pins_threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = spark.sparkContext._gateway.gateway_parameters
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", str(gateway.port))
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", gateway.auth_token)
    monkeypatch.setenv("PYSPARK_PIN_THREAD", pins_threads)
    for _ in range(2):
        with opened_folder(f"file:{folder}", file_bytes_max=100) as files:
            assert files.names("offsets") == ["0"]
    assert spark.range(3).count() == 3


@pytest.mark.long
@pytest.mark.broker
def test_a_command_starts_a_jvm_with_the_configuration_of_spark(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path, monkeypatch
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name)
    produce(servers, topic_name, [Row(b"x")] * 9)
    written_checkpoint(tmp_path / "flights", json.dumps({topic_name: {"0": 7}}), commits=1)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"spark.hadoop.{MOUNT} {tmp_path.as_uri()}\n"
    )
    place = "viewfs://cluster/checkpoints/flights"
    from_it = ("reset-offsets", group_id, "--from-checkpoint", place, "--execute", "--json")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    done = invoke(*from_it, "--bootstrap-server", servers)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["checkpoint"]["place"] == place
    assert committed(servers, group_id) == {(topic_name, 0): 7}


@pytest.mark.long
def test_a_file_system_that_spark_lacks_is_named_with_its_package() -> None:
    said = r"S3AFileSystem not found\. Give the package .*org\.apache\.hadoop:hadoop-aws:\d"
    before = set(descendants(os.getpid()))
    with (
        pytest.raises(CheckpointError, match=said),
        opened_checkpoint("s3a://bucket/flights") as files,
    ):
        files.names("offsets")
    # The listing lists itself, and has ended.
    left = set(descendants(os.getpid())) - before
    assert not list(filter(is_alive, left)), "the JVM is left behind"
