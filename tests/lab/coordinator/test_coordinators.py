"""A cluster's coordinators: who answers, what they say while they cannot, what outlives them."""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import messages as m
from spark_groups.lab.coordinator.coordinators import Coordinators, Costs
from spark_groups.lab.coordinator.profile import KAFKA_4_3, KIP_848
from spark_groups.lab.coordinator.settings import BrokerSettings, Settings
from spark_groups.lab.coordinator.shard import Ticket
from spark_groups.lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.protocol.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import NO_PARTITIONS, TopicId

TOPICS = TopicsImage.of([TopicImage(TopicId(int=1), "foo", 2)])
SETTINGS = Settings(BrokerSettings(offsets_partitions=4))
PREFIX = "kafka.server:type=group-coordinator-metrics,name="
GROUPS = [f"group-{each}" for each in range(12)]


def cluster(costs: Costs | None = None, unreadable: frozenset[int] = frozenset()) -> Coordinators:
    return Coordinators(
        KAFKA_4_3, SETTINGS, TOPICS, (1, 2), costs=costs or Costs(), unreadable=unreadable
    )


def join(group_id: str, member_id: str = "a") -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=("foo",),
        topic_partitions=NO_PARTITIONS,
    )


def sent(nodes: Coordinators, group_id: str, now: float, member_id: str = "a") -> Ticket:
    node_id = nodes.find(group_id)
    assert node_id is not None
    return nodes.submit(node_id, join(group_id, member_id), now)


def code(ticket: Ticket) -> int:
    assert isinstance(ticket.response, HeartbeatResponse)
    return ticket.response.error_code


def led_by(nodes: Coordinators, node_id: int) -> list[str]:
    return [each for each in GROUPS if nodes.find(each) == node_id]


def listed(nodes: Coordinators, node_id: int, now: float) -> set[str]:
    response = nodes.submit(node_id, m.ListGroupsRequest(), now).response
    assert isinstance(response, m.ListGroupsResponse)
    assert response.error_code == ErrorCode.NONE
    return {each.group_id for each in response.groups}


def test_only_the_leader_of_its_partition_answers_for_a_group() -> None:
    nodes = cluster()
    for group_id in GROUPS:
        leader = nodes.find(group_id)
        for node_id in (1, 2):
            expected = ErrorCode.NONE if node_id == leader else ErrorCode.NOT_COORDINATOR
            assert code(nodes.submit(node_id, join(group_id), 1.0)) == expected
    assert listed(nodes, 1, 2.0) == set(led_by(nodes, 1))
    assert listed(nodes, 2, 2.0) == set(led_by(nodes, 2))
    assert led_by(nodes, 1)
    assert led_by(nodes, 2)


def test_an_answer_waits_for_replication() -> None:
    nodes = cluster(Costs(replication_s=0.5))
    ticket = sent(nodes, "group-1", 1.0)
    nodes.wake(1.4)
    assert ticket.response is None
    nodes.wake(1.5)
    assert code(ticket) == ErrorCode.NONE


def test_a_crash_moves_only_the_partitions_of_its_node_and_keeps_what_is_replicated() -> None:
    nodes = cluster(Costs(election_s=2.0, load_s=0.1, replication_s=0.2))
    for group_id in GROUPS:
        sent(nodes, group_id, 1.0)
    nodes.wake(2.0)
    lost, kept = led_by(nodes, 1), led_by(nodes, 2)
    nodes.crash(1, 3.0)
    assert {nodes.find(each) for each in lost} == {None}
    assert {code(sent(nodes, each, 3.1)) for each in kept} == {ErrorCode.NONE}
    nodes.wake(5.0)
    assert {code(sent(nodes, each, 5.01)) for each in lost} == {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    }
    nodes.wake(10.0)
    assert listed(nodes, 2, 10.0) == set(GROUPS)
    metrics = nodes.metrics(2, 10.0)
    assert metrics[PREFIX + "partition-count,state=active"] == 4
    assert metrics[PREFIX + "partition-load-time-max"] > 100


def test_what_was_not_replicated_is_lost_in_a_crash_or_found_and_nobody_was_told() -> None:
    for keeps in (False, True):
        nodes = cluster(Costs(replication_s=1.0))
        ticket = sent(nodes, "group-1", 1.0)
        leader = nodes.find("group-1")
        assert leader is not None
        nodes.crash(leader, 1.5, keeps_appended=keeps)
        nodes.wake(9.0)
        assert ticket.response is None
        other = nodes.find("group-1")
        assert other not in {None, leader}
        assert listed(nodes, other or 0, 9.0) == ({"group-1"} if keeps else set())


