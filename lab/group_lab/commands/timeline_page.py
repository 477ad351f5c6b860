"""A run as one self-contained page: a row for each partition, coloured by member over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from group_lab.sim.figures import application_of
from group_lab.sim.timeline import BatchSpan, Span, Timeline
from spark_groups.types import TopicIdPartition

ROW_HEIGHT: Final = 24
CHARACTER_WIDTH: Final = 7
PIXELS_A_SECOND: Final = 14.0
LEAST_WIDTH: Final = 800.0
HUES: Final = (210, 28, 130, 345, 265, 52, 180, 310, 95, 5)
SHADES: Final = (0, -16, 12)
"""Distinct colours, one for each application in turn: all hues, then darker ones."""

STYLE: Final = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1c2128; --line: #d0d7de;
  --quiet: #59636e; --light: 68%; --mark: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --line: #30363d;
  --quiet: #9198a1; --light: 42%; --mark: #ff7b72; } }
body { background: var(--back); color: var(--text); font: 14px/1.5 system-ui, sans-serif;
  margin: 2rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p { color: var(--quiet); margin: .2rem 0 .8rem; max-width: 70em; }
.scroll { display: flex; overflow-x: auto; } svg { display: block; flex: none; font-size: 11px; }
.names { position: sticky; left: 0; background: var(--back); }
svg text { fill: var(--text); } svg .quiet { fill: var(--quiet); }
.grid { stroke: var(--line); }
.mark { stroke: var(--mark); stroke-width: 1.5; stroke-dasharray: 2 3; }
.own { fill: hsl(var(--hue) 65% calc(var(--light) + var(--shade))); }
.own.revoking { opacity: .45; }
.own.away { fill: none; stroke-dasharray: 4 3;
  stroke: hsl(var(--hue) 65% calc(var(--light) + var(--shade))); }
.batch { fill: var(--text); opacity: .55; } .batch.unfinished { fill: var(--mark); opacity: .8; }
.legend span { display: inline-block; margin-right: 1.2rem; }
.legend i { display: inline-block; width: .9em; height: .9em; margin-right: .4em;
  background: hsl(var(--hue) 65% calc(var(--light) + var(--shade))); vertical-align: -.1em; }
@media (max-width: 40rem) { body { margin: 1rem .8rem; } }
"""


def render_page(title: str, sections: Sequence[tuple[str, str, Timeline]]) -> str:
    """Return a whole HTML page.

    Args:
        sections: For each run a heading, a sentence, and its timeline.
    """
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        "<p>A bar is the period in which a member owns a partition, with its member epoch, or the"
        " generation of a classic member. It is faint while the partition is pending revocation. A"
        " thin stripe is a batch that reads it, a red one a batch that never finished. A gap is a"
        " period without an owner. A hollow bar is a static member that is away: it keeps the"
        " partition, which is not read. Dotted"
        " lines are incidents, and the start and end of counting. Hover for details.</p>",
    ]
    for heading, sentence, timeline in sections:
        parts += [f"<h2>{escape(heading)}</h2>", f"<p>{escape(sentence)}</p>"]
        parts += _chart(timeline)
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _chart(timeline: Timeline) -> Iterator[str]:
    members = {span.member_id for spans in timeline.spans.values() for span in spans}
    painted = colours({application_of(member) for member in members})
    keys = sorted(timeline.names)
    names = [timeline.names[key] for key in keys]
    scale = max(PIXELS_A_SECOND, LEAST_WIDTH / max(timeline.ends_at, 1.0))
    yield '<p class="legend">'
    for name, colour in painted.items():
        yield f'<span><i style="{colour}"></i>{escape(name)}</span>'
    yield '</p><div class="scroll">'
    yield from _names(names)
    width, height = timeline.ends_at * scale, (len(keys) + 2) * ROW_HEIGHT
    yield f'<svg width="{width:.0f}" height="{height}" role="img">'
    yield from _grid(timeline, scale, height)
    for row, key in enumerate(keys, 1):
        top = row * ROW_HEIGHT
        for span in timeline.spans.get(key, ()):
            yield _bar(span, painted[application_of(span.member_id)], top, scale)
        for batch in timeline.batches:
            if key in batch.ranges:
                yield _stripe(batch, key, top, scale)
    yield from _marks(timeline, scale, height)
    yield "</svg></div>"


