"""The facts that transcripts prove: marked `(F07)` in their prose, listed in the README."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = re.compile(r"\(F(?P<number>\d\d)\) ")
BEGIN, END = "<!-- facts: begin -->", "<!-- facts: end -->"


@dataclass(frozen=True, order=True)
class Fact:
    """One fact.

    Args:
        number: Its number.
        file: The transcript.
        line: Where it is marked.
        text: Its paragraph.
    """

    number: int
    file: str
    line: int
    text: str


def facts(paths: Iterable[Path]) -> list[Fact]:
    """Return the facts of transcripts, by number."""
    return sorted(fact for path in paths for fact in _facts_of(path))


def _facts_of(path: Path) -> Iterator[Fact]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for index, line in enumerate(lines):
        marked = MARK.match(line)
        if marked:
            end = next((i for i in range(index, len(lines)) if not lines[i].strip()), len(lines))
            text = " ".join(lines[index:end])[marked.end() :]
            yield Fact(int(marked["number"]), path.name, index + 1, text)


def listed(readme: str) -> str:
    """Return the list in the README."""
    return readme.partition(BEGIN)[2].partition(END)[0].strip()


def listing(found: Iterable[Fact]) -> str:
    """Write facts as the README lists them."""
    return "\n".join(
        f"- F{fact.number:02} [{fact.file}:{fact.line}]({fact.file}#L{fact.line}): {fact.text}"
        for fact in found
    )


def list_facts(readme: Path, paths: Iterable[Path]) -> None:
    """Write the list in the README; several processes may do so at once."""
    with readme.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before, _, rest = file.read().partition(BEGIN)
        text = f"{before}{BEGIN}\n\n{listing(facts(paths))}\n\n{END}{rest.partition(END)[2]}"
        file.seek(0)
        file.truncate()
        file.write(text)
