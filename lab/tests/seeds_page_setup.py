"""Shared by test_seeds_page.py and other tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path


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
