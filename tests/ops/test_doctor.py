"""What the checks say of what they find."""

from __future__ import annotations

import sys

from spark_groups.ops.doctor import (
    Check,
    Diagnosis,
    Outcome,
    check_python,
    check_spark,
    check_workers,
)


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


def test_what_is_no_python_is_told() -> None:
    (found,) = check_workers({"PYSPARK_PYTHON": "/bin/true"}, sys.version_info[:2])
    assert (found.outcome, "is no Python" in found.found) == (Outcome.FAILED, True)
