"""Looks Spark's Python sources up in this process, instead of in one that Spark would start.

Before Spark registers or loads a Python source, it starts a process that imports every top-level
module named pyspark_*, and keeps what it has found. If these are only the modules of this package,
the driver's Python knows them already.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import sys
from collections.abc import Mapping
from pkgutil import iter_modules
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql.datasource import DataSource

from spark_groups.spark.source.source import KafkaGroupDataSource
from spark_groups.spark.state.source import KafkaGroupStateDataSource

logger = logging.getLogger(__name__)

OWN: Final[Mapping[str, type[DataSource]]] = {
    "pyspark_kafka_group": KafkaGroupDataSource,
    "pyspark_kafka_group_state": KafkaGroupStateDataSource,
}
"""The modules by which Spark finds the sources of this package."""


def is_this_python(command: str) -> bool:
    """Return whether a command starts this Python, perhaps by another name (python3)."""
    found = os.path.abspath(shutil.which(command) or command)
    # Links alone do not say it: the Pythons of two environments may be one file.
    is_same_place = os.path.dirname(found) == os.path.dirname(sys.executable)
    return is_same_place and os.path.realpath(found) == os.path.realpath(sys.executable)


def look_up_here(jvm: Any) -> None:
    """Give Spark the sources that its process would find, unless there are others or it has run.

    Args:
        jvm: The JVM of the driver; None: it is on another machine.
    """
    found = {each.name for each in iter_modules() if each.name.startswith("pyspark_")}
    if jvm is None or not found <= OWN.keys():
        return
    spark = jvm.org.apache.spark
    try:
        # Scala's objects; Spark has the setter for its own tests.
        datasources = spark.sql.execution.datasources
        manager = getattr(getattr(datasources, "DataSourceManager$"), "MODULE$")
        utils = getattr(getattr(spark.api.python, "PythonUtils$"), "MODULE$")
        has_run = manager.dataSourceBuilders().isDefined()
        if has_run or not is_this_python(utils.defaultPythonExec()):
            return
        builders = jvm.java.util.HashMap()
        for source in map(OWN.__getitem__, found):
            of_python = datasources.v2.python.UserDefinedPythonDataSource
            builders[source.name()] = of_python(utils.createPythonFunction(pickle.dumps(source)))
        setter = getattr(manager, "dataSourceBuilders_$eq")
        setter(jvm.scala.Some(utils.toScalaMap(builders)))
    except (Py4JError, TypeError) as error:
        logger.debug("Spark starts a process to look sources up: %s", error)
