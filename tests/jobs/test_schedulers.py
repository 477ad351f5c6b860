"""The examples of docs/how-to/schedule.md, run by Airflow and Dagster as their own tests run jobs.

`make schedulers` makes the two environments, and runs this; without them it is skipped.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.spark_log import read_rows
from spark_groups.broker.embedded import EmbeddedKafka
from tests.documents import ROOT, blocks_of
from tests.jobs.submitted import spark_environment
from tests.runtime.members import committed
from workshop.parts.brokers import numbered_topic

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

ROWS = 200
RUN_S = 420
PAGE = ROOT / "docs" / "how-to" / "schedule.md"


@dataclass(frozen=True)
class Scheduler:
    """A scheduler, and how its example is run.

    Args:
        name: The name of its environment in .venvs.
        mark: A line that only its example has.
        program: Runs the example once, and ends with 1 if the run failed.
    """

    name: str
    mark: str
    program: str

    @property
    def python(self) -> Path:
        return ROOT / ".venvs" / self.name / "bin" / "python"


AIRFLOW = Scheduler(
    "airflow",
    "from airflow.sdk import dag, task",
    "import sys, flights; run = flights.dag.test(); sys.exit(str(run.state) != 'success')",
)
DAGSTER = Scheduler(
    "dagster",
    "import dagster as dg",
    "import sys, flights; done = flights.flights.execute_in_process(raise_on_error=False);"
    " sys.exit(not done.success)",
)


def example(scheduler: Scheduler, config: Path) -> str:
    """The block of the page, with what a reader would adapt replaced."""
    blocks = [each.text for each in blocks_of(PAGE.read_text(encoding="utf-8"))]
    (text,) = (each for each in blocks if scheduler.mark in each)
    for written, run in (
        ("/opt/flights/bin/python", sys.executable),
        ("/etc/flights/consume.toml", str(config)),
    ):
        assert written in text
        text = text.replace(written, run)
    return text


def played(scheduler: Scheduler, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the example in the scheduler's environment, with a home of its own."""
    variables = {
        "AIRFLOW_HOME": str(directory / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(directory),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "DAGSTER_HOME": "",
        "PYTHONPATH": f"{directory}:{ROOT}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--master local[1] --conf spark.ui.enabled=false pyspark-shell",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(scheduler.python), *arguments],
            cwd=directory,
            env=spark_environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_S,
            check=False,
        )

    if scheduler is AIRFLOW:
        migrated = run("-m", "airflow", "db", "migrate")
        assert migrated.returncode == 0, migrated.stdout
    return run("-c", scheduler.program)


@pytest.fixture(params=[AIRFLOW, DAGSTER], ids=lambda each: each.name)
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    one: Scheduler = request.param
    if not one.python.exists():
        pytest.skip(f"make schedulers makes .venvs/{one.name}")
    return one


def test_example_reads_what_there_is(
    scheduler: Scheduler, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    numbered_topic(kafka.bootstrap_servers, topic_name, 2, ROWS)
    config = tmp_path / "consume.toml"
    config.write_text(
        f"""
application.name = "flights"
source.kafka.bootstrap.servers = "{kafka.bootstrap_servers}"
source.kafka.group.id = "{group_id}"
source.subscribe = "{topic_name}"
source.startingOffsets = "earliest"
query.checkpointLocation = "{tmp_path}/checkpoints"
sink.path = "{tmp_path}/output"
""",
        encoding="utf-8",
    )
    (tmp_path / "flights.py").write_text(example(scheduler, config), encoding="utf-8")
    done = played(scheduler, tmp_path)
    assert done.returncode == 0, done.stdout[-8000:]
    rows = read_rows([tmp_path / "output" / "flights"], ["value"])["value"].to_pylist()
    assert sorted(map(int, rows)) == list(range(ROWS))
    assert sum(committed(kafka.bootstrap_servers, group_id).values()) == ROWS


def test_refused_configuration_is_not_tried_again(scheduler: Scheduler, tmp_path: Path) -> None:
    config = tmp_path / "consume.toml"
    config.write_text("[source]\nkafka.group.id = ''\n", encoding="utf-8")
    (tmp_path / "flights.py").write_text(example(scheduler, config), encoding="utf-8")
    done = played(scheduler, tmp_path)
    assert done.returncode == 1, done.stdout[-8000:]
    assert done.stdout.count("the job's configuration is invalid") == 1, done.stdout[-8000:]
    assert "refuses its configuration" in done.stdout
