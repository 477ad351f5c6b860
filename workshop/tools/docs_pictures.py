"""Pictures of the docs site: draws Mermaid diagrams as SVG, without Mermaid's script.

The site loads nothing from elsewhere, and that script alone has megabytes. Three kinds of diagrams
are supported, as far as the docs use them: sequences, timelines (gantt) and states. Pictures have
the theme's colours, light or dark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any, Final

CHARACTER: Final = 7.4
"""Approximate width of a character at 13 pixels; boxes must fit their text."""
LINE: Final = 18
GAP: Final = 16
HEAD: Final = 34
BAR: Final = 26


class PictureError(ValueError):
    """A diagram has an unknown line."""


def draw(source: str, *_: object, **__: object) -> str:
    """Return a Mermaid diagram as HTML, as a formatter of pymdownx.

    Raises:
        PictureError: The diagram has an unknown kind or line.
    """
    kind, *lines = [line.strip() for line in source.strip().splitlines() if line.strip()]
    if kind not in _KINDS:
        raise PictureError(f"{kind} is not drawn: one of {', '.join(_KINDS)}")
    return _KINDS[kind](lines)


@dataclass(frozen=True, slots=True)
class Message:
    """An arrow between two participants, dashed if it is a response."""

    sender: str
    receiver: str
    text: str
    is_answer: bool


@dataclass(frozen=True, slots=True)
class Note:
    """A box with lines of text over a participant."""

    over: str
    lines: tuple[str, ...]


_PARTICIPANT: Final = re.compile(r"participant (\w+)(?: as (.+))?$")
_MESSAGE: Final = re.compile(r"(\w+)(-->>|->>)(\w+): (.+)$")
_NOTE: Final = re.compile(r"Note over (\w+): (.+)$")


def _sequence(lines: Iterable[str]) -> str:
    """Draw a sequence diagram: a column for each participant, time goes down."""
    participants: dict[str, str] = {}
    steps: list[Message | Note] = []
    for line in lines:
        if found := _PARTICIPANT.match(line):
            participants[found[1]] = found[2] or found[1]
        elif found := _MESSAGE.match(line):
            steps.append(Message(found[1], found[3], found[4], found[2] == "-->>"))
        elif found := _NOTE.match(line):
            steps.append(Note(found[1], tuple(found[2].split("<br/>"))))
        else:
            raise PictureError(f"not a line of a sequence diagram: {line}")
    columns, width = _columns(participants, steps)
    drawn = list(_steps(steps, columns, HEAD + 2 * GAP))
    height = drawn[-1][0] if drawn else HEAD
    parts = [
        f'<line class="life" x1="{x:g}" y1="{HEAD}" x2="{x:g}" y2="{height:g}"/>'
        for x in columns.values()
    ]
    parts += [
        _box(columns[name], 0, _width(label), HEAD, (label,), "head")
        for name, label in participants.items()
    ]
    return _svg(width, height, [*parts, *(part for _, part in drawn)])


def _columns(
    participants: Mapping[str, str], steps: Iterable[Message | Note]
) -> tuple[dict[str, float], float]:
    """Return the position of each participant, and the total width."""
    names = list(participants)
    half = {name: _width(label) / 2 for name, label in participants.items()}
    between = [half[left] + half[right] + GAP for left, right in pairwise(names)]
    for step in steps:
        if isinstance(step, Note):
            half[step.over] = max(half[step.over], _width(*step.lines) / 2)
            continue
        ends = sorted((names.index(step.sender), names.index(step.receiver)))
        spans = max(ends[1] - ends[0], 1)
        for index in range(ends[0], ends[1]):
            between[index] = max(between[index], (_width(step.text) + GAP) / spans)
    columns = {}
    at = half[names[0]] + 1
    for name, room in zip(names, [*between, 0.0], strict=True):
        columns[name] = at
        at += room
    return columns, columns[names[-1]] + half[names[-1]] + 1


def _steps(
    steps: Iterable[Message | Note], columns: Mapping[str, float], at: float
) -> Iterator[tuple[float, str]]:
    """Yield each step with its lower edge."""
    for step in steps:
        if isinstance(step, Note):
            height = len(step.lines) * LINE + GAP
            box = _box(columns[step.over], at, _width(*step.lines), height, step.lines, "note")
            at += height + GAP
        else:
            at += LINE
            box = _arrow(step, columns, at)
            at += GAP
        yield at, box


def _arrow(step: Message, columns: Mapping[str, float], at: float) -> str:
    start, end = columns[step.sender], columns[step.receiver]
    towards = 1 if end > start else -1
    kind = "answer" if step.is_answer else "request"
    return (
        f'<text x="{(start + end) / 2:g}" y="{at - 5:g}">{escape(step.text)}</text>'
        f'<line class="{kind}" x1="{start:g}" y1="{at:g}" x2="{end - towards * 7:g}" y2="{at:g}"/>'
        f'<path class="tip" d="M{end:g} {at:g} l{-towards * 9} -4 v8 z"/>'
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """A period of time, in a colour by Mermaid's names: done, active, crit or none."""

    label: str
    tag: str
    start_s: float
    end_s: float


