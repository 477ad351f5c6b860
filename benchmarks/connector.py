"""The jars of Spark's own Kafka source, fetched once by the Ivy that PySpark ships."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from spark_groups.lab.broker.ivy import IVY_SETTINGS_VARIABLE
from spark_groups.ops.java import find_java, find_spark_jars
from spark_groups.runtime.directories import cache_dir

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
_CENTRAL = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


def fetch_connector(version: str) -> list[Path]:
    """Return the jars of a version of Spark's Kafka source, fetched if they are not there yet."""
    folder = cache_dir() / f"connector-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            _retrieve(version, Path(work))
            shutil.move(Path(work, "jars"), folder)
    return sorted(folder.glob("*.jar"))


def _retrieve(version: str, work: Path) -> None:
    (work / "ivy.xml").write_text(_MODULE.format(version=version), encoding="utf-8")
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
