"""A running query moves from Spark's own source to a group and back, as the how-to describes it.

The application has a session of its own: with the connector in the shared one, other tests could
not see what happens without it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from workshop.parts.applications import REPOSITORY
from workshop.parts.processes import environment

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(1_200),
]

PROGRAM_S = 1_100


def test_no_row_is_lost_or_doubled_on_the_way_over_and_back(
    kafka: EmbeddedKafka, group_id: str, topic_name: str, tmp_path: Path
) -> None:
    given = (str(tmp_path), kafka.bootstrap_servers, group_id, topic_name)
    with (tmp_path / "log").open("wb") as log:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.moving_application", *given],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(PYSPARK_PYTHON=sys.executable),
            timeout=PROGRAM_S,
            check=False,
        )
    assert ended.returncode == 0, (tmp_path / "log").read_text(errors="replace")[-6000:]
