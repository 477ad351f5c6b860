"""Documents as tests read them: their blocks of code, and the commands that they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TREES_OF_TESTS = ("tests", "lab/tests", "workshop/tests")
READ_DEADLINE_S = 400
KNOWN_COMMANDS = frozenset(
    {"make", "spark-groups", "spark-submit", "git", "cd", "pip", "python", "python3", "source"}
    | {"docker", "export", "kubectl", "venv-pack"}
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document.

    Args:
        language: What stands behind the fence.
        line: Line of the opening fence, from 1.
        text: The lines between the fences.
    """

    language: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"line-{self.line}"


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the fenced blocks, those in lists without the indentation of the list."""
    for match in re.finditer(r"^( *)```(\w+)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
        inside = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
        yield Block(match[2], text.count("\n", 0, match.start()) + 1, inside)


def commands_of(block: Block) -> list[str]:
    """The commands of a bash block, with continued lines joined and comments left out."""
    joined = block.text.replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line) for line in joined.splitlines())
    return [shlex.join(words) for words in map(shlex.split, lines) if words]


def run_python(
    blocks: Iterable[Block], replaced: Mapping[str, str], namespace: dict[str, Any], name: str
) -> None:
    """Run Python blocks in order in one namespace, with what a reader would adapt replaced."""
    for block in blocks:
        text = block.text
        for written, run in replaced.items():
            text = text.replace(written, run)
        # Blank lines before it make a traceback name the document's own line.
        exec(compile("\n" * block.line + text, name, "exec"), namespace)


def assert_command_exists(command: str) -> None:
    """Look a command up: a target of make, a command of ours and its options, a file."""
    words = shlex.split(command)
    while "=" in words[0]:
        del words[0]
    program, *arguments = words
    program = Path(program).name
    assert program in KNOWN_COMMANDS, f"{program} is not a command that is looked up"
    if program == "make":
        targets = [word for word in arguments if "=" not in word and not word.startswith("-")]
        assert targets, "no target is named"
        assert set(targets) <= make_targets()
    elif program == "spark-groups":
        assert_spark_groups_knows(arguments)
    elif (
        program == "spark-submit"
        or (program == "python" and arguments[:1] not in ([], ["-m"]))
        or [program, *arguments[:1]] == ["kubectl", "apply"]
    ):
        assert_files_exist(arguments)


def make_targets() -> set[str]:
    """The targets that `make help-all` lists."""
    files = ("Makefile", "lab/targets.mk", "workshop/targets.mk")
    text = "\n".join((ROOT / each).read_text(encoding="utf-8") for each in files)
    return set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))


def assert_spark_groups_knows(arguments: list[str]) -> None:
    """Click reads everything before it helps: an unknown sub-command or option is refused."""
    from typer.testing import CliRunner

    from spark_groups.cli.main import app

    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0, done.output


def assert_files_exist(arguments: list[str]) -> None:
    """Every script and every file of settings is there."""
    named = [word for word in arguments if re.search(r"\.(py|toml|sh|yaml)$", word)]
    assert named, "no file is named"
    for word in named:
        assert (ROOT / word).is_file(), f"{word} is not there"
