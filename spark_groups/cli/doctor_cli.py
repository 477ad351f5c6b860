"""`spark-groups doctor`: check the prerequisites of a query, and show how to fix what fails.

The Python of Spark's workers and a Spark session run as separate processes, as a query uses them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.broker.java import find_java
from spark_groups.broker.started_broker import running_broker
from spark_groups.cli.connecting import (
    BootstrapServer,
    CommandConfig,
    JsonFlag,
    Timeout,
    named_brokers,
)
from spark_groups.cli.output import Column, show, table_of
from spark_groups.errors import EmbeddedKafkaError, ErrorCode, SparkGroupsError, printable, rule_for
from spark_groups.group.member.messages import DescribeGroupRequest
from spark_groups.observation.observe import OBSERVE_TIMEOUT_S
from spark_groups.observation.plain_values import View
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import AdvertisedAddressError


def doctor(
    bootstrap_server: BootstrapServer = None,
    timeout: Timeout = OBSERVE_TIMEOUT_S,
    command_config: CommandConfig = None,
    as_json: JsonFlag = False,
) -> None:
    """Check the prerequisites of a query: Python, Java, Spark, its workers, and brokers.

    Starts a Spark session, which takes a few seconds. PYSPARK_PYTHON and JAVA_HOME are used as
    Spark uses them. Brokers are checked if one is given or was started here.

    Example: spark-groups doctor --bootstrap-server localhost:9092

    Exit code 1 if a check fails.
    """
    diagnosis = examine(_brokers(bootstrap_server, timeout, command_config))
    show(diagnosis, render_diagnosis, as_json=as_json, is_success=diagnosis.is_well)


def _brokers(
    bootstrap_server: BootstrapServer, timeout: Timeout, command_config: CommandConfig
) -> Check:
    if bootstrap_server is None and running_broker() is None:
        found = "none given: use --bootstrap-server"
        return Check(name="brokers", outcome=Outcome.SKIPPED, found=found)
    brokers = named_brokers(bootstrap_server, timeout, command_config)
    with brokers.cluster() as cluster:
        return check_brokers(cluster, brokers.bootstrap_servers)


def render_diagnosis(diagnosis: Diagnosis) -> RenderableType:
    """Return one row for each check, and the cures below them."""
    table = table_of(
        diagnosis.checks,
        Column("CHECK", lambda each: each.name),
        Column("RESULT", lambda each: Text(each.outcome.value, _STYLES[each.outcome])),
        Column("FOUND", lambda each: each.found),
    )
    cures = [
        Text(f"{check.name}: {printable(check.cure)}") for check in diagnosis.checks if check.cure
    ]
    return Group(table, *cures)


PYTHON_MINIMUM: Final = (3, 10)
SPARK_MINIMUM: Final = 4
WORKER_TIMEOUT_S: Final = 60.0
SESSION_TIMEOUT_S: Final = 180.0
PROBED_GROUP: Final = "spark-groups-doctor"
"""The doctor describes this group, which does not exist."""

_WORKER: Final = """
import importlib.metadata, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
names = ("spark-groups", "pyspark", "confluent-kafka", "numba", "zstandard")
found = {name: version(name) for name in names}
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], **found}))
"""
_SESSION: Final = """
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").appName("spark-groups doctor")
    .config("spark.ui.enabled", "false").getOrCreate()
)
options = {"kafka.bootstrap.servers": "localhost:1", "kafka.group.id": "g", "subscribe": "t"}
loaded = spark.readStream.format("kafka-group").options(**options).load()
print("loaded", spark.version, ",".join(loaded.columns))
spark.stop()
"""


_MODULES: Final = """
import contextlib, importlib, io, json, pkgutil
found = []
for each in pkgutil.iter_modules():
    if not each.name.startswith("pyspark_"):
        continue
    file = getattr(each.module_finder.find_spec(each.name), "origin", each.name)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            module = importlib.import_module(each.name)
    except BaseException as error:
        found.append((file, f"fails on import with {type(error).__name__}: {error}"))
        continue
    one = getattr(module, "DefaultSource", None)
    if hasattr(one, "name") and not one.__module__.startswith("spark_groups."):
        if one.name() == "kafka-group":
            found.append((file, "has another data source with the name kafka-group"))
