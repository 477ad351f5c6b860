"""What each Python process of a Spark query imports, and how long that takes for this package."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OWN: Final = frozenset({"spark_groups", "pyspark_kafka_group", "pyspark_kafka_group_state"})
SPARKS: Final = frozenset({"pyspark", "py4j"})
HEAVY: Final = frozenset(
    {
        *("aws_msk_iam_sasl_signer", "azure", "confluent_kafka", "cryptography", "deltalake"),
        *("jks", "llvmlite", "numba", "platformdirs", "prometheus_client", "psycopg"),
        *("pydantic", "pyiceberg", "re2", "rich", "typer", "zstandard"),
    }
)
"""The packages that this one uses, without those that PySpark imports itself."""
_LINE: Final = re.compile(r"import time: +(\d+) \| +\d+ \| ( *)(\S+)")


@dataclass(frozen=True)
class Imports:
    """What the processes of one kind imported.

    Args:
        process: The last part of the module that Spark ran.
        own_ms: How long the modules of this package took, with those that only they import.
        own_modules: How many modules of this package there are.
        heavy: The packages of `HEAVY`.
    """

    process: str
    own_ms: float
    own_modules: int
    heavy: tuple[str, ...]


def measuring_python(directory: Path) -> Path:
    """Return a program for `PYSPARK_PYTHON` that is this Python, and measures imports.

    Args:
        directory: Gets the standard error of each process that Spark starts.
    """
    program = directory / "python"
    program.write_text(
        f"""#!/bin/sh
[ "$1" = -m ] || exec {sys.executable} "$@"
for last in "$@"; do :; done
exec {sys.executable} -X importtime "$@" 2>>"{directory}/${{last##*.}}.$$"
""",
        encoding="utf-8",
    )
    program.chmod(0o700)
    return program


def read_imports(directory: Path) -> Iterator[Imports]:
    """Yield what the processes of `measuring_python` imported, in the order of their start."""
    for path in sorted(directory.glob("*.[0-9]*"), key=lambda path: int(path.suffix[1:])):
        yield parse_imports(path.stem, path.read_text(encoding="utf-8", errors="replace"))


def parse_imports(process: str, text: str) -> Imports:
    """Return what `-X importtime` wrote; other lines are skipped."""
    own_us, modules = 0, set()
    # Whether the enclosing imports are for this package: each line follows those inside it.
    stack: list[bool] = []
    for found in filter(None, map(_LINE.fullmatch, reversed(text.splitlines()))):
        del stack[len(found[2]) // 2 :]
        top = found[3].partition(".")[0]
        is_own = top in OWN or (top not in SPARKS and stack[-1:] == [True])
        stack.append(is_own)
        own_us += int(found[1]) if is_own else 0
        modules.add(found[3])
    tops = {each.partition(".")[0] for each in modules}
    own = sum(each.partition(".")[0] in OWN for each in modules)
    return Imports(process, own_us / 1000, own, tuple(sorted(tops & HEAVY)))
