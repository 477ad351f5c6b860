"""A log that loses its end to an unclean leader election, on a cluster of three nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_groups.errors import DataLossError
from tests.clusters import ThreeBrokers
from tests.runtime.members import QueryLike, committed, queries
from tests.runtime.truncation_setup import (
    ELECTED_S,
    LAGGARD,
    LEADER,
    LOST,
    READ_BEFORE,
    WRITTEN_SINCE,
    await_leader,
    create_topic,
)
from workshop.parts.brokers import produce
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreeBrokers]:
    """Three brokers that this test may stop, one at a time."""
    with ThreeBrokers() as running:
        yield running


def read_up_to(query: QueryLike, topic: str, until_offset: int) -> None:
    """Read and commit everything up to an offset."""
    wait_until(
        lambda: (query.run(), bool(query.ranges) and query.ranges[-1][3] == until_offset)[1],
        ELECTED_S,
        what=f"the first {until_offset} rows of {topic}",
    )
    query.commit_all()


def test_truncated_log_that_has_grown_again_is_detected_by_its_leader_epoch(
    cluster: ThreeBrokers, topic_name: str, group_id: str
) -> None:
    servers = cluster.bootstrap_servers
    create_topic(cluster, topic_name)
    produce(servers, topic_name, [b"v"] * READ_BEFORE)
    strict, lenient, later = (f"{group_id}-{each}" for each in ("strict", "lenient", "later"))
    with (
        queries(servers, strict, topic_name) as start_strict,
        queries(servers, lenient, topic_name) as start_lenient,
        queries(servers, later, topic_name) as start_later,
    ):
        running = [start_strict(), start_lenient(fail_on_data_loss=False), start_later()]
        cluster.nodes[LAGGARD].kill()
        await_leader(cluster, topic_name, LEADER, 1)
        produce(servers, topic_name, [b"v"] * LOST)
        for query in running:
            read_up_to(query, topic_name, READ_BEFORE + LOST)
        running[2].driver.leave(10.0)

        cluster.nodes[LEADER].kill()
        cluster.nodes[LAGGARD].start()
        await_leader(cluster, topic_name, LAGGARD, 1)
        produce(servers, topic_name, [b"v"] * WRITTEN_SINCE)

        expected = rf"{topic_name}-0 was truncated.*up to 15.*at 10\. Offsets \[10, 15\)"
        with pytest.raises(DataLossError, match=expected):
            running[0].plan_rows(timeout_s=ELECTED_S)
        with pytest.raises(DataLossError, match=expected):
            start_later().plan_rows(timeout_s=ELECTED_S)
        plan = running[1].plan_rows(timeout_s=ELECTED_S)
        assert [(each.from_offset, each.until_offset) for each in plan.ranges] == [(10, 30)]
        assert any("was truncated" in said for said in running[1].driver.snapshot().timeline)
        running[1].commit_all()
        assert committed(servers, lenient) == {(topic_name, 0): 30}
    cluster.nodes[LEADER].start()
