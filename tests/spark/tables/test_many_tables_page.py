"""The programs of the how-to for many tables run as they stand, on a real Kafka."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.control.listener import close_listeners
from tests.documents import ROOT, blocks_of, run_python
from tests.spark.queries import READ_S
from workshop.parts.waiting import wait_until

PAGE = ROOT / "docs" / "how-to" / "many_tables.md"
PROGRAMS = [each for each in blocks_of(PAGE.read_text("utf-8")) if each.language == "python"]
TOPICS, RECORDS, RUNS = 20, 50, 2


@pytest.mark.broker
@pytest.mark.spark
def test_each_topic_of_the_page_fills_a_table_of_its_own(
    spark: Any, kafka: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader who runs the first program again adds records to the same topics."""
    writes, fills = PROGRAMS
    sensor = f"sensor-{uuid.uuid4().hex[:8]}"
    lake = tmp_path / "lake"

    def rows_of(table: Path) -> list[dict[str, Any]]:
        if not deltalake.DeltaTable.is_deltatable(str(table)):
            return []
        rows: list[dict[str, Any]] = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
        return rows

    def are_filled(query: Any) -> bool:
        assert query.isActive, query.exception()
        found = [rows_of(each) for each in lake.glob("*")]
        return len(found) == TOPICS and all(len(each) >= RUNS * RECORDS for each in found)

    def await_tables(query: Any) -> None:
        try:
            wait_until(lambda: are_filled(query), READ_S, "the rows of the page's topics")
        finally:
            query.stop()
            close_listeners()

    replaced = {
        '"localhost:9092"': repr(kafka.bootstrap_servers),
        '"kafka.group.id", "sensors"': f'"kafka.group.id", "{sensor}"',
        'f"sensor.': f'f"{sensor}.',
        r'r"sensor\.': rf'r"{sensor}\.',
        # The JVM's directory is not that of the test.
        '"lake/': f'"{tmp_path}/lake/',
        '"checkpoints/': f'"{tmp_path}/checkpoints/',
        "spark_groups.await_end(query)": "await_tables(query)",
    }
    namespace = {"__name__": "page", "await_tables": await_tables}
    assert spark.sparkContext is not None, "the program gets the session that there is"
    run_python([writes] * RUNS, replaced, namespace, PAGE.name)
    assert f"wrote {RECORDS} records to each of {TOPICS} topics" in capsys.readouterr().out
    # Their connections would outlive the broker.
    del namespace["producer"], namespace["admin"]
    run_python([fills], replaced, namespace, PAGE.name)
    topics = {f"{sensor}.{number}" for number in range(1, TOPICS + 1)}
    assert {each.name for each in lake.iterdir()} == topics
    for topic in topics:
        rows = rows_of(lake / topic)
        assert {each["topic"] for each in rows} == {topic}
        values = Counter(int(each["value"]) for each in rows)
        assert values == dict.fromkeys(range(RECORDS), RUNS)
        assert all(int(each["key"]) == int(each["value"]) % 5 for each in rows)
