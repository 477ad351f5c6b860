"""Every code block of the README runs.

Python blocks are programs: each is saved under its name and run as a reader runs it, on the real
broker and the real Spark, and Ctrl-C ends the query. What a reader would adapt (address, topic,
group id) is replaced by the test's own. The commands of bash blocks are looked up, and run where
that is cheap.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.documents import (
    READ_DEADLINE_S,
    ROOT,
    Block,
    assert_command_exists,
    blocks_of,
    commands_of,
)
from tests.runtime.members import committed
from workshop.parts.processes import environment
from workshop.parts.waiting import wait_until

README = (ROOT / "README.md").read_text(encoding="utf-8")
FLIGHTS_PRODUCED = 100
LINES_OF_AN_END = 3
"""Two of the member, which plans no more and has left, and that of the application."""
COMMAND_DEADLINE_S = 300
CHEAP_COMMANDS = frozenset({"make help", "spark-groups --help"})
BLOCKS = tuple(blocks_of(README))
RUNNABLE = ("python", "bash")
SHOWN_ONLY = ("mermaid", "text")


def blocks_in(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


COMMANDS = [command for block in blocks_in("bash") for command in commands_of(block)]


def test_every_block_is_of_a_language_that_is_run_or_only_shown() -> None:
    assert {block.language for block in BLOCKS} <= {*RUNNABLE, *SHOWN_ONLY}
    fences = len(re.findall(r"^```", README, re.MULTILINE))
    assert fences == 2 * len(BLOCKS), "a fence has no language, or is not closed"


def programs() -> dict[str, str]:
    """The programs by the name of the file under which a reader saves each."""
    shown = re.finditer(r"^Save this as `(\w+\.py)`.*?^```python\n(.*?)^```$", README, re.M | re.S)
    return {each[1]: each[2] for each in shown}


def test_every_python_block_is_a_program_with_a_name() -> None:
    assert list(programs().values()) == [block.text for block in blocks_in("python")]


@pytest.mark.broker
@pytest.mark.spark
def test_programs_run_as_a_reader_runs_them(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    replaced = {
        "localhost:9092": kafka.bootstrap_servers,
        '"flights"': f'"{topic_name}"',
        '"flight-readers"': f'"{group_id}"',
    }
    for name, text in programs().items():
        for written, run_with in replaced.items():
            text = text.replace(written, run_with)  # noqa: PLW2901
        (tmp_path / name).write_text(text, encoding="utf-8")
    for _ in range(2):
        written = run_program(tmp_path, "write.py")
        assert f"wrote {FLIGHTS_PRODUCED} records to the topic " in written
    log = tmp_path / "flights.log"
    with log.open("wb") as output:
        application = start_program(tmp_path, "flights.py", "1", output=output)
    try:
        wait_until(
            lambda: (
                sum(committed(kafka.bootstrap_servers, group_id).values()) == 2 * FLIGHTS_PRODUCED
                or application.poll() is not None
            ),
            READ_DEADLINE_S,
            what="all records to be committed",
        )
        printed = len(log.read_text(encoding="utf-8"))
        assert application.poll() is None, log.read_text(encoding="utf-8")
        # As a terminal does: the whole process group gets it.
        os.killpg(application.pid, signal.SIGINT)
        assert application.wait(COMMAND_DEADLINE_S) == 0, log.read_text(encoding="utf-8")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(application.pid, signal.SIGKILL)
    text = log.read_text(encoding="utf-8")
    assert "Traceback" not in text
    assert " ERROR " not in text
    ended = [each for each in text[printed:].splitlines() if "committed a batch" not in each]
    assert len(ended) <= LINES_OF_AN_END, text[printed:]
    assert "ended by SIGINT: the running batch is finished" in ended[-1]
    rows = run_program(tmp_path, "rows.py")
    assert f"flights-1 has {2 * FLIGHTS_PRODUCED} rows, for example:" in rows
    assert re.search(r"\| +N\d+\|flight \d+\|", rows), rows


def start_program(
    directory: Path, name: str, *arguments: str, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a program in an activated environment, in a process group of its own."""
    programs_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = environment(PATH=programs_first, SPARK_LOCAL_IP="127.0.0.1")
    variables.pop("PYSPARK_PYTHON", None)
    return subprocess.Popen(
        ["python", name, *arguments],
        cwd=directory,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def run_program(directory: Path, name: str) -> str:
    """Run a program to its end, and return what it printed."""
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = start_program(directory, name, output=output)
    try:
        exit_code = process.wait(READ_DEADLINE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    text = log.read_text(encoding="utf-8")
    assert exit_code == 0, text
    return text


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
