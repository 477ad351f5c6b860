"""Shared by test_timeline_page.py and other tests."""

from __future__ import annotations

from html.parser import HTMLParser


class Balanced(HTMLParser):
    """Checks that every element that begins also ends."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
