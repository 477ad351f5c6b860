"""The page of `make bench-handover`: goals, and every figure beside those of confluent-kafka.

    python -m workshop.benchmarks.handover_report [--results build/handover.json] [--page docs/...]

It reads the readings of `workshop.benchmarks.handover`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from workshop.benchmarks.figures import Goal, Readings, Spread
from workshop.benchmarks.noted import markdown_table
from workshop.benchmarks.report import NOT_MEASURED, facts_of, goal_table, joined
from workshop.benchmarks.report import spread_text as text_of

PAGE = Path("docs/benchmarks/handover.md")
SPARK = "spark"
NO_DIFFERENCE_S = 0.1
"""Up to here two pauses count as equal."""
KINDS = {
    SPARK: "this source",
    "consumer": "confluent-kafka, consumer",
    "classic": "confluent-kafka, classic (cooperative-sticky)",
}


class Figure(Enum):
    """The figures; "no member reads" is above the longest pause while nothing happens."""

    JOIN = "a cold application joins: no member reads a moved partition"
    JOIN_ROWS = "a cold application joins: from its join to its first rows"
    STAY = "a cold application joins: no member reads a partition that stays"
    STAY_PAUSE = "partitions that stay: longest pause during the join"
    STAY_CADENCE = "partitions that stay: longest pause before it"
    STOP = "an application stops (SIGTERM): no member reads its partitions"
    STOP_LEFT = "an application stops: first rows after it left the group"
    STOP_SIGNAL = "an application stops: first rows after the signal"
    STOP_BATCH = "an application stops: its running batch after the signal"
    STOP_ABOVE = "an application stops: first rows after its running batch"
    ROLLING = "rolling restart of three, dynamic: no member reads a partition"
    STATIC = "rolling restart of three, static: no member reads a partition"
    STATIC_OWN = "rolling restart of three, static: its partitions, above its own restart"
    STATIC_OTHERS = "rolling restart of three, static: no member reads those of the others"
    RESTART = "restart from the checkpoint after SIGKILL: first rows after the signal"
    OWN_START = "the same by Spark's own source"
    RESTART_ABOVE = "restart after SIGKILL, above Spark's own source"

    def __str__(self) -> str:
        return self.value


LIMITS_S: Mapping[Figure, float] = {
    Figure.JOIN: 1.0,
    Figure.STOP_LEFT: 0.3,
    Figure.STOP_ABOVE: 0.5,
    Figure.ROLLING: 1.0,
    Figure.STATIC_OWN: NO_DIFFERENCE_S,
    Figure.STATIC_OTHERS: NO_DIFFERENCE_S,
    Figure.RESTART_ABOVE: 2.0,
    Figure.STAY: NO_DIFFERENCE_S,
}
"""The goals, in seconds of the worst partition."""


REASONS = (
    "The first rows of a partition come with the batch that begins after its assignment. Beside"
    " another application on two processors a batch takes 0.2 to 0.5 s, which is most of the time"
    " after a stop, and what a partition that stays waits longer during a join.",
    "While one of three static applications restarts, beside two that trigger without a pause on"
    " two processors, no member reads its partitions for far longer than an application that"
    " restarts alone needs, as after SIGKILL. If that is longer than its session timeout (45 s by"
    " default, 60 s at most), its partitions move to the others, and back. The source logs the"
    " command that raises the timeout.",
    "After SIGKILL, the only application starts again, and after it one with Spark's own source. A"
    " start takes some seconds more or less in each round, and so does the difference of both.",
)
"""What the goals depend on, as seen in the diaries of the benchmark's members."""


def page_of(results: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        results: The JSON of `workshop.benchmarks.handover`.
    """
    readings = results["readings"]
    lines = [
        "# Hand-overs compared with confluent-kafka",
        "",
        "Written by `make bench-handover`: how long no member reads a partition when members join,"
        f" stop, restart or die. {results['partitions']} partitions with a record each every 50 ms;"
        " the broker and confluent-kafka have their default settings; all members are processes of"
        " this machine, those of Spark started as the jobs start theirs.",
        "",
        f"- {joined(facts_of({key: results[key] for key in results if key != 'rounds'}))}",
        *_rounds(results["rounds"]),
        "",
        'A figure is the median of the rounds (lowest to highest). "No member reads" is the longest'
        " time without rows of a partition, above its longest pause in the "
        "seconds before, while nothing happened.",
        "",
        "## Goals",
        "",
        "Of the worst partition.",
        "",
        *goal_table(goals(readings)),
        *(f"- {each}" for each in REASONS),
        "",
        "## All figures",
        "",
        "Seconds of the worst partition; in the second line of a figure, of the median partition.",
        "",
        *_figures(readings),
    ]
    return "\n".join(lines).rstrip() + "\n"


def goals(readings: Readings) -> list[Goal]:
    """Return the goals, each with its measurement."""
    return [
        Goal(str(figure), limit_s, False, " s", spread(readings, SPARK, figure, "worst_s"))
        for figure, limit_s in LIMITS_S.items()
    ]


def spread(readings: Readings, kind: str, figure: Figure, of: str) -> Spread | None:
    """Return the spread of a figure over the rounds; `of` is worst_s or median_s."""
    return Spread.of(
        reading[of]
        for reading in readings
        if reading["kind"] == kind and reading["figure"] == figure.name
    )


def _rounds(rounds: Readings) -> Iterator[str]:
    """Yield how busy the machine was in each round, and how long it was: some play fewer rows."""
    for each in rounds:
        company = each["company_cores"]
        used = "were not counted" if company is None else f"used {company:.2f} processors"
        failed = f"; failed: {', '.join(each['failed'])}" if each["failed"] else ""
        yield (
            f"- round {each['number']}: {each['took_s']:.0f} s; load average before it"
            f" {each['load_average']:.1f}; other processes {used}{failed}"
        )


def _figures(readings: Readings) -> list[str]:
    rows = []
    for figure in Figure:
        for of, name in (("worst_s", str(figure)), ("median_s", "")):
            found = [spread(readings, kind, figure, of) for kind in KINDS]
            if any(found):
                rows.append((name, *(text_of(each, 2) for each in found)))
    return markdown_table(("s", *KINDS.values()), rows) if rows else [NOT_MEASURED, ""]


def write_page(page: Path, results: Mapping[str, Any]) -> None:
    """Write the page of some results."""
    page.write_text(page_of(results), encoding="utf-8")


def main() -> None:
    """Read the results, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=Path, default=Path("build/handover.json"))
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    write_page(given.page, json.loads(given.results.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
