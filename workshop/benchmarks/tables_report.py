"""The report of `make bench-tables`: goals, medians, spreads and every repeat, with pictures.

    python -m workshop.benchmarks.tables_report [--results build/tables.json] [--page docs/...]

It reads the readings of `workshop.benchmarks.tables`, and keeps them as JSON beside the page.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workshop.benchmarks import pictures
from workshop.benchmarks.figures import SMALL as SMALL_RECORDS
from workshop.benchmarks.figures import Goal, Readings, Spread
from workshop.benchmarks.noted import markdown_table
from workshop.benchmarks.report import facts_of, goal_table, joined, spread_text
from workshop.benchmarks.table_ways import (
    ARROW,
    COPY,
    DELTA_BY,
    ICEBERG,
    ICEBERG_BY,
    POSTGRES,
    SPARK,
    SPARK_TUNED,
    WAYS,
)

LARGE_RECORDS = "1000 B, none"
PARTS = {
    "jvm_cpu_s": "JVM",
    "children_cpu_s": "children of the JVM",
    "driver_cpu_s": "driver's Python",
    "server_cpu_s": "PostgreSQL",
}
"""The parts whose CPU seconds count, with their names in the report."""

Figure = Callable[[Mapping[str, Any]], float]


def rate(reading: Mapping[str, Any]) -> float:
    """Return million rows a second."""
    return float(reading["counted_rows"] / reading["trigger_s"] / 1e6)


def cpu_s(reading: Mapping[str, Any], *parts: str) -> float:
    """Return CPU seconds for a million rows, of all parts but the broker or of some."""
    used = sum(reading[each] for each in parts or PARTS)
    return float(used / reading["counted_rows"] * 1e6)


def seconds(reading: Mapping[str, Any]) -> float:
    """Return seconds for a million rows."""
    return 1 / rate(reading)


class Found:
    """The readings of a run.

    Args:
        readings: The readings in the JSON of `workshop.benchmarks.tables`.
    """

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        sizes: dict[str, set[int]] = {}
        for reading in readings:
            sizes.setdefault(reading["topic"], set()).add(reading["batch_rows"])
        self.cases = [
            (topic, size) for topic, found in sizes.items() for size in sorted(found, reverse=True)
        ]

    def large(self, topic: str) -> int | None:
        """Return the rows of a topic's large batches; None: it was not measured."""
        return max((size for name, size in self.cases if name == topic), default=None)

    def small(self, topic: str) -> int | None:
        """Return the rows of a topic's small batches; None: there are none."""
        sizes = sorted(size for name, size in self.cases if name == topic)
        return sizes[0] if len(sizes) > 1 else None

    def ways(self, topic: str, batch_rows: int | None) -> list[str]:
        """Return the ways that were measured, in the order of the run."""
        return list(
            dict.fromkeys(
                reading["way"]
                for reading in self.readings
                if reading["topic"] == topic and reading["batch_rows"] == batch_rows
            )
        )

    def of(self, topic: str, batch_rows: int | None, way: str) -> dict[int, Mapping[str, Any]]:
        """Return the readings of a way by their repeats."""
        wanted = topic, batch_rows, way
        return {
            reading["repeat"]: reading
            for reading in self.readings
            if (reading["topic"], reading["batch_rows"], reading["way"]) == wanted
        }

    def spread(self, topic: str, way: str, figure: Figure) -> Spread | None:
        """Return a figure of a way in large batches."""
        return Spread.of(map(figure, self.of(topic, self.large(topic), way).values()))

    def ratio(
        self, topic: str, way: str, peer: str, figure: Figure, batch_rows: int | None = None
    ) -> Spread | None:
        """Return the ratio of a way's figure to its peer's, both from the same repeat.

        Args:
            topic: The kind of the topic's records.
            way: The way.
            peer: The way that it is compared with.
            figure: The figure to compare.
            batch_rows: The rows of a batch; None: large batches.
        """
        size = self.large(topic) if batch_rows is None else batch_rows
        peers = self.of(topic, size, peer)
        return Spread.of(
            figure(each) / figure(peers[repeat])
            for repeat, each in self.of(topic, size, way).items()
            if repeat in peers
        )

    def of_a_trigger(self, topic: str, way: str, *fields: str) -> Spread | None:
        """Return the fixed seconds of a trigger, without the seconds of its rows.

        The seconds of a batch are a fixed part and a part for each row. Batches of two sizes show
        both.

        Args:
            topic: The kind of the topic's records.
            way: The way.
            fields: Fields of a reading, in seconds, whose sum counts.
        """
        small, large = self.small(topic), self.large(topic)
        if small is None or large is None:
            return None
        larger = self.of(topic, large, way)
        return Spread.of(
            per_trigger(small, _of_a_batch(each, fields), large, _of_a_batch(peer, fields))
            for repeat, each in self.of(topic, small, way).items()
            if (peer := larger.get(repeat)) is not None
        )