def colours(applications: Iterable[str]) -> dict[str, str]:
    """Return the colour of each application, as a style, q10 after q9.

    Args:
        applications: Their names.
    """
    ordered = sorted(applications, key=lambda name: (len(name), name))
    painted = {}
    for index, name in enumerate(ordered):
        turn, hue = divmod(index, len(HUES))
        painted[name] = f"--hue:{HUES[hue]};--shade:{SHADES[turn % len(SHADES)]}%"
    return painted


def _names(names: Sequence[str]) -> Iterator[str]:
    """Yield the column of partition names, which stays in place when the page scrolls."""
    width = max(map(len, names), default=0) * CHARACTER_WIDTH + 12
    height = (len(names) + 2) * ROW_HEIGHT
    yield f'<svg class="names" width="{width}" height="{height}" role="img">'
    for row, name in enumerate(names, 1):
        yield f'<text x="0" y="{row * ROW_HEIGHT + 16}">{escape(name)}</text>'
    yield "</svg>"


def _grid(timeline: Timeline, scale: float, height: int) -> Iterator[str]:
    step = 5 if timeline.ends_at < 200 else 30
    for second in range(0, int(timeline.ends_at) + 1, step):
        x = second * scale
        yield (
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}"'
            f' y1="{ROW_HEIGHT}" y2="{height - ROW_HEIGHT}"/>'
        )
        for y in (ROW_HEIGHT - 8, height - 6):
            yield f'<text class="quiet" x="{x:.1f}" y="{y}">{second} s</text>'


def _marks(timeline: Timeline, scale: float, height: int) -> Iterator[str]:
    for at, text in timeline.incidents:
        x = at * scale
        yield (
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}"'
            f' y1="{ROW_HEIGHT}" y2="{height - ROW_HEIGHT}">'
            f"<title>{at:.3f} s: {escape(text)}</title></line>"
        )


def _bar(span: Span, colour: str, top: int, scale: float) -> str:
    x, width = span.begins * scale, (span.ends - span.begins) * scale
    state, label = "", str(span.member_epoch)
    title = f"{span.member_id} at epoch {label}"
    if span.is_away:
        state, label, title = " away", "away", f"{span.member_id} is away and will return"
    elif span.is_revoking:
        state, title = " revoking", f"{title}, pending revocation"
    bar = (
        f'<rect class="own{state}" style="{colour}" x="{x:.1f}" y="{top + 3}"'
        f' width="{width:.1f}" height="{ROW_HEIGHT - 6}"><title>{escape(title)},'
        f" {span.begins:.3f} to {span.ends:.3f} s</title></rect>"
    )
    if width < 8 + CHARACTER_WIDTH * max(2, len(label)):
        return bar
    return bar + f'<text x="{x + 4:.1f}" y="{top + 16}">{label}</text>'


def _stripe(batch: BatchSpan, key: TopicIdPartition, top: int, scale: float) -> str:
    from_offset, until_offset = batch.ranges[key]
    if batch.ends is None:
        # Its end is unknown, so the mark is at its start.
        state, until, width = " unfinished", "never", 3.0
    else:
        state, until = "", f"{batch.ends:.3f} s"
        width = max(1.0, (batch.ends - batch.begins) * scale)
    return (
        f'<rect class="batch{state}" x="{batch.begins * scale:.1f}"'
        f' y="{top + ROW_HEIGHT - 7}" width="{width:.1f}" height="4"><title>{escape(batch.who)}'
        f" reads [{from_offset}, {until_offset}), {batch.begins:.3f} to {until}</title></rect>"
    )
