"""What an application takes, added up by role."""

from __future__ import annotations

import os

import pytest

from workshop.benchmarks.processes import JVM, PYTHON, RUNNER, WORKERS
from workshop.benchmarks.sizes import WATCHED_S, Used, sizes, used


def test_processes_of_a_role_are_added_up() -> None:
    before = {1: Used(PYTHON, 90.0, 5.0), 2: Used(JVM, 700.0, 20.0), 3: Used(WORKERS, 50.0, 1.0)}
    after = {
        1: Used(PYTHON, 100.0, 5.0),
        2: Used(JVM, 800.0, 20.0 + WATCHED_S / 2),
        4: Used(WORKERS, 60.0, WATCHED_S / 10),
        5: Used(WORKERS, 40.0, 0.0),
    }
    found = {each.role: each for each in sizes(before, after)}
    assert (found[PYTHON].memory_mb, found[PYTHON].processors) == (100.0, 0.0)
    assert found[JVM].processors == pytest.approx(0.5)
    assert (found[WORKERS].processes, found[WORKERS].memory_mb) == (2, 100.0)
    assert found[WORKERS].processors == pytest.approx(0.1)
    assert found[RUNNER].processes == 0


def test_a_process_is_read() -> None:
    own = dict(used(os.getpid()))[os.getpid()]
    assert own.role == PYTHON
    assert own.memory_mb > 10
    assert own.processor_s > 0