_BAR: Final = re.compile(r"(.+?) :(?:(done|active|crit), )?([\d.]+), ([\d.]+)$")
_AXIS_WORDS: Final = ("dateFormat ", "axisFormat ", "title ")
TIMELINE_WIDTH: Final = 620


def _timeline(lines: Iterable[str]) -> str:
    """Draw a gantt diagram in seconds: a row for each bar, time goes to the right."""
    rows: list[str | Bar] = []
    for line in lines:
        if found := _BAR.match(line):
            rows.append(Bar(found[1], found[2] or "plain", float(found[3]), float(found[4])))
        elif line.startswith("section "):
            rows.append(line.removeprefix("section "))
        elif not line.startswith(_AXIS_WORDS):
            raise PictureError(f"not a line of a timeline: {line}")
    bars = [row for row in rows if isinstance(row, Bar)]
    end_s = max(bar.end_s for bar in bars)
    scale = TIMELINE_WIDTH / end_s
    margin = max(_width(row) for row in rows if isinstance(row, str))
    parts = []
    at = -float(BAR)
    for index, row in enumerate(rows):
        if isinstance(row, Bar):
            at += 0 if isinstance(rows[index - 1], str) else BAR
            parts.append(_bar(row, margin + row.start_s * scale, at, scale))
        else:
            at += BAR + (GAP / 2 if index else 0)
            parts.append(f'<text class="row" x="0" y="{at + BAR / 2 + 5:g}">{escape(row)}</text>')
    return _svg(margin + TIMELINE_WIDTH + 24, at + 2 * BAR, [*parts, *_axis(margin, at, end_s)])


def _bar(bar: Bar, left: float, top: float, scale: float) -> str:
    width = (bar.end_s - bar.start_s) * scale
    middle = left + width / 2
    return (
        f'<rect class="{bar.tag}" x="{left:g}" y="{top + 2:g}" width="{width:g}"'
        f' height="{BAR - 4}" rx="3"/>'
        f'<text x="{middle:g}" y="{top + BAR / 2 + 5:g}">{escape(bar.label)}</text>'
    )


def _axis(margin: float, at: float, end_s: float) -> Iterator[str]:
    step_s = next(each for each in (1, 2, 5, 10, 20, 50, 100) if end_s / each <= 10)
    scale = TIMELINE_WIDTH / end_s
    for number in range(int(end_s / step_s) + 1):
        x = margin + number * step_s * scale
        yield f'<line class="life" x1="{x:g}" y1="0" x2="{x:g}" y2="{at + BAR:g}"/>'
        yield f'<text class="tick" x="{x:g}" y="{at + 2 * BAR - 8:g}">{number * step_s} s</text>'


_TRANSITION: Final = re.compile(r"(\[\*\]|\w+) --> (\w+)(?:: (.+))?$")


def _states(lines: Iterable[str]) -> str:
    """Draw a diagram of states as a table, from the states on the left to those above."""
    moves: dict[tuple[str, str], str] = {}
    for line in lines:
        found = _TRANSITION.match(line)
        if not found:
            raise PictureError(f"not a line of a diagram of states: {line}")
        if found[1] != "[*]":
            moves[found[1], found[2]] = "<br>".join(escape(found[3] or "").split(", "))
    sources = list(dict.fromkeys(source for source, _ in moves))
    targets = [each for each in sources if any(target == each for _, target in moves)]
    targets += [target for _, target in moves if target not in sources]
    targets = list(dict.fromkeys(targets))
    head = "".join(f"<th>{target}</th>" for target in targets)
    rows = "".join(
        f"<tr><th>{source}</th>"
        + "".join(f"<td>{moves.get((source, target), '')}</td>" for target in targets)
        + "</tr>"
        for source in sources
    )
    return (
        '<div class="scrolled"><table class="states">'
        f"<thead><tr><th>from \\ to</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _width(*lines: str) -> float:
    return max(len(line) for line in lines) * CHARACTER + 2 * GAP


def _box(  # noqa: PLR0917
    middle: float, top: float, width: float, height: float, lines: Iterable[str], kind: str
) -> str:
    texts = "".join(
        f'<text x="{middle:g}" y="{top + GAP / 2 + number * LINE + 13:g}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<rect class="{kind}" x="{middle - width / 2:g}" y="{top + 1:g}" width="{width:g}"'
        f' height="{height:g}" rx="4"/>{texts}'
    )


def _svg(width: float, height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg class="picture" role="img" viewBox="-1 -1 {width + 2:g} {height + 2:g}"'
        f' style="max-width: {width:.0f}px">{"".join(parts)}</svg>'
    )


_KINDS: Final[dict[str, Callable[[Iterable[str]], Any]]] = {
    "sequenceDiagram": _sequence,
    "gantt": _timeline,
    "stateDiagram-v2": _states,
}
