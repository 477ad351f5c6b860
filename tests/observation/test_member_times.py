"""Lag in time of a real member's snapshots, while records come and brokers go."""

from __future__ import annotations

import threading
import time

import pytest

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.group.ledger.ledger import Phase
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.snapshot import LagTimes, MemberSnapshot, PartitionSnapshot
from spark_groups.observation.member_times import MemberTimes
from tests.observation.groups import FLIGHTS
from tests.runtime.members import queries
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import LONG_S, wait_until

HOUR_MS = 3_600_000


def snapshot(committed: int, end: int) -> MemberSnapshot:
    owned = PartitionSnapshot(
        topic="flights",
        topic_id=FLIGHTS,
        partition=0,
        phase=Phase.READY,
        assigned_epoch=1,
        committed_offset=committed,
        position=committed,
        waits_for=None,
        log_end_offset=end,
    )
    return MemberSnapshot(group="g", state=MemberState.STABLE, partitions=(owned,))


@pytest.mark.broker
def test_a_member_is_as_far_behind_as_its_first_uncommitted_record_is_old(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2, {"retention.ms": str(10 * HOUR_MS)})
    produce(servers, topic_name, [Row(b"x", partition=each) for each in (0, 1)])
    times = MemberTimes((servers,))
    with queries(servers, group_id, topic_name) as start:
        query = start()
        query.plan_rows()
        query.commit_all()
        taken = query.driver.snapshot()
        first = times.measure(taken).partitions
        assert [each.times.seconds_behind for each in first] == [0.0, 0.0]
        # The member has not looked since, so its log end is the old one.
        written_ms = time.time_ns() // 1_000_000 - HOUR_MS
        rows = [Row(b"x", partition=1, timestamp_ms=written_ms + each) for each in (0, 999)]
        produce(servers, topic_name, rows)

        def late() -> tuple[PartitionSnapshot, ...]:
            found = times.measure(taken).partitions
            is_known = all(each.times.seconds_behind is not None for each in found)
            return found if is_known else ()

        before_s = time.time()
        found = sorted(wait_until(late, what="ages"), key=lambda each: each.partition)
        idle, behind = (each.times for each in found)
        after_s = time.time()
    assert (idle.seconds_behind, idle.deletion_in_s) == (0.0, None)
    assert idle.catch_up_s == 0.0
    oldest_s = before_s - written_ms / 1000
    assert behind.seconds_behind is not None
    assert oldest_s - 0.01 <= behind.seconds_behind <= after_s - written_ms / 1000 + 0.01
    assert behind.deletion_in_s == pytest.approx(
        10 * HOUR_MS / 1000 - behind.seconds_behind, abs=0.01
    )
    assert behind.deleted_unread_offsets == 0
    assert taken.partitions[0].times == LagTimes()
    times.close()
    assert times.measure(taken) == taken


def test_brokers_that_do_not_answer_leave_times_unknown() -> None:
    times = MemberTimes((f"127.0.0.1:{free_ports(1)[0]}",), timeout_s=0.2)
    assert times.measure(snapshot(5, 9)) == snapshot(5, 9)
    (found,) = times.measure(snapshot(9, 9)).partitions
    assert found.times.catch_up_s == 0.0
    times.close()


def test_the_end_does_not_wait_for_brokers() -> None:
    times = MemberTimes((f"127.0.0.1:{free_ports(1)[0]}",), timeout_s=2 * LONG_S)
    scrape = threading.Thread(target=times.measure, args=(snapshot(5, 9),))
    scrape.start()
    times.close()
    scrape.join(LONG_S)
    assert not scrape.is_alive()
    empty = MemberSnapshot(group="g", state=MemberState.UNSUBSCRIBED)
    assert times.measure(empty) is empty
