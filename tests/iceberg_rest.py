"""A real REST catalog for tests: Iceberg's own servlet, over a catalog in SQLite, in a JVM."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from spark_groups.broker.ivy import IVY_SETTINGS_VARIABLE
from spark_groups.broker.java import find_java, find_spark_jars
from spark_groups.runtime.cache_directory import cache_dir

ICEBERG = "1.10.0"
FETCH_S = 400.0
STOP_S = 60.0
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
# The servlet is among the tests of Iceberg, which are published beside it.
_MODULE = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="spark-groups" module="iceberg-rest"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{ICEBERG}" conf="default">
      <artifact name="iceberg-core" type="jar" ext="jar"/>
      <artifact name="iceberg-core" type="jar" ext="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.eclipse.jetty" name="jetty-servlet" rev="11.0.24" conf="default"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="3.46.1.3" conf="default->master"
        transitive="false"/>
  </dependencies>
</ivy-module>
"""


@contextmanager
def running_rest_catalog(directory: Path) -> Iterator[str]:
    """Run a server; yields its URI.

    Args:
        directory: Gets its database and its tables.
    """
    spark_jars = find_spark_jars()
    jars = [*_fetched(spark_jars).glob("*.jar"), *spark_jars.glob("hadoop-client-*.jar")]
    with (directory / "log").open("wb") as log:
        port, process = launch_gateway(
            jarpath=str(next(spark_jars.glob("py4j-*.jar"))),
            classpath=os.pathsep.join(map(str, jars)),
            java_path=str(find_java()),
            die_on_exit=True,
            redirect_stderr=log,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            yield _start(gateway, directory)
        finally:
            # The JVM ends while it answers.
            with suppress(OSError):
                gateway.shutdown()
            process.stdin.close()
            process.wait(STOP_S)


def _start(gateway: JavaGateway, directory: Path) -> str:
    jvm = gateway.jvm
    properties = jvm.java.util.HashMap()
    properties.put("uri", f"jdbc:sqlite:{directory}/rest.db?busy_timeout=30000")
    properties.put("warehouse", (directory / "warehouse").as_uri())
    properties.put("jdbc.schema-version", "V1")
    catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    catalog.initialize("rest", properties)
    rest = jvm.org.apache.iceberg.rest
    servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))
    handler = jvm.org.eclipse.jetty.servlet.ServletContextHandler()
    handler.setContextPath("/")
    handler.addServlet(jvm.org.eclipse.jetty.servlet.ServletHolder(servlet), "/*")
    address = jvm.java.net.InetSocketAddress("127.0.0.1", 0)
    server = jvm.org.eclipse.jetty.server.Server(address)
    server.setHandler(handler)
    server.start()
    return f"http://127.0.0.1:{server.getURI().getPort()}"


def _fetched(spark_jars: Path) -> Path:
    """Return the directory of the server's jars, which are fetched once."""
    home = cache_dir() / f"iceberg-rest-{ICEBERG}"
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".iceberg-rest-", dir=home.parent) as work:
        module, settings = Path(work, "ivy.xml"), Path(work, "ivysettings.xml")
        module.write_text(_MODULE)
        settings.write_text(_SETTINGS)
        command = [
            *(find_java(), "-cp", next(spark_jars.glob("ivy-*.jar")), "org.apache.ivy.Main"),
            *("-settings", os.environ.get(IVY_SETTINGS_VARIABLE) or settings),
            *("-cache", Path(work, "cache"), "-ivy", module, "-types", "jar", "bundle"),
            *("-retrieve", f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        found = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=FETCH_S, check=False
        )
        assert found.returncode == 0, found.stdout[-3000:]
        # Another worker may have been faster.
        with suppress(OSError):
            Path(work, "jars").rename(home)
    return home
