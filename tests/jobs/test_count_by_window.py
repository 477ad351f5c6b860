"""`jobs/count_by_window.py` by spark-submit: windows that are over are counted, each once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from demo.spark_log import read_rows
from spark_groups.broker.embedded import EmbeddedKafka
from tests.jobs.submitted import SubmittedJob
from workshop.parts.brokers import Row, create_topic, produce

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
]

MINUTE_MS = 60_000
FIRST_MS = 1_700_000_040_000  # the start of a minute
END_S = 400


def test_windows_before_the_watermark_are_written(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    rows = [
        Row(b"x", partition=each % 2, timestamp_ms=FIRST_MS + each * MINUTE_MS // 10)
        for each in range(50)
    ]
    produce(kafka.bootstrap_servers, topic_name, rows)
    arguments = (
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topics", topic_name),
        *("--group", group_id, "--trigger", "availableNow"),
        *("--set", "window.watermark=1 minute", "--set", 'window.groupBy=["topic", "partition"]'),
    )
    submit = ("--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=1")
    with SubmittedJob(tmp_path, "counts", arguments, submit=submit, job="count_by_window") as job:
        exit_code, _ = job.await_end(END_S)
        assert exit_code == 0, job.text()
    table = read_rows([job.output], ["start", "topic", "partition", "count"])
    found = {
        (row["start"].timestamp() * 1000, row["partition"]): row["count"]
        for row in table.to_pylist()
    }
    # The watermark stands a minute before the last row: the last two windows are not over.
    expected = Counter(
        (FIRST_MS + each // 10 * MINUTE_MS, each % 2) for each in range(50) if each // 10 < 3
    )
    assert found == dict(expected)
