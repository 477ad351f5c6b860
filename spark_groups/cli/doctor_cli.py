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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.broker.java import find_java
from spark_groups.broker.started_broker import running_broker
from spark_groups.cli.connecting import (
    BootstrapServer,
    Brokers,
    CommandConfig,
    JsonFlag,
    Timeout,
    named_brokers,
    usage_errors,
)
from spark_groups.cli.output import console, working, write_json
from spark_groups.cli.registry_check import CURE, REGISTRY, RegistryUrl, Subject, ask_registry
from spark_groups.errors import EmbeddedKafkaError, ErrorCode, SparkGroupsError, printable, rule_for
from spark_groups.group.member.messages import DescribeGroupRequest
from spark_groups.observation.observe import OBSERVE_TIMEOUT_S
from spark_groups.observation.plain_values import View
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import AdvertisedAddressError
from spark_groups.wire.properties_file import read_properties


def doctor(  # noqa: PLR0917
    bootstrap_server: BootstrapServer = None,
    timeout: Timeout = OBSERVE_TIMEOUT_S,
    command_config: CommandConfig = None,
    schema_registry: RegistryUrl = None,
    subject: Subject = None,
    as_json: JsonFlag = False,
) -> None:
    """Check the prerequisites of a query: Python, Java, Spark, its workers, and brokers.

    Each check is shown as it ends. The last ones start a Spark session, which takes some seconds,
    and load the fast reader in a Spark worker, which compiles it once per machine. PYSPARK_PYTHON
    and JAVA_HOME are used as Spark uses them. Brokers are checked if one is given or was started
    here, and a schema registry if one is given.

    Example: spark-groups doctor --bootstrap-server localhost:9092

    Exit code 1 if a check fails.
    """
    brokers = None
    if bootstrap_server is not None or running_broker() is not None:
        brokers = named_brokers(bootstrap_server, timeout, command_config)
    checks: list[Check] = []
    screen = console()
    if not as_json:
        screen.print(_row(("CHECK", "bold"), ("RESULT", "bold"), "FOUND", "bold"))

    def ask(_: Sequence[Check]) -> tuple[Check, ...]:
        return check_registry(schema_registry, subject, command_config)

    for what, check in (("the registry", ask), *steps(brokers)):
        with working(f"checking {what}"):
            found = check(checks)
        for each in () if as_json else found:
            screen.print(render_check(each))
        checks += found
    diagnosis = Diagnosis(checks=tuple(checks))
    if as_json:
        write_json(diagnosis.to_json())
    if not diagnosis.is_well:
        raise typer.Exit(1)


def _brokers(brokers: Brokers | None) -> Check:
    if brokers is None:
        return Check(BROKERS, Outcome.SKIPPED, "none given: use --bootstrap-server")
    with brokers.cluster() as cluster:
        return check_brokers(cluster, brokers.bootstrap_servers)


def render_check(check: Check) -> RenderableType:
    """Return the row of a check, and its cure below it."""
    outcome = (check.outcome.value, _STYLES[check.outcome])
    row = _row((check.name, ""), outcome, printable(check.found), "")
    return Group(row, Text(f"  -> {printable(check.cure)}")) if check.cure else row


