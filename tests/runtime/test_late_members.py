"""Members that come too late: stopped past their deadline, or called too seldom."""

from __future__ import annotations

import time

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.batches.plan_limit import PlanLimit
from tests.runtime.members import QueryLike, all_at, committed, fill, filled_topic, queries
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]


def rows(query: QueryLike) -> int:
    return sum(end - start for _, _, start, end in query.ranges)


def test_a_member_that_stood_still_past_its_deadline_is_fenced_and_continues(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    filled_topic(servers, topic_name, 2, 10)
    with queries(servers, group_id, topic_name) as start:
        late = start(member={"rebalance_timeout_ms": 2_000})
        late.plan_rows(PlanLimit(max_offsets=8))
        old_id = late.member_id
        other = start()
        wait_until(lambda: "asked to revoke" in late.timeline, what="the revocation to be reported")
        # While a thread holds its lock, it neither acts nor answers.
        with late.driver._engine.changed:
            wait_until(lambda: (other.run(), len(other.assigned) == 2)[1], what="its removal")
            # Its batch ends meanwhile, and its commit comes after it was removed.
            late.finish()
            wait_until(lambda: (other.run(), rows(other) == 20)[1], what="all to be read again")
            other.commit_all()
        wait_until(lambda: late.member_id != old_id, what="the late one to join again")
        assert "UNKNOWN_MEMBER_ID" in late.timeline
        assert "the next owner reads them again" in late.timeline
        assert committed(servers, group_id) == all_at(topic_name, 2, 10)

        def both_run() -> list[int]:
            late.run()
            other.run()
            return [len(late.assigned), len(other.assigned)]

        wait_until(lambda: both_run() == [1, 1], what="a share for each")
        fill(servers, topic_name, 2, 5)
        wait_until(
            lambda: both_run() and committed(servers, group_id) == all_at(topic_name, 2, 15),
            what="both to continue",
        )
        assert rows(late) == 8 + 5


def test_calls_that_come_seldom_are_given_more_time_to_give_up_partitions(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    filled_topic(servers, topic_name, 2, 10)
    with queries(servers, group_id, topic_name) as start:
        slow = start(member={"rebalance_timeout_ms": 2_000})
        slow.plan_rows(PlanLimit(max_offsets=8))
        member_id, called_at = slow.member_id, time.monotonic()
        wait_until(lambda: time.monotonic() - called_at > 1.5, what="a long trigger")
        slow.plan_rows()
        assert "raised the rebalance timeout to" in slow.timeline
        other = start()
        wait_until(lambda: "asked to revoke" in slow.timeline, what="the revocation to be reported")
        reported_at = time.monotonic()
        wait_until(
            lambda: other.run() is None and time.monotonic() - reported_at > 2.5,
            what="more than the configured timeout",
        )
        assert slow.member_id == member_id, "the coordinator waits for longer, as it was asked to"
        assert "uncommitted" not in slow.timeline
        slow.commit_all()
        wait_until(lambda: other.run() is None and len(other.assigned) == 1, what="its share")
        assert committed(servers, group_id) == all_at(topic_name, 2, 10)
        assert other.ranges == []