print(json.dumps(found))
"""
"""Spark imports each top-level module with this beginning; one that fails hides all of them."""


class Outcome(Enum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of checking one prerequisite, and the cure if it is not met."""

    name: str
    outcome: Outcome
    found: str
    cure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(View):
    """All checks, in order."""

    checks: tuple[Check, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing failed."""
        return all(check.outcome is not Outcome.FAILED for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the checks as JSON has them, and `is_well`."""
        return {"is_well": self.is_well, **super(Diagnosis, self).to_json()}


def check_python(running: tuple[int, int]) -> Check:
    """Check the version of the running Python."""
    found = "{}.{}".format(*running)
    if running >= PYTHON_MINIMUM:
        return Check(name="Python", outcome=Outcome.OK, found=found)
    cure = "use Python {}.{} or later".format(*PYTHON_MINIMUM)
    return Check(name="Python", outcome=Outcome.FAILED, found=found, cure=cure)


def check_java() -> Check:
    """Check the Java that Spark runs on."""
    try:
        return Check(name="Java", outcome=Outcome.OK, found=str(find_java()))
    except EmbeddedKafkaError as error:
        return Check(name="Java", outcome=Outcome.FAILED, found=str(error))


def check_spark(installed: str | None) -> Check:
    """Check the PySpark of the driver."""
    if installed is None:
        cure = "pip install 'spark-groups[spark]', or use the Python of your Spark"
        return Check(name="Spark", outcome=Outcome.FAILED, found="no pyspark", cure=cure)
    if int(installed.split(".")[0]) < SPARK_MINIMUM:
        cure = (
            "the source needs Spark 4.0 or newer: Spark 3 has no Python data sources, and fails"
            " with DATA_SOURCE_NOT_FOUND"
        )
        return Check(name="Spark", outcome=Outcome.FAILED, found=installed, cure=cure)
    return Check(name="Spark", outcome=Outcome.OK, found=installed)


def check_workers(environment: Mapping[str, str], driver: tuple[int, int]) -> tuple[Check, ...]:
    """Check the Python of Spark's workers, which runs the source, and its fast reader."""
    name = "workers' Python"
    cure = f"set PYSPARK_PYTHON={sys.executable} before the session starts"

    def failed(found: str, cure: str = cure) -> tuple[Check, ...]:
        return (Check(name=name, outcome=Outcome.FAILED, found=found, cure=cure),)

    python, path = _python_of_workers(environment)
    if path is None:
        return failed(f"{python} not found")
    code, output = _run((path, "-c", _WORKER), environment, WORKER_TIMEOUT_S)
    if code != 0:
        return failed(f"{path}: {_last_line(output)}")
    versions = _json_of_last_line(output)
    if not isinstance(versions, dict):
        return failed(f"{path} is not a Python: {_last_line(output)}")
    found = f"{path}, Python {versions['python']}"
    missing = [
        each for each in ("spark-groups", "pyspark", "confluent-kafka") if not versions[each]
    ]
    if missing:
        return failed(f"{found} lacks {', '.join(missing)}", f"{cure}, or install it there")
    wanted = "{}.{}".format(*driver)
    if versions["python"] != wanted:
        return failed(f"{found}; the driver's is {wanted}, and Spark requires the same version")
    return (Check(name=name, outcome=Outcome.OK, found=found), check_fast_reader(versions))


def _python_of_workers(environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the name of the workers' Python, and its path; None: it is not found."""
    python = environment.get("PYSPARK_PYTHON") or "python3"
    return python, shutil.which(python, path=environment.get("PATH"))


def _json_of_last_line(output: str) -> Any:
    """Return the value of an output's last line; None: it is not JSON."""
    try:
        return json.loads(_last_line(output))
    except ValueError:
        return None


def check_fast_reader(versions: Mapping[str, str | None]) -> Check:
    """Check that the workers have the packages of the extra `fast`, by their versions."""
    name, packages = "fast reader", ("numba", "zstandard")
    missing = [package for package in packages if not versions.get(package)]
    if not missing:
        found = ", ".join(f"{package} {versions[package]}" for package in packages)
        return Check(name=name, outcome=Outcome.OK, found=found)
    cure = "pip install 'spark-groups[fast]' for the workers; without it librdkafka reads"
    found = " and ".join(f"no {each}" for each in missing)
    return Check(name=name, outcome=Outcome.WARNING, found=found, cure=cure)


def check_discovery(environment: Mapping[str, str]) -> Check:
    """Start a session that loads the source, as a query does."""
    name = "kafka-group in Spark"
    code, output = _run((sys.executable, "-c", _SESSION), environment, SESSION_TIMEOUT_S)
    loaded = [line for line in output.splitlines() if line.startswith("loaded ")]
    if code == 0 and loaded and ",timestampType" in loaded[0]:
        return Check(name=name, outcome=Outcome.OK, found=f"found by Spark {loaded[0].split()[1]}")
    cure = "call spark_groups.register(spark), which reports the missing prerequisite"
    if hiding := hiding_modules(environment):
        files = "; ".join(f"{file} {problem}" for file, problem in hiding)
        cure = (
            "Spark imports every module named pyspark_* on its path to find data sources: rename"
            " these files, or start in another directory"
        )
        return Check(name=name, outcome=Outcome.FAILED, found=files, cure=cure)
    if "DATA_SOURCE_NOT_FOUND" in output:
        found = "[DATA_SOURCE_NOT_FOUND]: Spark's workers do not have the package"
    else:
        found = f"exit code {code}: {_last_line(output)}"
        cure = "check that JAVA_HOME and SPARK_HOME point to this installation"
    return Check(name=name, outcome=Outcome.FAILED, found=found, cure=cure)


def hiding_modules(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the files because of which Spark does not find the source, each with the problem.

    Args:
        environment: That of Spark.
    """
    _, path = _python_of_workers(environment)
    if path is None:
        return []
    _, output = _run((path, "-c", _MODULES), environment, WORKER_TIMEOUT_S)
    try:
        return [(str(file), str(problem)) for file, problem in _json_of_last_line(output)]
    except (TypeError, ValueError):
        return []


def check_brokers(cluster: Cluster, bootstrap_servers: str) -> Check:
    """Check that brokers answer, and support the consumer protocol."""
    name = "brokers"
    try:
        nodes = cluster.nodes()
        answer = cluster.describe_group(DescribeGroupRequest(group_id=PROBED_GROUP))
    except SparkGroupsError as error:
        found = f"{bootstrap_servers}: {error}"
        if isinstance(error, AdvertisedAddressError):
            cure = (
                "set advertised.listeners of that broker to an address that leads to it from this"
                " host, or make its host name lead there (DNS, /etc/hosts, a tunnel)"
            )
        else:
            cure = "KIP-848 needs Apache Kafka 4.0 or newer; secured brokers need --command-config"
        return Check(name=name, outcome=Outcome.FAILED, found=found, cure=cure)
    found = f"{len(nodes)} at {bootstrap_servers}"
    code = answer.error_code
    if code in {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}:
        return Check(name=name, outcome=Outcome.OK, found=f"{found}, with the consumer protocol")
    found += f": ConsumerGroupDescribe returned {ErrorCode.name_of(code)}"
    outcome, cure = Outcome.WARNING, rule_for(code).remedy
    if code == ErrorCode.UNSUPPORTED_VERSION:
        outcome, cure = Outcome.FAILED, "add consumer to group.coordinator.rebalance.protocols"
    return Check(name=name, outcome=outcome, found=found, cure=cure)


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def examine(brokers: Check) -> Diagnosis:
    """Run all checks; the session is skipped if its prerequisites are not met."""
    running = sys.version_info[:2]
    checks = [check_python(running), check_java(), check_spark(installed_version("pyspark"))]
    has_spark = checks[-1].outcome is Outcome.OK
    workers = check_workers(os.environ, running)
    if has_spark and all(each.outcome is not Outcome.FAILED for each in (checks[1], *workers)):
        found = check_discovery(os.environ)
    else:
        reason = "skipped because of the failures above"
        found = Check(name="kafka-group in Spark", outcome=Outcome.SKIPPED, found=reason)
    return Diagnosis(checks=(*checks, *workers, found, brokers))


def _run(
    command: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> tuple[int, str]:
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return 1, str(error)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # Its children, such as a JVM, hold the pipe as well.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return 1, f"timed out after {timeout_s:g} s"
    return process.returncode, output


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


_STYLES: Final[Mapping[Outcome, str]] = {
    Outcome.OK: "green",
    Outcome.WARNING: "yellow",
    Outcome.FAILED: "red",
    Outcome.SKIPPED: "dim",
}
