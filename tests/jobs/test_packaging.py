"""The package and its native dependencies on executors of a real standalone cluster."""

from __future__ import annotations

import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.spark_log import read_rows
from spark_groups.broker.embedded import EmbeddedKafka
from tests.jobs.packed import build_wheel, make_environment, pack
from tests.jobs.standalone import StandaloneCluster
from tests.jobs.submitted import LOCAL, ROOT, SPARK_SUBMIT, SubmittedJob, spark_environment
from workshop.parts.brokers import numbered_topic

ROWS = 500
WHERE_CODE_IS = (
    'java_method("java.lang.System", "getProperty", "user.dir") AS executor',
    "CAST(value AS STRING) AS value",
)


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel.

    Args:
        python: Its Python.
        archive: The same environment, packed.
    """

    python: Path
    archive: Path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    directory = tmp_path_factory.mktemp("packed")
    python = make_environment(directory / "environment", build_wheel(directory))
    pack(directory / "environment", directory / "environment.tar.gz")
    return Installed(python, directory / "environment.tar.gz")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("way", ["installed wheel", "packed environment"])
def test_executors_of_a_cluster_read_in_client_mode(
    way: str,
    kafka: EmbeddedKafka,
    cluster: StandaloneCluster,
    installed: Installed,
    tmp_path: Path,
) -> None:
    topic_name = f"topic-{uuid.uuid4().hex[:12]}"
    numbered_topic(kafka.bootstrap_servers, topic_name, 2, ROWS)
    submit = ["--master", cluster.url, "--executor-memory", "512m"]
    python = str(installed.python)
    if way == "packed environment":
        # The driver's own host needs it unpacked: in client mode Spark unpacks it for executors.
        with tarfile.open(installed.archive) as archive:
            archive.extractall(tmp_path / "environment", filter="tar")
        submit += ["--archives", f"{installed.archive}#environment"]
        python = "./environment/bin/python"
    arguments = (
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topics", topic_name),
        *("--group", f"group-{topic_name}", "--trigger", "availableNow"),
        *("--set", f"query.selectExpr={list(WHERE_CODE_IS)}"),
    )
    with SubmittedJob(
        tmp_path, "job", arguments, submit=submit, python=python, directory_of_start=tmp_path
    ) as job:
        exit_code, _ = job.await_end(180)
        assert exit_code == 0, job.text()[-5000:] + cluster.executor_log()[-5000:]
    rows = read_rows([job.output], ["executor", "value"])
    assert sorted(map(int, rows["value"].to_pylist())) == list(range(ROWS))
    (where,) = set(rows["executor"].to_pylist())
    assert Path(where).parts[-2].startswith("app-"), (
        "the rows were not read by an executor of the cluster"
    )


@pytest.mark.spark
def test_cluster_deploy_mode_is_refused_by_standalone_clusters() -> None:
    command = [str(SPARK_SUBMIT), *LOCAL, "--master", "spark://127.0.0.1:1"]
    done = subprocess.run(
        [*command, "--deploy-mode", "cluster", str(ROOT / "jobs" / "consume.py")],
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode != 0
    expected = "Cluster deploy mode is currently not supported for python applications"
    assert expected in done.stdout + done.stderr


@pytest.mark.slow
def test_wheel_brings_the_source_and_not_spark(installed: Installed, tmp_path: Path) -> None:
    listed = subprocess.run(
        [str(installed.python), "-m", "spark_groups.cli.main", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    site_packages = next(installed.python.parents[1].glob("lib/python*/site-packages"))
    assert (site_packages / "pyspark_kafka_group.py").is_file()
    assert not (site_packages / "pyspark").exists()
