"""Results that are noted: a file gets a line for each run, and a page has a table made from it."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs" / "benchmarks"
PAGE: Final = DOCS / "reliability.md"


def rows(path: Path) -> list[dict[str, str]]:
    """Return the lines of a file.

    Args:
        path: The file; it may be missing.
    """
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def note(line: Mapping[str, object], columns: Sequence[str], path: Path) -> None:
    """Add a line to a file.

    Args:
        line: Its values by column; a column without one stays empty.
        columns: All columns, in order.
        path: The file.
    """
    if not path.exists():
        write([], columns, path)
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, columns, lineterminator="\n").writerow(line)


def write(lines: Iterable[Mapping[str, object]], columns: Sequence[str], path: Path) -> None:
    """Write a file, in the place of an earlier one.

    Args:
        lines: Its lines: their values by column.
        columns: All columns, in order.
        path: The file.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def markdown_table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a table, and an empty line.

    Args:
        heads: The first row.
        rows: The other rows: a text for each cell.
    """
    lines = [heads, ["---"] * len(heads), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def page_with(name: str, lines: Iterable[str], page: Path = PAGE) -> str:
    """Return a page with other text between two markers.

    Args:
        name: The page has the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
        lines: The text.
        page: The page.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    text = "\n".join(lines).strip()
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def write_section(page: Path, name: str, lines: Iterable[str]) -> None:
    """Replace the text between two markers of a page.

    Args:
        page: The page.
        name: The name in the markers.
        lines: The text.
    """
    page.write_text(page_with(name, lines, page), encoding="utf-8")


def commit_of(*places: str) -> str:
    """Return the last commit that changed a place, with a plus if one is modified.

    Args:
        places: Directories, from the root of the repository.
    """
    head = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", *places],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    compared = ["git", "diff", "--quiet", "HEAD", "--", *places]
    is_modified = subprocess.run(compared, check=False, cwd=ROOT).returncode != 0
    return head.stdout.strip() + "+" * is_modified
