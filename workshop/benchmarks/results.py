"""What a benchmark leaves: readings as JSON, with where and by what they were measured."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyspark


def loop_ms() -> float:
    """Return how long this machine takes for a loop of Python, in milliseconds: its speed."""
    taken = []
    for _ in range(5):
        began_at, total = time.process_time(), 0
        for number in range(1_000_000):
            total += number * number
        taken.append(time.process_time() - began_at)
    return round(min(taken) * 1000, 1)


def write_results(path: Path, settings: Mapping[str, Any], readings: Iterable[Any]) -> None:
    """Keep readings for the report.

    Args:
        path: The file.
        settings: The settings of the benchmark, beside the machine and its versions.
        readings: Dataclasses.
    """
    result = {
        "measured_at": time.strftime("%Y-%m-%d", time.gmtime()),
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "million_turns_of_a_loop_ms": loop_ms(),
        **settings,
        "readings": [asdict(reading) for reading in readings],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1), encoding="utf-8")
