"""Lines of Spark's own log that are about nothing and would look like faults of a query."""

from __future__ import annotations

import logging
from typing import Any, Final

from py4j.protocol import Py4JError

logger = logging.getLogger(__name__)

REPLACED: Final = (
    "org.apache.spark.sql.execution.datasources.DataSourceManager",
    ".*kafka-group(-state)? replaced a .*registered data source.*",
)
"""Spark warns of it when a session registers a source, and at the start of each query."""
NOT_CANCELLED: Final = (
    "org.apache.spark.scheduler.DAGScheduler",
    ".*Failed to cancel job group [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*",
)
"""Spark warns of a query that is stopped while it runs no job; the run id names its job group."""
_dropped: Final[dict[str, Any]] = {}
"""The JVM in which the lines of a pattern are dropped."""
SPARKS_LOG4J: Final = "org/apache/spark/log4j2-defaults"


def has_sparks_log4j(jvm: Any) -> bool:
    """Return whether Spark logs with a configuration of its own, not with one of the user.

    Args:
        jvm: The JVM of the driver.
    """
    try:
        source = _log4j(jvm).getConfiguration().getConfigurationSource()
        return SPARKS_LOG4J in str(source.getLocation())
    except Py4JError as error:
        logger.debug("the configuration of log4j is unknown: %s", error)
        return False


def drop_lines(jvm: Any, *lines: tuple[str, str]) -> None:
    """Keep some of Spark's loggers from writing the lines that match a pattern.

    Args:
        jvm: The JVM of the driver; None: a Spark Connect session, whose log is the server's.
        lines: The name of each logger, and a regular expression of Java for the whole message.
    """
    if jvm is None:
        return
    try:
        filters = jvm.org.apache.logging.log4j.core.filter.RegexFilter
        result = jvm.org.apache.logging.log4j.core.Filter.Result
        configuration = _log4j(jvm).getConfiguration()
        for spark_logger, pattern in lines:
            if _dropped.get(pattern) is jvm:
                continue
            # Its own settings or those that it inherits. In a shell, a logger with new ones of its
            # own would also write its lines at INFO (`SparkShellLoggingFilter`).
            configuration.getLoggerConfig(spark_logger).addFilter(
                filters.createFilter(pattern, None, False, result.DENY, result.NEUTRAL)
            )
            _dropped[pattern] = jvm
    except (Py4JError, TypeError) as error:
        # Another logger than log4j.
        logger.debug("lines of %s stay: %s", ", ".join(name for name, _ in lines), error)


def _log4j(jvm: Any) -> Any:
    """Return the context of the JVM's log4j."""
    return jvm.org.apache.logging.log4j.LogManager.getContext(False)
