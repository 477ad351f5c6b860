"""Kafka Streams as a client-side assignor: targets, metadata, errors, and what members report."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from random import Random

import pytest

from group_lab.assignors.partition_assignor import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    GroupAssignment,
    MemberAssignment,
    Metadata,
)
from group_lab.assignors.streams import GROWTHS_OF_A_FAILURE, StreamsAssignor, Subtopology, Topology
from group_lab.assignors.streams_metadata import (
    AssignmentMetadata,
    MemberReason,
    StreamsError,
    TaskId,
    decode_assignment_metadata,
    decode_member,
    encode_assignment_metadata,
)
from group_lab.assignors.streams_placement import StreamsConfig
from lab.tests.assignors.groups import has, topic_id
from spark_groups.errors import ProtocolError
from spark_groups.types import NO_PARTITIONS, Assignment

LIMIT = 100
TOPOLOGY = Topology((Subtopology(("t", "u")), Subtopology(("v",), is_stateful=False)))
TOPICS = {"t": 2, "u": 3, "v": 1}
EVERYTHING = has(t=[0, 1], u=[0, 1, 2], v=[0])
WARM = TaskId(0, 0)


def assignor(process: int, topology: Topology = TOPOLOGY, **config: int) -> StreamsAssignor:
    known = {"acceptable_recovery_lag": LIMIT, "max_warmup_replicas": 1, **config}
    return StreamsAssignor(
        uuid.UUID(int=process), topology, StreamsConfig(**known), f"host{process}".encode()
    )


class Group:
    """Members with an assignor, and their targets; any of them computes for all."""

    def __init__(self, **members: StreamsAssignor) -> None:
        self.members = members
        self.targets: dict[str, Assignment] = {}
        self.topics = dict(TOPICS)

    def spec(self) -> AssignmentSpec:
        topics = frozenset(map(topic_id, self.topics))
        return AssignmentSpec(
            {
                member_id: AssignmentMemberSpec(
                    topics,
                    reason=(own := each.metadata()).reason,
                    metadata=own.metadata,
                    target=self.targets.get(member_id, NO_PARTITIONS),
                )
                for member_id, each in self.members.items()
            },
            {topic_id(name): AssignmentTopicMetadata(name, n) for name, n in self.topics.items()},
        )

    def compute(self, member_id: str) -> GroupAssignment:
        """Have a member compute, and install the result unless it is an error."""
        found = self.members[member_id].assign(self.spec())
        if not found.error:
            self.targets = {each: own.target for each, own in found.members.items()}
        for each, known in self.members.items():
            nothing = MemberAssignment(self.targets.get(each, NO_PARTITIONS))
            known.on_assignment(found.error, found.members.get(each, nothing), 1)
        return found


def test_a_task_has_a_partition_of_each_topic_of_its_subtopology() -> None:
    group = Group(a=assignor(1))
    found = group.compute("a")
    assert found.error == StreamsError.NONE
    assert group.targets == {"a": EVERYTHING}
    assert group.members["a"].assigned == AssignmentMetadata(
        active_tasks=(TaskId(0, 0), TaskId(0, 1), TaskId(0, 2), TaskId(1, 0)),
        partitions_by_host={b"host1": EVERYTHING},
    )


def test_a_task_warms_up_and_then_moves_with_all_its_partitions() -> None:
    group = Group(a=assignor(1))
    group.compute("a")
    group.members["b"] = assignor(2)
    group.compute("b")
    assert group.targets == {"a": has(t=[0, 1], u=[0, 1, 2]), "b": has(v=[0])}, "v has no state"
    assert group.members["b"].assigned.warmup_tasks == {WARM: has(t=[0], u=[0])}
    group.members["b"].measure({WARM: LIMIT})
    group.compute("a")
    assert group.targets == {"a": has(t=[1], u=[1, 2]), "b": has(t=[0], u=[0], v=[0])}
    assert group.members["b"].assigned == AssignmentMetadata(
        active_tasks=(WARM, TaskId(1, 0)),
        partitions_by_host={b"host1": group.targets["a"], b"host2": group.targets["b"]},
    )


def test_standbys_are_in_the_metadata_with_their_input() -> None:
    group = Group(a=assignor(1, num_standby_replicas=1), b=assignor(2))
    group.compute("a")
    active = {each for each in group.members["a"].assigned.active_tasks if not each.subtopology}
    standby = group.members["b"].assigned.standby_tasks
    assert standby.keys() == active
    assert all(each.partitions for each in standby.values())


@pytest.mark.parametrize(("grows", "other"), [("t", "u"), ("u", "t")])
def test_a_growing_topic_leaves_tasks_where_they_are(grows: str, other: str) -> None:
    """One partition of task 0_2 is new, the other one has an owner."""
    group = Group(a=assignor(1), b=assignor(2), c=assignor(3))
    group.topics |= {grows: 3, other: 3}
    before = {"a": has(t=[0], u=[0]), "b": has(t=[1], u=[1]), "c": has(v=[0])}
    group.targets = before | {"b": before["b"] | has(**{other: [2]})}
    group.compute("a")
    assert group.targets == before | {"b": has(t=[1, 2], u=[1, 2])}


def test_an_instance_has_the_partitions_of_all_its_members() -> None:
    group = Group(a=assignor(1), b=assignor(1), c=assignor(2))
    group.compute("a")
    assert all(group.targets.values())
    by_host = group.members["a"].assigned.partitions_by_host
    assert by_host[b"host1"] == group.targets["a"] | group.targets["b"]
    assert by_host[b"host2"] == group.targets["c"]


def test_an_instance_without_an_end_point_is_not_listed() -> None:
    group = Group(a=StreamsAssignor(uuid.UUID(int=1), TOPOLOGY))
    group.compute("a")
    assert group.members["a"].assigned.partitions_by_host == {}


def test_after_a_failed_warm_up_another_task_warms_up() -> None:
    group = Group(a=assignor(1))
    group.compute("a")
    group.members["b"] = assignor(2)
    group.compute("b")
    for lag in range(LIMIT + 1, LIMIT + 3 + GROWTHS_OF_A_FAILURE):
        group.members["b"].measure({WARM: lag})
    group.compute("b")
    assert group.members["b"].assigned.warmup_tasks.keys() == {TaskId(0, 1)}


def test_members_with_different_topologies_get_an_error() -> None:
    group = Group(a=assignor(1), b=assignor(2, Topology((Subtopology(("t", "u", "v")),))))
    assert group.compute("a") == GroupAssignment(error=StreamsError.INCONSISTENT_TOPOLOGY)
    group.members["a"].deploy(group.members["b"].topology)
    assert group.members["a"].metadata().reason == MemberReason.TOPOLOGY_CHANGED
    assert group.compute("a").error == StreamsError.NONE


@pytest.mark.parametrize("topics", [{"t": 2, "u": 3}, {**TOPICS, "w": 1}])
def test_topics_that_are_not_those_of_the_topology_are_an_error(topics: dict[str, int]) -> None:
    group = Group(a=assignor(1))
    group.topics = topics
    assert group.compute("a").error == StreamsError.ASSIGNMENT_ERROR


def test_metadata_that_cannot_be_read_is_an_error() -> None:
    group = Group(a=assignor(1))
    broken = AssignmentMemberSpec(frozenset(), metadata=Metadata(0, b"?"))
    spec = AssignmentSpec({**group.spec().members, "b": broken}, group.spec().topics)
    assert group.members["a"].assign(spec) == GroupAssignment(error=StreamsError.ASSIGNMENT_ERROR)
    with pytest.raises(ProtocolError):
        group.members["a"].on_assignment(0, MemberAssignment(metadata=Metadata(0, b"?")), 1)


def test_a_member_shuts_the_application_down() -> None:
    group = Group(a=assignor(1), b=assignor(2))
    group.compute("a")
    targets = group.targets
    group.members["b"].shut_down()
    assert group.compute("a") == GroupAssignment(error=StreamsError.SHUTDOWN)
    assert [each.error for each in group.members.values()] == [StreamsError.SHUTDOWN] * 2
    assert group.targets == targets


REPLICA = {WARM: has(t=[0])}


def warming(assigned: AssignmentMetadata | None = None) -> StreamsAssignor:
    """Return the assignor of a member that has a replica, a warm-up by default."""
    found = assignor(2)
    data = encode_assignment_metadata(assigned or AssignmentMetadata(warmup_tasks=REPLICA))
    found.on_assignment(0, MemberAssignment(metadata=Metadata(0, data)), 1)
    return found


def reported(member: StreamsAssignor) -> tuple[MemberReason, Mapping[TaskId, int]]:
    own = member.metadata()
    return MemberReason(own.reason), decode_member(own.metadata.data).task_lag


@pytest.mark.parametrize(
    "assigned",
    [AssignmentMetadata(warmup_tasks=REPLICA), AssignmentMetadata(standby_tasks=REPLICA)],
    ids=["warm-up", "standby"],
)
def test_a_lag_is_reported_when_the_replica_has_caught_up_and_not_before(
    assigned: AssignmentMetadata,
) -> None:
    member = warming(assigned)
    other = TaskId(0, 1)
    for lag in (5_000, 900, LIMIT + 1):
        before = member.metadata()
        member.measure({WARM: lag, other: 7})
        assert member.metadata() == before
    member.measure({WARM: LIMIT, other: 8})
    assert reported(member) == (MemberReason.WARM_UP_READY, {WARM: LIMIT, other: 8})
    member.measure({WARM: 0, other: 0})
    assert reported(member) == (MemberReason.WARM_UP_READY, {WARM: LIMIT, other: 8})


def test_a_member_joins_with_the_lags_of_the_state_on_its_disk() -> None:
    lags = {WARM: 7}
    member = StreamsAssignor(uuid.UUID(int=1), TOPOLOGY, lags=lags)
    assert reported(member) == (MemberReason.NONE, lags)
    member.shut_down()
    assert reported(member) == (MemberReason.SHUTDOWN, lags)


def test_a_task_that_is_no_replica_is_no_reason() -> None:
    member = warming()
    member.measure({TaskId(0, 1): 0})
    assert reported(member) == (MemberReason.NONE, {})


def test_a_lag_that_only_grows_is_reported_once() -> None:
    member = warming()
    lags = [LIMIT + 1 + each for each in range(GROWTHS_OF_A_FAILURE + 3)]
    seen = []
    for lag in lags:
        member.measure({WARM: lag})
        seen.append(reported(member)[1].get(WARM))
    failed_at = lags[GROWTHS_OF_A_FAILURE]
    assert seen == [None] * GROWTHS_OF_A_FAILURE + [failed_at] * 3
    assert reported(member)[0] == MemberReason.WARM_UP_FAILED


def test_a_lag_that_sinks_in_between_or_is_small_does_not_fail() -> None:
    member = warming()
    for lag in (200, 300, 400, 390, 500, 600):
        member.measure({WARM: lag})
    assert reported(member)[0] == MemberReason.NONE
    member.measure({WARM: 10})
    for lag in (20, 30, 40, 50):
        member.measure({WARM: lag})
    assert reported(member) == (MemberReason.WARM_UP_READY, {WARM: 10})


@pytest.mark.parametrize("seed", range(20))
def test_in_drawn_histories_every_partition_has_one_owner_that_knows_its_tasks(seed: int) -> None:
    chance = Random(seed)
    group = Group(a=assignor(1))
    for step in range(20):
        joins = len(group.members) < 2 or chance.random() < 0.4
        if joins:
            standbys = chance.randint(0, 1)
            group.members[f"m{step}"] = assignor(
                chance.randint(1, 5), num_standby_replicas=standbys
            )
        elif chance.random() < 0.3:
            left = chance.choice(sorted(group.members))
            del group.members[left]
            group.targets.pop(left, None)
        found = group.compute(chance.choice(sorted(group.members)))
        owned = [partition for each in group.targets.values() for partition in each]
        assert sorted(owned) == sorted(EVERYTHING)
        for member_id, own in found.members.items():
            tasks = decode_assignment_metadata(own.metadata.data)
            numbers = {(each.subtopology, each.partition) for each in tasks.active_tasks}
            named = {topic_id(name): (name == "v") + 0 for name in TOPICS}
            assert {(named[each.topic_id], each.partition) for each in own.target} == numbers
            assert own.metadata.version == group.members[member_id].metadata().metadata.version
            replicas = {*tasks.standby_tasks, *tasks.warmup_tasks}
            group.members[member_id].measure(
                {each: chance.randint(0, 2 * LIMIT) for each in replicas}
            )
