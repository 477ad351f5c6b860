"""Fixtures for all tests: one real broker, one real Spark, unique names; who runs beside whom."""

from __future__ import annotations

import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pyspark
import pytest
from playwright.sync_api import Browser, sync_playwright
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.broker.java import find_java
from spark_groups.broker.kafka_jars import fetch_kafka
from tests.cli.commands import Run, runner
from tests.runtime.proxy import Switched, switched_kafkas
from tests.secured import SecuredKafka, secured_kafka
from tests.spark.tables.places import PostgresPlace
from workshop.parts.connector import DELTA_SPARK, fetch_delta
from workshop.parts.postgres import running_postgres
from workshop.parts.schema_registry import Registry, running_registry
from workshop.parts.spark_classes import start_sparks_fast

start_sparks_fast()

# Also where no make has done so: see the Makefile.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The machine is shared: how long an example takes says nothing about the code.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")

SPARKS = ("Spark and tables", "Spark applications")
"""The groups of all tests on Spark. Two workers have them, and no third one: on two cores Python
workers of three Sparks would start later than Spark allows."""
AFTER_APPLICATIONS = tuple(
    f"tests/spark/tables/test_{each}.py"
    for each in ("contract", "delta_page", "every_table", "remedies", "routes")
)
"""Tests in the group of applications that use this process's session: both take about as long."""
LONGEST = (
    *SPARKS,
    *(f"scenarios on Kafka {version}" for version in ("4.4.0", "4.3.1", "4.0.0")),
    *("workshop/tests/chaos/test_run.py", "workshop/tests/parts/test_kafka_cluster.py"),
    *("tests/wire/test_addresses_of_brokers.py", "lab/tests/sim/test_world.py"),
    *("two clusters", "tests/spark/reading/test_reader.py", "tests/cli/test_cli.py"),
)
"""Groups that take longest: workers begin with them, so that all end at about the same time."""
VERSIONS = ("lab/tests/scenarios/", "lab/tests/conformance/")
"""Where long tests compare with the oldest Kafka and the newest."""

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_CHROMIUM = (
    "there is no Chromium: apt-get install chromium, or .venv/bin/playwright install chromium"
)

USUAL_VERSION = "4.3.1"
"""The version of Kafka that every run of the tests uses."""
_VERSION = re.compile(r"\d\.\d\.\d")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let tests that share a session, or start applications, run in one worker, in turn.

    Those that need a broker of another version are long.
    """
    item.add_marker(pytest.mark.xdist_group(_group_of(item)))
    parameters = getattr(item, "callspec", None)
    values = map(str, parameters.params.values()) if parameters else ()
    if any(_VERSION.fullmatch(each) and each != USUAL_VERSION for each in values):
        item.add_marker(pytest.mark.long)
    if item.nodeid.startswith(VERSIONS) and item.get_closest_marker("long") is not None:
        item.add_marker(pytest.mark.versions)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers, groups are handed out in this order.

    In a group of tests on Spark those with the session of this process come last: it stays.
    """
    items.sort(key=lambda item: (_rank(_group_of(item)), _has_session(item)))


def _has_session(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def _group_of(item: pytest.Item) -> str:
    if _has_session(item):
        return SPARKS[item.nodeid.startswith(AFTER_APPLICATIONS)]
    if item.get_closest_marker("spark") is not None:
        return SPARKS[1]
    if "switched" in getattr(item, "fixturenames", ()):
        return "two clusters"
    named = item.get_closest_marker("xdist_group")
    if named is not None:
        return str(named.args[0])
    return item.nodeid.partition("::")[0]


def _rank(group: str) -> int:
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


@pytest.fixture(scope="session")
def kafka_version() -> Iterator[Callable[[str], EmbeddedKafka]]:
    """A running broker of any version, one for all tests that ask for that version."""
    running: dict[str, EmbeddedKafka] = {}

    def start(version: str) -> EmbeddedKafka:
        if version not in running:
            kafka = EmbeddedKafka(version)
            kafka.start()
            running[version] = kafka
        return running[version]

    yield start
    for kafka in running.values():
        kafka.stop()


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A JVM with Kafka's own classes, to compare the package with them."""
    port, token = launch_gateway(
        classpath=fetch_kafka().class_path,
        die_on_exit=True,
        java_path=str(find_java()),
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield gateway.jvm
    gateway.shutdown()


@pytest.fixture(scope="session")
def kafka(kafka_version: Callable[[str], EmbeddedKafka]) -> EmbeddedKafka:
    """The broker for all tests: Apache Kafka on its default settings. Do not stop it."""
    return kafka_version(USUAL_VERSION)


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """The schema registry for all tests. Do not stop it; resume it if you pause it."""
    with running_registry() as running:
        yield running


@pytest.fixture(scope="session")
def two_kafkas() -> Iterator[Switched]:
    """Two clusters behind one address, for all tests that switch it."""
    with switched_kafkas() as switched:
        yield switched


@pytest.fixture
def switched(two_kafkas: Switched) -> Switched:
    """Two clusters behind one address, which leads to the first one."""
    two_kafkas.lead_to(two_kafkas.one)
    return two_kafkas


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker with TLS, logins and ACLs, for all tests. Do not stop it."""
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium: that of the machine, or else playwright's own."""
    with sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, CHROMIUM)), playwright.chromium.executable_path)
        if not Path(found).exists():
            pytest.fail(INSTALL_CHROMIUM)
        # Tests also run as root, in containers, where Chromium's sandbox cannot start.
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """How libpq reaches a PostgreSQL, one for all tests. Do not stop it."""
    with running_postgres() as dsn:
        yield dsn


@pytest.fixture
def on_postgres(postgres: str) -> PostgresPlace:
    """A schema of that PostgreSQL for one test."""
    return PostgresPlace(postgres)


@pytest.fixture
def topic_name() -> str:
    """A topic name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group_id() -> str:
    """A group id that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that finds the source by itself. Do not stop it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Tasks write with the classes of the driver only if the JVM has them from its start.
    jars = fetch_delta(DELTA_SPARK) if pyspark.__version__.startswith("4.2.") else []
    session = (
        SparkSession.builder.master("local[2]")
        .appName("spark-groups-tests")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.streaming.stopTimeout", "30s")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


@pytest.fixture
def command(tmp_path: Path) -> Run:
    """Run one command of `spark-groups` with a state directory of its own."""
    return runner(tmp_path / "state")
