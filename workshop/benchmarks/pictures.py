"""Pictures of the figures as SVG, in colours that are distinct on light and dark pages."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workshop.benchmarks.figures import Spread

GREY = "#848d97"
COLOURS = ("#848d97", "#d29922", "#a371f7", "#2f81f7", "#3fb950", "#f85149")

Growth = tuple[Sequence[float], Sequence[float]]
"""Minutes, and differences from a level."""

STYLE = {
    # Text stays text; the same figures make the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "spark-groups",
    "font.size": 10,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.titlecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def draw_ratios(path: Path, ratios: Mapping[str, Mapping[str, Spread]], title: str) -> None:
    """Draw bars of ratios by topic and reader, each with its spread, and a line at one.

    Args:
        path: The file that is written.
        ratios: By topic and reader.
        title: What it shows.
    """
    readers = list(dict.fromkeys(reader for ratio in ratios.values() for reader in ratio))
    with mpl.rc_context(STYLE):
        figure, axes = _axes(1.0 + 0.26 * len(readers) * len(ratios))
        height = 0.8 / len(readers)
        for number, reader in enumerate(readers):
            places = [
                place + number * height
                for place, each in enumerate(ratios.values())
                if reader in each
            ]
            found = [ratio[reader] for ratio in ratios.values() if reader in ratio]
            bars = axes.barh(
                places,
                [each.median for each in found],
                height * 0.9,
                color=COLOURS[number % len(COLOURS)],
                label=reader,
                xerr=(
                    [each.median - each.lowest for each in found],
                    [each.highest - each.median for each in found],
                ),
                ecolor=GREY,
            )
            axes.bar_label(bars, [f"{each.median:.2f}" for each in found], padding=4, color=GREY)
        axes.axvline(1, color=GREY, linestyle=":")
        axes.set_yticks([place + 0.4 - height / 2 for place in range(len(ratios))], list(ratios))
        axes.invert_yaxis()
        axes.set_xlabel(title)
        _save(figure, path, len(readers))


def draw_cpu(path: Path, seconds: Mapping[str, Mapping[str, float]], title: str) -> None:
    """Draw a bar of CPU seconds for each reader, made of the processes that used them.

    Args:
        path: The file that is written.
        seconds: By reader and process.
        title: What it shows.
    """
    processes = list(dict.fromkeys(name for each in seconds.values() for name in each))
    with mpl.rc_context(STYLE):
        figure, axes = _axes(1.0 + 0.35 * len(seconds))
        left = [0.0] * len(seconds)
        for colour, name in zip(COLOURS[3:] + COLOURS[:1], processes, strict=False):
            widths = [each.get(name, 0.0) for each in seconds.values()]
            bars = axes.barh(list(seconds), widths, left=left, color=colour, label=name)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        axes.bar_label(bars, [f"{each:.2f}" for each in left], padding=4, color=GREY)
        axes.invert_yaxis()
        axes.set_xlabel(title)
        _save(figure, path, len(processes))


def draw_triggers(path: Path, times_ms: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    """Draw the time of a trigger by partitions, a line for each source.

    Args:
        path: The file that is written.
        times_ms: By source and number of partitions.
    """
    with mpl.rc_context(STYLE):
        figure, axes = _axes(3.6)
        for colour, (source, found) in zip(COLOURS, times_ms.items(), strict=False):
            medians = [statistics.median(each) for each in found.values()]
            axes.plot(list(found), medians, "o-", color=colour, label=source)
            axes.fill_between(
                list(found),
                [min(each) for each in found.values()],
                [max(each) for each in found.values()],
                color=colour,
                alpha=0.2,
            )
        counts = sorted({count for each in times_ms.values() for count in each})
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(counts, [f"{each:,}" for each in counts])
        axes.set_xlabel("partitions, one record of each")
        axes.set_ylabel("ms for a trigger: median, lowest, highest")
        _save(figure, path, len(times_ms))


def draw_growth(path: Path, series: Mapping[str, Mapping[str, Growth]], minutes: float) -> None:
    """Draw how series differ from their first levels, a panel for each unit.

    Args:
        path: The file that is written.
        series: Minutes and differences by unit and name.
        minutes: The length of the run.
    """
    names = list(dict.fromkeys(name for each in series.values() for name in each))
    colours = dict(zip(names, COLOURS, strict=False))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.0 + 1.6 * len(series)), layout="constrained")
        panels = figure.subplots(len(series), sharex=True, squeeze=False)[:, 0]
        for axes, (unit, found) in zip(panels, series.items(), strict=True):
            for name, (at_minutes, differences) in found.items():
                label = name if axes is panels[0] else None
                axes.plot(
                    at_minutes,
                    differences,
                    color=colours[name],
                    label=label,
                    linewidth=1,
                    alpha=0.8,
                )
            axes.axhline(0, color=GREY, linestyle=":")
            axes.set_ylabel(f"{unit}, +/-")
        panels[-1].set_xlim(0, minutes)
        panels[-1].set_xlabel("minutes")
        _save(figure, path, len(names))


def draw_steps(
    path: Path,
    panels: Mapping[str, Mapping[str, Growth]],
    *,
    limits: Mapping[str, float],
    marks: Mapping[str, float],
) -> None:
    """Draw series over seconds, a panel for each unit, with limits and marked moments.

    Args:
        path: The file that is written.
        panels: Seconds and values, by unit and name.
        limits: A dashed line in the panel of a unit.
        marks: Moments in seconds, by name.
    """
    names = [name for panel in panels.values() for name in panel]
    colours = dict(zip(names, COLOURS[3:] + COLOURS[:3], strict=False))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.0 + 1.7 * len(panels)), layout="constrained")
        every = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
        for axes, (unit, found) in zip(every, panels.items(), strict=True):
            for name, (at_s, values) in found.items():
                axes.step(at_s, values, where="post", color=colours[name], label=name, linewidth=1)
            if unit in limits:
                axes.axhline(limits[unit], color=GREY, linestyle="--", label="target")
            for moment_s in marks.values():
                axes.axvline(moment_s, color=GREY, linestyle=":")
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter("{x:,.0f}")
            axes.set_ylabel(unit)
        for name, moment_s in marks.items():
            every[0].annotate(
                name, (moment_s, 1.02), xycoords=("data", "axes fraction"), color=GREY, fontsize=8
            )
        every[-1].set_xlabel("seconds")
        _save(figure, path, 3)


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, height), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Figure, path: Path, columns: int) -> None:
    figure.legend(loc="outside upper center", ncols=min(3, columns))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
    text = path.read_text(encoding="utf-8")
    path.write_text("".join(f"{each.rstrip()}\n" for each in text.splitlines()), encoding="utf-8")
