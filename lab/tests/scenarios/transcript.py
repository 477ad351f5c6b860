"""A transcript: prose, commands, and below `----` what they answer; one text for each version.

Paragraphs are separated by blank lines. A paragraph with a `----` line is a block: commands above
it, their output below. `----` alone holds for every version of Kafka; `---- 4.0-4.1` and
`---- 4.2+` hold for some. Everything else is prose.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

VERSIONS = ("4.0", "4.1", "4.2", "4.3", "4.4")
"""The minor versions that a transcript may name, oldest first."""

RULE = "----"


class TranscriptError(ValueError):
    """A transcript cannot be read; the message says where and why."""


@dataclass
class Block:
    """Commands and what they answer.

    Args:
        line: Number of the first line in the file.
        commands: The commands, one a line.
        expected: The output for each minor version; a version that is missing was never recorded.
    """

    line: int
    commands: tuple[str, ...]
    expected: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Write the block, versions with the same output together."""
        yield from self.commands
        if not self.expected:
            yield RULE
            return
        first_seen = dict.fromkeys(
            self.expected[version] for version in VERSIONS if version in self.expected
        )
        for output in first_seen:
            span = spans(version for version in VERSIONS if self.expected.get(version) == output)
            yield f"{RULE} {span}".rstrip()
            yield from output


@dataclass
class Transcript:
    """A file: paragraphs of prose (tuples of lines) and blocks, in order.

    Args:
        path: Where it is.
        parts: What it consists of.
    """

    path: Path
    parts: list[Block | tuple[str, ...]]

    @property
    def blocks(self) -> list[Block]:
        return [part for part in self.parts if isinstance(part, Block)]

    @classmethod
    def read(cls, path: Path) -> Transcript:
        """Read a file.

        Raises:
            TranscriptError: It cannot be read.
        """
        return cls(path, list(_parse(path)))

    def text(self) -> str:
        """Return what the file says."""
        paragraphs = (part.lines() if isinstance(part, Block) else part for part in self.parts)
        return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


def rewrite(path: Path, version: str | None, outputs: list[tuple[str, ...]]) -> None:
    """Write what one version answered into a file; several processes may do so at once.

    Args:
        path: The transcript.
        version: The minor version; None if there is no broker, so that it holds for all.
        outputs: The output of each block, in order.
    """
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        transcript = Transcript.read(path)
        for block, output in zip(transcript.blocks, outputs, strict=True):
            if not output and not block.expected:
                continue
            block.expected.update(dict.fromkeys([version] if version else VERSIONS, output))
        file.seek(0)
        file.truncate()
        file.write(transcript.text())
        file.flush()
        os.fsync(file.fileno())


def spans(versions: Iterable[str]) -> str:
    """Write a set of minor versions: nothing for all of them, else `4.0-4.1 4.3+` and the like."""
    wanted = sorted({VERSIONS.index(each) for each in versions})
    if len(wanted) == len(VERSIONS):
        return ""
    runs: list[list[int]] = []
    for index in wanted:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return " ".join(_span(run) for run in runs)


def _span(run: list[int]) -> str:
    first = VERSIONS[run[0]]
    if run[-1] == len(VERSIONS) - 1:
        return f"{first}+"
    return first if len(run) == 1 else f"{first}-{VERSIONS[run[-1]]}"


def versions_of(text: str) -> tuple[str, ...]:
    """Read what `spans` wrote.

    Raises:
        ValueError: It names no known version.
    """
    if not text:
        return VERSIONS
    found: list[str] = []
    for each in text.split():
        first, _, last = each.partition("-")
        if each.endswith("+"):
            first, last = each[:-1], VERSIONS[-1]
        begin, end = VERSIONS.index(first), VERSIONS.index(last or first)
        found.extend(VERSIONS[begin : end + 1])
    return tuple(found)


def _parse(path: Path) -> Iterator[Block | tuple[str, ...]]:
    for number, lines in _paragraphs(path.read_text(encoding="utf-8")):
        rules = [index for index, line in enumerate(lines) if line.startswith(RULE)]
        if not rules:
            yield lines
            continue
        if rules[0] == 0:
            raise TranscriptError(f"{path}:{number}: output without a command")
        block = Block(number, lines[: rules[0]])
        for begin, end in zip(rules, [*rules[1:], len(lines)], strict=True):
            try:
                versions = versions_of(lines[begin][len(RULE) :].strip())
            except ValueError as error:
                raise TranscriptError(f"{path}:{number + begin}: {error}") from error
            if set(versions) & set(block.expected):
                raise TranscriptError(f"{path}:{number + begin}: a version is named twice")
            output = lines[begin + 1 : end]
            # `----` with nothing below it is a block that was never recorded, or says nothing.
            if output or lines[begin] != RULE:
                block.expected.update(dict.fromkeys(versions, output))
        yield block


def _paragraphs(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    gathered: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip():
            gathered.append(line.rstrip())
        elif gathered:
            yield number - len(gathered), tuple(gathered)
            gathered = []
