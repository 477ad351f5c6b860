"""The page on the source documents: each section has a row, which names code and a test of it.

The documents are not here, so `seeds_page.json` has their sections in order, each with its rows.
Behind " / " is a section of the one before; a number is a step of its list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from group_lab.commands.simulate_cli import protocols_option
from lab.tests.seeds_page_setup import names_of
from tests.documents import ROOT, TREES_OF_TESTS, assert_command_exists

PAGE = ROOT / "docs/explanation/seeds.md"
TEXT = PAGE.read_text(encoding="utf-8")
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>[^)\s#:]*)(?P<anchor>#[^)\s]+)?\)")
OBJECTS = re.compile(r"\]\((?P<path>[^)\s#:]+\.py)\)(?P<names>(?:,? `[\w.]+`)*)")
COMMAND = re.compile(r"`(spark-groups [^`]+)`")
ABSENT = "—"
"""The place of a section that this repository does not have; the notes have the reason."""
REASON = re.compile(r"Absent: .{12,}")
Sections = Mapping[str, str | list[str]]
SECTIONS: Mapping[str, Sections] = json.loads(
    (ROOT / "lab/tests/seeds_page.json").read_text(encoding="utf-8")
)
"""The rows of each section, by document."""
TITLES = (
    "Kafka 0.9 consumer rewrite design",
    "Incremental cooperative rebalancing",
    "KIP-345",
    "Effective Kafka, chapter 15",
    "KIP-848",
)
TRANSCRIPTS = (
    "design_0_9/*.txt",
    "design_0_9_consumers/*.txt",
    "incremental_rebalancing/*.txt",
    "kip345_*.txt",
    "ch15_*.txt",
    "kip_*.txt",
    "kip848/*.txt",
    "migration_*.txt",
)
"""Transcripts of what the documents describe, below lab/tests/scenarios."""


def leads_to(path: str) -> Path:
    """Return where a link of the page leads; a link without a path stays on the page."""
    return (PAGE.parent / path).resolve() if path else PAGE


def slug(title: str) -> str:
    """Return the anchor of a heading, as the site and its repository make it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


@cache
def anchors_of(path: Path) -> frozenset[str]:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return frozenset(f"#{slug(title)}" for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE))


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def tables() -> dict[str, list[list[str]]]:
    """Return the cells of every row of a document's table, by its heading."""
    pieces = re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)[1:]
    lines = {
        title: [line for line in text.splitlines() if line.startswith("|")]
        for title, text in zip(pieces[::2], pieces[1::2], strict=True)
    }
    # The first two lines are the names of the columns.
    return {title: [cells_of(line) for line in found[2:]] for title, found in lines.items()}


def rows() -> Iterator[list[str]]:
    return (cells for found in tables().values() for cells in found)


def missing_files(text: str) -> list[str]:
    paths = {link["path"] for link in LINK.finditer(text)}
    return sorted(path for path in paths if not leads_to(path).exists())


def objects_of(text: str) -> Iterator[tuple[Path, str]]:
    """Yield the names beside links to modules, each with its module; "" is a link without one."""
    for found in OBJECTS.finditer(text):
        for name in re.findall(r"`([\w.]+)`", found["names"]) or [""]:
            yield leads_to(found["path"]), name


def missing_objects(text: str) -> list[str]:
    named = {(path, name) for path, name in objects_of(text) if name}
    return sorted(f"{path.name}: {name}" for path, name in named if name not in names_of(path))


def is_a_test(path: Path) -> bool:
    return any(path.is_relative_to(ROOT / each) for each in TREES_OF_TESTS)


def problems_of(place: str, notes: str) -> list[str]:
    """Return what a row lacks: code, a test of what it says, or a reason to be absent."""
    if place == ABSENT:
        return [] if REASON.fullmatch(notes) else ["no reason"]
    objects = list(objects_of(place))
    has_code = COMMAND.search(place) or any(name and not is_a_test(path) for path, name in objects)
    tests = [name.rpartition(".")[2] for path, name in objects if is_a_test(path)]
    transcripts = [link["path"] for link in LINK.finditer(place) if link["path"].endswith(".txt")]
    return [
        *missing_files(place),
        *missing_objects(place),
        *([] if has_code else ["no code"]),
        *([] if tests or transcripts else ["no test"]),
        *(f"{name or 'a file'} is no test" for name in tests if not name.startswith("test_")),
    ]


def pairs(sections: Sections) -> list[tuple[str, str]]:
    """Return each section with each of its rows, "" if it names none."""
    return [
        (section, row)
        for section, named in sections.items()
        for row in ([named] if isinstance(named, str) else named or [""])
    ]


