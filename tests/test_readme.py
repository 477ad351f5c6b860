"""Every code block of the README runs.

Python blocks run in order, in one namespace, on the real broker and the real Spark; what a reader
would adapt (address, topic, group id) is replaced by the test's own, and a query that would run
for ever ends when it has read the produced rows. TOML blocks are parsed and compared with the
examples in conf/; the commands of bash blocks are looked up, and run where that is cheap.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.documents import (
    ROOT,
    Block,
    assert_command_exists,
    await_rows,
    blocks_of,
    commands_of,
    run_python,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

README = (ROOT / "README.md").read_text(encoding="utf-8")
FLIGHTS_PRODUCED = 100
COMMAND_DEADLINE_S = 60
CHEAP_COMMANDS = frozenset({"make help", "spark-groups --help"})
BLOCKS = tuple(blocks_of(README))
RUNNABLE = ("python", "toml", "bash")
SHOWN_ONLY = ("mermaid", "text")


def blocks_in(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


COMMANDS = [command for block in blocks_in("bash") for command in commands_of(block)]


def test_every_block_is_of_a_language_that_is_run_or_only_shown() -> None:
    assert {block.language for block in BLOCKS} <= {*RUNNABLE, *SHOWN_ONLY}
    fences = len(re.findall(r"^```", README, re.MULTILINE))
    assert fences == 2 * len(BLOCKS), "a fence has no language, or is not closed"


@pytest.mark.broker
@pytest.mark.spark
def test_python_blocks_run_in_order(
    kafka: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    replaced = {
        '"localhost:9092"': repr(kafka.bootstrap_servers),
        '"subscribe", "flights"': f'"subscribe", "{topic}"',
        'produce("flights"': f'produce("{topic}"',
        'NewTopic("flights"': f'NewTopic("{topic}"',
        '])["flights"]': f'])["{topic}"]',
        '"flight-readers"': f'"readers-{topic}"',
        '"out/': f'"{tmp_path}/out/',
        '"checkpoints/': f'"{tmp_path}/checkpoints/',
        "query.awaitTermination()": "await_rows(query, flights_produced)",
    }
    namespace: dict[str, Any] = {
        "__name__": "readme",
        "await_rows": await_rows,
        "flights_produced": FLIGHTS_PRODUCED,
    }
    blocks = blocks_in("python")
    assert blocks
    run_python(blocks, replaced, namespace, "README.md")
    written_rows = spark.read.parquet(str(tmp_path / "out" / "flights-1"))
    assert written_rows.distinct().count() == FLIGHTS_PRODUCED


def key_paths(table: dict[str, Any], prefix: str = "") -> set[str]:
    paths: set[str] = set()
    for key, value in table.items():
        paths |= key_paths(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key}
    return paths


@pytest.mark.parametrize("block", blocks_in("toml"), ids=str)
def test_toml_block_has_only_keys_of_the_examples(block: Block) -> None:
    known: set[str] = set()
    for example in (ROOT / "conf").glob("*.toml"):
        known |= key_paths(tomllib.loads(example.read_text(encoding="utf-8")))
    assert key_paths(tomllib.loads(block.text)) <= known


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_one_that_exists(command: str) -> None:
    assert_command_exists(command)


@pytest.mark.parametrize("command", sorted(CHEAP_COMMANDS & {*COMMANDS, "make help"}))
def test_cheap_command_succeeds(command: str) -> None:
    program, *arguments = shlex.split(command)
    beside_python = Path(sys.executable).parent / program
    run = [str(beside_python) if beside_python.exists() else program, *arguments]
    done = subprocess.run(
        run,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COMMAND_DEADLINE_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
