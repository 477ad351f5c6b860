"""Jars of Kafka are those that were published, by digests that this package keeps."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from spark_groups.errors import EmbeddedKafkaError
from spark_groups.lab.broker import jar_digests
from spark_groups.lab.broker.artifacts import DEFAULT_VERSION, fetch_kafka
from spark_groups.lab.broker.jar_digests import check_jars, expected_digests
from spark_groups.runtime.cache_directory import cache_dir
from tests.lab.broker.maven import publish, settings_for

VERSIONS = ("4.0.0", "4.1.2", "4.2.1", DEFAULT_VERSION, "4.4.0")


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two jars, which are what they have to be."""
    digests = {}
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_text(name)
        digests[name] = hashlib.sha256(name.encode()).hexdigest()
    monkeypatch.setattr(jar_digests, "expected_digests", lambda version: digests)
    return tmp_path


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_that_is_tested_has_digests(version: str) -> None:
    digests = expected_digests(version) or {}
    assert {f"kafka_2.13-{version}.jar", f"kafka-clients-{version}.jar"} < digests.keys()
    assert all(len(bytes.fromhex(digest)) == 32 for digest in digests.values())


def test_what_was_published_is_taken(jars: Path) -> None:
    check_jars("4.3.1", jars)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda jars: (jars / "a.jar").write_text("evil"), "a.jar has the SHA-256 b5c1fb2e"),
        (lambda jars: (jars / "a.jar").unlink(), "a.jar has the SHA-256 of nothing: it is missing"),
        (lambda jars: (jars / "c.jar").touch(), "c.jar does not belong to it"),
    ],
)
def test_another_jar_is_refused(jars: Path, damage: object, says: str) -> None:
    damage(jars)  # type: ignore[operator]
    with pytest.raises(EmbeddedKafkaError, match=r"not Apache Kafka 4\.3\.1 as it was") as raised:
        check_jars("4.3.1", jars)
    assert says in str(raised.value)
    assert "b.jar" not in str(raised.value)


def test_a_version_without_digests_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check_jars("4.9.1", tmp_path)
    assert "the jars of Apache Kafka 4.9.1 are not checked" in caplog.text


def test_a_mirror_with_other_jars_is_refused_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mirror"
    for name in ("kafka_2.13", "kafka-tools"):
        publish(root, name, DEFAULT_VERSION)
    monkeypatch.setenv("SPARK_GROUPS_IVY_SETTINGS", str(settings_for(root)))
    monkeypatch.setenv("SPARK_GROUPS_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(EmbeddedKafkaError, match="the mirror of SPARK_GROUPS_IVY_SETTINGS"):
        fetch_kafka()
    left = {path.name for path in (cache_dir() / "kafka").iterdir()}
    assert left == {f"{DEFAULT_VERSION}.lock"}