def per_trigger(small_rows: int, small_s: float, large_rows: int, large_s: float) -> float:
    """Return the seconds of a batch without rows, extrapolated from two sizes of batches.

    Args:
        small_rows: The rows of a small batch.
        small_s: Its seconds.
        large_rows: The rows of a large batch.
        large_s: Its seconds.
    """
    row_s = (large_s - small_s) / (large_rows - small_rows)
    return small_s - row_s * small_rows


def _of_a_batch(reading: Mapping[str, Any], fields: Sequence[str]) -> float:
    return float(sum(reading[field_] for field_ in fields) / reading["triggers"])


def goals(found: Found) -> list[Goal]:
    """Return the goals, each with its measurement."""
    small, large = SMALL_RECORDS, LARGE_RECORDS
    return [
        Goal(
            f"CPU for a million rows, {ARROW}, {small}",
            0.60,
            False,
            " s",
            found.spread(small, ARROW, cpu_s),
        ),
        Goal(
            "the same, stretch goal",
            0.45,
            False,
            " s",
            found.spread(small, ARROW, cpu_s),
        ),
        Goal(
            f"million rows a second, {ARROW}, {small}",
            2.5,
            True,
            "",
            found.spread(small, ARROW, rate),
        ),
        *(
            Goal(
                f"CPU of {peer} to that of {ARROW}, {topic}",
                limit,
                True,
                "x",
                found.ratio(topic, peer, ARROW, cpu_s),
            )
            for topic, peer, limit in (
                (small, SPARK, 5.0),
                (small, SPARK_TUNED, 4.0),
                (large, SPARK, 4.5),
            )
        ),
        Goal(
            f"CPU of a trigger without its rows, {ARROW}",
            0.3,
            False,
            " s",
            found.of_a_trigger(small, ARROW, *PARTS),
        ),
        Goal(
            f"CPU of {ICEBERG} to that of {ARROW}, {small}",
            1.3,
            False,
            "x",
            found.ratio(small, ICEBERG, ARROW, cpu_s),
        ),
        Goal(
            f"time of {ICEBERG} to that of {ARROW}, {small}",
            1.3,
            False,
            "x",
            found.ratio(small, ICEBERG, ARROW, seconds),
        ),
        Goal(
            f"rows a second of {POSTGRES} to those of {COPY}, {small}",
            0.7,
            True,
            "x",
            found.ratio(small, POSTGRES, COPY, rate),
        ),
        *_of_partitions(found, small),
    ]


def _of_partitions(found: Found, topic: str) -> list[Goal]:
    """Return the goals of partitioned tables."""
    return [
        Goal(
            f"CPU of {way} to that of {whole}, {topic}",
            1.25,
            False,
            "x",
            found.ratio(topic, way, whole, cpu_s),
        )
        for way, whole in ((DELTA_BY, ARROW), (ICEBERG_BY, ICEBERG))
    ]


def line(reading: Mapping[str, Any]) -> str:
    """Return a reading in one line."""
    return (
        f"{reading['topic']}, batches of {reading['batch_rows']:,}, repeat {reading['repeat']},"
        f" {reading['way']}: {rate(reading):.2f} M rows/s, {cpu_s(reading):.2f} CPU s/M rows, "
        + ", ".join(f"{shown} {cpu_s(reading, name):.2f}" for name, shown in PARTS.items())
        + f", {reading['trigger_s'] / reading['triggers']:.2f} s a trigger,"
        f" others {reading['company_cores']:.2f}"
    )


def markdown(result: Mapping[str, Any], drawn: Mapping[str, str], raw: str) -> str:
    """Return the page.

    Args:
        result: The result of `workshop.benchmarks.tables`.
        drawn: The name and the title of each picture beside the page.
        raw: The name of the file with all readings beside the page.
    """
    found = Found(result["readings"])
    lines = [
        "# Writing a table",
        "",
        "Written by `make bench-tables`: one topic into a new table, by one query, in each way in"
        " turn, and again. After each query the table has every record exactly once, or the"
        f" benchmark fails. [{raw}]({raw}) has all readings.",
        "",
        f"- {joined(facts_of(result))}",
        *company(found.readings),
        "",
        *markdown_table(("way", "meaning"), ((name, each.what) for name, each in WAYS.items())),
        "Larger fetches are those of the tuned source in [Throughput](throughput.md); to Spark's"
        " own way they are an advantage that its defaults lack, as are 2 instead of 50 partitions"
        " of Delta's snapshots. Children of the JVM are the Python workers, and the processes"
        " (`readlink`, `chmod`) that Hadoop starts for checkpoint files where it lacks its native"
        " library: about 0.05 CPU s a trigger, in every way. PostgreSQL runs on the same machine,"
        " with `fsync=off` for both ways into it.",
        "",
        "## Goals",
        "",
        "Ratios compare readings of the same repeat; the median over all repeats counts.",
        "",
        *goal_table(goals(found)),
        *(f"![{what}]({name}.svg)\n" for name, what in drawn.items()),
    ]
    for topic, batch_rows in found.cases:
        lines += [f"## {topic}, batches of {batch_rows:,} rows", ""]
        lines += _case(found, topic, batch_rows)
    lines += ["## A trigger", "", *_triggers(found)]
    return "\n".join(lines).rstrip() + "\n"


