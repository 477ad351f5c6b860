"""When a real coordinator gets its acknowledgement: batches, listeners, and their ends."""

from __future__ import annotations

import queue

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.events import RevocationHeld
from spark_groups.group.member.events import Event, NameOf
from tests.runtime.members import QueryLike, fill, queries
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = pytest.mark.broker


def test_what_no_batch_reads_is_handed_over_in_the_middle_of_a_batch(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        first = start()
        wait_until(lambda: len(first.assigned) == 2)
        produce(kafka.bootstrap_servers, topic_name, [Row(b"v", partition=0)] * 10)
        plan = first.plan_rows()
        assert {each.partition for each in plan.ranges} == {0}
        second = start()
        wait_until(lambda: second.assigned, what="the second to be assigned something")
        # The coordinator lets the partition with the least number stay where it is.
        assert second.assigned == {f"{topic_name}-1"}
        assert first.assigned == {f"{topic_name}-0"}
        assert first.driver.snapshot().in_flight, "the batch still runs"
        fill(kafka.bootstrap_servers, topic_name, 2, 5)
        assert {each.partition for each in second.plan_rows().ranges} == {1}


def listened(query: QueryLike) -> queue.SimpleQueue[RevocationHeld]:
    """Have the revocations of a member held, and return them as they come."""
    held: queue.SimpleQueue[RevocationHeld] = queue.SimpleQueue()

    def observe(event: Event, name_of: NameOf) -> None:
        if isinstance(event, RevocationHeld):
            held.put(event)

    query.driver.observe(observe)
    query.driver.hold_revocations(True)
    return held


@pytest.mark.parametrize("ending", ["released", "gone"])
def test_a_revocation_is_handed_over_when_the_listener_lets_it_go(
    ending: str, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        first = start()
        held = listened(first)
        wait_until(lambda: first.run() is None and len(first.assigned) == 2)
        second = start()
        event = held.get(timeout=LONG_S)
        wait_until(lambda: second.driver.snapshot().pending, what="the second to wait")
        assert not second.assigned
        if ending == "released":
            first.driver.release_revocation(event.number)
        else:
            first.driver.hold_revocations(False)
        wait_until(lambda: len(second.assigned) == 1, what="the hand-over")
        assert len(first.assigned) == 1
