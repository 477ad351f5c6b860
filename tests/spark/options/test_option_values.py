"""The texts of options as values."""

from __future__ import annotations

import re
import socket
from math import inf

import pytest

from spark_groups.spark.options.option_values import (
    Emit,
    one_of,
    parse_bytes,
    parse_duration_s,
    parse_instance_id,
    parse_limit_bytes,
    parse_limit_s,
    parse_rack,
    parse_servers,
    parse_unreleased,
)
from spark_groups.spark.options.range_settings import ReaderChoice

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


SIZES = {"5": 5, "7b": 7, "2k": 2048, "3 KB": 3072, "256m": 2**28, "1g": 2**30, "1Gb": 2**30}


@pytest.mark.parametrize(("text", "size_bytes"), SIZES.items())
def test_sizes_are_spelled_as_spark_spells_them(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "m", "-5m", "1.5g", "5 parsecs"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


def test_emit_is_chosen_by_name_in_any_case() -> None:
    assert [one_of(Emit, each.value.upper()) for each in Emit] == list(Emit)
    with pytest.raises(ValueError, match="neither records nor ranges"):
        one_of(Emit, "offsets")


def test_readers_by_their_names() -> None:
    assert [one_of(ReaderChoice, each.value.upper()) for each in ReaderChoice] == list(ReaderChoice)
    with pytest.raises(ValueError, match="neither auto nor fast nor librdkafka"):
        one_of(ReaderChoice, "quick")


@pytest.mark.parametrize(("text", "size_bytes"), [("none", inf), ("1g", 2**30), ("7", 7)])
def test_limit_of_bytes_may_be_none(text: str, size_bytes: float) -> None:
    assert parse_limit_bytes(text) == size_bytes


@pytest.mark.parametrize(("text", "problem"), [("0", "is not positive"), ("much", "or none")])
def test_wrong_limit_of_bytes_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_limit_bytes(text)


@pytest.mark.parametrize(("text", "seconds"), [("none", inf), ("0", inf), ("20m", 1200.0)])
def test_limit_may_be_none(text: str, seconds: float) -> None:
    assert parse_limit_s(text) == seconds


def test_limit_that_is_no_duration_is_refused() -> None:
    with pytest.raises(ValueError, match=r"is not a duration.*or none"):
        parse_limit_s("soon")


def test_instance_id_takes_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "reader-2")
    monkeypatch.setenv("ZONE", "a")
    assert parse_instance_id(" flights-${POD_NAME}.${ZONE} ") == "flights-reader-2.a"
    assert parse_instance_id("plain") == "plain"


def test_through_spark_connect_instance_ids_take_only_what_names_a_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "a session of Spark Connect")
    monkeypatch.setenv("POD_NAME", "reader-2")
    monkeypatch.setenv("ZONE", "hush")
    assert parse_instance_id("flights-${POD_NAME}") == "flights-reader-2"
    with pytest.raises(ValueError, match="SPARK_GROUPS_CONFIG_PROVIDERS=env") as raised:
        parse_instance_id("${ZONE}")
    assert "hush" not in str(raised.value)
    monkeypatch.setenv("SPARK_GROUPS_CONFIG_PROVIDERS", "env")
    assert parse_instance_id("${ZONE}") == "hush"


def test_hostname_is_known_without_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOSTNAME", raising=False)
    assert parse_instance_id("${HOSTNAME}") == socket.gethostname()
    monkeypatch.setenv("HOSTNAME", "set-by-hand")
    assert parse_instance_id("${HOSTNAME}") == "set-by-hand"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${NO_SUCH_ONE}-${NOR_THIS}", "set NO_SUCH_ONE, NOR_THIS in the environment"),
        ("${}", "is not an instance ID"),
        ("${HOSTNAME", "is not an instance ID"),
        ("a b", "is not an instance ID"),
        ("", "is not an instance ID"),
        ("x" * 250, "up to 249"),
        ("${SPACED}", "'${SPACED}', which becomes 'a b', is not an instance ID"),
    ],
)
def test_instance_id_that_cannot_be_is_refused(
    text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPACED", "a b")
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_instance_id(text)


def test_a_rack_keeps_its_variables_for_the_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZONE", raising=False)
    assert parse_rack(" eu-1 ") == "eu-1"
    assert parse_rack("eu-${env:ZONE}") == "eu-${env:ZONE}"
    for wrong in ("${ZONE}", "${env:}", "${env:ZONE", "${file:/zone:name}"):
        with pytest.raises(ValueError, match=re.escape("written ${env:NAME}")):
            parse_rack(wrong)
    with pytest.raises(ValueError, match="is empty"):
        parse_rack(" ")


def test_a_rack_may_name_the_variables_that_the_driver_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "a session of Spark Connect")
    with pytest.raises(ValueError, match="SPARK_GROUPS_CONFIG_PROVIDERS=env"):
        parse_rack("${env:ZONE}")
    monkeypatch.setenv("SPARK_GROUPS_CONFIG_PROVIDERS", "env")
    assert parse_rack("${env:ZONE}") == "${env:ZONE}"
    monkeypatch.setenv("SPARK_GROUPS_ALLOWLIST_PATTERN", "KAFKA_.*")
    with pytest.raises(ValueError, match="ZONE may not be read"):
        parse_rack("${env:ZONE}")


def test_unreleased_instance_is_awaited_or_not() -> None:
    assert (parse_unreleased("wait"), parse_unreleased("FAIL")) == (True, False)
    with pytest.raises(ValueError, match="neither wait nor fail"):
        parse_unreleased("fence")


def test_servers_are_listed_once_each() -> None:
    assert parse_servers("a:1, [::1]:2 ,a:1") == ("a:1", "[::1]:2")


@pytest.mark.parametrize(("text", "reason"), [("", "is empty"), ("a", "'a' is not host:port")])
def test_wrong_servers_are_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_servers(text)
