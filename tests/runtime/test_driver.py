"""The driver as a member of real groups on a real broker."""

from __future__ import annotations

import time

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import (
    DataLossError,
)
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.starting import StartingPoint
from spark_groups.runtime.engine import suspension_clock
from spark_groups.types import BatchPlan
from tests.runtime.members import (
    all_at,
    committed,
    evict,
    fill,
    filled_topic,
    patient,
    queries,
    two_sharing,
)
from workshop.parts.brokers import Row, create_topic, delete_topic, grow_topic, produce
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = pytest.mark.broker

LATEST = StartingPoint.LATEST
AT_ONCE_S = 30.0
"""Less than the session of 45 s."""


def test_a_lone_member_reads_to_the_end_and_commits(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 3, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        plan = query.plan_rows()
        assert [(e.partition, e.from_offset, e.until_offset) for e in plan.ranges] == [
            (0, 0, 10),
            (1, 0, 10),
            (2, 0, 10),
        ]
        query.commit_all()
        assert committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 3, 10)
        assert query.run() is None


def test_the_rate_limit_is_divided_by_backlog_and_starves_no_partition(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    rows = [Row(b"v", partition=0)] * 100 + [Row(b"v", partition=1)]
    produce(kafka.bootstrap_servers, topic_name, rows)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        plan = start().plan_rows(PlanLimit(max_offsets=10))
        assert [(e.partition, len(e)) for e in plan.ranges] == [(0, 9), (1, 1)]


@pytest.mark.parametrize("version", ["4.0.0", "4.3.1"])
def test_a_hand_over_moves_partitions_between_batches_and_loses_nothing(
    kafka_version: object, version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)  # type: ignore[operator]
    filled_topic(kafka.bootstrap_servers, topic_name, 6, 100)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        first = start()
        first.plan_rows(PlanLimit(max_offsets=60))
        second = start()
        limit = PlanLimit(max_offsets=30)

        def both_trigger() -> bool:
            # Each plans only while it owns: at no moment may both read one partition.
            for query in (first, second):
                query.run(limit)
            reading = [
                {each.key for each in query.running.ranges} if query.running else set()
                for query in (first, second)
            ]
            assert not reading[0] & reading[1]
            done = committed(kafka.bootstrap_servers, group_id)
            return done == all_at(topic_name, 6, 100)

        wait_until(both_trigger, what="both to read all there is")
        assert len(first.assigned) == len(second.assigned) == 3
        ranges = sorted(first.ranges + second.ranges)
        for partition in range(6):
            of_one = [r for r in ranges if r[1] == partition]
            assert [r[2] for r in of_one] == [0] + [r[3] for r in of_one[:-1]]
            assert of_one[-1][3] == 100


def test_a_partition_that_delays_nothing_is_read_while_another_is_withheld(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        first = start()
        first.plan_rows()
        second = start()
        wait_until(
            lambda: second.run() is None and second.driver.snapshot().pending,
            what="the second to see what it waits for",
        )
        assert second.ranges == []
        first.finish()
        wait_until(lambda: first.run() is None and len(first.assigned) == 1)
        wait_until(lambda: second.run() is None and len(second.assigned) == 1)
        fill(kafka.bootstrap_servers, topic_name, 2, 5)
        assert len(first.plan_rows().ranges) == len(second.plan_rows().ranges) == 1


def test_what_a_member_left_behind_is_in_the_next_plan_of_the_one_that_stays(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient(monkeypatch, under_way_s=LONG_S)
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        stays, goes = two_sharing(start)
        fill(kafka.bootstrap_servers, topic_name, 2, 5)
        assert len(stays.plan_rows().ranges) == 1
        goes.driver.leave(LONG_S)
        client = stays.driver._engine.client
        assert client is not None
        # So old that the next end of a batch sends one.
        wait_until(
            lambda: suspension_clock() - (client.parts.member.pace.last_sent_at or 0) > 1.1,
            what="a heartbeat that is old enough",
        )
        stays.finish()
        plan = stays.plan()
        assert plan is not None
        assert len(plan.ranges) == 1
        assert plan.ranges[0].partition != stays.ranges[0][1]


def test_a_commit_that_comes_after_the_member_was_removed_is_refused(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 1, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        # At the broker's pace of 5 s it does not notice by itself that it was removed.
        late = start(member={"fast_heartbeats": False})
        late.plan_rows()
        old_id = late.member_id
        evict(kafka.bootstrap_servers, group_id, old_id)
        other = start()
        other.plan_rows(PlanLimit(max_offsets=4))
        other.commit_all()
        late.finish()
        wait_until(lambda: late.member_id != old_id, what="the removed member to join again")
        timeline = " ".join(late.driver.snapshot().timeline)
        assert "UNKNOWN_MEMBER_ID (answer to OffsetCommit)" in timeline
        assert committed(kafka.bootstrap_servers, group_id) == {(topic_name, 0): 4}
        other.driver.leave()
        plan = late.plan_rows()
        assert [(e.from_offset, e.until_offset) for e in plan.ranges] == [(4, 10)]


@pytest.mark.parametrize(("version", "refusals"), [("4.0.0", 2), ("4.3.1", 0)])
def test_a_batch_planned_before_an_epoch_change_is_committed_after_it(
    kafka_version: object, version: str, refusals: int, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)  # type: ignore[operator]
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        first = start()
        planned = first.plan_rows()
        grow_topic(kafka.bootstrap_servers, topic_name, 4)
        wait_until(
            lambda: first.driver.snapshot().member_epoch > planned.member_epoch,
            what="a new member epoch while the batch runs",
        )
        first.commit_all()
        offsets = committed(kafka.bootstrap_servers, group_id)
        assert [offsets[topic_name, each] for each in (0, 1)] == [10, 10]
        assert first.driver.snapshot().commits_refused == refusals
        assert "lost" not in first.timeline


def test_latest_loses_nothing_before_the_first_batch_or_during_a_hand_over(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 4, 7)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        first = start(start=LATEST)
        wait_until(lambda: len(committed(kafka.bootstrap_servers, group_id)) == 4)
        fill(kafka.bootstrap_servers, topic_name, 4, 1)
        second = start(start=LATEST)
        fill(kafka.bootstrap_servers, topic_name, 4, 1)
        first.run()

        def all_read() -> bool:
            first.run()
            second.run()
            return committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 4, 9)

        wait_until(all_read)
        assert sum(r[3] - r[2] for r in first.ranges + second.ranges) == 8
        assert min(r[2] for r in first.ranges + second.ranges) == 7


def test_latest_reads_a_partition_and_a_topic_that_come_later_from_their_beginning(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    later = f"{topic_name}-later"
    filled_topic(kafka.bootstrap_servers, topic_name, 1, 3)
    with queries(kafka.bootstrap_servers, group_id, f"{topic_name},{later}") as start:
        query = start(start=LATEST)
        query.run()
        assert later in query.timeline
        grow_topic(kafka.bootstrap_servers, topic_name, 2)
        fill(kafka.bootstrap_servers, topic_name, 2, 5)
        filled_topic(kafka.bootstrap_servers, later, 1, 4)
        wait_until(lambda: (query.run(), len(query.ranges) >= 3)[1], what="all three to be read")
        query.commit_all()
        assert sorted(query.ranges) == [
            (topic_name, 0, 3, 8),
            (topic_name, 1, 0, 5),
            (later, 0, 0, 4),
        ]


def test_offsets_of_a_deleted_topic_never_touch_the_one_created_after_it(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 1, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(start=LATEST)
        query.run()
        fill(kafka.bootstrap_servers, topic_name, 1, 5)
        query.plan_rows()
        # No member lists this end of the log before the topic is gone.
        fill(kafka.bootstrap_servers, topic_name, 1, 20)
        delete_topic(kafka.bootstrap_servers, topic_name)
        filled_topic(kafka.bootstrap_servers, topic_name, 1, 2)
        again = query.plan_rows()
        assert [(e.from_offset, e.until_offset) for e in again.ranges] == [(0, 2)]
        query.commit_all()
        assert committed(kafka.bootstrap_servers, group_id) == {(topic_name, 0): 2}
        said = "created again; whether all rows of the deleted topic were read is unknown"
        assert said in query.timeline


def test_a_restart_takes_over_at_once_what_a_killed_run_still_holds(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 3, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        killed = start()
        plan = killed.plan_rows()
        killed.vanish()
        began_at = time.monotonic()
        restarted = start(checkpointed=plan)
        restarted.driver.replay(plan)
        wait_until(lambda: len(restarted.assigned) == 3)
        assert time.monotonic() - began_at < AT_ONCE_S
        restarted.driver.finish(plan)
        wait_until(
            lambda: committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 3, 10)
        )
        recorded = restarted.run()
        assert recorded is not None
        assert (recorded.member_id, recorded.ranges) == (restarted.member_id, ())
        assert restarted.run() is None


def test_an_inherited_batch_does_not_rewind_what_somebody_else_committed(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 1, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        killed = start()
        plan = killed.plan_rows(PlanLimit(max_offsets=5))
        killed.vanish()
        evict(kafka.bootstrap_servers, group_id, killed.member_id)
        other = start()
        other.plan_rows()
        other.commit_all()
        other.driver.leave()
        restarted = start(checkpointed=plan)
        restarted.driver.finish(plan)
        fill(kafka.bootstrap_servers, topic_name, 1, 1)
        next_plan = restarted.plan_rows()
        assert [(e.from_offset, e.until_offset) for e in next_plan.ranges] == [(10, 11)]
        assert "another commit was made since; reading continues" in restarted.timeline


def test_offsets_that_expired_under_a_checkpoint_are_data_loss(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 1, 10)
    with queries(kafka.bootstrap_servers, f"{group_id}-before", topic_name) as start:
        plan = start().plan_rows(PlanLimit(max_offsets=5))
    plan = BatchPlan(group_id, plan.member_id, plan.member_epoch, plan.ranges)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        failing = start(checkpointed=plan)
        failing.driver.finish(plan)
        with pytest.raises(DataLossError, match=r"read it up to 5.*failOnDataLoss=false"):
            failing.plan_rows()
        failing.driver.leave()
        going_on = start(checkpointed=plan, fail_on_data_loss=False)
        going_on.driver.finish(plan)
        assert going_on.plan_rows().ranges[0].from_offset == 5


def test_available_now_reads_the_records_before_it_and_ends(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        query.driver.prepare_available_now()
        query.plan_rows(PlanLimit(max_offsets=10))
        fill(kafka.bootstrap_servers, topic_name, 2, 10)
        while query.run(PlanLimit(max_offsets=10)) is not None:
            pass
        assert query.driver.await_commits(LONG_S)
        assert committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 2, 10)
