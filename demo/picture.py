"""The demo as an animated SVG: owners of partitions over time, from left to right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

PLAYS_S: Final = 16.0
"""How long one round of the animation takes."""
WAITS: Final = 0.9
"""The fraction of a round in which the picture grows; then it pauses."""
LEFT: Final = 56
TOP: Final = 64
WIDTH: Final = 760
ROW: Final = 18
COLOURS: Final = ("#3b82f6", "#f59e0b")
NO_OWNER: Final = "#9ca3af"
_STYLE: Final = "font-family:ui-sans-serif,system-ui,sans-serif;font-size:13px;fill:#111827"


@dataclass(frozen=True, slots=True)
class Look:
    """The owners at one poll.

    Args:
        at_s: Seconds.
        owners: The client id of each partition's owner, in the order of partitions; "" for none.
    """

    at_s: float
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Caption:
    """An action of the demo.

    Args:
        at_s: Seconds.
        text: Its description.
    """

    at_s: float
    text: str


def animated(
    looks: Sequence[Look], captions: Sequence[Caption], applications: Sequence[str]
) -> str:
    """Return the animation.

    Args:
        looks: At least two, in order.
        captions: In order.
        applications: Client ids, each with a colour of its own.
    """
    began_s, ended_s = looks[0].at_s, looks[-1].at_s
    scale = 1.0 / (ended_s - began_s)
    colours = dict(zip(applications, COLOURS, strict=False))
    rows = len(looks[0].owners)
    height = TOP + rows * ROW + 16
    bars = "".join(
        f'<rect x="{LEFT + WIDTH * (at - began_s) * scale:.1f}" y="{TOP + row * ROW}"'
        f' width="{WIDTH * (until - at) * scale:.1f}" height="{ROW - 3}"'
        f' fill="{colours.get(owner, NO_OWNER)}"/>'
        for row in range(rows)
        for at, until, owner in _spans(looks, row)
    )
    labels = "".join(
        f'<text x="8" y="{TOP + row * ROW + 12}" style="{_STYLE}">{row}</text>'
        for row in range(rows)
    )
    legend = "".join(
        f'<rect x="{LEFT + 150 * index}" y="12" width="12" height="12" fill="{colour}"/>'
        f'<text x="{LEFT + 18 + 150 * index}" y="23" style="{_STYLE}">{escape(name)}</text>'
        for index, (name, colour) in enumerate([*colours.items(), ("no member", NO_OWNER)])
    )
    shown = "".join(_captions(captions, began_s, scale))
    grows = (
        f'<animate attributeName="width" values="0;{WIDTH};{WIDTH}" keyTimes="0;{WAITS};1"'
        f' dur="{PLAYS_S:g}s" repeatCount="indefinite"/>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 16} {height}">'
        f"<title>Who owns which partition while applications join and are killed</title>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>{legend}{shown}{labels}'
        f'<clipPath id="grown"><rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{height}">'
        f'{grows}</rect></clipPath><g clip-path="url(#grown)">{bars}</g></svg>\n'
    )


def _spans(looks: Sequence[Look], row: int) -> Iterator[tuple[float, float, str]]:
    """Yield from when until when who owned a partition."""
    began = looks[0]
    for _, look in pairwise(looks):
        if look.owners[row] != began.owners[row] or look is looks[-1]:
            yield began.at_s, look.at_s, began.owners[row]
            began = look


def _captions(captions: Sequence[Caption], began_s: float, scale: float) -> Iterator[str]:
    """Yield each caption, visible from its time until the next one's."""
    times = [max(0.0, (each.at_s - began_s) * scale) * WAITS for each in captions]
    for each, at, until in zip(captions, times, [*times[1:], 1.0], strict=True):
        if at >= until:
            continue
        yield (
            f'<text x="{LEFT}" y="48" style="{_STYLE}" visibility="hidden">{escape(each.text)}'
            f'<animate attributeName="visibility" calcMode="discrete" dur="{PLAYS_S:g}s"'
            f' values="hidden;visible;hidden" keyTimes="0;{at:.4f};{min(until, 1.0):.4f}"'
            f' repeatCount="indefinite"/></text>'
        )
