"""Reads a Parquet directory through Spark's own log of it: only files of finished batches count.

The log (`_spark_metadata`) has a file for each batch; every tenth is compacted and repeats those
before it. A file in the directory that the log does not name was left by a batch that died.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

LOG = "_spark_metadata"
_COMPACT = ".compact"


def logged_files(output: Path) -> list[Path]:
    """Return the files that finished batches wrote.

    Args:
        output: The directory that the query writes to.
    """
    log = output / LOG
    if not log.is_dir():
        return []
    batches: dict[int, Path] = {}
    compacted = -1
    for entry in log.iterdir():
        number, _, suffix = entry.name.partition(".")
        if not number.isdigit() or suffix not in ("", _COMPACT[1:]):
            continue
        if suffix:
            compacted = max(compacted, int(number))
        if suffix or int(number) not in batches:
            batches[int(number)] = entry
    texts = [
        batches[number].read_text("utf-8") for number in sorted(batches) if number >= compacted
    ]
    return parse_log(texts)


def parse_log(texts: Iterable[str]) -> list[Path]:
    """Return the files that logs of batches name.

    Args:
        texts: The logs: a line with the version, then a JSON object for each file.
    """
    found: dict[Path, None] = {}
    for text in texts:
        for line in text.splitlines()[1:]:
            entry = json.loads(line)
            path = Path(unquote(urlsplit(entry["path"]).path))
            if entry["action"] == "add":
                found[path] = None
            else:
                found.pop(path, None)
    return list(found)


class RowCounter:
    """Counts the rows of a growing directory; each file is opened once.

    Args:
        output: The directory that the query writes to.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        self._counted: dict[Path, int] = {}

    def rows(self) -> int:
        """Return the rows of all finished batches."""
        for path in logged_files(self._output):
            if path not in self._counted:
                self._counted[path] = pq.read_metadata(path).num_rows
        return sum(self._counted.values())


def read_rows(outputs: Iterable[Path], columns: Sequence[str]) -> pa.Table:
    """Return the rows of all finished batches of several directories.

    Args:
        outputs: The directories.
        columns: The columns to read.
    """
    files = [path for output in outputs for path in logged_files(output)]
    tables = [pq.read_table(path, columns=list(columns), partitioning=None) for path in files]
    return pa.concat_tables(tables) if tables else pa.table({name: [] for name in columns})