def _row(name: tuple[str, str], outcome: tuple[str, str], found: str, style: str) -> Table:
    """Return one line of a table whose later lines are not known yet."""
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(min_width=max(map(len, NAMES)), no_wrap=True)
    row.add_column(min_width=max(len(each.value) for each in Outcome), no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row(Text(*name), Text(*outcome), Text(found, style))
    return row


NAMES: Final = (
    *("Python", "Java", "Spark", "workers' Python", "brokers"),
    *("kafka-group in Spark", "fast reader"),
)
PYTHON, JAVA, SPARK, WORKERS, BROKERS, IN_SPARK, FAST_READER = NAMES
PYTHON_MINIMUM: Final = (3, 10)
SPARK_MINIMUM: Final = 4
WORKER_TIMEOUT_S: Final = 60.0
SESSION_TIMEOUT_S: Final = 240.0
PROBED_GROUP: Final = "spark-groups-doctor"
"""The doctor describes this group, which does not exist."""

_WORKER: Final = """
import importlib.metadata, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
names = ("spark-groups", "pyspark", "confluent-kafka")
found = {name: version(name) for name in names}
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], **found}))
"""
_SESSION: Final = """
import json
from pyspark.sql import SparkSession
def fast_reader(_):
    from importlib.metadata import version
    from spark_groups.spark.reading.compiled import NotCompiledError, prepare
    try:
        prepare()
    except NotCompiledError as error:
        return {"problem": str(error)}
    return {"versions": {name: version(name) for name in ("numba", "zstandard")}}
spark = (
    SparkSession.builder.master("local[1]").appName("spark-groups doctor")
    .config("spark.ui.enabled", "false").getOrCreate()
)
options = {"kafka.bootstrap.servers": "localhost:1", "kafka.group.id": "g", "subscribe": "t"}
loaded = spark.readStream.format("kafka-group").options(**options).load()
print("loaded", spark.version, ",".join(loaded.columns), flush=True)
try:
    (found,) = spark.sparkContext.parallelize([0], 1).map(fast_reader).collect()
except Exception as error:
    found = {"problem": "a task of Spark failed: " + str(error).splitlines()[0]}
print("fast", json.dumps(found), flush=True)
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


@dataclass(frozen=True, slots=True)
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
        return Check(PYTHON, Outcome.OK, found)
    return Check(PYTHON, Outcome.FAILED, found, "use Python {}.{} or later".format(*PYTHON_MINIMUM))


def check_java() -> Check:
    """Check the Java that Spark runs on."""
    try:
        return Check(JAVA, Outcome.OK, str(find_java()))
    except EmbeddedKafkaError as error:
        return Check(JAVA, Outcome.FAILED, str(error))


def check_spark(installed: str | None) -> Check:
    """Check the PySpark of the driver."""
    if installed is None:
        cure = "pip install 'spark-groups[spark]', or use the Python of your Spark"
        return Check(SPARK, Outcome.FAILED, "no pyspark", cure)
    if int(installed.split(".")[0]) < SPARK_MINIMUM:
        cure = (
            "the source needs Spark 4.0 or newer: Spark 3 has no Python data sources, and fails"
            " with DATA_SOURCE_NOT_FOUND"
        )
        return Check(SPARK, Outcome.FAILED, installed, cure)
    return Check(SPARK, Outcome.OK, installed)


def check_workers(environment: Mapping[str, str], driver: tuple[int, int]) -> Check:
    """Check the Python of Spark's workers, which runs the source."""
    cure = f"set PYSPARK_PYTHON={sys.executable} before the session starts"

    def failed(found: str, cure: str = cure) -> Check:
        return Check(WORKERS, Outcome.FAILED, found, cure)

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
    return Check(WORKERS, Outcome.OK, found)


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


def check_fast_reader(in_worker: Mapping[str, Any]) -> Check:
    """Check what a Spark worker reported that loaded the fast reader.

    Args:
        in_worker: The versions of its packages, or the problem.
    """
    if "versions" in in_worker:
        packages = ", ".join(f"{name} {found}" for name, found in in_worker["versions"].items())
        return Check(FAST_READER, Outcome.OK, f"loaded in a Spark worker: {packages}")
    return Check(
        FAST_READER,
        Outcome.WARNING,
        f"not available in a Spark worker: {in_worker['problem']}",
        "pip install 'spark-groups[fast]' for the workers; without it librdkafka reads",
    )


def check_session(environment: Mapping[str, str]) -> tuple[Check, ...]:
    """Start a session that loads the source, as a query does, and the fast reader in a worker."""
    code, output = _run((sys.executable, "-c", _SESSION), environment, SESSION_TIMEOUT_S)
    said = {line.partition(" ")[0]: line.partition(" ")[2] for line in output.splitlines()}
    if code == 0 and said.get("loaded", "").endswith(",timestampType"):
        found = f"found by Spark {said['loaded'].split()[0]}"
        fast = check_fast_reader(json.loads(said["fast"]))
        return Check(IN_SPARK, Outcome.OK, found), fast
    return _not_found(environment, code, output), _skipped(FAST_READER)


def _not_found(environment: Mapping[str, str], code: int, output: str) -> Check:
    """Return why a session did not load the source."""
    cure = "call spark_groups.register(spark), which reports the missing prerequisite"
    if hiding := hiding_modules(environment):
        files = "; ".join(f"{file} {problem}" for file, problem in hiding)
        cure = (
            "Spark imports every module named pyspark_* on its path to find data sources: rename"
            " these files, or start in another directory"
        )
        return Check(IN_SPARK, Outcome.FAILED, files, cure)
    if "DATA_SOURCE_NOT_FOUND" in output:
        found = "[DATA_SOURCE_NOT_FOUND]: Spark's workers do not have the package"
    else:
        found = f"exit code {code}: {_last_line(output)}"
        cure = "check that JAVA_HOME and SPARK_HOME point to this installation"
    return Check(IN_SPARK, Outcome.FAILED, found, cure)


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
        return Check(BROKERS, Outcome.FAILED, found, cure)
    found = f"{len(nodes)} at {bootstrap_servers}"
    code = answer.error_code
    if code in {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}:
        return Check(BROKERS, Outcome.OK, f"{found}, with the consumer protocol")
    found += f": ConsumerGroupDescribe returned {ErrorCode.name_of(code)}"
    outcome, cure = Outcome.WARNING, rule_for(code).remedy
    if code == ErrorCode.UNSUPPORTED_VERSION:
        outcome, cure = Outcome.FAILED, "add consumer to group.coordinator.rebalance.protocols"
    return Check(BROKERS, outcome, found, cure)


def check_registry(
    urls: str | None, subject: str | None, command_config: Path | None
) -> tuple[Check, ...]:
    """Check that a schema registry answers, and that rows can have the schema of a subject.

    Args:
        urls: Its addresses, separated by commas; None: nothing is checked.
        subject: The subject; None: any answer will do.
        command_config: A file with its settings.
    """
    with usage_errors("--subject"):
        settings = read_properties(command_config) if command_config else {}
        answer = ask_registry(urls, subject, settings)
    if answer is None:
        return ()
    if answer.is_well:
        return (Check(REGISTRY, Outcome.OK, answer.text),)
    return (Check(REGISTRY, Outcome.FAILED, answer.text, CURE),)


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


Step = Callable[[Sequence[Check]], tuple[Check, ...]]
"""Makes checks; gets those that were made before."""


def steps(brokers: Brokers | None) -> tuple[tuple[str, Step], ...]:
    """Return what to check, in order, each with its name on the terminal."""
    running = sys.version_info[:2]
    return (
        (PYTHON, lambda _: (check_python(running),)),
        (JAVA, lambda _: (check_java(),)),
        (SPARK, lambda _: (check_spark(installed_version("pyspark")),)),
        ("the workers' Python", lambda _: (check_workers(os.environ, running),)),
        ("the brokers", lambda _: (_brokers(brokers),)),
        ("Spark and its workers in a session", _in_session),
    )


def _in_session(before: Sequence[Check]) -> tuple[Check, ...]:
    """Run the checks of a session; they are skipped if its prerequisites are not met."""
    if any(each.outcome is Outcome.FAILED for each in before if each.name != BROKERS):
        return _skipped(IN_SPARK), _skipped(FAST_READER)
    return check_session(os.environ)


def _skipped(name: str) -> Check:
    return Check(name, Outcome.SKIPPED, "skipped because of the failures above")


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
