"""The report of `make bench`: goals, medians, spreads and every repeat, as a page with pictures.

    python -m workshop.benchmarks.report [--results build] [--page docs/benchmarks/throughput.md]

It reads the results of the other benchmarks, and keeps them as JSON beside the page. Parts without
results are marked "Not measured."
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workshop.benchmarks import pictures
from workshop.benchmarks.figures import (
    RATE_SOURCE,
    SMALL,
    Goal,
    Parts,
    Readings,
    Spread,
    best_peer,
    cpu_s,
    goals,
    latencies,
    rate,
    ratios,
    readings_of,
    spark_cpu_s,
)
from workshop.benchmarks.noted import markdown_table

PARTS = (
    "throughput",
    "throughput_two_tasks",
    "throughput_unchecked",
    "best_peer",
    "triggers",
    "latency",
    "cold_start",
)
PROCESSES = {"jvm": "JVM", "python": "Python workers", "broker": "broker"}
NOT_MEASURED = "Not measured."


def markdown(parts: Parts, drawn: Iterable[str], raw: str) -> str:
    """Return the page.

    Args:
        parts: Results of each benchmark, by its name.
        drawn: Names of the pictures beside the page.
        raw: Name of the file with all readings beside the page.
    """
    shown = set(drawn)

    def picture(name: str, what: str) -> list[str]:
        return [f"![{what}]({name}.svg)", ""] if name in shown else []

    lines = [
        "# Throughput and latency",
        "",
        "Written by `make bench`. [Where the time of a row goes](throughput_profile.md) explains"
        f" the missed goals. [{raw}]({raw}) has all readings, with the options of every source.",
        "",
        *_where(parts),
        "## Goals",
        "",
        "Ratios compare readings of the same repeat; the median over all repeats counts.",
        "",
        *goal_table(goals(parts)),
        "## Reading a topic",
        "",
        *_throughput(readings_of(parts, "throughput")),
        *picture("throughput_ratios", "Throughput of each reader to that of the best JVM source"),
        *picture("throughput_cpu", "CPU seconds for a million rows, by process"),
        "### With two tasks at a time",
        "",
        *_measured(parts.get("throughput_two_tasks", {})),
        *_throughput(readings_of(parts, "throughput_two_tasks")),
        "### The best peer",
        "",
        *_peers(parts.get("best_peer", {})),
        "### Without Arrow's bounds checks",
        "",
        *_measured(parts.get("throughput_unchecked", {})),
        *_options(parts.get("throughput_unchecked", {})),
        *_throughput(readings_of(parts, "throughput_unchecked")),
        "## Small triggers",
        "",
        *_triggers(readings_of(parts, "triggers")),
        *picture("trigger_times", "Time of a trigger by partitions"),
        "## From record to row",
        "",
        *_latency(readings_of(parts, "latency")),
        "## Cold start to the first row",
        "",
        *_cold_start(readings_of(parts, "cold_start")),
        *_imports(parts.get("cold_start", {}).get("imports", ())),
    ]
    return "\n".join(lines).rstrip() + "\n"


def spread_text(found: Spread | None, digits: int, unit: str = "") -> str:
    """Return a median with its spread; a dash where there is none."""
    if found is None:
        return "-"
    low, high = f"{found.lowest:.{digits}f}", f"{found.highest:.{digits}f}"
    return f"{found.median:.{digits}f}{unit} ({low} to {high})"


def _where(parts: Parts) -> Iterator[str]:
    """Yield the date, the machine and the versions: once where all parts agree."""
    facts = {name: facts_of(part) for name, part in parts.items()}
    first, *others = facts.values() or [{}]
    common = {key for key in first if all(other.get(key) == first[key] for other in others)}
    if others:
        yield f"- all: {joined({key: first[key] for key in first if key in common})}"
        facts = {
            name: {key: fact[key] for key in fact if key not in common}
            for name, fact in facts.items()
        }
    yield from (f"- `{name}`: {joined(fact)}" for name, fact in facts.items() if fact)
    yield ""
    readers = parts.get("throughput", {}).get("readers")
    if readers:
        yield from markdown_table(
            ("reader", "format", "options"),
            (
                (
                    name,
                    f"`{source}`",
                    ", ".join(f"`{key}={value}`" for key, value in options.items()) or "-",
                )
                for name, (source, options) in readers.items()
            ),
        )


def facts_of(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return where and by what a benchmark's results were measured."""
    return {
        key: value
        for key, value in part.items()
        if key not in ("readings", "readers")
        and value not in ("", None)
        and not isinstance(value, dict | list)
    }


def joined(facts: Mapping[str, Any]) -> str:
    """Return facts as one line."""
    return "; ".join(f"{key.replace('_', ' ')} {value}" for key, value in facts.items())


