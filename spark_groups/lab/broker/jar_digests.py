"""What the jars of each version of Apache Kafka have to be: their SHA-256, kept with this package.

Maven gives no other proof of a jar than what comes from the same server. `tools/kafka_digests.py`
writes a file for each version, in the format of sha256sum.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import logging
from pathlib import Path
from typing import Final

from spark_groups.errors import EmbeddedKafkaError

logger = logging.getLogger(__name__)

FOLDER: Final = "jars"
_CHUNK_BYTES: Final = 1 << 20
_SHOWN: Final = 5


def check_jars(version: str, directory: Path) -> None:
    """Compare fetched jars with what they have to be; where that is not known, warn.

    Args:
        version: The version of Apache Kafka.
        directory: The folder with what was fetched, and nothing else.

    Raises:
        EmbeddedKafkaError: A jar is another, is missing, or does not belong there.
    """
    expected = expected_digests(version)
    if expected is None:
        logger.warning(
            "the jars of Apache Kafka %s are not checked: this version of spark-groups knows no"
            " digests of them",
            version,
        )
        return
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
            f"what was fetched is not Apache Kafka {version} as it was published:"
            f" {'; '.join(wrong[:_SHOWN])}{more}. Nothing of it is kept. Look at the repository"
            " that it came from: the mirror of SPARK_GROUPS_IVY_SETTINGS, or a proxy"
        )


def expected_digests(version: str) -> dict[str, str] | None:
    """Return the digests of a version by the name of the jar; None if they are not known.

    Args:
        version: The version of Apache Kafka.
    """
    file = importlib.resources.files("spark_groups.lab.broker") / FOLDER / f"{version}.sha256"
    if not file.is_file():
        return None
    lines = file.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal.

    Args:
        file: The file.
    """
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