def without_rows(sections: Sections, names: Collection[str]) -> list[tuple[str, str]]:
    """Return the sections that lack a row, each with that row."""
    return [each for each in pairs(sections) if each[1] not in names]


def test_each_document_has_a_table() -> None:
    assert tuple(tables()) == TITLES
    for title, found in tables().items():
        assert len(found) > 20, title
        assert [cells for cells in found if len(cells) != 3 or not all(cells[:2])] == [], title


@pytest.mark.parametrize("title", TITLES)
def test_each_section_of_a_document_has_a_row(title: str) -> None:
    sections, names = SECTIONS[title], [section for section, *_ in tables()[title]]
    assert without_rows(sections, names) == []
    named = {row for _, row in pairs(sections)}
    assert [each for each in names if each not in named] == [], "rows without a section"
    assert len(names) == len(set(names))


def test_a_section_without_a_row_is_found() -> None:
    sections: Sections = {"A": "a", "B": ["a", "b"], "C": []}
    assert without_rows(sections, ["a", "b"]) == [("C", "")]
    assert without_rows(sections, ["a"]) == [("B", "b"), ("C", "")]


def test_each_row_names_code_and_a_test_or_says_why_it_is_absent() -> None:
    found = {section: problems_of(place, notes) for section, place, notes in rows()}
    assert {section: problems for section, problems in found.items() if problems} == {}


CODE = "[`log.py`](../../lab/group_lab/coordinator/log.py)"
TEST = "[`test_log.py`](../../lab/tests/coordinator/test_log.py)"
TRANSCRIPT = "[`handover.txt`](../../lab/tests/scenarios/handover.txt)"


@pytest.mark.parametrize(
    ("place", "notes", "problems"),
    [
        (f"{CODE} `Log`, {TRANSCRIPT}", "", []),
        (f"{CODE} `Log`, {TEST} `test_a_member`", "", []),
        (f"`spark-groups groups`, {TRANSCRIPT}", "", []),
        (f"{CODE}, {TRANSCRIPT}", "", ["no code"]),
        (TRANSCRIPT, "", ["no code"]),
        (f"{CODE} `Log`", "", ["no test"]),
        (f"{CODE} `Log`, {TEST}", "", ["a file is no test"]),
        (f"{CODE} `Log`, {TEST} `size`", "", ["size is no test"]),
        (f"{CODE} `Lag`, {TRANSCRIPT}", "", ["log.py: Lag"]),
        (f"{CODE} `Log.appends`, {TRANSCRIPT}", "", ["log.py: Log.appends"]),
        (f"{CODE} `Log`, {TEST} `test_none`", "", ["test_log.py: test_none"]),
        (f"{CODE} `Log`, [`a.txt`](../../tests/a.txt)", "", ["../../tests/a.txt"]),
        (ABSENT, "Absent: a link to another document", []),
        (ABSENT, "Absent: TBD", ["no reason"]),
        (ABSENT, "Not in Kafka", ["no reason"]),
    ],
)
def test_problems_of_rows_are_found(place: str, notes: str, problems: list[str]) -> None:
    assert problems_of(place, notes) == problems


def test_links_lead_to_files() -> None:
    assert missing_files(TEXT) == []


def test_anchors_are_those_of_headings() -> None:
    anchored = [
        (link["path"], link["anchor"])
        for link in LINK.finditer(TEXT)
        if link["anchor"] and leads_to(link["path"]).exists()
    ]
    assert {path for path, _ in anchored} > {"", "guarantees.md"}
    assert [each for each in anchored if each[1] not in anchors_of(leads_to(each[0]))] == []


def test_a_link_to_code_shows_the_end_of_its_path() -> None:
    shown = [(link["text"].strip("`"), link["path"]) for link in LINK.finditer(TEXT)]
    code = [each for each in shown if each[1].endswith((".py", ".txt"))]
    assert len(code) > 100
    assert [each for each in code if not f"/{each[1]}".endswith(f"/{each[0]}")] == []


def test_modules_have_the_objects_beside_their_links() -> None:
    assert missing_objects(TEXT) == []


COMMANDS = sorted(set(COMMAND.findall(TEXT)))


def test_page_names_commands() -> None:
    assert {command.split()[1] for command in COMMANDS} >= {"simulate", "remove", "config"}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_one_that_exists(command: str) -> None:
    assert_command_exists(command)
    protocols_option(re.findall(r"--protocol (\S+)", command))


@pytest.mark.parametrize("pattern", TRANSCRIPTS)
def test_each_transcript_has_a_row(pattern: str) -> None:
    transcripts = set((ROOT / "lab/tests/scenarios").glob(pattern))
    assert transcripts
    linked = {leads_to(link["path"]) for _, place, _ in rows() for link in LINK.finditer(place)}
    assert sorted(path.name for path in transcripts - linked) == []