def goal_table(found: Iterable[Goal]) -> list[str]:
    """Return a table of goals, each with its measurement and whether it is met."""
    return markdown_table(
        ("goal", "wanted", "median (spread)", ""),
        (
            (
                each.what,
                f"{'>=' if each.is_at_least else '<='} {each.limit:g}{each.unit}",
                spread_text(each.measured, 0 if each.unit == " ms" else 2, each.unit),
                each.verdict,
            )
            for each in found
        ),
    )


def _of(readings: Readings, **which: Any) -> list[Mapping[str, Any]]:
    return [reading for reading in readings if all(reading[key] == which[key] for key in which)]


def _names(readings: Readings, key: str) -> list[Any]:
    return list(dict.fromkeys(reading[key] for reading in readings))


def _throughput(readings: Readings) -> list[str]:
    if not readings:
        return [NOT_MEASURED, ""]
    rows = []
    for topic in _names(readings, "topic"):
        peer = best_peer(readings, topic)
        for reader in _names(_of(readings, topic=topic), "reader"):
            mine = _of(readings, topic=topic, reader=reader)
            cpu = [statistics.median(cpu_s(each, name) for each in mine) for name in PROCESSES]
            rows.append(
                (
                    topic,
                    reader,
                    spread_text(Spread.of(map(rate, mine)), 2),
                    spread_text(ratios(readings, topic, reader, peer, rate), 2),
                    spread_text(ratios(readings, topic, reader, peer, spark_cpu_s), 2),
                    " + ".join(f"{each:.2f}" for each in cpu),
                    " ".join(f"{rate(each):.2f}" for each in mine),
                )
            )
    return [
        "M rows/s of `addBatch` in the `noop` sink; CPU seconds for a million rows in the JVM, in"
        " Python and in the broker.",
        *_company(readings),
        "",
        *markdown_table(
            (
                "topic",
                "reader",
                "M rows/s",
                "x best JVM source",
                "CPU x the same",
                "CPU s",
                "M rows/s, every repeat",
            ),
            rows,
        ),
    ]


def _peers(part: Mapping[str, Any]) -> list[str]:
    """Return the options of Spark's own source that a search has found fastest."""
    names, readings = part.get("options", ()), part.get("readings", ())
    if not readings:
        return [NOT_MEASURED, ""]
    finals = [each for each in readings if each["repeat"]]
    groups: dict[tuple[str, int, tuple[str, ...]], list[Mapping[str, Any]]] = {}
    for each in finals or readings:
        key = (each["topic"], each["tasks"], tuple(each["options"]))
        groups.setdefault(key, []).append(each)
    rows = []
    for (topic, tasks, options), mine in groups.items():
        rates = Spread.of(each["rows_per_s"] / 1e6 for each in mine)
        used = Spread.of(each["cpu_s"] for each in mine)
        rows.append((topic, f"{tasks}", *options, spread_text(rates, 2), spread_text(used, 2)))
    rows.sort(key=lambda row: (row[0], -float(row[-2].split()[0])))
    tried = len({(each["tasks"], tuple(each["options"])) for each in readings})
    return [
        f"Measured at {part['measured_at']}. `python -m workshop.benchmarks.best_peer` read each"
        f" topic once with {tried} combinations of options and tasks"
        + (", and then with the fastest of them and two fixed ones in turn." if finals else ".")
        + " CPU seconds are those of Spark for a million rows.",
        "",
        *markdown_table(
            ("topic", "tasks", *(f"`{name}`" for name in names), "M rows/s", "CPU s"), rows
        ),
    ]


def _company(readings: Readings) -> Iterator[str]:
    """Yield how busy the machine was."""
    if all("company_cores" in reading for reading in readings):
        load = max(reading["load_average"] for reading in readings)
        company = max(reading["company_cores"] for reading in readings)
        yield (
            f"The load average before a reading was {load:.1f} at most; during readings, other"
            f" processes used {company:.2f} processors at most."
        )


def _measured(part: Mapping[str, Any]) -> list[str]:
    """Return when a part was measured, and with how many tasks."""
    if "measured_at" not in part:
        return []
    return [f"Measured at {part['measured_at']}, {part['tasks']} tasks at a time.", ""]


def _options(part: Mapping[str, Any]) -> list[str]:
    options = part.get("jvm_options")
    return [f"For every reader: `{options}`.", ""] if options else []


