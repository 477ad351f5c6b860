"""Through a Spark Connect server on this machine: supported and refused calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from workshop.parts.applications import REPOSITORY
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.processes import environment

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def seen(kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path) -> dict[str, Any]:
    """What a client saw of a topic with 20 rows in two partitions."""
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce(servers, topic_name, [Row(b"%d" % n, partition=n % 2) for n in range(20)])
    constrained = deltalake.Schema.from_arrow(pa.schema([("topic", pa.string())]))
    table = deltalake.DeltaTable.create(tmp_path / "constrained", constrained)
    table.alter.add_constraint({"named": "topic != ''"})
    arguments = [servers, group_id, topic_name, str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_application", *arguments],
        cwd=REPOSITORY,
        env=environment(PYSPARK_PYTHON=sys.executable),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    return found


def test_sources_work_and_what_needs_the_driver_is_refused(seen: dict[str, Any]) -> None:
    assert seen["session"].startswith("pyspark.sql.connect")
    assert seen["rows"] == 20
    assert seen["left"] == [
        {
            "partition": partition,
            "group_state": "Empty",
            "client_id": None,
            "committed_offset": 10,
            "lag": 0,
        }
        for partition in range(2)
    ]
    assert (seen["backlog"], seen["backlog of the registered source"]) == (3, 3)
    refused = "the configuration provider env is not allowed on Spark Connect by default"
    assert refused in seen["reference"]
    assert "OptionsError: stop_on_sigterm() requires a classic session" in seen["stop_on_sigterm"]
    functions_do_what_they_do_in_classic_sessions(seen)
    assert (seen["written"], seen["rows of the table"]) == ("not refused", 23)
    assert "the batch has other ranges than its plan" in seen["filtered"]
    assert "write_table requires a stream of kafka-group with" in seen["records"]
    assert "constraint" in seen["constrained"], "at the start of the query"
    assert "check requires a classic session" in seen["check"]
    assert len(seen["figures"]) == 1
    assert seen["owners"] == ["connect"] * 2, "the name of the application"


def functions_do_what_they_do_in_classic_sessions(seen: dict[str, Any]) -> None:
    """Compare; `seen` has the topic's 20 rows, and 3 that came later."""
    values = sorted([*(str(each) for each in range(20)), *["unread"] * 3])
    assert seen["processed"] == [each for each in values if each not in {"3", "17"}]
    assert seen["letters"] == ["17", "3"]
    assert seen["read"] == values
    assert seen["columns"][:5] == ["key", "value", "topic", "partition", "offset"]
    assert seen["columns"][-1] == "headers"
    starts, processed = seen["relinquished"]
    assert (starts > 1, processed) == (True, 23)
    assert "kafka.max.poll.records cannot be set" in seen["further options"]
    for name in ("processed, filtered", "read, filtered"):
        assert "the batch has other ranges than its plan" in seen[name], name
    assert "process_records requires a stream of kafka-group with" in seen["processed records"]
    assert seen["moved"]["assigned"][0] in {"1", "2"}
    assert seen["moved"]["revoked"][0] == "1"
    assert float(seen["moved"]["revoked"][2]) > 0, "the revocation waits"
    assert int(seen["moved"]["revoked"][1]) != seen["client"], "the server calls it"
    assert "Trigger.Once is refused" in seen["once"]
