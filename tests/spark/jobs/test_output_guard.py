"""One directory, one checkpoint: what is claimed, what is refused, and with which words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_groups.errors import OptionsError
from spark_groups.spark.jobs.output_guard import SINK_LOG, WRITTEN_BY, HadoopFiles, OutputGuard
from tests.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture
def files(spark: SparkSession) -> HadoopFiles:
    return HadoopFiles(spark)


def guard(files: HadoopFiles, directory: Path, checkpoint: str = "checkpoint") -> OutputGuard:
    return OutputGuard(files, output=str(directory / "out"), checkpoint=str(directory / checkpoint))


def run_query(spark: SparkSession, directory: Path, checkpoint: str = "checkpoint") -> str:
    """Write one batch, as a job does, and return the query's id."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rows.writeStream.format("parquet").trigger(processingTime="1 day")
    writer = writer.option("checkpointLocation", str(directory / checkpoint))
    query = writer.start(str(directory / "out"))
    try:
        wait_until(lambda: query.lastProgress is not None, what="the first batch")
        return str(query.id)
    finally:
        query.stop()


def test_same_checkpoint_goes_on(spark: SparkSession, files: HadoopFiles, tmp_path: Path) -> None:
    for _ in range(2):
        one = guard(files, tmp_path)
        one.claim()
        one.confirm(run_query(spark, tmp_path))
    assert (tmp_path / "out" / SINK_LOG).is_dir()


def test_moved_checkpoint_goes_on(spark: SparkSession, files: HadoopFiles, tmp_path: Path) -> None:
    one = guard(files, tmp_path)
    one.claim()
    one.confirm(run_query(spark, tmp_path))
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    guard(files, tmp_path, "moved").claim()


def test_another_checkpoint_is_refused(
    spark: SparkSession, files: HadoopFiles, tmp_path: Path
) -> None:
    one = guard(files, tmp_path)
    one.claim()
    query_id = run_query(spark, tmp_path)
    one.confirm(query_id)
    with pytest.raises(OptionsError) as caught:
        guard(files, tmp_path, "other").claim()
    text = str(caught.value)
    assert query_id in text
    assert f"{tmp_path}/out was written by" in text
    assert f"{tmp_path}/other" in text
    assert "another name or sink.path" in text


def test_new_checkpoint_at_the_same_place_is_refused(
    spark: SparkSession, files: HadoopFiles, tmp_path: Path
) -> None:
    one = guard(files, tmp_path)
    one.claim()
    one.confirm(run_query(spark, tmp_path))
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(OptionsError, match="lose their rows"):
        guard(files, tmp_path).claim()


def test_output_of_a_query_without_a_note_is_refused(
    spark: SparkSession, files: HadoopFiles, tmp_path: Path
) -> None:
    run_query(spark, tmp_path)
    with pytest.raises(OptionsError, match="left no note of itself"):
        guard(files, tmp_path).claim()


def test_claim_before_the_first_start_holds(files: HadoopFiles, tmp_path: Path) -> None:
    guard(files, tmp_path).claim()
    guard(files, tmp_path).claim()
    with pytest.raises(OptionsError, match="the query of checkpoint"):
        guard(files, tmp_path, "other").claim()


def test_start_that_was_not_confirmed_is_confirmed_later(
    spark: SparkSession, files: HadoopFiles, tmp_path: Path
) -> None:
    guard(files, tmp_path).claim()
    query_id = run_query(spark, tmp_path)
    one = guard(files, tmp_path)
    one.claim()
    one.confirm(query_id)
    note = json.loads((tmp_path / "out" / WRITTEN_BY).read_text("utf-8"))
    assert note["query_id"] == query_id


def test_note_that_cannot_be_read_is_refused(files: HadoopFiles, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / WRITTEN_BY).write_text("?", encoding="utf-8")
    with pytest.raises(OptionsError, match="cannot be read"):
        guard(files, tmp_path).claim()


def test_note_is_no_row(spark: SparkSession, files: HadoopFiles, tmp_path: Path) -> None:
    one = guard(files, tmp_path)
    one.claim()
    one.confirm(run_query(spark, tmp_path))
    assert spark.read.parquet(str(tmp_path / "out")).count() == 5


def test_files_are_written_read_and_never_overwritten_by_accident(
    spark: SparkSession, tmp_path: Path
) -> None:
    files, path = HadoopFiles(spark), str(tmp_path / "a" / "note")
    assert files.read(path) is None
    assert not files.exists(path)
    assert files.create(path, "één\n")
    assert files.read(path) == "één\n"
    assert not files.create(path, "two")
    assert files.read(path) == "één\n"
    assert files.create(path, "two", overwrite=True)
    assert files.read(path) == "two"
    assert files.exists(path)


def test_qualified_path_names_the_file_system(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark)
    assert files.qualified(str(tmp_path)) == f"file:{tmp_path}"
    assert files.qualified("relative").startswith("file:/")
