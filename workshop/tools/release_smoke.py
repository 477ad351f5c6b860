"""A job of the installed wheel reads a topic of an embedded Kafka, each row once.

Run with the Python of an environment that has the wheel and PySpark: `python -I release_smoke.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyarrow.dataset
from confluent_kafka import Producer

from spark_groups import EmbeddedKafka

ROWS: Final = 500
JOB_S: Final = 300
TOPIC: Final = "smoke"


def main() -> None:
    """Produce, read with `spark_groups.jobs.consume`, and compare."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedKafka() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(ROWS):
            producer.produce(TOPIC, value=str(number))
        producer.flush()
        arguments = (
            *("--bootstrap-servers", kafka.bootstrap_servers, "--topics", TOPIC),
            *("--group", "smoke", "--name", "smoke", "--trigger", "availableNow"),
            *("--output", f"{directory}/output", "--checkpoint", f"{directory}/checkpoints"),
            *("--set", "source.startingOffsets=earliest"),
        )
        variables = {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--master local[1] --conf spark.ui.enabled=false pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        subprocess.run(
            [sys.executable, "-I", "-m", "spark_groups.jobs.consume", *arguments],
            env={**os.environ, **variables},
            cwd=directory,
            timeout=JOB_S,
            check=True,
        )
        files = sorted(Path(directory, "output").rglob("*.parquet"))
        rows = pyarrow.dataset.dataset(files).to_table(columns=["value"])
        read = sorted(int(value) for value in rows["value"].to_pylist())
        assert read == list(range(ROWS)), f"{len(read)} rows instead of {ROWS}"


if __name__ == "__main__":
    main()
