"""An application of `workshop.benchmarks.elastic`, which reads a share of a topic."""

from __future__ import annotations

import shlex
import sys

from demo.applications import SUBMIT_ARGUMENTS, Application


class Reader(Application):
    """An application, started as in a pod of conf/kubernetes/deployment.yaml."""

    started_s = 0.0
    joined_s: float | None = None

    def _program(self) -> list[str]:
        submit = f"PYSPARK_SUBMIT_ARGS={shlex.join(SUBMIT_ARGUMENTS)} pyspark-shell"
        return [submit, sys.executable, "-m", "spark_groups.jobs.consume"]
