"""Lines of Spark's own log that are about nothing and would look like faults of a query."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from py4j.protocol import Py4JError

logger = logging.getLogger(__name__)

REPLACED: Final = (
    "org.apache.spark.sql.execution.datasources.DataSourceManager",
    ".*kafka-group(-state)? replaced a .*registered data source.*",
)
"""Spark warns of it when a session registers a source, and at the start of each query."""
OF_JOBS: Final = "org.apache.spark.scheduler.DAGScheduler"
"""Warns of a query that is stopped between two batches: it has no job to cancel."""
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


@contextmanager
def errors_only(jvm: Any, spark_logger: str) -> Iterator[None]:
    """Keep one of Spark's loggers from writing anything but errors meanwhile.

    A logger that the user has configured stays as it is.

    Args:
        jvm: The JVM of the driver.
        spark_logger: The name of the logger.
    """
    log4j: Any = jvm.org.apache.logging.log4j
    is_set = False
    try:
        context = log4j.LogManager.getContext(False)
        configuration = context.getConfiguration()
        if configuration.getLoggerConfig(spark_logger).getName() != spark_logger:
            quiet = log4j.core.config.LoggerConfig(spark_logger, log4j.Level.ERROR, True)
            configuration.addLogger(spark_logger, quiet)
            context.updateLoggers()
            is_set = True
    except (Py4JError, TypeError) as error:
        logger.debug("lines of %s stay: %s", spark_logger, error)
    try:
        yield
    finally:
        if is_set:
            # The JVM may have ended.
            with suppress(Py4JError, OSError):
                configuration.removeLogger(spark_logger)
                context.updateLoggers()
