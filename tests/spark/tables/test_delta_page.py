"""Every program of the how-to for Delta tables runs as it stands, on a real Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.control.listener import close_listeners
from tests.documents import ROOT, Block, blocks_of, run_python
from tests.spark.queries import READ_S
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

PAGE = ROOT / "docs" / "how-to" / "exactly_once_delta.md"
PROGRAMS = [
    block
    for block in blocks_of(PAGE.read_text(encoding="utf-8"))
    if block.language == "python" and "await_end" in block.text
]
FLIGHTS = [
    {"flight": f"UA{number}", "day": f"2013-01-0{number % 3 + 1}", "delay": number - 2}
    for number in range(12)
]
TYPED = [{**each, "day": date.fromisoformat(str(each["day"]))} for each in FLIGHTS]


def as_loaded(rows: list[dict[str, Any]]) -> None:
    assert [json.loads(row["value"]) for row in rows] == FLIGHTS
    assert {"key", "topic", "partition", "offset", "timestamp"} < set(rows[0])


def by_spark(rows: list[dict[str, Any]]) -> None:
    assert all(isinstance(row.pop("timestamp"), datetime) for row in rows)
    assert rows == TYPED


def by_arrow(rows: list[dict[str, Any]]) -> None:
    assert rows == TYPED


def partitioned(rows: list[dict[str, Any]]) -> None:
    assert [json.loads(row["value"]) for row in rows] == FLIGHTS
    assert {row["day"] for row in rows} <= {
        datetime.now(timezone.utc).date(),
        # The test may run at midnight.
        datetime.fromtimestamp(STARTED_S, timezone.utc).date(),
    }


STARTED_S = datetime.now(timezone.utc).timestamp()
CHECKS = (as_loaded, by_spark, by_arrow, partitioned)


def test_each_program_of_the_page_has_a_check() -> None:
    assert len(PROGRAMS) == len(CHECKS)


def _name(each: object) -> str:
    return getattr(each, "__name__", str(each))


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(("block", "check"), zip(PROGRAMS, CHECKS, strict=False), ids=_name)
def test_program_writes_each_flight_once(
    spark: Any,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    block: Block,
    check: Callable[[list[dict[str, Any]]], None],
) -> None:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    create_topic(kafka.bootstrap_servers, topic, 1)
    produce(
        kafka.bootstrap_servers,
        topic,
        [Row(json.dumps(each).encode(), key=b"k", partition=0) for each in FLIGHTS],
    )
    table = tmp_path / "lake" / "flights"

    def await_table(query: Any) -> None:
        def is_there() -> bool:
            assert query.isActive, query.exception()
            is_made = deltalake.DeltaTable.is_deltatable(str(table))
            return is_made and len(rows_of(table)) >= len(FLIGHTS)

        try:
            wait_until(is_there, READ_S, "the rows of the page's program")
        finally:
            query.stop()
            close_listeners()

    replaced = {
        '"localhost:9092"': repr(kafka.bootstrap_servers),
        '"subscribe", "flights"': f'"subscribe", "{topic}"',
        '"flight-readers"': f'"readers-{topic}"',
        '"/data/': f'"{tmp_path}/',
        "spark_groups.await_end(query)": "await_table(query)",
    }
    namespace = {"__name__": "page", "await_table": await_table}
    assert spark.sparkContext is not None, "the program gets the session that there is"
    run_python([block], replaced, namespace, PAGE.name)
    check(rows_of(table))


def rows_of(table: Path) -> list[dict[str, Any]]:
    """Return the rows in the order of flights, by the table's library."""
    rows: list[dict[str, Any]] = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(rows, key=_number)


def _number(row: dict[str, Any]) -> int:
    flight = row["flight"] if "flight" in row else json.loads(row["value"])["flight"]
    return int(flight.removeprefix("UA"))
