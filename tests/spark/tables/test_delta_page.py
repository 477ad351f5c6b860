"""Every program of the how-to for Delta tables runs as it stands, on a real Kafka."""

from __future__ import annotations

import json
import re
import shlex
import sys
import uuid
from collections.abc import Callable
from datetime import date, datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import deltalake
import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.control.listener import close_listeners
from spark_groups.spark.jobs.job_options import ConsumeOptions, load_job
from tests.documents import ROOT, Block, blocks_of, commands_of, run_python
from tests.spark.queries import READ_S
from workshop.parts.waiting import wait_until

PAGE = ROOT / "docs" / "how-to" / "exactly_once_delta.md"
BLOCKS = [each for each in blocks_of(PAGE.read_text(encoding="utf-8")) if each.language == "python"]
WRITES_DELAYS, SHOWS_TABLE = (
    [each for each in BLOCKS if word in each.text] for word in ("producer.flush()", "sys.argv[1])")
)
COMMANDS = [
    command
    for block in blocks_of(PAGE.read_text(encoding="utf-8"))
    if block.language == "bash"
    for command in commands_of(block)
]
PROGRAMS = [each for each in BLOCKS if "await_end" in each.text]
DELAYS = [
    {"flight": f"UA{number}", "day": f"2013-01-0{number % 3 + 1}", "delay": number % 60}
    for number in range(100)
]
TYPED = [{**each, "day": date.fromisoformat(str(each["day"]))} for each in DELAYS]


def as_loaded(rows: list[dict[str, Any]]) -> None:
    assert [json.loads(row["value"]) for row in rows] == DELAYS
    assert {"key", "topic", "partition", "offset", "timestamp"} < set(rows[0])


def by_spark(rows: list[dict[str, Any]]) -> None:
    assert all(isinstance(row.pop("timestamp"), datetime) for row in rows)
    assert rows == TYPED


def by_arrow(rows: list[dict[str, Any]]) -> None:
    assert rows == TYPED


def partitioned(rows: list[dict[str, Any]]) -> None:
    assert [json.loads(row["value"]) for row in rows] == DELAYS
    assert {row["day"] for row in rows} <= {
        datetime.now(timezone.utc).date(),
        # The test may run at midnight.
        datetime.fromtimestamp(STARTED_S, timezone.utc).date(),
    }


STARTED_S = datetime.now(timezone.utc).timestamp()
CHECKS = (as_loaded, by_spark, by_arrow, partitioned)


def test_each_program_of_the_page_has_a_check() -> None:
    assert len(PROGRAMS) == len(CHECKS)
    assert len(BLOCKS) == len(WRITES_DELAYS) + len(SHOWS_TABLE) + len(PROGRAMS)


@pytest.mark.parametrize(
    "named",
    [r'"kafka.group.id", "([^"]+)"', r'"checkpoints/([^"]+)"', r'"lake/([^"]+)"'],
    ids=["group", "checkpoint", "table"],
)
def test_each_program_has_its_own(named: str) -> None:
    own = [*re.findall(named, "\n".join(each.text for each in PROGRAMS))]
    assert len(set(own)) == len(PROGRAMS)


def test_job_of_the_page_has_its_own_names_too() -> None:
    (command,) = (each for each in COMMANDS if each.startswith("spark-submit"))
    words = shlex.split(command)
    given = [word.split("=", 1) for flag, word in pairwise(words) if flag == "--set"]
    settings = [("--set", key, value) for key, value in given]
    settings.append(("--name", "application.name", words[words.index("--name") + 1]))
    from_file = load_job(ConsumeOptions, ROOT / "conf" / "consume.toml")
    job = load_job(ConsumeOptions, ROOT / "conf" / "consume.toml", settings)
    assert job.sink_format == "delta"
    for name in ("kafka.group.id", "subscribe"):
        assert job.source[name] != from_file.source[name]
    assert job.application_name != from_file.application_name
    programs = "\n".join(each.text for each in PROGRAMS)
    assert f'"{job.source["kafka.group.id"]}"' not in programs
    assert f'"{job.sink_path}"' not in programs
    assert f'"subscribe", "{job.source["subscribe"]}"' in programs


def _name(each: object) -> str:
    return getattr(each, "__name__", str(each))


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(("block", "check"), zip(PROGRAMS, CHECKS, strict=False), ids=_name)
def test_program_writes_each_record_once(
    spark: Any,
    kafka: EmbeddedKafka,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    block: Block,
    check: Callable[[list[dict[str, Any]]], None],
) -> None:
    topic = f"delays-{uuid.uuid4().hex[:8]}"
    (named,) = re.findall(r'"(lake/[\w-]+)"', block.text)
    table = tmp_path / named

    def await_table(query: Any) -> None:
        def is_there() -> bool:
            assert query.isActive, query.exception()
            is_made = deltalake.DeltaTable.is_deltatable(str(table))
            return is_made and len(rows_of(table)) >= len(DELAYS)

        try:
            wait_until(is_there, READ_S, "the rows of the page's program")
        finally:
            query.stop()
            close_listeners()

    replaced = {
        '"localhost:9092"': repr(kafka.bootstrap_servers),
        '"kafka.group.id", "delays': f'"kafka.group.id", "{topic}',
        '"delays"': f'"{topic}"',
        # The JVM's directory is not that of the test.
        '"lake/': f'"{tmp_path}/lake/',
        '"checkpoints/': f'"{tmp_path}/checkpoints/',
        "spark_groups.await_end(query)": "await_table(query)",
    }
    namespace = {"__name__": "page", "await_table": await_table}
    assert spark.sparkContext is not None, "the program gets the session that there is"
    monkeypatch.setattr(sys, "argv", ["delays.py", "1"])
    run_python([*WRITES_DELAYS, block], replaced, namespace, PAGE.name)
    # Their connections would outlive the broker.
    del namespace["producer"], namespace["admin"]
    check(rows_of(table))
    monkeypatch.setattr(sys, "argv", ["table.py", str(table)])
    run_python(SHOWS_TABLE, {}, namespace, PAGE.name)
    assert f"{len(DELAYS)} rows, for example:" in capsys.readouterr().out


def rows_of(table: Path) -> list[dict[str, Any]]:
    """Return the rows in the order of flights, by the table's library."""
    rows: list[dict[str, Any]] = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(rows, key=_number)


def _number(row: dict[str, Any]) -> int:
    flight = row["flight"] if "flight" in row else json.loads(row["value"])["flight"]
    return int(flight.removeprefix("UA"))
