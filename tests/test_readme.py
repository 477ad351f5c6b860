"""Every code block of the README runs.

Python blocks run in order, in one namespace, on the real broker and the real Spark; what a reader
would adapt (address, topic, group id) is replaced by the test's own, and a query that would run
for ever ends when it has read what was produced. TOML blocks are parsed and compared with the
examples in conf/; the commands of bash blocks are looked up, and run where that is cheap.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FLIGHTS_PRODUCED = 100
READ_DEADLINE_S = 120
COMMAND_DEADLINE_S = 60
CHEAP_COMMANDS = frozenset({"make help", "spark-groups --help"})
KNOWN_COMMANDS = frozenset({"make", "spark-groups", "spark-submit", "git", "cd", "pip", "python"})


@dataclass(frozen=True)
class Block:
    """A fenced block of the README.

    Args:
        language: What stands behind the fence.
        line: Line of the opening fence, from 1.
        text: What is between the fences.
    """

    language: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"line-{self.line}"


def blocks_of(text: str) -> Iterator[Block]:
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(match[1], text.count("\n", 0, match.start()) + 1, match[2])


BLOCKS = tuple(blocks_of(README))
RUNNABLE = ("python", "toml", "bash")
SHOWN_ONLY = ("mermaid", "text")


def blocks_in(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def commands_of(block: Block) -> list[str]:
    """The commands of a bash block, with continued lines joined and comments left out."""
    joined = block.text.replace("\\\n", " ")
    stripped = (" ".join(shlex.split(line, comments=True)) for line in joined.splitlines())
    return [command for command in stripped if command]


COMMANDS = [command for block in blocks_in("bash") for command in commands_of(block)]


def test_every_block_is_of_a_language_that_is_run_or_only_shown() -> None:
    assert {block.language for block in BLOCKS} <= {*RUNNABLE, *SHOWN_ONLY}
    fences = len(re.findall(r"^```", README, re.MULTILINE))
    assert fences == 2 * len(BLOCKS), "a fence has no language, or is not closed"


def produce(bootstrap_servers: str, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(records):
        producer.produce(topic, key=f"N{number}".encode(), value=f"flight {number}".encode())
    assert producer.flush(30) == 0


def await_rows(query: Any, rows: int) -> None:
    """Wait until a query has read so many rows, then stop it."""
    deadline = time.monotonic() + READ_DEADLINE_S
    try:
        while sum(progress.numInputRows for progress in query.recentProgress) < rows:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, f"not {rows} rows in {READ_DEADLINE_S} s"
            time.sleep(0.1)
    finally:
        query.stop()


@pytest.mark.broker
@pytest.mark.spark
def test_python_blocks_run_in_order(
    kafka: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    produce(kafka.bootstrap_servers, topic, FLIGHTS_PRODUCED)
    replaced = {
        '"localhost:9092"': repr(kafka.bootstrap_servers),
        '"subscribe", "flights"': f'"subscribe", "{topic}"',
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
    for block in blocks:
        text = block.text
        for written, run in replaced.items():
            text = text.replace(written, run)
        # Blank lines before it make a traceback name the README's own line.
        exec(compile("\n" * block.line + text, "README.md", "exec"), namespace)
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


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))


def assert_spark_groups_knows(arguments: list[str]) -> None:
    from typer.testing import CliRunner

    from spark_groups.ops.cli import app

    # Click reads everything before it helps: an unknown sub-command or option is refused.
    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0, done.output


def assert_files_exist(arguments: list[str]) -> None:
    named = [word for word in arguments if re.search(r"\.(py|toml|sh)$", word)]
    assert named, "no file is named"
    for word in named:
        assert (ROOT / word).is_file(), f"{word} is not there"


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_one_that_exists(command: str) -> None:
    program, *arguments = shlex.split(command)
    program = Path(program).name
    assert program in KNOWN_COMMANDS, f"{program} is not a command that is looked up"
    if program == "make":
        targets = [word for word in arguments if "=" not in word and not word.startswith("-")]
        assert targets, "no target is named"
        assert set(targets) <= make_targets()
    elif program == "spark-groups":
        assert_spark_groups_knows(arguments)
    elif program == "spark-submit" or (program == "python" and arguments[:1] != ["-m"]):
        assert_files_exist(arguments)


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


def test_option_table_is_the_one_the_options_make() -> None:
    from spark_groups.spark.options import option_table

    shown = re.search(r"<!-- options -->\n(.*?)<!-- /options -->", README, re.DOTALL)
    assert shown, "the README has no place for the option table"
    assert shown[1].strip() == option_table().strip()
