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
    ".*Failed to cancel job group .*",
)
"""A query that is stopped between two batches has no job to cancel."""


SPARKS_LOG4J: Final = "org/apache/spark/log4j2-defaults"


def has_sparks_log4j(jvm: Any) -> bool:
    """Return whether Spark logs with a configuration of its own, not with one of the user.

    Args:
        jvm: The JVM of the driver.
    """
    try:
        configuration = jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration()
        return SPARKS_LOG4J in str(configuration.getConfigurationSource().getLocation())
    except Py4JError as error:
        logger.debug("the configuration of log4j is unknown: %s", error)
        return False


def drop_lines(jvm: Any, spark_logger: str, pattern: str) -> None:
    """Keep one of Spark's loggers from writing the lines that match a pattern.

    Args:
        jvm: The JVM of the driver; None: a Spark Connect session, whose log is the server's.
        spark_logger: The name of the logger.
        pattern: A regular expression of Java for the whole message.
    """
    if jvm is None:
        return
    core: Any = jvm.org.apache.logging.log4j.core
    try:
        context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
        configuration = context.getConfiguration()
        settings = configuration.getLoggerConfig(spark_logger)
        if settings.getName() != spark_logger:
            # Without a level of its own it has that of its parent.
            settings = core.config.LoggerConfig(spark_logger, None, True)
            configuration.addLogger(spark_logger, settings)
        if not settings.hasFilter():
            result = core.Filter.Result
            settings.addFilter(
                core.filter.RegexFilter.createFilter(
                    pattern, None, False, result.DENY, result.NEUTRAL
                )
            )
        context.updateLoggers()
    except (Py4JError, TypeError) as error:
        # Another logger than log4j.
        logger.debug("lines of %s stay: %s", spark_logger, error)
