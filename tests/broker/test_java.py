"""Java is found and checked, and its absence is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groups.broker.java import find_java, find_spark_jars
from spark_groups.errors import EmbeddedKafkaError


def fake_java(home: Path, version: str) -> Path:
    """Make a JAVA_HOME whose `java -version` says a version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2022-01-01' >&2\n")
    java.chmod(0o755)
    return java


def test_the_java_of_java_home_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == java


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_392", "8"), ("11.0.21", "11")])
def test_an_old_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, shown: str
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedKafkaError) as raised:
        find_java()
    assert f"is Java {shown}" in str(raised.value)
    assert "apt-get install openjdk-17-jre-headless" in str(raised.value)


def test_no_java_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedKafkaError, match=r"no java on the PATH.*apt-get.*brew install"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedKafkaError, match=r"JAVA_HOME .* has no bin/java"):
        find_java()


def test_the_jars_of_pyspark_have_ivy() -> None:
    assert list(find_spark_jars().glob("ivy-*.jar"))