def test_nobody_coordinates_while_no_node_is_alive() -> None:
    nodes = cluster()
    nodes.crash(1, 1.0)
    nodes.crash(2, 1.0)
    assert nodes.find("group-1") is None
    nodes.restart(2, 5.0)
    assert nodes.find("group-1") == 2
    assert code(sent(nodes, "group-1", 5.1)) == ErrorCode.NONE


def test_a_partition_is_moved_alone_and_who_waits_is_told() -> None:
    nodes = cluster(Costs(replication_s=1.0, event_s=0.1))
    tickets = [sent(nodes, "group-1", 1.0), sent(nodes, "group-1", 1.0, "b")]
    former = nodes.find("group-1")
    others = {each: nodes.find(each) for each in GROUPS}
    partition = nodes.partition_for("group-1")
    nodes.move(partition, 3 - (former or 0), 1.05)
    nodes.wake(3.0)
    assert [code(each) for each in tickets] == [ErrorCode.NOT_COORDINATOR] * 2
    for each, leader in others.items():
        moved = nodes.partition_for(each) == partition
        assert (nodes.find(each) != leader) == moved


def test_events_of_a_node_take_turns() -> None:
    nodes = cluster(Costs(event_s=0.1, flush_s=0.1))
    tickets = [sent(nodes, "group-1", 1.0, each) for each in "abc"]
    node_id = nodes.find("group-1") or 0
    assert nodes.metrics(node_id, 1.0)[PREFIX + "event-queue-size"] == 2
    nodes.wake(2.0)
    assert [code(each) for each in tickets] == [ErrorCode.NONE] * 3
    metrics = nodes.metrics(node_id, 2.0)
    assert round(metrics[PREFIX + "event-queue-time-ms-max"]) == 400
    assert round(metrics[PREFIX + "event-processing-time-ms-max"]) == 200
    assert round(metrics[PREFIX + "batch-flush-time-ms-p50"]) == 100
    assert metrics[PREFIX + "consumer-group-rebalance-count"] == 3


def test_the_purgatory_is_where_answers_wait_for_replication() -> None:
    nodes = cluster(Costs(replication_s=0.25))
    sent(nodes, "group-1", 1.0)
    nodes.wake(2.0)
    metrics = nodes.metrics(nodes.find("group-1") or 0, 2.0)
    assert round(metrics[PREFIX + "event-purgatory-time-ms-max"]) == 250


def test_a_log_that_cannot_be_loaded_fails_its_partition_alone() -> None:
    partition = cluster().partition_for("group-1")
    nodes = cluster(unreadable=frozenset({partition}))
    node_id = nodes.find("group-1") or 0
    assert code(sent(nodes, "group-1", 1.0)) == ErrorCode.NOT_COORDINATOR
    assert nodes.metrics(node_id, 1.0)[PREFIX + "partition-count,state=failed"] == 1
    assert {
        code(sent(nodes, each, 1.0)) for each in GROUPS if nodes.partition_for(each) != partition
    } == {ErrorCode.NONE}


def test_what_is_configured_for_a_group_counts_at_every_node() -> None:
    nodes = cluster()
    request = m.AlterGroupConfigRequest(
        group_id="group-1", changes={"consumer.heartbeat.interval.ms": "7000"}
    )
    assert nodes.alter_config(request, 1.0).error_code == ErrorCode.NONE
    ticket = sent(nodes, "group-1", 1.0)
    assert isinstance(ticket.response, HeartbeatResponse)
    assert ticket.response.heartbeat_interval_ms == 7000


def test_sessions_end_while_nobody_asks() -> None:
    nodes = cluster()
    sent(nodes, "group-1", 1.0)
    assert nodes.next_wakeup() == 46.0
    nodes.wake(46.0)
    node_id = nodes.find("group-1") or 0
    named = nodes.metrics(node_id, 46.0)
    assert named[PREFIX + "consumer-group-count,state=empty"] == 1


def test_ids_that_coordinators_make_are_never_the_same() -> None:
    nodes = Coordinators(KIP_848, SETTINGS, TOPICS, (1, 2))
    seen = set()
    for now, group_id in enumerate([*GROUPS, *GROUPS]):
        if now == 12:
            nodes.crash(1, now)
        ticket = sent(nodes, group_id, now, member_id="")
        assert isinstance(ticket.response, HeartbeatResponse)
        assert ticket.response.error_code == ErrorCode.NONE
        seen.add(ticket.response.member_id)
    assert len(seen) == 24
