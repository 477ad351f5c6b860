"""The files of a checkpoint: on this machine, or on any file system of Hadoop through PySpark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spark_groups.cli.checkpoint_log import CheckpointFiles
from spark_groups.errors import CheckpointError

FILE_BYTES_MAX: Final = 64 * 2**20
_LOCAL: Final = re.compile(r"file:(?://[^/]*)?(/.*)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class LocalCheckpoint:
    """A checkpoint on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder of the checkpoint; none if it does not exist."""
        try:
            return [each.name for each in (self._folder / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> str:
        """Return the text of a file of the checkpoint.

        Raises:
            CheckpointError: The file is too large.
        """
        file = self._folder / name
        if file.stat().st_size > FILE_BYTES_MAX:
            raise CheckpointError(f"{file} has more than {FILE_BYTES_MAX:,} bytes")
        return file.read_text(encoding="utf-8")


@contextmanager
def opened_checkpoint(place: str) -> Iterator[CheckpointFiles]:
    """Open a checkpoint for reading.

    Args:
        place: A path, or a URI: `file:` and paths need no Spark; `hdfs:`, `s3a:`, `abfss:` and all
            others are read by a JVM of PySpark, with its configuration.

    Raises:
        CheckpointError: It cannot be read, or PySpark is missing.
    """
    local = _LOCAL.fullmatch(place)
    try:
        if local is not None or _SCHEME.match(place) is None or Path(place).exists():
            yield LocalCheckpoint(Path(local[1] if local else place))
            return
        with _hadoop(place) as files:
            yield files
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{place} cannot be read: {error}") from error


@contextmanager
def _hadoop(place: str) -> Iterator[CheckpointFiles]:
    try:
        # It needs PySpark, which local files do not.
        from spark_groups.spark import hadoop_files  # noqa: PLC0415
    except ImportError as error:
        raise CheckpointError(
            f"{place} is on a file system of Hadoop, which PySpark reads, and pyspark is not here:"
            " pip install 'spark-groups[spark]'. Or copy the folders offsets, commits and sources"
            " of the checkpoint, and give the local path"
        ) from error
    with hadoop_files.opened_folder(place, file_bytes_max=FILE_BYTES_MAX) as files:
        yield files
