"""A run as one page: partitions across, time along, coloured by member; nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from spark_groups.sim.timeline import BatchSpan, Span, Timeline
from spark_groups.types import TopicIdPartition

ROW_HEIGHT: Final = 24
LABEL_WIDTH: Final = 130
PIXELS_A_SECOND: Final = 14.0
LEAST_WIDTH: Final = 900.0
HUES: Final = (210, 28, 130, 345, 265, 52, 180, 310, 95, 5)
"""Colours that can be told apart, one for each application in turn."""

STYLE: Final = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1c2128; --line: #d0d7de;
  --quiet: #59636e; --light: 68%; --mark: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --line: #30363d;
  --quiet: #9198a1; --light: 42%; --mark: #ff7b72; } }
body { background: var(--back); color: var(--text); font: 14px/1.5 system-ui, sans-serif;
  margin: 2rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p { color: var(--quiet); margin: .2rem 0 .8rem; max-width: 70em; }
.scroll { overflow-x: auto; } svg { display: block; font-size: 11px; }
svg text { fill: var(--text); } svg .quiet { fill: var(--quiet); }
.grid { stroke: var(--line); } .mark { stroke: var(--mark); stroke-dasharray: 2 3; }
.own { fill: hsl(var(--hue) 65% var(--light)); } .own.revoking { opacity: .45; }
.batch { fill: var(--text); opacity: .55; } .batch.unfinished { fill: var(--mark); opacity: .8; }
.legend span { display: inline-block; margin-right: 1.2rem; }
.legend i { display: inline-block; width: .9em; height: .9em; margin-right: .4em;
  background: hsl(var(--hue) 65% var(--light)); vertical-align: -.1em; }
"""


def render_page(title: str, sections: Sequence[tuple[str, str, Timeline]]) -> str:
    """Return a whole HTML page.

    Args:
        title: What it is about.
        sections: For each run a heading, a sentence, and what happened.
    """
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        "<p>A bar is the time in which a member has a partition; the number is its member epoch. It"
        " is pale while the member is to give it up. A dark stripe is a batch that reads it, a red"
        " one a batch that never finished; a gap is a time without an owner. Dotted lines are"
        " incidents. Point at anything for details.</p>",
    ]
    for heading, sentence, timeline in sections:
        parts += [f"<h2>{escape(heading)}</h2>", f"<p>{escape(sentence)}</p>"]
        parts += _chart(timeline)
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _chart(timeline: Timeline) -> Iterator[str]:
    applications = sorted(
        {_application(span.member_id) for spans in timeline.spans.values() for span in spans}
    )
    hues = {name: HUES[index % len(HUES)] for index, name in enumerate(applications)}
    keys = sorted(timeline.names)
    scale = max(PIXELS_A_SECOND, (LEAST_WIDTH - LABEL_WIDTH) / max(timeline.ends_at, 1.0))
    width = LABEL_WIDTH + timeline.ends_at * scale
    height = (len(keys) + 1) * ROW_HEIGHT
    yield '<p class="legend">'
    for name, hue in hues.items():
        yield f'<span><i style="--hue:{hue}"></i>{escape(name)}</span>'
    yield "</p>"
    yield f'<div class="scroll"><svg width="{width:.0f}" height="{height}" role="img">'
    yield from _grid(timeline, scale, height)
    for row, key in enumerate(keys):
        top = row * ROW_HEIGHT
        yield f'<text x="0" y="{top + 16}">{escape(timeline.names[key])}</text>'
        for span in timeline.spans.get(key, ()):
            yield _bar(span, hues[_application(span.member_id)], top, scale)
        for batch in timeline.batches:
            if key in batch.ranges:
                yield _stripe(batch, key, top, scale, timeline.ends_at)
    yield "</svg></div>"


def _grid(timeline: Timeline, scale: float, height: int) -> Iterator[str]:
    step = 5 if timeline.ends_at < 200 else 30
    for second in range(0, int(timeline.ends_at) + 1, step):
        x = LABEL_WIDTH + second * scale
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - ROW_HEIGHT}"/>'
        yield f'<text class="quiet" x="{x:.1f}" y="{height - 6}">{second} s</text>'
    for at, text in timeline.incidents:
        x = LABEL_WIDTH + at * scale
        yield (
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - ROW_HEIGHT}">'
            f"<title>{at:.3f} s: {escape(text)}</title></line>"
        )


def _bar(span: Span, hue: int, top: int, scale: float) -> str:
    x, width = LABEL_WIDTH + span.begins * scale, (span.ends - span.begins) * scale
    state = " revoking" if span.is_revoking else ""
    told = f"{span.member_id} at epoch {span.member_epoch}{', gives it up' if state else ''}"
    bar = (
        f'<rect class="own{state}" style="--hue:{hue}" x="{x:.1f}" y="{top + 3}"'
        f' width="{width:.1f}" height="{ROW_HEIGHT - 6}"><title>{escape(told)},'
        f" {span.begins:.3f} to {span.ends:.3f} s</title></rect>"
    )
    if width < 24:
        return bar
    return bar + f'<text x="{x + 4:.1f}" y="{top + 16}">{span.member_epoch}</text>'


def _stripe(batch: BatchSpan, key: TopicIdPartition, top: int, scale: float, ends_at: float) -> str:
    ends = ends_at if batch.ends is None else batch.ends
    from_offset, until_offset = batch.ranges[key]
    state = " unfinished" if batch.ends is None else ""
    # A batch that never finished is shown where it began: nobody knows how long it ran.
    width = 3.0 if batch.ends is None else max(1.0, (ends - batch.begins) * scale)
    return (
        f'<rect class="batch{state}" x="{LABEL_WIDTH + batch.begins * scale:.1f}"'
        f' y="{top + ROW_HEIGHT - 7}" width="{width:.1f}" height="4"><title>{escape(batch.who)}'
        f" reads [{from_offset}, {until_offset}), {batch.begins:.3f} to"
        f" {'never' if batch.ends is None else f'{ends:.3f} s'}</title></rect>"
    )


def _application(member_id: str) -> str:
    return member_id.partition(".")[0]
