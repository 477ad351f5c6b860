"""Pauses before something is tried again."""

from __future__ import annotations

import pytest

from spark_groups.protocol.backoff import Backoff


def test_pauses_double_up_to_their_limit_and_begin_anew() -> None:
    backoff, pauses = Backoff(), []
    assert backoff.not_before == 0.0
    for _ in range(6):
        backoff.failed(10.0)
        pauses.append(backoff.not_before - 10.0)
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    backoff.succeeded()
    assert backoff.not_before == 0.0
    backoff.failed(20.0)
    assert backoff.not_before == pytest.approx(20.1)
