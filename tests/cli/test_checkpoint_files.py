"""A checkpoint is opened by its path or URI; Hadoop's file systems are in tests/spark."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from spark_groups import spark
from spark_groups.cli import checkpoint_files
from spark_groups.cli.checkpoint_files import opened_checkpoint
from spark_groups.errors import CheckpointError


def test_a_local_checkpoint_needs_no_spark(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "spark_groups.spark.hadoop_files", None)
    folder = tmp_path / "old:1 é"
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "0").write_text("v1")
    for place in (str(folder), f"file:{folder}", f"file://{folder}", f"file://localhost{folder}"):
        with opened_checkpoint(place) as files:
            assert files.names("offsets") == ["0"]
            assert files.read("offsets/0") == "v1"
            assert files.names("commits") == []
            assert files.names("offsets/0") == []
    monkeypatch.chdir(tmp_path)
    with opened_checkpoint("old:1 é") as files:
        assert files.names("offsets") == ["0"]


def test_another_file_system_needs_pyspark(monkeypatch) -> None:
    # The package has it as an attribute where another test has imported it.
    monkeypatch.delattr(spark, "hadoop_files", raising=False)
    monkeypatch.setitem(sys.modules, "spark_groups.spark.hadoop_files", None)
    where = "s3a://bucket/checkpoints/flights"
    said = rf"{where} .*pip install 'spark-groups\[spark\]'\. Or copy the folders offsets, commits"
    with pytest.raises(CheckpointError, match=said), opened_checkpoint(where):
        pytest.fail("it was opened")


def test_unreadable_files_are_errors_with_their_name(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "0").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_text("12345")
    said = f"{re.escape(str(tmp_path))} cannot be read: .*utf-8"
    with pytest.raises(CheckpointError, match=said), opened_checkpoint(str(tmp_path)) as files:
        files.read("0")
    with pytest.raises(CheckpointError, match="missing"), opened_checkpoint(str(tmp_path)) as files:
        files.read("missing")
    monkeypatch.setattr(checkpoint_files, "FILE_BYTES_MAX", 4)
    with (
        pytest.raises(CheckpointError, match="large has more than 4 bytes"),
        opened_checkpoint(str(tmp_path)) as files,
    ):
        files.read("large")
