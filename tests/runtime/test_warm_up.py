"""A new run warms up beside members of a real group, and joins afterwards."""

from __future__ import annotations

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.batches.plan_limit import PlanLimit
from tests.runtime.members import all_at, committed, describe, fill, filled_topic, queries
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker


def member_ids(kafka: EmbeddedKafka, group_id: str) -> set[str]:
    return {each.member_id for each in describe(kafka.bootstrap_servers, group_id).members}


@pytest.mark.parametrize("version", ["4.0.0", "4.3.1"])
def test_other_member_keeps_its_partitions_while_a_new_run_warms_up(
    kafka_version: object, version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)  # type: ignore[operator]
    filled_topic(kafka.bootstrap_servers, topic_name, 4, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        first = start()
        first.plan_rows()
        first.commit_all()
        second = start(warm_up_tasks=2)
        plan = second.plan()
        assert plan is not None
        assert (plan.warm_up_tasks, plan.ranges, plan.member_epoch) == (2, (), 0)
        assert second.driver.snapshot().state.name == "WARMING_UP"
        fill(kafka.bootstrap_servers, topic_name, 4, 5)
        assert len(first.plan_rows().ranges) == 4, "it reads all partitions"
        assert member_ids(kafka, group_id) == {first.member_id}
        first.commit_all()
        assert second.run() is None, "the next call waits for the assignment"
        assert member_ids(kafka, group_id) == {first.member_id, plan.member_id}
        wait_until(lambda: first.run() is None and len(first.assigned) == 2)
        wait_until(lambda: second.run() is None and len(second.assigned) == 2)
        fill(kafka.bootstrap_servers, topic_name, 4, 5)
        for each in (first, second):
            assert len(each.plan_rows().ranges) == 2
            each.commit_all()
        assert committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 4, 20)


def test_run_killed_while_it_warms_up_leaves_nothing_to_read_twice(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        other, killed = start(), start()
        wait_until(
            lambda: (
                [each.run() for each in (other, killed)]
                and len(other.assigned) == len(killed.assigned) == 1
            ),
            what="one partition each",
        )
        fill(kafka.bootstrap_servers, topic_name, 2, 10)
        last = killed.plan_rows(PlanLimit(2))
        killed.commit_all()
        killed.vanish()
        warm = start(checkpointed=last, warm_up_tasks=2)
        warm.driver.finish(last)
        plan = warm.plan()
        assert plan is not None
        assert (plan.warm_up_tasks, plan.topics) == (2, last.topics)
        assert member_ids(kafka, group_id) == {other.member_id}, "the dead one is released"
        warm.vanish()
        again = start(checkpointed=plan, warm_up_tasks=2)
        second_plan = again.plan()
        assert second_plan is not None
        assert (second_plan.warm_up_tasks, second_plan.topics) == (2, last.topics)
        assert second_plan.member_id != plan.member_id
        every = (other, killed, again)

        def all_is_read() -> bool:
            for each in (other, again):
                each.run()
            return committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 2, 10)

        wait_until(all_is_read, what="the rest to be read")
        ranges = sorted({each for query in every for each in query.ranges})
        for partition in range(2):
            of_one = [each for each in ranges if each[1] == partition]
            assert [each[2] for each in of_one] == [0, *(each[3] for each in of_one[:-1])]


def test_run_that_is_alone_joins_at_once(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 1, 3)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(warm_up_tasks=2)
        plan = query.plan()
        assert plan is not None
        assert (plan.warm_up_tasks, [len(each) for each in plan.ranges]) == (0, [3])
        assert "joining the group now" in query.timeline
