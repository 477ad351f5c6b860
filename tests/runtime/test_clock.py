"""The clock goes on."""

from __future__ import annotations

import time

from spark_groups.runtime.clock import suspension_clock


def test_it_never_goes_back_and_counts_seconds() -> None:
    began_at, began_monotonic_s = suspension_clock(), time.monotonic()
    assert suspension_clock() >= began_at
    passed_s = time.monotonic() - began_monotonic_s
    assert suspension_clock() - began_at >= passed_s
