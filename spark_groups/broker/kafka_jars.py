"""The jars of a real Apache Kafka, fetched once from Maven.

A version is a folder of jars in the user's cache directory. It is filled elsewhere and renamed
into place, so that it exists completely or not at all. The package lists the jars of the versions
that it is tested with, with digests to verify them; the Ivy that PySpark ships resolves those of
any other version, and fetches from a mirror.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.resources
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_groups.broker.ivy import IVY_SETTINGS_VARIABLE, fetch_progress, retrieve
from spark_groups.broker.java import find_spark_jars
from spark_groups.broker.maven import CENTRAL, download
from spark_groups.errors import EmbeddedKafkaError
from spark_groups.runtime.cache_directory import CACHE_DIR_VARIABLE, cache_dir

DEFAULT_VERSION = "4.3.1"

LOGGING_JARS = ("slf4j-api-2*", "log4j-slf4j2-impl-2*", "log4j-core-2*", "log4j-api-2*")
"""Kafka's logging jars. Its artifacts depend on an SLF4J version without a binding here, so these
come from Spark's own jars, which fit each other."""

UNPUBLISHED: Mapping[str, Mapping[str, str]] = {
    "4.4.0": {"kafka-tools": "4.3.1", "kafka-tools-api": "4.3.1"},
}
"""Artifacts of a release missing from Maven Central, and the version used instead."""

_MANIFEST = "manifest.txt"
logger = logging.getLogger(__name__)
FOLDER: Final = "jars"
_CHUNK_BYTES: Final = 1 << 20
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class KafkaArtifacts:
    """A complete Apache Kafka on disk."""

    version: str
    directory: Path

    @property
    def class_path(self) -> str:
        """The Java class path with all its jars."""
        return str(self.directory / "*")


def fetch_kafka(version: str = DEFAULT_VERSION, *, timeout_s: float = 900.0) -> KafkaArtifacts:
    """Return an Apache Kafka from the cache; fetch it first if it is missing.

    Args:
        version: Any release of Apache Kafka 4.
        timeout_s: How long fetching, or waiting for another process that fetches, may take.

    Raises:
        EmbeddedKafkaError: It is not a version of Kafka 4, cannot be fetched, or differs from the
            published release.
    """
    if not re.fullmatch(r"4\.\d+\.\d+", version):
        raise EmbeddedKafkaError(
            f"version {version!r} is not a release of Apache Kafka 4: say one like"
            f" {DEFAULT_VERSION!r}"
        )
    deadline_s = time.monotonic() + timeout_s
    home = cache_dir() / "kafka"
    artifacts = KafkaArtifacts(version, home / version)
    if _is_complete(artifacts.directory):
        return artifacts
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home / f"{version}.lock", deadline_s):
            if not _is_complete(artifacts.directory):
                _fill(artifacts, deadline_s)
    except OSError as error:
        raise EmbeddedKafkaError(
            f"Apache Kafka {version} cannot be kept in {home} ({error}): make it writable, or set"
            f" {CACHE_DIR_VARIABLE} to a directory that is"
        ) from error
    return artifacts


def _fill(artifacts: KafkaArtifacts, deadline_s: float) -> None:
    """Fetch a version into a folder beside its place, then rename it into place."""
    spark_jars = find_spark_jars()
    home = artifacts.directory.parent
    with tempfile.TemporaryDirectory(prefix=f".{artifacts.version}-", dir=home) as work:
        jars = Path(work, "jars")
        jars.mkdir()
        if not _downloaded(artifacts.version, jars, deadline_s):
            retrieve(
                artifacts.version,
                stand_ins=UNPUBLISHED.get(artifacts.version, {}),
                into=jars,
                work=Path(work, "ivy"),
                spark_jars=spark_jars,
                deadline_s=deadline_s,
            )
        check_jars(artifacts.version, jars)
        for pattern in LOGGING_JARS:
            for jar in spark_jars.glob(f"{pattern}.jar"):
                shutil.copy(jar, jars)
        lines = [f"{jar.stat().st_size} {jar.name}\n" for jar in sorted(jars.glob("*.jar"))]
        (jars / _MANIFEST).write_text("".join(lines), encoding="utf-8")
        if artifacts.directory.exists():
            # An existing folder here has lost some of its jars.
            artifacts.directory.rename(Path(work, "incomplete"))
        jars.rename(artifacts.directory)


def _downloaded(version: str, jars: Path, deadline_s: float) -> bool:
    """Download the listed jars of a version; return False, and leave none, if Ivy has to fetch."""
    listed = expected_digests(version)
    if listed is None or os.environ.get(IVY_SETTINGS_VARIABLE):
        return False
    try:
        with fetch_progress(f"Apache Kafka {version}") as progress:
            download(listed, jars, progress, deadline_s)
    except OSError as error:
        logger.info("downloading from %s failed (%s); fetching with Ivy instead", CENTRAL, error)
        for jar in jars.iterdir():
            jar.unlink()
        return False
    return True


def _is_complete(directory: Path) -> bool:
    """Return whether every fetched jar still exists in its full size."""
    try:
        lines = (directory / _MANIFEST).read_text(encoding="utf-8").splitlines()
        sizes = (line.split(" ", 1) for line in lines)
        return all((directory / name).stat().st_size == int(size) for size, name in sizes)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _locked(path: Path, deadline_s: float) -> Iterator[None]:
    """Hold a lock between processes, so that one of them fetches and the others wait for it."""
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise EmbeddedKafkaError(
                        f"another process holds {path} for too long: wait for it, or end it"
                    ) from None
                time.sleep(0.1)
        yield


def check_jars(version: str, directory: Path) -> None:
    """Compare fetched jars with their digests; warn if there are none.

    Args:
        directory: The folder with the fetched jars, and nothing else.

    Raises:
        EmbeddedKafkaError: A jar differs, is missing, or is unexpected.
    """
    expected = expected_digests(version)
    if expected is None:
        logger.warning(
            "the jars of Apache Kafka %s are not checked: this version of spark-groups knows no"
            " digests of them",
            version,
        )
        return
    expected = {Path(path).name: digest for path, digest in expected.items()}
    found = {jar.name: digest_of(jar) for jar in sorted(directory.iterdir())}
    wrong = [
        f"{name} has the SHA-256 {found.get(name, 'of nothing: it is missing')}, not {digest}"
        for name, digest in expected.items()
        if found.get(name) != digest
    ]
    wrong += [f"{name} does not belong to it" for name in found if name not in expected]
    if wrong:
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise EmbeddedKafkaError(
            f"the fetched jars are not Apache Kafka {version} as it was published:"
            f" {'; '.join(wrong[:_SHOWN])}{more}. Nothing of it is kept. Look at the repository"
            " that it came from: the mirror of SPARK_GROUPS_IVY_SETTINGS, or a proxy"
        )


def expected_digests(version: str) -> dict[str, str] | None:
    """Return the digests of a version by the jar's path in Maven; None if they are not known."""
    file = importlib.resources.files("spark_groups.broker") / FOLDER / f"{version}.sha256"
    if not file.is_file():
        return None
    lines = file.read_text(encoding="ascii").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
