"""The group's coordinator on its nodes: answers after replication, failover, lost records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_lab.coordinator.metrics import PREFIX
from group_lab.coordinator.shard import Origin
from group_lab.sim.coordination import AcceptedOffset, Coordination, Watch
from group_lab.sim.scene import Scene
from group_lab.sim.swarm import Swarm
from lab.tests.sim.scenes import scene
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import NO_PARTITIONS

JOIN = m.HeartbeatRequest(
    group_id="g",
    member_id="m1",
    member_epoch=0,
    rebalance_timeout_ms=10_000,
    subscribed_topic_names=("orders1",),
    topic_partitions=NO_PARTITIONS,
)


class Asked:
    """A scene whose coordinator is asked by hand."""

    def __init__(
        self, profile: str = "kafka-4.2", seed: int = 1, *, swarm: Swarm | None = None
    ) -> None:
        self.scene: Scene = scene(swarm or Swarm(partitions=2), profile, seed)
        self.coordination: Coordination = self.scene.coordination
        self.answers: list[m.Response | None] = []
        self.committed: list[AcceptedOffset] = []
        self.coordination.watch = Watch(committed=self.committed.append)

    def ask(self, request: m.Request, code: int = 0, *, wait: bool = True) -> None:
        channel = Channel.HEARTBEAT if isinstance(request, m.HeartbeatRequest) else Channel.OFFSETS
        outgoing = Outgoing(channel, request, self.coordination.node)
        self.coordination.serve(outgoing, Origin(), code, self.answers.append)
        if wait:
            self.pass_time(self.coordination.replication_s)

    def pass_time(self, seconds: float) -> None:
        self.scene.schedule.run_until(self.scene.now + seconds)

    def commit(self, committed_offset: int, member_id: str = "m1", *, wait: bool = True) -> None:
        key = sorted(self.scene.storage.logs)[0]
        member = self.coordination.group.members["m1"]
        request = m.OffsetCommitRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=member.member_epoch,
            offsets={key: m.OffsetAndMetadata(committed_offset)},
        )
        self.ask(request, wait=wait)


def test_an_answer_waits_until_its_records_are_replicated() -> None:
    asked = Asked()
    asked.ask(JOIN, wait=False)
    assert asked.answers == []
    asked.pass_time(asked.coordination.replication_s)
    (answer,) = asked.answers
    assert isinstance(answer, m.HeartbeatResponse)
    assert answer.member_epoch == 1
    assert {asked.coordination.holder(key) for key in asked.scene.storage.logs} == {"m1"}


def test_an_accepted_offset_is_reported_with_the_previous_one() -> None:
    asked = Asked()
    asked.ask(JOIN)
    asked.commit(3)
    asked.commit(7)
    asked.commit(9, "stranger")
    key = sorted(asked.scene.storage.logs)[0]
    assert [(each.before, each.committed_offset) for each in asked.committed] == [(None, 3), (3, 7)]
    assert {each.holder for each in asked.committed} == {"m1"}
    assert asked.coordination.committed(key) == 7


def test_another_node_answers_from_the_log_once_it_has_read_it() -> None:
    asked = Asked()
    asked.ask(JOIN)
    asked.commit(3)
    before = asked.coordination.group
    old = asked.coordination.node
    asked.coordination.move(0.5, crash=False)
    asked.ask(JOIN)
    assert asked.answers[-1] == m.HeartbeatResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    asked.pass_time(0.5)
    assert asked.coordination.node != old
    assert asked.coordination.group == before
    outgoing = Outgoing(Channel.HEARTBEAT, JOIN, old)
    asked.coordination.serve(outgoing, Origin(), 0, asked.answers.append)
    assert asked.answers[-1] == m.HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)


def test_a_crash_may_lose_unreplicated_records_and_sends_no_answer() -> None:
    outcomes = set()
    for seed in range(20):
        asked = Asked(seed=seed)
        asked.ask(JOIN)
        asked.commit(3)
        asked.commit(8, wait=False)
        asked.coordination.move(0.0, crash=True)
        assert asked.answers[-1] is None
        asked.pass_time(1.0)
        found = asked.coordination.committed(sorted(asked.scene.storage.logs)[0])
        assert asked.committed[-1].committed_offset == found
        outcomes.add(found)
    assert outcomes == {3, 8}


def test_a_node_dies_between_an_append_and_its_replication() -> None:
    asked = Asked()
    asked.ask(JOIN)
    asked.coordination.die_at_next_append(0.1)
    asked.pass_time(1.0)
    assert asked.coordination.node.node_id == 1, "nothing was appended"
    asked.commit(3)
    assert (asked.coordination.node.node_id, asked.answers[-1]) == (2, None)
    assert asked.coordination.former_node.node_id == 1
    asked.pass_time(1.0)
    asked.commit(4)
    assert asked.coordination.node.node_id == 2, "it dies once"


def test_a_log_that_takes_nothing_takes_everything_back() -> None:
    asked = Asked()
    asked.ask(JOIN)
    asked.coordination.failing_until = asked.scene.now + 1.0
    asked.commit(3)
    answer = asked.answers[-1]
    assert isinstance(answer, m.OffsetCommitResponse)
    assert set(answer.errors.values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert asked.committed == []
    asked.pass_time(1.0)
    asked.commit(3)
    assert len(asked.committed) == 1


def test_a_silent_member_is_removed_and_a_slow_one_is_noted() -> None:
    asked = Asked()
    asked.ask(JOIN)
    asked.pass_time(Swarm().session_s + 0.1)
    assert not asked.coordination.group.members
    assert not asked.coordination.removed_for_slowness
    asked.ask(JOIN)
    second = m.HeartbeatRequest(
        group_id="g",
        member_id="m2",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=("orders1",),
        topic_partitions=NO_PARTITIONS,
    )
    asked.ask(second)
    for _ in range(8):
        # m1 is to give a partition up, heartbeats, and never says that it did.
        member = asked.coordination.group.members.get("m1")
        if member is not None:
            alive = m.HeartbeatRequest(
                group_id="g", member_id="m1", member_epoch=member.member_epoch
            )
            asked.ask(alive)
        asked.pass_time(2.0)
    assert asked.coordination.removed_for_slowness == {"m1"}


def test_a_slow_member_is_noted_though_it_is_silent_for_nearly_a_session() -> None:
    asked = Asked(swarm=Swarm(partitions=2, session_s=10.5, replication_s=1.0))
    asked.ask(JOIN)
    asked.ask(replace(JOIN, member_id="m2"))
    asked.ask(m.HeartbeatRequest(group_id="g", member_id="m1", member_epoch=1))
    assert asked.coordination.group.members["m1"].pending_revocation
    asked.pass_time(10.1)
    assert "m1" not in asked.coordination.group.members
    assert asked.coordination.removed_for_slowness == {"m1"}


def test_a_returning_member_was_not_silent_while_it_was_away() -> None:
    asked = Asked()
    asked.ask(replace(JOIN, instance_id="i1"))
    asked.ask(
        m.HeartbeatRequest(group_id="g", member_id="m1", member_epoch=-2, instance_id="i1"),
    )
    asked.ask(replace(JOIN, member_id="m2", instance_id="i1"))
    assert asked.coordination.last_heartbeat_at.keys() == {"m2"}


@pytest.mark.parametrize(("profile", "may"), [("kafka-4.1", False), ("kafka-4.2", True)])
def test_offsets_by_name_are_forgotten_only_by_a_coordinator_that_is_there(
    profile: str, may: bool
) -> None:
    asked = Asked(profile)
    assert asked.coordination.forgets_deleted_topics
    asked.coordination.failing_until = asked.scene.now + 1.0
    assert asked.coordination.forgets_deleted_topics is may


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    asked = Asked("kafka-4.1")
    asked.ask(JOIN)
    asked.commit(3)
    key = sorted(asked.scene.storage.logs)[0]
    asked.scene.storage.delete("orders1")
    asked.coordination.topics_changed()
    asked.scene.storage.create("orders1", 2)
    asked.coordination.topics_changed()
    (new, *_) = sorted(asked.scene.storage.logs)
    assert asked.coordination.committed(key) is None
    assert asked.coordination.committed(new) is None


def test_its_metrics_are_those_of_its_profile() -> None:
    asked = Asked()
    asked.ask(JOIN)
    asked.commit(3)
    asked.coordination.move(0.5, crash=False)
    loading = asked.coordination.metrics()
    assert loading[PREFIX + "num-partitions,state=loading"] == 1
    asked.pass_time(1.0)
    named = asked.coordination.metrics()
    assert named[PREFIX + "num-partitions,state=active"] == 1
    assert named[PREFIX + "partition-load-time-max"] == 500
    assert named[PREFIX + "consumer-group-count,state=Stable"] == 1
    assert named[PREFIX + "consumer-group-rebalance-count"] == 1
    assert named[PREFIX + "offset-commit-count"] == 1
    waited_ms = named[PREFIX + "event-purgatory-time-ms-max"]
    assert 0 < waited_ms <= asked.coordination.replication_s * 1000


def test_a_write_that_is_rolled_back_counts_no_rebalance() -> None:
    asked = Asked()
    asked.coordination.failing_until = asked.scene.now + 1.0
    asked.ask(JOIN)
    named = asked.coordination.metrics()
    assert named[PREFIX + "consumer-group-rebalance-count"] == 0
    assert named[PREFIX + "event-purgatory-time-ms-max"] == 0
