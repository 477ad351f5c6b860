"""Kafka's jars are in the cache completely or not at all; Ivy is the real one."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from spark_groups.broker import kafka_jars
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.broker.kafka_jars import (
    DEFAULT_VERSION,
    check_jars,
    expected_digests,
    fetch_kafka,
)
from spark_groups.errors import EmbeddedKafkaError
from spark_groups.runtime.cache_directory import cache_dir
from tests.broker.maven import publish, settings_for
from workshop.parts.processes import environment

FETCH = "from spark_groups.broker.kafka_jars import fetch_kafka; fetch_kafka('4.9.1')"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror that has a small Kafka 4.9.1, and an empty cache."""
    root = tmp_path / "mirror"
    for name in ("kafka_2.13", "kafka-tools"):
        publish(root, name, "4.9.1")
    monkeypatch.setenv("SPARK_GROUPS_IVY_SETTINGS", str(settings_for(root)))
    monkeypatch.setenv("SPARK_GROUPS_CACHE_DIR", str(tmp_path / "cache"))
    return root


def kept(version: str = "4.9.1") -> set[str]:
    return {path.name for path in (cache_dir() / "kafka" / version).glob("*.jar")}


def test_a_version_is_fetched_once(mirror: Path, capfd: pytest.CaptureFixture[str]) -> None:
    artifacts = fetch_kafka("4.9.1")
    assert {"kafka_2.13-4.9.1.jar", "kafka-tools-4.9.1.jar"} < kept()
    assert any(name.startswith("log4j-slf4j2-impl-") for name in kept())
    assert artifacts.class_path == str(cache_dir() / "kafka" / "4.9.1" / "*")
    assert "fetching Apache Kafka 4.9.1" in capfd.readouterr().err

    assert fetch_kafka("4.9.1") == artifacts
    assert capfd.readouterr().err == ""


def test_nothing_but_the_version_and_its_lock_is_left(mirror: Path) -> None:
    fetch_kafka("4.9.1")
    assert {path.name for path in (cache_dir() / "kafka").iterdir()} == {"4.9.1", "4.9.1.lock"}


@pytest.mark.parametrize("damage", ["deleted", "cut"])
def test_a_damaged_version_is_fetched_again(mirror: Path, damage: str) -> None:
    jar = fetch_kafka("4.9.1").directory / "kafka_2.13-4.9.1.jar"
    whole = jar.read_bytes()
    jar.unlink() if damage == "deleted" else jar.write_bytes(whole[:3])
    fetch_kafka("4.9.1")
    assert jar.read_bytes() == whole


def test_a_missing_artifact_is_named_and_nothing_is_kept(mirror: Path) -> None:
    publish(mirror, "kafka_2.13", "4.9.2")
    with pytest.raises(EmbeddedKafkaError) as raised:
        fetch_kafka("4.9.2")
    message = str(raised.value)
    assert "org.apache.kafka#kafka-tools;4.9.2: not found" in message
    assert "kafka_2.13" not in message
    assert "SPARK_GROUPS_IVY_SETTINGS" in message
    assert {path.name for path in (cache_dir() / "kafka").iterdir()} == {"4.9.2.lock"}


def test_two_processes_fetch_once(mirror: Path) -> None:
    both = [
        subprocess.Popen([sys.executable, "-c", FETCH], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=800)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("fetching Apache Kafka 4.9.1" in text for text in said) == 1


def test_a_lock_that_is_held_for_too_long_is_named(mirror: Path) -> None:
    import fcntl

    home = cache_dir() / "kafka"
    home.mkdir(parents=True)
    with (home / "4.9.1.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedKafkaError, match=r"another process holds .*4\.9\.1\.lock"):
            fetch_kafka("4.9.1", timeout_s=0.2)


def test_a_fetch_has_a_deadline(mirror: Path) -> None:
    with pytest.raises(EmbeddedKafkaError, match="not fetched in the time allowed"):
        fetch_kafka("4.9.1", timeout_s=0.05)


@pytest.mark.parametrize("version", ["3.9.0", "4.3", "latest", "4.3.1/../x", ""])
def test_a_version_other_than_a_release_of_kafka_4_is_refused(version: str) -> None:
    with pytest.raises(EmbeddedKafkaError, match="not a release of Apache Kafka 4"):
        fetch_kafka(version)


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPARK_GROUPS_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(EmbeddedKafkaError, match="SPARK_GROUPS_CACHE_DIR"):
        fetch_kafka("4.9.1")


@pytest.mark.parametrize("version", ["4.9.1", DEFAULT_VERSION])
def test_the_error_without_a_network_states_the_reason(version: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FETCH.replace("4.9.1", version)],
        env=environment(
            SPARK_GROUPS_CACHE_DIR=str(tmp_path),
            SPARK_GROUPS_IVY_SETTINGS="",
            https_proxy="http://127.0.0.1:9",
        ),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"EmbeddedKafkaError: Apache Kafka {version} cannot be fetched" in last
    assert "does not answer (java.net.ConnectException: Connection refused)" in last
    assert f"org.apache.kafka#kafka_2.13;{version}" in last


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.0.0", "4.1.2", "4.2.1", "4.3.1", "4.4.0"])
def test_real_versions_are_fetched_and_start(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_GROUPS_CACHE_DIR", str(tmp_path))
    with EmbeddedKafka(version) as kafka:
        assert kafka.pid is not None


VERSIONS = ("4.0.0", "4.1.2", "4.2.1", DEFAULT_VERSION, "4.4.0")


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two jars, which are what they have to be."""
    digests = {}
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_text(name)
        digests[f"org/{name}"] = hashlib.sha256(name.encode()).hexdigest()
    monkeypatch.setattr(kafka_jars, "expected_digests", lambda version: digests)
    return tmp_path


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_that_is_tested_has_digests(version: str) -> None:
    digests = expected_digests(version) or {}
    kafka = {f"{name}/{version}/{name}-{version}.jar" for name in ("kafka_2.13", "kafka-clients")}
    assert {f"org/apache/kafka/{path}" for path in kafka} < digests.keys()
    assert all(len(bytes.fromhex(digest)) == 32 for digest in digests.values())


def test_jars_with_the_published_digests_are_taken(jars: Path) -> None:
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
