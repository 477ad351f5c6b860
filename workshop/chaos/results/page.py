"""A run as one page that loads nothing: its figures, and a timeline of faults and of ownership.

    python -m workshop.chaos.results.page DIRECTORY      makes the page of a run again, from its \
        files

Every bar and sign carries its details as text; states differ by pattern and label, not by colour
alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from group_lab.commands.timeline_page import STYLE, colours
from workshop.chaos.members.journal import lines_of
from workshop.chaos.results.account import Evidence
from workshop.chaos.results.facts import read_facts, read_notes
from workshop.chaos.results.report import SINK_WORDS
from workshop.chaos.results.timeline import (
    MEANINGS,
    RUN_NOTES,
    Bar,
    Lane,
    Mark,
    State,
    Timeline,
    disruptions_of,
    read_timeline,
)

NAME: Final = "timeline.html"
HERE: Final = Path(__file__).parent
LANE: Final = 22
HEAD: Final = 26
"""Heights in pixels: a lane, and the space above the first one of a section."""
CHARACTER: Final = 6.6
NARROW: Final = 0.002
"""The share of the width below which a bar has no label, however far it is zoomed."""
ZOOMS: Final = (1, 2, 4, 8, 16)
_PATTERNS: Final = """<defs>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"
 patternTransform="rotate(45)">
