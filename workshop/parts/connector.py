"""Jars of Spark's own Kafka source and of delta-spark, fetched once by the Ivy of PySpark."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from spark_groups.broker.ivy import IVY_SETTINGS_VARIABLE
from spark_groups.broker.java import find_java, find_spark_jars
from spark_groups.runtime.cache_directory import cache_dir
from spark_groups.spark.source.foreach_batch_rows import connector_version

# Any 4.x of the token provider works on the path of records; not every release of it is published.
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="spark-groups" module="connector"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="{version}"
      conf="default->default">
      <exclude org="org.apache.spark" module="spark-token-provider-kafka-0-10_2.13"/>
      <exclude org="org.apache.hadoop"/>
      <exclude org="org.scala-lang"/>
      <exclude org="org.slf4j"/>
    </dependency>
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13" rev="4.0.0"
      conf="default->default" transitive="false"/>
  </dependencies>
</ivy-module>
"""
# What it shares with Spark is in Spark's own jars.
_DELTA_MODULE = """\
<ivy-module version="2.0">
  <info organisation="spark-groups" module="delta"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.delta" name="delta-spark_4.2_2.13" rev="{version}" conf="default->default">
      <exclude org="org.apache.spark"/>
      <exclude org="org.apache.hadoop"/>
      <exclude org="org.scala-lang"/>
      <exclude org="org.antlr"/>
      <exclude org="org.slf4j"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
_AVRO_MODULE = """\
<ivy-module version="2.0">
  <info organisation="spark-groups" module="avro"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-avro_2.13" rev="{version}"
      conf="default->default" transitive="false"/>
  </dependencies>
</ivy-module>
"""
_CENTRAL = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


def fetch_connector(spark_version: str) -> list[Path]:
    """Return the jars of Spark's Kafka source for a version, fetched if they are not there yet."""
    version = connector_version(spark_version)
    return _fetch(f"connector-{version}", _MODULE.format(version=version))


def fetch_delta(version: str) -> list[Path]:
    """Return the jars of a version of delta-spark, fetched if they are not there yet."""
    return _fetch(f"delta-{version}", _DELTA_MODULE.format(version=version))


def fetch_avro(spark_version: str) -> list[Path]:
    """Return the jar of spark-avro for a version, fetched if it is not there yet."""
    version = connector_version(spark_version)
    return _fetch(f"avro-{version}", _AVRO_MODULE.format(version=version))


def _fetch(name: str, module: str) -> list[Path]:
    folder = cache_dir() / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            _retrieve(module, Path(work))
            shutil.move(Path(work, "jars"), folder)
    return sorted(folder.glob("*.jar"))


def _retrieve(module: str, work: Path) -> None:
    (work / "ivy.xml").write_text(module, encoding="utf-8")
    (work / "settings.xml").write_text(_CENTRAL, encoding="utf-8")
    ivy = next(find_spark_jars().glob("ivy-*.jar"))
    settings = os.environ.get(IVY_SETTINGS_VARIABLE) or str(work / "settings.xml")
    subprocess.run(
        [
            *(str(find_java()), "-cp", str(ivy), "org.apache.ivy.Main"),
            *("-settings", settings, "-cache", str(work / "cache")),
            *("-ivy", str(work / "ivy.xml"), "-types", "jar", "bundle"),
            *("-retrieve", str(work / "jars" / "[artifact]-[revision].[ext]")),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


DELTA_SPARK = "4.4.0"
