"""`spark-groups doctor` with real Pythons, a real Spark and a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.doctor_cli import (
    Check,
    Diagnosis,
    Outcome,
    check_fast_reader,
    check_python,
    check_session,
    check_spark,
    check_workers,
    hiding_modules,
    render_check,
)
from tests.cli.commands import Run
from tests.cli.rendered import lines
from workshop.parts.processes import environment


def checks(stdout: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(stdout)["checks"]}


@pytest.mark.broker
@pytest.mark.spark
def test_all_is_well_where_tests_run(kafka: EmbeddedKafka, command: Run) -> None:
    address = ("--bootstrap-server", kafka.bootstrap_servers)
    done = command("doctor", *address, "--json", PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stdout
    found = checks(done.stdout)
    assert {each["outcome"] for each in found.values()} == {"ok"}, done.stdout
    assert "with the consumer protocol" in found["brokers"]["found"]
    assert "found by Spark 4" in found["kafka-group in Spark"]["found"]
    assert "loaded in a Spark worker: numba " in found["fast reader"]["found"]


def test_a_python_without_the_package_is_named_with_the_cure(command: Run, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    done = command("doctor", "--json", PYSPARK_PYTHON=str(bare / "bin" / "python"))
    assert done.returncode == 1
    found = checks(done.stdout)
    workers = found["workers' Python"]
    assert workers["outcome"] == "failed"
    assert "lacks spark-groups, pyspark" in workers["found"]
    assert f"PYSPARK_PYTHON={sys.executable}" in workers["cure"]
    skipped = ("kafka-group in Spark", "fast reader", "brokers")
    assert {found[name]["outcome"] for name in skipped} == {"skipped"}


def test_a_python_that_is_not_there_and_a_broker_that_does_not_answer(command: Run) -> None:
    address = ("--bootstrap-server", "127.0.0.1:1", "--timeout", "1")
    done = command("doctor", *address, PYSPARK_PYTHON="/no/such/python", COLUMNS="200")
    assert done.returncode == 1
    assert "/no/such/python not found" in done.stdout
    assert "127.0.0.1:1" in done.stdout


@pytest.mark.broker
@pytest.mark.long
def test_brokers_without_the_consumer_protocol_are_reported(command: Run) -> None:
    properties = {"group.coordinator.rebalance.protocols": "classic"}
    with EmbeddedKafka(server_properties=properties) as kafka:
        address = ("--bootstrap-server", kafka.bootstrap_servers)
        done = command("doctor", *address, "--json", PYSPARK_PYTHON="/no/such/python")
    found = checks(done.stdout)["brokers"]
    assert found["outcome"] == "failed", found
    assert "group.coordinator.rebalance.protocols" in found["cure"]


def test_fast_reader_is_what_a_spark_worker_could_load() -> None:
    loaded = check_fast_reader({"versions": {"numba": "0.60", "zstandard": "0.23"}})
    found = "loaded in a Spark worker: numba 0.60, zstandard 0.23"
    assert (loaded.outcome, loaded.found, loaded.cure) == (Outcome.OK, found, "")
    problem = check_fast_reader({"problem": "numba needs another numpy"})
    assert problem.outcome is Outcome.WARNING
    assert problem.found == "not available in a Spark worker: numba needs another numpy"
    assert "spark-groups[fast]" in problem.cure


def test_cure_stands_below_its_check() -> None:
    failed = Check(name="Spark", outcome=Outcome.FAILED, found="3.5\x1b", cure="use 4")
    assert lines(render_check(failed)) == [
        "Spark                 failed   3.5?",
        "  -> use 4",
    ]


def test_old_versions_are_refused() -> None:
    assert check_python((3, 9)).outcome is check_spark("3.5.1").outcome is Outcome.FAILED
    assert check_spark(None).cure.startswith("pip install")
    assert check_python((3, 12)).outcome is check_spark("4.3.0").outcome is Outcome.OK
    assert "DATA_SOURCE_NOT_FOUND" in check_spark("3.5.1").cure


def test_a_warning_is_no_failure() -> None:
    def diagnosis(outcome: Outcome) -> Diagnosis:
        return Diagnosis(checks=(Check(name="fast reader", outcome=outcome, found="no numba"),))

    assert diagnosis(Outcome.WARNING).is_well
    assert not diagnosis(Outcome.FAILED).is_well
    assert diagnosis(Outcome.SKIPPED).to_json() == {
        "is_well": True,
        "checks": [{"name": "fast reader", "outcome": "skipped", "found": "no numba", "cure": ""}],
    }


def test_another_program_is_not_a_python() -> None:
    found = check_workers({"PYSPARK_PYTHON": "/bin/true"}, sys.version_info[:2])
    assert (found.outcome, "is not a Python" in found.found) == (Outcome.FAILED, True)


_OTHER = """
from pyspark.sql.datasource import DataSource
class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "kafka-group"
    def schema(self):
        return "a int"
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import no_such_module", "fails on import with ModuleNotFoundError: No module named 'no_"),
        ("raise SystemExit(3)", "fails on import with SystemExit: 3"),
    ],
)
def test_module_that_hides_the_source_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    file = tmp_path / "pyspark_zebra.py"
    file.write_text(text)
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    check, _ = check_session(environment)
    assert check.outcome is Outcome.FAILED
    assert f"{file} {problem}" in check.found
    assert "rename these files" in check.cure


def test_module_with_a_source_of_the_same_name_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of two modules Spark takes depends on their places on its path."""
    file = tmp_path / "pyspark_zebra.py"
    file.write_text(_OTHER)
    monkeypatch.chdir(tmp_path)
    found = hiding_modules({**os.environ, "PYSPARK_PYTHON": sys.executable})
    assert found == [(str(file), "has another data source with the name kafka-group")]


def test_each_check_is_shown_as_it_ends(tmp_path: Path) -> None:
    """The check of the workers' Python waits for a pipe; the rows before it are there meanwhile."""
    gate, python = tmp_path / "gate", tmp_path / "python"
    os.mkfifo(gate)
    python.write_text(f"#!/bin/sh\nread _ < {gate}\necho no python\n")
    python.chmod(0o755)
    running = subprocess.Popen(
        [sys.executable, "-m", "spark_groups.cli.main", "doctor"],
        env=environment(
            PYSPARK_PYTHON=str(python), SPARK_GROUPS_STATE_DIR=str(tmp_path), COLUMNS="400"
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    try:
        shown = [running.stdout.readline().split()[:2] for _ in range(4)]
        assert shown == [["CHECK", "RESULT"], ["Python", "ok"], ["Java", "ok"], ["Spark", "ok"]]
        gate.write_text("go\n")
        assert "is not a Python: no python" in running.communicate(timeout=800)[0]
        assert running.returncode == 1
    finally:
        running.kill()
        running.wait()


@pytest.mark.spark
def test_fast_reader_that_only_the_driver_has_is_missing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['numba'] = None\n")
    python = tmp_path / "python"
    path = f"{tmp_path}:$PYTHONPATH"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    found, fast = check_session({**os.environ, "PYSPARK_PYTHON": str(python)})
    assert (found.outcome, fast.outcome) == (Outcome.OK, Outcome.WARNING)
    assert "not available in a Spark worker: the fast reader requires numba" in fast.found
