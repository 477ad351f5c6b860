"""The process that looks Spark's Python sources up need not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.applications import ROOT
from spark_groups.spark.source.lookup import is_this_python
from workshop.parts.processes import environment

APPLICATION = """
import json, os
from contextlib import suppress
from pathlib import Path
from pyspark.sql import SparkSession
from spark_groups import register
from workshop.parts.processes import descendants

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
errors = []
for session in (spark, spark.newSession()):
    try:
        session.read.format("kafka-group-state").load()
    except Exception as error:
        errors.append(str(error))
started = []
for pid in descendants(os.getpid()):
    with suppress(OSError):
        started.append(Path(f"/proc/{pid}/cmdline").read_text().strip("\\0").rpartition(".")[2])
print(json.dumps({"errors": errors, "started": started}))
"""


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_no_process_looks_sources_up_and_every_session_finds_them() -> None:
    done = subprocess.run(
        (sys.executable, "-c", APPLICATION),
        cwd=ROOT,
        env=environment(PYSPARK_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert "create_data_source" in seen["started"]
    assert "lookup_data_sources" not in seen["started"]
    assert ["kafka.bootstrap.servers" in each for each in seen["errors"]] == [True, True]


def test_python_of_the_same_environment_is_this_one_by_any_name(tmp_path: Path) -> None:
    assert is_this_python(sys.executable)
    beside = Path(sys.executable).with_name("python3")
    assert not beside.exists() or is_this_python(str(beside))
    elsewhere = tmp_path / "python"
    elsewhere.symlink_to(os.path.realpath(sys.executable))
    assert not is_this_python(str(elsewhere)), "the Pythons of two environments may be one file"
    assert not is_this_python(str(tmp_path / "missing"))
