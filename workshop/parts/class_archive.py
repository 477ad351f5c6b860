"""Writes archives of a program's classes, with which a JVM starts in half the processor time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.broker.java import QUIET, archive_of, find_java
from spark_groups.broker.kafka_jars import fetch_kafka
from spark_groups.errors import EmbeddedKafkaError
from workshop.parts.brokers import jvm_options

_WRITE_S = 180.0
"""How long a broker may take to write its classes after its end."""
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM


def flags_to_write(archive: Path) -> tuple[str, ...]:
    """Make the folder; return the flags of a JVM that writes its classes at a normal exit."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    return (f"-XX:ArchiveClassesAtExit={_draft(archive)}", *QUIET)


def keep(archive: Path, *, is_whole: bool) -> bool:
    """Move what a JVM has written to the archive's path, and return whether the archive exists.

    Args:
        archive: Where the archive belongs.
        is_whole: Whether that JVM ended in order. Java does not notice an archive that ends too
            early, and crashes.
    """
    if is_whole and _draft(archive).exists():
        _draft(archive).replace(archive)
    _draft(archive).unlink(missing_ok=True)
    return archive.exists()


def _draft(archive: Path) -> Path:
    return archive.with_suffix(f".{os.getpid()}.draft")


def archive_kafka() -> Path:
    """Store the classes of a broker once.

    Raises:
        EmbeddedKafkaError: A broker does not start, or its Java writes no archive.
    """
    archive = archive_of(fetch_kafka().directory, "kafka", find_java())
    if not archive.exists():
        with jvm_options(" ".join(flags_to_write(archive))), EmbeddedKafka() as kafka:
            kafka.end(_WRITE_S)
            is_whole = kafka._jvm is not None and kafka._jvm.wait(0.0) == _ENDED_BY_SIGTERM
        if not keep(archive, is_whole=is_whole):
            raise EmbeddedKafkaError(f"{find_java()} wrote no archive of its classes")
    return archive