def _triggers(readings: Readings) -> list[str]:
    if not readings:
        return [NOT_MEASURED, ""]
    rows = []
    for count in _names(readings, "partitions"):
        for source in _names(readings, "source"):
            mine = _of(readings, partitions=count, source=source)
            medians = (
                statistics.median(each["trigger_ms"] for each in _of(mine, repeat=repeat))
                for repeat in _names(mine, "repeat")
            )
            rows.append(
                (
                    f"{count:,}",
                    source,
                    spread_text(Spread.of(each["trigger_ms"] for each in mine), 0),
                    _trigger_cpu(mine),
                    " ".join(f"{median:.0f}" for median in medians) or "no result",
                )
            )
    return [
        f"Each trigger reads one record of each partition; `{RATE_SOURCE}` shows Spark's own time.",
        "",
        *markdown_table(
            ("partitions", "source", "ms", "CPU ms, JVM + Python", "medians of the repeats, ms"),
            rows,
        ),
    ]


def _trigger_cpu(readings: Readings) -> str:
    """Return the median CPU time of a trigger; a dash where there is none."""
    if not readings:
        return "-"
    processes = ("jvm_cpu_ms", "python_cpu_ms")
    return " + ".join(f"{statistics.median(e[name] for e in readings):.0f}" for name in processes)


def _latency(readings: Readings) -> list[str]:
    if not readings:
        return [NOT_MEASURED, ""]
    return markdown_table(
        ("source", "p50 ms", "p90 ms", "p99 ms"),
        (
            (source, *(spread_text(latencies(readings, source, rank), 0) for rank in (50, 90, 99)))
            for source in _names(readings, "source")
        ),
    )


def _cold_start(readings: Readings) -> list[str]:
    if not readings:
        return [NOT_MEASURED, ""]
    rows = []
    for source in _names(readings, "source"):
        seconds = [each["from_process_s"] for each in _of(readings, source=source)]
        repeats = " ".join(f"{each:.1f}" for each in seconds)
        rows.append((source, spread_text(Spread.of(seconds), 1), repeats))
    return [
        "From the start of the application's process, including the start of Spark.",
        "",
        *markdown_table(("source", "s", "every repeat"), rows),
    ]


def _imports(found: Readings) -> list[str]:
    if not found:
        return []
    return [
        "What the Python processes that Spark starts import for this package, in the order of their"
        " start; those that read fork, and share a row.",
        "",
        *markdown_table(
            ("process", "ms", "modules of this package", "other packages"),
            (
                (
                    f"`{each['process']}`",
                    f"{each['own_ms']:.0f}",
                    str(each["own_modules"]),
                    ", ".join(each["heavy"]) or "-",
                )
                for each in found
            ),
        ),
    ]


def draw(parts: Parts, directory: Path) -> list[str]:
    """Draw the results, and return the names of the pictures."""
    topics, triggers = readings_of(parts, "throughput"), readings_of(parts, "triggers")
    drawn = []
    if topics:
        by_topic = {
            topic: {
                reader: found
                for reader in _names(topics, "reader")
                if (found := ratios(topics, topic, reader, best_peer(topics, topic), rate))
                is not None
            }
            for topic in _names(topics, "topic")
        }
        drawn.append("throughput_ratios")
        pictures.draw_ratios(
            directory / f"{drawn[-1]}.svg",
            by_topic,
            "throughput, x the best JVM source: median and spread",
        )
    small = _of(topics, topic=SMALL)
    if small:
        seconds = {
            reader: {
                shown: statistics.median(cpu_s(each, name) for each in _of(small, reader=reader))
                for name, shown in PROCESSES.items()
            }
            for reader in _names(small, "reader")
        }
        drawn.append("throughput_cpu")
        title = f"CPU seconds for a million rows of {SMALL}"
        pictures.draw_cpu(directory / f"{drawn[-1]}.svg", seconds, title)
    if triggers:
        times: dict[str, dict[int, list[float]]] = {}
        for trigger in triggers:
            of_source = times.setdefault(trigger["source"], {})
            of_source.setdefault(trigger["partitions"], []).append(trigger["trigger_ms"])
        drawn.append("trigger_times")
        pictures.draw_triggers(directory / f"{drawn[-1]}.svg", times)
    return drawn


def main() -> None:
    """Read the results, and write the page, its pictures and all readings."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=Path, default=Path("build"))
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks/throughput.md"))
    given = parser.parse_args()
    files = {name: given.results / f"{name}.json" for name in PARTS}
    parts = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in files.items()
        if path.exists()
    }
    drawn = draw(parts, given.page.parent)
    raw = given.page.with_suffix(".json")
    lines = (f"{json.dumps(name)}: {json.dumps(part)}" for name, part in parts.items())
    raw.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    given.page.write_text(markdown(parts, drawn, raw.name), encoding="utf-8")


if __name__ == "__main__":
    main()
