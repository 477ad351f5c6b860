"""The log of a runner: lines on its stderr, which is the driver's log, with time, level and query.

Spark configures no logging in a runner's process, where Python by itself shows warnings only,
without time and level.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Final, TextIO

from spark_groups.spark.options.values import LogLevel

PACKAGE: Final = "spark_groups"
TIME_FORMAT: Final = "%y/%m/%d %H:%M:%S"
"""As Spark's own lines have it."""
_LEVELS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.OFF: logging.CRITICAL + 1,
}


def log_to_stderr(
    level: LogLevel | None,
    query_id: Callable[[], str | None],
    *,
    stream: TextIO | None = None,
    package: str = PACKAGE,
) -> None:
    """Write what this package logs to stderr, unless this process has a logging of its own.

    Args:
        level: The least level that is written; None: INFO, or what the process has configured.
        query_id: Returns Spark's id of the query, None as long as it is not known.
        stream: Where to write instead.
        package: Whose lines.
    """
    logger = logging.getLogger(package)
    is_configured = logger.hasHandlers()
    if level is not None or not is_configured:
        logger.setLevel(_LEVELS[level or LogLevel.INFO])
    if is_configured:
        return
    lines = logging.StreamHandler(stream or sys.stderr)
    lines.setFormatter(_Lines(query_id))
    # Whoever configures logging later has the lines, and nobody has them twice.
    lines.addFilter(lambda _: not logging.getLogger().handlers)
    logger.addHandler(lines)


class _Lines(logging.Formatter):
    """Begins each line with time, level and query, in Spark's words.

    Args:
        query_id: Returns Spark's id of the query, None as long as it is not known.
    """

    def __init__(self, query_id: Callable[[], str | None]) -> None:
        super().__init__("%(asctime)s %(spark_level)s kafka-group [%(query)s]: %(message)s")
        self.datefmt = TIME_FORMAT
        self._query_id = query_id

    def format(self, record: Any) -> str:
        found = self._query_id()
        record.query = f"query {found}" if found else f"runner {os.getpid()}"
        record.spark_level = "WARN" if record.levelno == logging.WARNING else record.levelname
        return super().format(record)