<rect width="6" height="6" fill="var(--hatch-back)"/>
<line x1="0" y1="0" x2="0" y2="6" stroke="var(--hatch)" stroke-width="2"/></pattern>
<pattern id="cross" width="7" height="7" patternUnits="userSpaceOnUse">
<path d="M0 0L7 7M7 0L0 7" stroke="var(--bad)" stroke-width=".6" opacity=".7"/></pattern>
<pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse">
<circle cx="2" cy="2" r="1" fill="var(--quiet)"/></pattern></defs>"""
_LEGEND: Final = {
    State.RUNNING: "a process runs",
    State.STOPPED: "stopped by SIGSTOP",
    State.DOWN: "down",
    State.SLOW: "a batch made slow",
    State.BATCH: "a batch",
    State.REPLAY: "a batch, run again",
    State.BEHIND: "a broker's replicas are behind",
    State.UNREAD: "a partition that no process read for more than 5 s",
    State.LONGEST: "the longest pauses without a fault",
    State.FAULT: "a fault that is not of a member lasts",
}
_LOW: Final = {State.BATCH: (13, 5), State.REPLAY: (13, 5)}
"""Where bars lie that do not fill their lane: distance from its top, and height."""


def page_of(directory: Path) -> str:
    """Return the page of a run.

    Args:
        directory: The files of the run: journals, report.json and setting.json.
    """
    report = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    setting = json.loads((directory / "setting.json").read_text(encoding="ascii"))
    lines = lines_of(directory / "journals")
    notes = read_notes(lines)
    plain = {note["member"] for note in notes} - set(setting["queries"]) - {RUN_NOTES}
    evidence = Evidence(
        ends={},
        append=(),
        tables={},
        facts=read_facts(lines, plain),
        commits={},
        session_s=float(report["session_s"]),
        rebalance_timeout_s=setting["rebalance_timeout_ms"] / 1000,
        disruptions=disruptions_of(report),
    )
    return render(report, read_timeline(evidence, notes, report))


def render(report: Mapping[str, Any], timeline: Timeline) -> str:
    """Return a whole HTML page.

    Args:
        report: The report as plain values.
        timeline: The lanes.
    """
    title = f"Chaos: seed {report['seed']}, {report['minutes']:g} minutes"
    verdict = '<span class="good">good</span>'
    if not report["is_good"]:
        verdict = '<span class="bad">NOT GOOD</span>'
    style = STYLE + (HERE / "page.css").read_text(encoding="utf-8")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
        f"<h1>{escape(title)}: {verdict}</h1>",
        *(
            f'<p class="bad">{escape(each)}</p>'
            for each in (*report["problems"], *report.get("shortfalls", ()))
        ),
        f"<p><code>{escape(report['command'])}</code></p>",
        *_figures(report, timeline),
        *_chart(report, timeline),
        *_tables(report),
        '<div id="tip" role="tooltip" hidden></div>',
        f"<script>{(HERE / 'page.js').read_text(encoding='utf-8')}</script>",
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _figures(report: Mapping[str, Any], timeline: Timeline) -> Iterator[str]:
    sinks = {"append": report["append"], **report["tables"]}
    recovered = [each["read_after_s"] for each in report["recoveries"]["faults"]]
    slowest_s = max((each for each in recovered if each is not None), default=0.0)
    unaffected = report["recoveries"]["unaffected"]
    load = f"{report['load_mean']:.1f}, {report['load_max']:.1f} on {report['cores']} cores"
    figures = {
        "Apache Kafka": f"{report['kafka_version']}, {report['brokers']} brokers",
        "load average: mean, highest": load,
        "records": f"{report['produced']:,}",
        "partitions": f"{report['partitions_first']}, then {report['partitions_last']}",
        "lost": f"{sum(sink['lost'] for sink in sinks.values()):,}",
        "doubled in tables": f"{sum(each['doubled'] for each in report['tables'].values()):,}",
        "doubled in the append sink": f"{report['append']['doubled']:,}",
        "out of order": f"{report['append']['disordered']:,}",
        **{f"sessions lost: {why}": f"{n:,}" for why, n in report["sessions_lost"].items() if n},
        "slowest recovery": f"{slowest_s:.1f} s",
        "longest pause without a fault": f"{unaffected['takes_s']:.1f} s",
    }
    if timeline.unread is not None:
        name, gap = timeline.unread
        figures["longest time not read"] = (
            f"{gap.until_s - gap.from_s:.1f} s: {name}, at {gap.from_s:.0f} s"
        )
    yield "<dl>"
    for name, value in figures.items():
        yield f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
    yield "</dl>"


def _tables(report: Mapping[str, Any]) -> Iterator[str]:
    sinks = {"append": report["append"], **report["tables"]}
    yield '<div class="tables">'
    yield from _table(
        "The sinks",
        ("sink", *SINK_WORDS.values()),
        [(name, *(f"{sink[what]:,}" for what in SINK_WORDS)) for name, sink in sinks.items()],
    )
    for name, causes in {"append": report["causes"], **report["table_causes"]}.items():
        rows = [(cause, f"{count:,}") for cause, count in causes.items()]
        if rows:
            yield from _table(f"Why rows are in {name} again", ("cause", "rows"), rows)
    faults = report["faults"]
    outcomes = ("done", "skipped", "not reached")
    rows = [(kind, *(str(fault.get(o, 0)) for o in outcomes)) for kind, fault in faults.items()]
    yield from _table("Faults", ("kind", *outcomes), [row for row in rows if any(map(_is, row))])
    yield from _table(
        "Recovery from each fault that hit partitions",
        ("at", "process or broker", "fault", "read again after", "committed again after"),
        [
            (
                f"{each['from_s'] - report['began_s']:.1f} s",
                each["target"],
                each["kind"],
                _seconds(each["read_after_s"]),
                _seconds(each["committed_after_s"]),
            )
            for each in report["recoveries"]["faults"]
        ],
    )
    yield "</div>"


def _is(cell: str) -> bool:
    return cell.isdigit() and cell != "0"


def _seconds(value: float | None) -> str:
    return "not seen" if value is None else f"{value:.1f} s"


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"<table><caption>{escape(caption)}</caption><thead><tr>"
    for head in heads:
        yield f'<th scope="col">{escape(head)}</th>'
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = (f"<td{_number(each)}>{escape(each)}</td>" for each in row)
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"


def _number(cell: str) -> str:
    return ' class="number"' if cell[:1].isdigit() else ""


def _chart(report: Mapping[str, Any], timeline: Timeline) -> Iterator[str]:
    sections = (
        ("brokers", timeline.disrupted),
        ("members", timeline.members),
        ("owners of partitions", timeline.partitions),
    )
    painted = colours(member.name for member in timeline.members)
    height = sum(HEAD + LANE * len(lanes) for _, lanes in sections) + HEAD
    yield from _legend(painted)
    yield '<div class="scroll" tabindex="0">'
    yield from _names(sections, height)
    yield (
        f'<svg id="chart" width="1200" height="{height}" data-ends="{timeline.ends_s:.3f}"'
        ' role="group" aria-label="timeline of faults and ownership">'
    )
    yield _PATTERNS
    scale = _Scale(timeline.ends_s)
    yield from _grid(timeline, scale, height)
    for bar in timeline.disruptions:
        yield from _shape(bar, scale, (HEAD, height - 2 * HEAD), "")
    top = 0
    for _, lanes in sections:
        top += HEAD
        for lane in lanes:
            yield from _lane(lane, scale, top, painted)
            top += LANE
    began_s = report["faults_from_s"] - report["began_s"]
    limits = {"faults begin": began_s, "faults stop": began_s + report["minutes"] * 60}
    for name, at_s in limits.items():
        x = scale.at(at_s)
        yield f'<g><title>{name}: {at_s:.0f} s</title><line class="limit" x1="{x}" x2="{x}"'
        yield f' y1="{HEAD - 6}" y2="{height - HEAD}"/></g>'
    yield f'<line id="cursor" x1="-9" x2="-9" y1="{HEAD}" y2="{height - HEAD}"/></svg></div>'


class _Scale:
    """Where a time is, in percent of the width: the page is zoomed by its width alone."""

    def __init__(self, ends_s: float) -> None:
        self._ends_s = max(ends_s, 1.0)

    def at(self, at_s: float) -> str:
        return f"{100 * at_s / self._ends_s:.3f}%"

    def is_narrow(self, takes_s: float) -> bool:
        """Whether a time never has room for a label."""
        return takes_s / self._ends_s < NARROW


def _legend(painted: Mapping[str, str]) -> Iterator[str]:
    yield "<h2>Timeline</h2>"
    yield '<p class="legend">'
    for name, colour in painted.items():
        yield f'<span><i style="{colour}"></i>{escape(name)}</span>'
    yield "</p>"
    yield '<p class="legend">'
    for state, words in _LEGEND.items():
        shape = f'<rect class="{state.value}" style="--hue:0;--shade:0%" width="22" height="12"/>'
        yield f'<span><svg width="22" height="12">{shape}</svg>{escape(words)}</span>'
    yield "</p>"
    yield '<p class="legend">'
    for sign, words in MEANINGS.items():
        yield f"<span><b>{escape(sign)}</b> {escape(words)}</span>"
    yield "</p>"
    yield '<div class="tools" role="group" aria-label="zoom">zoom'
    for times in ZOOMS:
        yield f'<button data-zoom="{times}">{times}x</button>'
    yield "<span>Point at anything for its details; zoomed, the timeline scrolls.</span></div>"


def _names(sections: Sequence[tuple[str, Sequence[Lane]]], height: int) -> Iterator[str]:
    """Yield the column of names, which stays in place when the timeline scrolls."""
    words = [name for section, lanes in sections for name in (section, *(e.name for e in lanes))]
    width = max(map(len, words)) * CHARACTER + 8
    yield f'<svg class="names" width="{width:.0f}" height="{height}" aria-hidden="true">'
    top = 0
    for section, lanes in sections:
        top += HEAD
        if lanes:
            yield f'<text class="section" x="0" y="{top - 6}">{escape(section)}</text>'
        for lane in lanes:
            yield f'<text x="0" y="{top + 15}">{escape(lane.name)}</text>'
            top += LANE
    yield "</svg>"


def _grid(timeline: Timeline, scale: _Scale, height: int) -> Iterator[str]:
    for second in range(0, int(timeline.ends_s) + 1, 1 if timeline.ends_s < 900 else 10):
        x = scale.at(second)
        yield f'<g data-second="{second}"><line class="grid" x1="{x}" x2="{x}" y1="{HEAD - 8}"'
        yield f' y2="{height - HEAD}"/>'
        for y in (HEAD - 12, height - 10):
            yield f'<text class="quiet" x="{x}" dx="2" y="{y}">{second} s</text>'
        yield "</g>"


def _lane(lane: Lane, scale: _Scale, top: int, painted: Mapping[str, str]) -> Iterator[str]:
    y = top + LANE - 0.5
    yield f'<line class="lane" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
    for bar in lane.bars:
        offset, tall = _LOW.get(bar.state, (2, LANE - 5))
        yield from _shape(bar, scale, (top + offset, tall), painted.get(bar.member, ""))
    for mark in lane.marks:
        yield _sign(mark, scale, top)


def _shape(bar: Bar, scale: _Scale, place: tuple[int, int], colour: str) -> Iterator[str]:
    """Yield a bar: its label is cut off where it ends."""
    top, tall = place
    takes_s = max(0.0, bar.until_s - bar.from_s)
    x, width = scale.at(bar.from_s), scale.at(takes_s)
    style = f' style="{colour}"' if colour else ""
    title = f"<title>{escape(bar.title)}</title>"
    rect = f'<rect class="{bar.state.value}"{style}'
    if not bar.label or bar.state is State.FAULT or scale.is_narrow(takes_s):
        yield f'<g>{title}{rect} x="{x}" y="{top}" width="{width}" height="{tall}"/></g>'
        return
    yield f'<svg x="{x}" y="{top}" width="{width}" height="{tall}">{title}'
    yield f'{rect} width="100%" height="100%"/>'
    # The sign of a fault lies on the beginning of its bar.
    start = 'x="100%" dx="-4" text-anchor="end"' if bar.state is State.LONGEST else 'x="9"'
    yield f'<text {start} y="12">{escape(bar.label)}</text></svg>'


def _sign(mark: Mark, scale: _Scale, top: int) -> str:
    x = scale.at(mark.at_s)
    return (
        f'<g class="mark-of-lane"><title>{escape(mark.title)}</title>'
        f'<circle class="sign-back" cx="{x}" cy="{top + 10}" r="6.5"/>'
        f'<text class="sign" x="{x}" y="{top + 14}">{escape(mark.sign)}</text></g>'
    )


def main() -> int:
    """Make the page of a run again, in its directory."""
    directory = Path(sys.argv[1])
    (directory / NAME).write_text(page_of(directory), encoding="utf-8")
    sys.stdout.write(f"{directory / NAME}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
