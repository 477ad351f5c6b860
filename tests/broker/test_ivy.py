"""Ivy's arguments, and the error when it fails."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spark_groups.broker.ivy import _proxy_flags, fetch_progress, retrieve
from spark_groups.broker.java import find_spark_jars
from spark_groups.errors import EmbeddedKafkaError
from tests.broker.maven import publish, settings_for


def fetch(tmp_path: Path, version: str, stand_ins: dict[str, str]) -> set[str]:
    """Run Ivy on the mirror under a folder and return the jars that it brought."""
    jars = tmp_path / "jars"
    retrieve(
        version,
        stand_ins=stand_ins,
        into=jars,
        work=tmp_path / "ivy",
        spark_jars=find_spark_jars(),
        deadline_s=time.monotonic() + 60,
    )
    return {path.name for path in jars.iterdir()}


def test_an_unpublished_artifact_has_a_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mirror"
    publish(root, "kafka_2.13", "4.9.2")
    publish(root, "kafka-tools", "4.9.1")
    monkeypatch.setenv("SPARK_GROUPS_IVY_SETTINGS", str(settings_for(root)))
    found = fetch(tmp_path, "4.9.2", {"kafka-tools": "4.9.1"})
    assert found == {"kafka_2.13-4.9.2.jar", "kafka-tools-4.9.1.jar"}


def test_a_settings_file_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_GROUPS_IVY_SETTINGS", str(tmp_path / "absent.xml"))
    with pytest.raises(EmbeddedKafkaError, match=r"absent\.xml"):
        fetch(tmp_path, "4.9.2", {})


def test_the_proxies_of_the_environment_are_passed_to_java(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost, .example.org")
    assert _proxy_flags() == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.example.org",
    ]


def test_without_proxies_there_are_no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert _proxy_flags() == []


LINES = [f"found org#module{index};1 in central" for index in range(45)]
LINES += [f"[SUCCESSFUL ] org#module{index};1!module.jar (3ms)" for index in range(45)]


def test_plain_lines_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with fetch_progress("Apache Kafka 4.3.1") as progress:
        for line in ["confs: [default]", *LINES]:
            progress.follow(line)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "fetching Apache Kafka 4.3.1 from Maven (once)",
        "fetched 20 of about 45 artifacts",
        "fetched 40 of about 45 artifacts",
        "fetched 45 artifacts of Apache Kafka 4.3.1",
    ]


def test_a_bar_in_a_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with fetch_progress("Apache Kafka 4.3.1") as progress:
        for line in LINES:
            progress.follow(line)
        assert progress.bar is not None
        progress.bar.refresh()
        assert (progress.found, progress.fetched) == (45, 45)
    assert "fetching Apache Kafka 4.3.1" in capfd.readouterr().err
