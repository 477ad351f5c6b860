"""Record the jars of a Kafka version and their digests, as Maven publishes them now.

    python -m workshop.tools.kafka_digests 4.3.1

Ivy downloads the jars into an empty folder and compares each with the SHA-1 that Maven
publishes. `spark_groups.broker.kafka_jars` then accepts no others for that version.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from spark_groups.broker import kafka_jars
from spark_groups.broker.ivy import MAVEN_FOLDERS, retrieve
from spark_groups.broker.java import find_spark_jars
from spark_groups.broker.kafka_jars import UNPUBLISHED

FETCH_S = 900.0


def main(versions: list[str]) -> None:
    """Write the digests of some versions."""
    for version in versions:
        with tempfile.TemporaryDirectory() as work:
            jars = Path(work, "jars")
            jars.mkdir()
            retrieve(
                version,
                stand_ins=UNPUBLISHED.get(version, {}),
                into=jars,
                work=Path(work, "ivy"),
                spark_jars=find_spark_jars(),
                deadline_s=time.monotonic() + FETCH_S,
                layout=MAVEN_FOLDERS,
            )
            lines = [
                f"{kafka_jars.digest_of(jar)}  {jar.relative_to(jars)}\n"
                for jar in sorted(jars.rglob("*.jar"))
            ]
        path = Path(kafka_jars.__file__).parent / kafka_jars.FOLDER / f"{version}.sha256"
        path.write_text("".join(lines), encoding="ascii")
        sys.stderr.write(f"{path}: {len(lines)} jars\n")


if __name__ == "__main__":
    main(sys.argv[1:])
