"""One Parquet directory belongs to one checkpoint: two queries on one path lose rows in silence.

Spark's file sink logs the batches it has written in `_spark_metadata` and skips a batch whose
number is there already. A query with another checkpoint counts its batches from 0 again, so that
its batches are skipped, and nobody says so. The log does not tell whose it is, so a note beside it
does: `_written_by`, a name that readers of Parquet leave out. It holds the id that Spark gives a
query and keeps in its checkpoint.
"""

from __future__ import annotations

import json
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_groups.errors import OptionsError

WRITTEN_BY: Final = "_written_by"
SINK_LOG: Final = "_spark_metadata"


class HadoopFiles:
    """Small text files on any file system that Spark's Hadoop knows: local, HDFS, object stores.

    They are reached through the driver's JVM, by paths or URIs.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def qualified(self, path: str) -> str:
        """Return a path as it is written in full: with its file system, and absolute."""
        system, hadoop_path = self._resolve(path)
        return str(system.makeQualified(hadoop_path).toString())

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        system, hadoop_path = self._resolve(path)
        return bool(system.exists(hadoop_path))

    def read(self, path: str) -> str | None:
        """Return what a file says; None if it is not there."""
        if not self.exists(path):
            return None
        system, hadoop_path = self._resolve(path)
        stream = system.open(hadoop_path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, path: str, text: str, *, overwrite: bool = False) -> bool:
        """Write a file.

        Returns:
            False if it was there and was left alone.
        """
        system, hadoop_path = self._resolve(path)
        try:
            stream = system.create(hadoop_path, overwrite)
        except Py4JJavaError as error:
            if "FileAlreadyExists" in str(error) and not overwrite:
                return False
            raise
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        return True

    def _resolve(self, path: str) -> tuple[Any, Any]:
        hadoop_path = self._jvm.org.apache.hadoop.fs.Path(path)
        return hadoop_path.getFileSystem(self._configuration), hadoop_path


class OutputGuard:
    """Keeps a directory for the query of one checkpoint."""

    def __init__(self, files: HadoopFiles, *, output: str, checkpoint: str) -> None:
        self._files = files
        self._output = files.qualified(output)
        self._checkpoint = files.qualified(checkpoint)
        self._note = f"{self._output}/{WRITTEN_BY}"

    def claim(self) -> None:
        """Take the directory before the query starts.

        Raises:
            OptionsError: Another checkpoint's query writes it, or may have written it.
        """
        if not self._files.exists(self._note):
            if self._files.exists(f"{self._output}/{SINK_LOG}"):
                raise self._refusal("a query that left no note of itself")
            if self._files.create(self._note, self._note_text(None)):
                return
        note = self._read_note()
        if note["query_id"] is None:
            # Claimed, and never started: the id is not known, but the checkpoint's place is.
            if note["checkpoint"] != self._checkpoint:
                raise self._refusal(f"the query of checkpoint {note['checkpoint']}")
        elif note["query_id"] != self._query_id():
            raise self._refusal(
                f"query {note['query_id']}, whose checkpoint was {note['checkpoint']}"
            )

    def confirm(self, query_id: str) -> None:
        """Put the query's id on the note, once it has one."""
        if self._read_note()["query_id"] != query_id:
            self._files.create(self._note, self._note_text(query_id), overwrite=True)

    def _query_id(self) -> str | None:
        """Return the id in the checkpoint; None if the checkpoint is new."""
        text = self._files.read(f"{self._checkpoint}/metadata")
        return None if text is None else str(json.loads(text)["id"])

    def _note_text(self, query_id: str | None) -> str:
        return json.dumps({"query_id": query_id, "checkpoint": self._checkpoint}) + "\n"

    def _read_note(self) -> dict[str, str | None]:
        text = self._files.read(self._note)
        try:
            note = json.loads(text or "")
            return {"query_id": note["query_id"], "checkpoint": note["checkpoint"]}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._refusal(f"somebody whose note {self._note} cannot be read") from error

    def _refusal(self, writer: str) -> OptionsError:
        return OptionsError(
            f"{self._output} was written by {writer}, not by that of checkpoint"
            f" {self._checkpoint}; Spark would skip this query's batches there and lose their rows"
            " in silence. Give this application another name or sink.path, or remove the output"
            " and the checkpoint together to begin anew"
        )
