"""The page on the source documents: its links lead somewhere, and no transcript lacks a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from spark_groups.lab.commands.simulate_cli import protocols_option
from tests.documents import ROOT, assert_command_exists

PAGE = ROOT / "docs/explanation/seeds.md"
TEXT = PAGE.read_text(encoding="utf-8")
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>[^)\s#:]*)(?P<anchor>#[^)\s]+)?\)")
OBJECTS = re.compile(r"\]\((?P<path>[^)\s#:]+\.py)\)(?P<names>(?:,? `[\w.]+`)+)")
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
"""Transcripts of what the documents describe, below tests/scenarios."""


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


def test_each_document_has_a_table() -> None:
    assert tuple(tables()) == TITLES
    for title, found in tables().items():
        assert len(found) > 20, title
        assert [cells for cells in found if len(cells) != 3 or not all(cells[:2])] == [], title


def test_a_row_leads_somewhere_or_says_why_it_is_absent() -> None:
    silent = [
        section
        for section, place, notes in rows()
        if not (LINK.search(place) or "`spark-groups " in place or "bsent:" in notes)
    ]
    assert silent == []
    assert any("bsent:" in notes for _, _, notes in rows())


def test_links_lead_to_files() -> None:
    paths = {link["path"] for link in LINK.finditer(TEXT)}
    missing = sorted(path for path in paths if not leads_to(path).exists())
    assert not missing, "\n".join(missing)


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


@cache
def names_of(path: Path) -> frozenset[str]:
    """Return the names that a module defines, with the members of its classes."""
    if not path.exists():
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = set(defined(body))
    for node in body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each}" for each in defined(node.body)}
    return frozenset(names)


def defined(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name


def test_modules_have_the_objects_beside_their_links() -> None:
    named = {
        (leads_to(found["path"]), name)
        for found in OBJECTS.finditer(TEXT)
        for name in re.findall(r"`([\w.]+)`", found["names"])
    }
    assert len(named) > 100
    absent = [f"{path}: {name}" for path, name in named if name not in names_of(path)]
    assert not absent, "\n".join(sorted(absent))


COMMANDS = sorted(set(re.findall(r"`(spark-groups [^`]+)`", TEXT)))


def test_page_names_commands() -> None:
    assert {command.split()[1] for command in COMMANDS} >= {"simulate", "remove", "config"}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_one_that_exists(command: str) -> None:
    assert_command_exists(command)
    protocols_option(re.findall(r"--protocol (\S+)", command))


@pytest.mark.parametrize("pattern", TRANSCRIPTS)
def test_each_transcript_has_a_row(pattern: str) -> None:
    transcripts = set((ROOT / "tests/scenarios").glob(pattern))
    assert transcripts
    linked = {leads_to(link["path"]) for _, place, _ in rows() for link in LINK.finditer(place)}
    assert sorted(path.name for path in transcripts - linked) == []
