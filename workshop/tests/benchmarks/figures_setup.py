"""Shared by test_figures.py and other tests."""

from __future__ import annotations

from typing import Any

from workshop.benchmarks.figures import (
    SMALL,
)
from workshop.benchmarks.readers import FAST, JVM_BEST


def reading(reader: str, repeat: int, add_batch_s: float, topic: str = SMALL) -> dict[str, Any]:
    return {
        "topic": topic,
        "reader": reader,
        "repeat": repeat,
        "counted_rows": 2_000_000,
        "add_batch_s": add_batch_s,
        "trigger_s": add_batch_s + 0.1,
        "jvm_cpu_s": add_batch_s,
        "python_cpu_s": 0.5,
        "broker_cpu_s": 0.25,
    }


READINGS = [
    reading(JVM_BEST, 1, 1.0),
    reading(FAST, 1, 0.5),
    reading(JVM_BEST, 2, 3.0),
    reading(FAST, 2, 2.0),
    reading(JVM_BEST, 3, 1.0),
    reading(FAST, 3, 1.0),
]
