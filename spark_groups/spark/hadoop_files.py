"""Files on any file system of Hadoop, which a JVM of PySpark reads and writes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from spark_groups.errors import CheckpointError

JVM_END_S: Final = 30.0
REASON_CHARACTERS_MAX: Final = 500
PACKAGES: Final[Mapping[str, str]] = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
}
"""The package of a file system that Spark does not bring, by scheme."""
_NO_CLASS: Final = re.compile(r"No FileSystem for scheme|ClassNotFoundException|NoClassDefFound")


class HadoopFiles:
    """Files by path or URI.

    Args:
        jvm: The JVM, as py4j shows it.
        configuration: Hadoop's configuration in it.
    """

    def __init__(self, jvm: Any, configuration: Any) -> None:
        self._jvm = jvm
        self._configuration = configuration

    def qualified(self, path: str) -> str:
        """Return a path with its file system."""
        system, hadoop_path = self._resolve(path)
        return str(system.makeQualified(hadoop_path).toString())

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        system, hadoop_path = self._resolve(path)
        return bool(system.exists(hadoop_path))

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        if not self.exists(path):
            return []
        system, hadoop_path = self._resolve(path)
        return [str(each.getPath().getName()) for each in system.listStatus(hadoop_path)]

    def size_bytes(self, path: str) -> int:
        """Return the size of a file."""
        system, hadoop_path = self._resolve(path)
        return int(system.getFileStatus(hadoop_path).getLen())

    def read(self, path: str) -> str:
        """Return the text of a file."""
        system, hadoop_path = self._resolve(path)
        stream = system.open(hadoop_path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, path: str, text: str, *, overwrite: bool) -> bool:
        """Write a file; return False if it exists and may not be overwritten."""
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


class HadoopFolder:
    """The files below a folder, for reading.

    Args:
        files: The file system.
        folder: The folder's path or URI.
        file_bytes_max: A larger file is refused.
    """

    def __init__(self, files: HadoopFiles, folder: str, *, file_bytes_max: int) -> None:
        self._files = files
        self._folder = folder.rstrip("/")
        self._file_bytes_max = file_bytes_max

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder below; none if it does not exist."""
        return self._files.names(f"{self._folder}/{folder}")

    def read(self, name: str) -> str:
        """Return the text of a file below.

        Raises:
            CheckpointError: The file is too large.
        """
        path = f"{self._folder}/{name}"
        if self._files.size_bytes(path) > self._file_bytes_max:
            raise CheckpointError(f"{path} has more than {self._file_bytes_max:,} bytes")
        return self._files.read(path)


@contextmanager
def opened_folder(place: str, *, file_bytes_max: int) -> Iterator[HadoopFolder]:
    """Read a folder with a JVM of its own, configured like any PySpark program.

    `spark-defaults.conf`, `HADOOP_CONF_DIR` and `PYSPARK_SUBMIT_ARGS` count. Spark itself does not
    start. In a program of spark-submit, its JVM reads the folder, and is left running.

    Args:
        place: The folder's URI.
        file_bytes_max: A larger file is refused.

    Raises:
        CheckpointError: The JVM does not start, or the file system cannot be reached.
    """
    try:
        launch: Any = launch_gateway
        gateway = launch(popen_kwargs={"stdout": subprocess.DEVNULL})
    except (PySparkException, OSError) as error:
        raise CheckpointError(f"{place} cannot be read without a JVM: {error}") from error
    try:
        configuration = gateway.jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf()
        files = HadoopFiles(gateway.jvm, configuration)
        yield HadoopFolder(files, place, file_bytes_max=file_bytes_max)
    except Py4JJavaError as error:
        reason = " ".join(str(error.java_exception).split())
        hint = _hint(place, gateway) if _NO_CLASS.search(reason) else ""
        shown = reason[:REASON_CHARACTERS_MAX]
        raise CheckpointError(f"{place} cannot be read: {shown}{hint}") from error
    except Py4JError as error:
        raise CheckpointError(f"{place} cannot be read: {error}") from error
    finally:
        _end(gateway)


def _hint(place: str, gateway: Any) -> str:
    version = gateway.jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    package = PACKAGES.get(place.partition(":")[0].lower(), "GROUP:PACKAGE")
    return (
        ". Give the package of this file system, as the query has it:"
        f' PYSPARK_SUBMIT_ARGS="--packages {package}:{version} pyspark-shell"'
    )


def _end(gateway: Any) -> None:
    """Close the connections; end the JVM if PySpark started it for this gateway."""
    process = gateway.proc
    if process is None:
        gateway.close(keep_callback_server=True)
        return
    with suppress(Py4JNetworkError, OSError):
        gateway.shutdown()
    # The JVM ends with its standard input.
    process.stdin.close()
    try:
        process.wait(JVM_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
