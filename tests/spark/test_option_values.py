"""The texts of options as values."""

from __future__ import annotations

import pytest

from spark_groups.spark.option_values import parse_duration_s, parse_servers

SECONDS = {"15m": 900.0, "10 min": 600.0, "90s": 90.0, "2h": 7200.0, "1d": 86400.0} | {
    "250ms": 0.25,
    "250": 0.25,
    "5us": 5e-6,
    "3S": 3.0,
}


@pytest.mark.parametrize(("text", "seconds"), SECONDS.items())
def test_durations_are_spelled_as_spark_spells_them(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "-5s", "1.5s", "5 years"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_s(text)


def test_servers_are_listed_once_each() -> None:
    assert parse_servers("a:1, [::1]:2 ,a:1") == ("a:1", "[::1]:2")


@pytest.mark.parametrize(("text", "reason"), [("", "is empty"), ("a", "'a' is not host:port")])
def test_wrong_servers_are_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_servers(text)
