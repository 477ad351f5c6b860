"""Shared by test_feeds.py and other tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Counted:
    number: int

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number}


class Counting:
    """Counts its looks, and who has opened and closed it."""

    def __init__(self) -> None:
        self.opened = self.closed = self.looks = 0

    @contextmanager
    def open(self) -> Iterator[Counting]:
        self.opened += 1
        try:
            yield self
        finally:
            self.closed += 1

    def look(self) -> Counted:
        self.looks += 1
        return Counted(self.looks)
