"""Small text files on any file system that Spark's Hadoop knows: local, HDFS, object stores."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


class HadoopFiles:
    """Reads and writes small text files through the driver's JVM.

    Args:
        spark: The session whose Hadoop configuration is used.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def qualified(self, path: str) -> str:
        """Return a path as it is written in full: with its file system, and absolute.

        Args:
            path: A path or a URI.
        """
        system, hadoop_path = self._resolve(path)
        return str(system.makeQualified(hadoop_path).toString())

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory.

        Args:
            path: A path or a URI.
        """
        system, hadoop_path = self._resolve(path)
        return bool(system.exists(hadoop_path))

    def read(self, path: str) -> str | None:
        """Return what a file says; None if it is not there.

        Args:
            path: A path or a URI.
        """
        system, hadoop_path = self._resolve(path)
        if not system.exists(hadoop_path):
            return None
        stream = system.open(hadoop_path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, path: str, text: str, *, overwrite: bool = False) -> bool:
        """Write a file.

        Args:
            path: A path or a URI.
            text: What it shall say.
            overwrite: Whether it may be there already.

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
