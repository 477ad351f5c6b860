"""Frames in a real browser: shared by the tests of the live page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from playwright.sync_api import Browser, Page, expect

from spark_groups.cli.feeds import Feeds
from spark_groups.cli.group_list_watch import GroupDetails, GroupListFrame, StateAge
from spark_groups.cli.groups_cli import GroupListView, GroupRow
from spark_groups.cli.page_server import PageServer
from spark_groups.observation.frames import Frame, GroupHistory
from spark_groups.observation.views import GroupView, view_group
from tests.observation.groups import ONE, TWO, member, read

expect.set_options(timeout=120_000)
READABLE_CONTRAST = 4.5
"""Of text, by WCAG 2.1, level AA."""
POINTED_AT = """(bar) => {
  bar.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
  return bar.textContent;
}"""
COLOUR_OF = """([selector, property]) => {
  let element = document.querySelector(selector);
  const painted = (each) => getComputedStyle(each)[property];
  while (property === 'backgroundColor' && painted(element) === 'rgba(0, 0, 0, 0)') {
    element = element.parentElement;
  }
  return painted(element).match(/[0-9.]+/g).slice(0, 3).map(Number);
}"""


@contextmanager
def opened(browser: Browser, url: str, scheme: Any = "light", width: int = 1560) -> Iterator[Page]:
    """Open a page that may not complain, nor load anything from elsewhere."""
    message: list[str] = []
    with browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 1000}
    ) as context:
        page = context.new_page()
        page.on("console", lambda each: message.append(f"{each.type}: {each.text}"))
        page.on("pageerror", lambda each: message.append(f"error: {each}"))
        asked: list[str] = []
        page.on("request", lambda each: asked.append(each.url))
        page.goto(url)
        yield page
        base = url.partition("#")[0]
        assert all(each.startswith((base, "data:")) for each in asked), asked
    # What the browser itself says of a server that is gone is no fault of the page.
    assert not [each for each in message if "net::ERR_" not in each], message


class Shown:
    """Shows one frame to every page, and another one when it is exchanged."""

    def __init__(self, frame: Frame | GroupListFrame) -> None:
        self.frame = frame

    @contextmanager
    def open(self) -> Iterator[Shown]:
        yield self

    def look(self) -> Frame | GroupListFrame:
        return self.frame


@contextmanager
def showing(
    frame: Frame | GroupListFrame, place: str = "#group=flight-readers"
) -> Iterator[tuple[Shown, str]]:
    """Serve a frame that was made up, and give the address of its page."""
    shown = Shown(frame)
    feeds = Feeds(lambda key: shown.open(), 2.0)
    server = PageServer("127.0.0.1", 0, feeds)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield shown, f"{server.url}{place}"
    finally:
        server.shutdown()
        feeds.close()
        server.server_close()


def rows_of(page: Page, table: str) -> dict[str, dict[str, str]]:
    """Return the cells of a table that are shown, by what stands above them."""
    read_table = """(table) => {
      const isSeen = (each) => each.checkVisibility();
      const heads = [...table.querySelectorAll('th')].filter(isSeen);
      const rows = [...table.querySelectorAll('tbody tr')];
      return rows.map((row) => Object.fromEntries([...row.children].filter(isSeen)
        .map((cell, index) => [heads[index].textContent, cell.innerText.trim()])));
    }"""
    rows = page.locator(f"#{table} table").evaluate(read_table)
    keys = ("partition",) if table == "partitions" else ("member", "group")
    return {next(row[key] for key in keys if key in row): row for row in rows}


def tiles_of(page: Page) -> dict[str, str]:
    """Return the figures above the tables, in their order."""
    read_tiles = """(list) => [...list.children].map(
      (each) => [...each.children].map((part) => part.innerText))"""
    return dict(page.locator("#head dl").evaluate(read_tiles))


def settled(lag: int) -> GroupView:
    return view_group(
        read(member(ONE, [0]), partitions=1, committed={0: 1_000}, ends={0: 1_000 + lag})
    )


def a_list(*names: str) -> GroupListFrame:
    groups = tuple(
        GroupRow(group_id=e, group_type="consumer", protocol_type="consumer", group_state="Empty")
        for e in names
    )
    details = GroupDetails(read_at_s=9.0, members=3, lag=1_234_567, unknown_lag_partitions=2)
    return GroupListFrame(
        at_s=100_000.0,
        seen_at_s=100_000.0,
        view=GroupListView(groups=groups),
        ages={names[0]: StateAge("Empty", 92_700.0, began_earlier=False)},
        details={names[0]: details},
    )


def made_up(**changes: Any) -> GroupView:
    view = view_group(
        read(
            member(ONE, [0, 1, 2], [0, 1], client_id="<img src=x onerror=alert(1)>"),
            member(TWO, [], [2], rack_id="a"),
            partitions=4,
            committed={0: 1_000, 1: 7},
            starts=dict.fromkeys(range(3), 0),
            ends=dict.fromkeys(range(3), 1_234_567),
            state="Reconciling",
        )
    )
    return replace(view, **changes)


def frame_of(*views: GroupView) -> Frame:
    history = GroupHistory("flight-readers")
    for at_s, each in enumerate(views):
        frame = history.seen(each, 1_000.0 + at_s)
    return frame


def luminance(colour: list[float]) -> float:
    """Return the relative luminance of a colour (WCAG 2.1)."""
    parts = [each / 255 for each in colour]
    linear = [p / 12.92 if p <= 0.040_45 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
