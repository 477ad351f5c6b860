"""Play one workload with every protocol: the tables of docs/explanation/history.md, its picture.

`python -m workshop.tools.draw_history` writes them. A test fails if the page is older than the
code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Final

from group_lab.commands.simulation import Run, Simulation, simulate
from group_lab.commands.simulation import play as play_run
from group_lab.coordinator.profile import KIP_848
from group_lab.sim.epoch_costs import EpochCosts, epoch_costs
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import PLANNED, Faults, GroupProtocol, with_faults

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "explanation" / "history.md"
PICTURE: Final = DOCS / "pictures" / "history.svg"
BEGIN: Final = "<!-- history: begin -->"
END: Final = "<!-- history: end -->"
EPOCHS_BEGIN: Final = "<!-- epochs: begin -->"
EPOCHS_END: Final = "<!-- epochs: end -->"
EPOCHS_OF: Final = ((3, 12), (10, 12), (20, 40))
"""Members and partitions of the groups whose epochs are counted."""
SEEDS: Final = 3
BATCH_LENGTHS_S: Final = (1.0, 5.0)
"""The picture is of the first."""
COMMAND: Final = (
    f"spark-groups simulate --protocol {','.join(each.value for each in GroupProtocol)}"
    f" --members 3 --partitions 12 --seed 1 --seeds {SEEDS} --batch-length"
)
COLUMNS: Final = (
    ("not read, longest", "longest_not_read_s"),
    ("not read, all partitions", "not_read_s"),
    ("records delayed", "records_delayed"),
    ("read twice", "read_twice"),
    ("partitions moved", "partitions_moved"),
    ("of them not needed", "moves_not_needed"),
    ("group not stable", "unstable_s"),
    ("requests", "requests"),
)

LEFT: Final = 150
WIDTH: Final = 760
ROW: Final = 6
HEAD: Final = 34
GAP: Final = 14
COLOURS: Final = ("#3b82f6", "#f59e0b", "#10b981")
NOBODY: Final = "#e5e7eb"
FONT: Final = "font-family:ui-sans-serif,system-ui,sans-serif;font-size:13px;fill:#111827"
TICK_S: Final = 30


def play(batch_length_s: float) -> dict[str, Simulation]:
    """Return the simulation of each protocol, by its name."""
    return {
        each.value: simulate(
            protocol=each.value, batch_length_s=batch_length_s, seed=1, seeds=SEEDS
        )
        for each in GroupProtocol
    }


def tables(played: Mapping[float, Mapping[str, Simulation]]) -> str:
    """Return the text between the markers of the page.

    Args:
        played: By batch length in seconds, then by protocol.
    """
    parts = [_table(length_s, simulations) for length_s, simulations in played.items()]
    return "\n\n".join([BEGIN, *parts, END])


def count_epochs(members: int, partitions: int) -> EpochCosts:
    """Play the rolling deployment of the page with the consumer protocol, and count its epochs.

    Raises:
        RuntimeError: The run broke a promise.
    """
    swarm = replace(with_faults(PLANNED, Faults.NONE), queries=members, partitions=partitions)
    scenes: list[Scene] = []

    def keep(scene: Scene) -> Listeners:
        scenes.append(scene)
        return {}

    broken = play_run(Run(1, KIP_848.name, replace(swarm, batch_s=1.0)), (keep,))
    if broken is not None:
        raise RuntimeError(broken.text)
    return epoch_costs(scenes[0].coordination.log.replay())


def epochs_table() -> str:
    """Return what the epochs that KIP-848 rejected cost, as the text between their markers."""
    lines = [
        EPOCHS_BEGIN,
        "",
        "| members, partitions | kind of epoch | records written "
        "| members at the assignment epoch |",
        "|---|---|---|---|",
    ]
    for members, partitions in EPOCHS_OF:
        costs = count_epochs(members, partitions)
        rows = (
            ("aligned, as in KIP-848", costs.aligned_writes, costs.aligned_members),
            ("of a member, not aligned", costs.unaligned_writes, costs.unaligned_members),
            ("of a partition", costs.partition_writes, "—"),
        )
        lines += [
            f"| {members}, {partitions} | {kind} | {writes} | {shown} |"
            for kind, writes, shown in rows
        ]
    return "\n".join([*lines, "", EPOCHS_END])


def _table(batch_length_s: float, played: Mapping[str, Simulation]) -> str:
    """Return a command and its table."""
    head = " | ".join(label for label, _ in COLUMNS)
    lines = [
        f"    {COMMAND} {batch_length_s:g}",
        "",
        f"| protocol | {head} |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for name, simulation in played.items():
        cells = " | ".join(_cell(getattr(simulation.figures, of), of) for _, of in COLUMNS)
        lines.append(f"| `{name}` | {cells} |")
    return "\n".join(lines)


def _cell(value: float, name: str) -> str:
    return f"{value:,.1f} s" if name.endswith("_s") else f"{value:,}"


def picture(played: Mapping[str, Simulation]) -> str:
    """Return an SVG with a panel for each protocol: who owned which partition, with seed 1."""
    ends_at = max(each.ends_at_s for each in played.values())
    panels: list[str] = []
    top = HEAD
    for name, simulation in played.items():
        panels += _panel(name, simulation, top, WIDTH / ends_at)
        top += GAP + ROW * len({each.partition for each in simulation.ownership})
    height = top + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 10} {height}">',
        "<title>Who owns which partition in a rolling deployment, by protocol</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *_legend(),
        *panels,
    ]
    for second in range(0, int(ends_at) - TICK_S // 2, TICK_S):
        x = LEFT + second * WIDTH / ends_at
        parts.append(f'<text x="{x:.1f}" y="{height - 6}" style="{FONT}">{second} s</text>')
    return "".join([*parts, "</svg>\n"])


def _legend() -> Iterator[str]:
    names = ("application 1", "application 2", "application 3", "nobody")
    for index, (name, colour) in enumerate(zip(names, (*COLOURS, NOBODY), strict=True)):
        x = LEFT + index * 130
        yield f'<rect x="{x}" y="10" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="21" style="{FONT}">{name}</text>'


def _panel(name: str, simulation: Simulation, top: float, scale: float) -> Iterator[str]:
    partitions = sorted({each.partition for each in simulation.ownership}, key=_number)
    height = ROW * len(partitions)
    yield f'<text x="4" y="{top + height / 2 + 4:g}" style="{FONT}">{escape(name)}</text>'
    width = simulation.ends_at_s * scale
    yield f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{height}" fill="{NOBODY}"/>'
    applications = sorted({each.application for each in simulation.ownership})
    for each in simulation.ownership:
        if each.is_away:
            continue
        y = top + ROW * partitions.index(each.partition)
        colour = COLOURS[applications.index(each.application)]
        x, span = LEFT + each.begins_s * scale, (each.ends_s - each.begins_s) * scale
        yield (f'<rect x="{x:.1f}" y="{y}" width="{span:.2f}" height="{ROW - 1}" fill="{colour}"/>')


def _number(partition: str) -> int:
    return int(partition.rpartition("-")[2])


def with_tables(page: str, found: str) -> str:
    """Return the page with other tables between the markers that the text begins and ends with."""
    begin, end = found.splitlines()[0], found.splitlines()[-1]
    before, rest = page.split(begin)
    return before + found + rest.split(end)[1]


if __name__ == "__main__":
    every = {length_s: play(length_s) for length_s in BATCH_LENGTHS_S}
    page = with_tables(PAGE.read_text("utf-8"), tables(every))
    PAGE.write_text(with_tables(page, epochs_table()), "utf-8")
    PICTURE.write_text(picture(every[BATCH_LENGTHS_S[0]]), "utf-8")
