"""An unclean leader election truncates a log whose records were written to a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

from tests.cli.printed import follow, printed
from tests.clusters import ThreeBrokers
from tests.runtime.truncation_setup import (
    LAGGARD,
    LEADER,
    LOST,
    READ_BEFORE,
    WRITTEN_SINCE,
    await_leader,
    create_topic,
)
from tests.spark.tables.delta_setup import offsets
from tests.spark.tables.write_setup import TableQuery
from workshop.parts.brokers import produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreeBrokers]:
    """Three brokers that this test may stop, one at a time."""
    with ThreeBrokers() as running:
        yield running


def values(word: str, count: int) -> list[bytes]:
    return [f"{word} {index}".encode() for index in range(count)]


@pytest.mark.parametrize("emit", ["ranges", "records"])
def test_new_records_at_old_offsets_stop_the_query_and_are_not_skipped(  # noqa: PLR0917
    spark: SparkSession,
    cluster: Any,
    topic_name: str,
    group_id: str,
    tmp_path: Path,
    emit: str,
) -> None:
    servers = cluster.bootstrap_servers
    create_topic(cluster, topic_name)
    options = {"emit": emit, "failOnDataLoss": "false"}
    query = TableQuery(spark, cluster, group_id, topic_name, tmp_path, options)
    kept, gone, new = values("kept", READ_BEFORE), values("gone", LOST), values("new", 20)
    produce(servers, topic_name, kept)
    cluster.nodes[LAGGARD].kill()
    await_leader(cluster, topic_name, LEADER, 1)
    produce(servers, topic_name, gone)
    assert query.run() == ""
    assert query.values() == Counter(kept + gone)
    cluster.nodes[LEADER].kill()
    cluster.nodes[LAGGARD].start()
    await_leader(cluster, topic_name, LAGGARD, 1)
    assert len(new) == WRITTEN_SINCE
    produce(servers, topic_name, new)

    # The query, the replay of its batch after a restart, and another owner of the partition.
    for checkpoint in ("checkpoint", "checkpoint", "another"):
        failure = query.run(checkpoint=checkpoint)
        assert "logs were truncated (caused by an unclean leader election)" in failure
        assert f"{topic_name}-0 ended at offset 10, but the table has it up to 15" in failure
        assert query.values() == Counter(kept + gone)

    deltalake.DeltaTable(query.path).delete(f'"offset" >= {READ_BEFORE}')
    query.await_left()
    follow(printed(failure), servers, {"TABLE": f"delta:{query.path}"})
    assert query.run(checkpoint="another") == ""
    assert query.values() == Counter(kept + new)
    assert offsets(query.path) == list(range(READ_BEFORE + WRITTEN_SINCE))
    cluster.nodes[LEADER].start()
    cluster.await_all()
