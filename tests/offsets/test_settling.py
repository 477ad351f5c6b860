"""For how long AvailableNow waits for partitions."""

from __future__ import annotations

import pytest

from spark_groups.offsets.settling import BEYOND_SESSION_S, Settling, WhenUnsettled


@pytest.mark.parametrize("when", [WhenUnsettled.WARN, WhenUnsettled.FAIL])
def test_session_means_nothing_to_who_does_not_wait_for_it(when: WhenUnsettled) -> None:
    assert Settling(7.0, when).limit_s(45_000) == 7.0


def test_who_waits_does_so_for_the_session_and_a_little_longer_but_never_shorter() -> None:
    assert Settling(7.0, WhenUnsettled.WAIT).limit_s(45_000) == 45.0 + BEYOND_SESSION_S
    assert Settling(99.0, WhenUnsettled.WAIT).limit_s(45_000) == 99.0
