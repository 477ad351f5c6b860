"""The Java that runs the embedded Kafka, and the jars of PySpark that it needs."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from spark_groups.errors import EmbeddedKafkaError

MINIMUM_JAVA = 17
"""Kafka 4's brokers need Java 17 (KIP-1013)."""

INSTALL_JAVA = (
    f"install Java {MINIMUM_JAVA} or later (Debian, Ubuntu:"
    f" apt-get install openjdk-{MINIMUM_JAVA}-jre-headless; macOS: brew install openjdk@"
    f"{MINIMUM_JAVA}) and put it on the PATH or set JAVA_HOME"
)

QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Without these flags, a JVM that cannot use an archive prints a warning to standard output."""


def find_java() -> Path:
    """Return the `java` of JAVA_HOME, else of the PATH, after checking its version.

    Raises:
        EmbeddedKafkaError: There is no Java, or it is older than Kafka's brokers need.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME ({home}) has no bin/java" if home else "there is no java on the PATH"
        raise EmbeddedKafkaError(f"Spark and Kafka need Java, and {where}: {INSTALL_JAVA}")
    version = _java_version(found)
    if version < MINIMUM_JAVA:
        raise EmbeddedKafkaError(
            f"Spark and Kafka need Java {MINIMUM_JAVA} or later, and {found} is Java {version}:"
            f" {INSTALL_JAVA}"
        )
    return Path(found)


@functools.cache
def version_text(java: str) -> str:
    """Return what `java -version` prints.

    Raises:
        EmbeddedKafkaError: It does not run.
    """
    command = [java, "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedKafkaError(f"{java} does not run ({error}): {INSTALL_JAVA}") from error
    return done.stderr


def archive_of(directory: Path, name: str, java: Path) -> Path:
    """Return where the archive of a program's classes is, for one build of Java (JEP 350)."""
    build = hashlib.sha256(version_text(str(java)).encode()).hexdigest()[:12]
    return directory / f"{name}-{build}.jsa"


def archive_flags(archive: Path) -> tuple[str, ...]:
    """Return flags of a JVM that starts fast with an archive of classes; none if it is not there.

    The class path has to be the one with which `workshop.tools.class_archives` wrote it.
    """
    return (f"-XX:SharedArchiveFile={archive}", *QUIET) if archive.exists() else ()


def _java_version(java: str) -> int:
    """Return the feature version that a `java` reports, 8 for 1.8."""
    shown = version_text(java)
    match = re.search(r'version "(?:1\.)?(\d+)', shown)
    if match is None:
        raise EmbeddedKafkaError(f"{java} -version says no version: {shown.strip()[:200]!r}")
    return int(match[1])


def find_spark_jars() -> Path:
    """Return the folder of Spark's own jars: PySpark's, else SPARK_HOME's.

    PySpark is only looked up, never imported.

    Raises:
        EmbeddedKafkaError: Neither is there.
    """
    spec = importlib.util.find_spec("pyspark")
    homes = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    if "SPARK_HOME" in os.environ:
        homes.append(Path(os.environ["SPARK_HOME"]))
    for home in homes:
        if any((home / "jars").glob("ivy-*.jar")):
            return home / "jars"
    raise EmbeddedKafkaError(
        "the embedded Kafka is fetched by the Ivy that PySpark ships, and neither pyspark nor"
        " SPARK_HOME is here: pip install 'spark-groups[spark]'"
    )