def company(readings: Readings) -> list[str]:
    """Return the load of the machine in the readings, as an entry of a list."""
    if not readings:
        return []
    load = max(reading["load_average"] for reading in readings)
    company = max(reading["company_cores"] for reading in readings)
    return [
        f"- load average before a query {load:.1f} at most; processors that others used meanwhile"
        f" {company:.2f} at most"
    ]


def _case(found: Found, topic: str, batch_rows: int) -> list[str]:
    rows = []
    for way in found.ways(topic, batch_rows):
        mine = found.of(topic, batch_rows, way).values()
        parts = {
            shown: statistics.median(cpu_s(each, name) for each in mine)
            for name, shown in PARTS.items()
        }
        less = found.ratio(topic, SPARK, way, cpu_s, batch_rows)
        faster = found.ratio(topic, way, SPARK, rate, batch_rows)
        rows.append(
            (
                way,
                spread_text(Spread.of(map(rate, mine)), 2),
                spread_text(Spread.of(map(cpu_s, mine)), 2),
                spread_text(faster, 2),
                spread_text(less, 2),
                ", ".join(f"{name} {part:.2f}" for name, part in parts.items() if part >= 0.005),
                " ".join(f"{rate(each):.2f}" for each in mine),
                " ".join(f"{cpu_s(each):.2f}" for each in mine),
            )
        )
    return markdown_table(
        (
            "way",
            "M rows/s",
            "CPU s for a million rows",
            f"x rows/s of {SPARK}",
            "x less CPU",
            "CPU s by process",
            "M rows/s, every repeat",
            "CPU s, every repeat",
        ),
        rows,
    )


def _triggers(found: Found) -> list[str]:
    topic = SMALL_RECORDS
    small, large = found.small(topic), found.large(topic)
    if small is None or large is None:
        return ["Not measured."]
    rows = []
    for way in found.ways(topic, small):
        mine = found.of(topic, small, way).values()
        rows.append(
            (
                way,
                spread_text(found.of_a_trigger(topic, way, *PARTS), 2),
                spread_text(found.of_a_trigger(topic, way, "trigger_s"), 2),
                spread_text(Spread.of(_of_a_batch(each, ["trigger_s"]) for each in mine), 2),
                spread_text(Spread.of(_of_a_batch(each, [*PARTS]) for each in mine), 2),
            )
        )
    return [
        f"From batches of {small:,} and of {large:,} rows of {topic}: what a trigger takes in"
        " addition to what its rows take.",
        "",
        *markdown_table(
            (
                "way",
                "CPU s of a trigger without its rows",
                "s of a trigger without its rows",
                f"s of a trigger of {small:,} rows",
                f"CPU s of a trigger of {small:,} rows",
            ),
            rows,
        ),
    ]


def draw(readings: Readings, directory: Path) -> dict[str, str]:
    """Draw the results, and return the name and the title of each picture."""
    found = Found(readings)
    drawn = {}
    by_case = {
        f"{topic}\n{size:,} rows": {
            way: ratio
            for way in found.ways(topic, size)
            if (ratio := found.ratio(topic, SPARK, way, cpu_s, size)) is not None
        }
        for topic, size in found.cases
    }
    if any(by_case.values()):
        drawn["tables_ratios"] = f"CPU of {SPARK} to that of each way"
        pictures.draw_ratios(
            directory / "tables_ratios.svg",
            {name: each for name, each in by_case.items() if each},
            f"CPU of {SPARK} to that of each way: median and spread",
        )
    large = found.large(SMALL_RECORDS)
    if large is not None:
        parts = {
            way: {
                shown: statistics.median(cpu_s(each, name) for each in mine)
                for name, shown in PARTS.items()
            }
            for way in found.ways(SMALL_RECORDS, large)
            for mine in [found.of(SMALL_RECORDS, large, way).values()]
        }
        drawn["tables_cpu"] = "CPU seconds for a million rows, by process"
        title = f"CPU seconds for a million rows of {SMALL_RECORDS}"
        pictures.draw_cpu(directory / "tables_cpu.svg", parts, title)
    return drawn


def write_page(results: Path, page: Path) -> None:
    """Write the page with its pictures and all readings.

    Args:
        results: The JSON of `workshop.benchmarks.tables`.
        page: The page.
    """
    result = json.loads(results.read_text(encoding="utf-8"))
    drawn = draw(result["readings"], page.parent)
    raw = page.with_suffix(".json")
    page.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(results, raw)
    page.write_text(markdown(result, drawn, raw.name), encoding="utf-8")


def main() -> None:
    """Read the results, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=Path, default=Path("build/tables.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks/tables.md"))
    given = parser.parse_args()
    write_page(given.results, given.page)


if __name__ == "__main__":
    main()
