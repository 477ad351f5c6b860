"""Client-side assignors, and targets computed by members: requested, installed, timed out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from group_lab.assignors.embedded import encode_subscription
from group_lab.coordinator import messages as m
from group_lab.coordinator.classic.messages import (
    ClassicProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from group_lab.coordinator.client_assignment import chosen, entry_of, readers, with_assignors
from group_lab.coordinator.effects import CoordinatorErrorCode, RefusedError, TimerKey, TimerKind
from group_lab.coordinator.log import Log
from group_lab.coordinator.member import ClassicMetadata, ClientAssignor, GroupMember
from group_lab.coordinator.messages import KipHeartbeatRequest
from group_lab.coordinator.profile import KIP_848
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.shard import Shard
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.errors import ErrorCode
from spark_groups.group.member.embedded import Subscription
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    DescribeGroupResponse,
    HeartbeatRequest,
)
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId

FOO = TopicImage(TopicId(int=1), "foo", 3)
TOPICS = TopicsImage.of([FOO])
STREAMS = ClientAssignor("streams", 0, 5, metadata_version=5, metadata=b"metadata")


def foo(*partitions: int) -> Assignment:
    return Assignment.of({FOO.topic_id: partitions})


class Group:
    """A group on a coordinator of its own; everything is replicated at once."""

    def __init__(self, *members: str, **join: Any) -> None:
        self.log = Log()
        self.now = 0.0
        self.shard = Shard(KIP_848, Settings(), TOPICS, self.log, 0.0)
        self.epochs: dict[str, int] = {}
        for each in members:
            self.join(each, **join)

    def beat(self, member_id: str, **fields: Any) -> m.KipHeartbeatResponse:
        """Heartbeat; as long as a member has epoch 0 each of its heartbeats is a join."""
        member_epoch = self.epochs.get(member_id, 0)
        if member_epoch == 0:
            return self.join(member_id, **fields)
        return self._ask(member_id, member_epoch=member_epoch, **fields)

    def join(self, member_id: str, **fields: Any) -> m.KipHeartbeatResponse:
        said = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ("foo",),
            "topic_partitions": NO_PARTITIONS,
            "client_assignors": (STREAMS,),
        }
        return self._ask(member_id, **(said | fields))

    def classic_join(self, instance_id: str, protocol: str) -> JoinGroupResponse:
        """Let a classic member join, which supports one assignor."""
        metadata = encode_subscription(Subscription(topics=("foo",), version=3))
        request = JoinGroupRequest(
            group_id="g",
            group_instance_id=instance_id,
            protocols=(ClassicProtocol(protocol, metadata),),
            session_timeout_ms=20_000,
            rebalance_timeout_ms=60_000,
        )
        ticket = self.shard.submit(request, self.now)
        self.shard.replicate(self.now)
        # The first members of a classic group are waited for.
        for _ in range(10):
            if ticket.response is None:
                self.elapse(1.0)
        assert isinstance(ticket.response, JoinGroupResponse), ticket
        assert ticket.response.error_code == 0
        return ticket.response

    def leave(self, member_id: str, member_epoch: int = -1, instance_id: str | None = None) -> None:
        request = m.KipHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=member_epoch, instance_id=instance_id
        )
        self.shard.ask(request, self.now)

    def _ask(self, member_id: str, **fields: Any) -> m.KipHeartbeatResponse:
        request = m.KipHeartbeatRequest(group_id="g", member_id=member_id, **fields)
        response = self.shard.ask(request, self.now)
        assert isinstance(response, m.KipHeartbeatResponse), response
        self.epochs[member_id] = response.member_epoch
        return response

    def prepare(self, member_id: str) -> m.PrepareAssignmentResponse:
        request = m.PrepareAssignmentRequest(
            group_id="g", member_id=member_id, member_epoch=self.epochs[member_id]
        )
        response = self.shard.ask(request, self.now)
        assert isinstance(response, m.PrepareAssignmentResponse)
        return response

    def install(
        self, member_id: str, group_epoch: int, targets: dict[str, Assignment], error: int = 0
    ) -> int:
        request = m.InstallAssignmentRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=self.epochs[member_id],
            group_epoch=group_epoch,
            error=error,
            members=tuple(
                m.InstalledMember(
                    member_id=each, partitions=target, metadata_version=5, metadata_bytes=b"given"
                )
                for each, target in targets.items()
            ),
        )
        response = self.shard.ask(request, self.now)
        assert isinstance(response, m.InstallAssignmentResponse)
        return response.error_code

    def targets(self) -> dict[str, Assignment]:
        return {each: value.partitions for each, value in self.shard.groups["g"].targets.items()}

    def elapse(self, seconds: float) -> None:
        self.now += seconds
        self.shard.wake(self.now)
        self.shard.replicate(self.now)


def test_a_member_is_asked_to_compute_and_its_target_is_reconciled() -> None:
    group = Group()
    joined = group.join("a")
    assert joined.should_compute_assignment
    assert joined.assignment == NO_PARTITIONS
    prepared = group.prepare("a")
    assert prepared == m.PrepareAssignmentResponse(
        group_epoch=1,
        assignor_name="streams",
        members=(
            m.PreparedMember(
                member_id="a",
                member_epoch=0,
                subscribed_topic_ids=frozenset({FOO.topic_id}),
                metadata_version=5,
                metadata_bytes=b"metadata",
            ),
        ),
        topics=(m.PreparedTopic(topic_id=FOO.topic_id, topic_name="foo", num_partitions=3),),
    )
    assert group.install("a", 1, {"a": foo(0, 1, 2)}) == ErrorCode.NONE
    answer = group.beat("a", topic_partitions=NO_PARTITIONS)
    assert answer.assignment == foo(0, 1, 2)
    assert (answer.metadata_version, answer.metadata_bytes) == (5, b"given")
    assert answer.member_epoch == 1
    assert not answer.should_compute_assignment
    assert group.shard.groups["g"].assignment_epoch == 1


def test_the_description_of_a_group_names_the_selected_assignor() -> None:
    group = Group("a")
    for selected, joins in (("streams", {}), ("uniform", {"client_assignors": ()})):
        group.join("b", **joins)
        described = group.shard.ask(DescribeGroupRequest(group_id="g"), group.now)
        assert isinstance(described, DescribeGroupResponse)
        assert described.assignor_name == selected


def described_results(group: Group) -> dict[str, tuple[m.AssignorResult, m.AssignorResult]]:
    """Return what a description has beside each assignment, and beside each target."""
    described = group.shard.ask(DescribeGroupRequest(group_id="g"), group.now)
    assert isinstance(described, DescribeGroupResponse)
    found = {}
    for each in described.members:
        assert isinstance(each, m.KipDescribedMember)
        found[each.member_id] = (each.assignor_result, each.target_assignor_result)
    return found


def test_a_description_has_the_metadata_and_the_error_of_the_assignor() -> None:
    group, nothing, given = Group("a"), m.AssignorResult(), m.AssignorResult(0, 5, b"given")
    assert described_results(group) == {"a": (nothing, nothing)}
    group.prepare("a")
    group.install("a", 1, {"a": foo(0, 1, 2)})
    assert described_results(group) == {"a": (nothing, given)}
    group.beat("a", topic_partitions=NO_PARTITIONS)
    assert described_results(group) == {"a": (given, given)}
    group.join("b")
    group.beat("a", topic_partitions=foo(0, 1, 2))
    chosen = "a" if group.beat("a").should_compute_assignment else "b"
    group_epoch = group.prepare(chosen).group_epoch
    group.install(chosen, group_epoch, {}, error=3)
    failed, untouched = replace(given, error=3), m.AssignorResult(3)
    assert described_results(group)["a"][1] == failed
    assert described_results(group)["b"] == (nothing, untouched)
    group.beat("a", topic_partitions=foo(0, 1, 2))
    assert described_results(group)["a"] == (failed, failed)


def test_only_the_chosen_member_is_asked_until_it_prepares() -> None:
    group = Group("a")
    assert not group.join("b").should_compute_assignment
    assert group.beat("a").should_compute_assignment
    group.prepare("a")
    assert not group.beat("a").should_compute_assignment


def test_a_result_for_an_older_epoch_is_installed_and_another_is_requested() -> None:
    group = Group("a")
    assert group.prepare("a").group_epoch == 1
    group.join("b")
    assert group.shard.groups["g"].group_epoch == 2
    assert group.install("a", 1, {"a": foo(0, 1, 2)}) == ErrorCode.NONE
    assert group.shard.groups["g"].assignment_epoch == 1
    assert group.targets() == {"a": foo(0, 1, 2)}
    assert group.beat("a", topic_partitions=NO_PARTITIONS).should_compute_assignment
    assert group.prepare("a").group_epoch == 2


def test_a_member_that_left_while_a_result_was_computed_gets_no_target() -> None:
    group = Group("a", "b")
    group_epoch = group.prepare("a").group_epoch
    group.leave("b")
    assert group.install("a", group_epoch, {"a": foo(0, 1), "b": foo(2)}) == ErrorCode.NONE
    assert group.targets() == {"a": foo(0, 1)}


def test_a_returned_static_member_gets_the_target_of_its_predecessor() -> None:
    group = Group("a")
    group.join("b", instance_id="i")
    group_epoch = group.prepare("a").group_epoch
    group.leave("b", -2, "i")
    group.join("c", instance_id="i")
    assert group.install("a", group_epoch, {"a": foo(0, 1), "b": foo(2)}) == ErrorCode.NONE
    assert group.targets() == {"a": foo(0, 1), "c": foo(2)}


@pytest.mark.parametrize(
    "targets",
    [
        {"a": foo(0, 1)},
        {"a": foo(0, 1, 2), "b": foo(2)},
        {"a": foo(0, 1, 2, 3)},
        {"a": foo(0, 1, 2), "unknown": NO_PARTITIONS},
        {"a": Assignment.of({TopicId(int=9): [0]}), "b": foo(0, 1, 2)},
        {},
    ],
    ids=["not all", "one twice", "one too many", "unknown member", "unknown topic", "nothing"],
)
def test_an_invalid_result_is_refused_and_another_member_is_asked(
    targets: dict[str, Assignment],
) -> None:
    group = Group("a", "b")
    group_epoch = group.prepare("a").group_epoch
    assert group.install("a", group_epoch, targets) == CoordinatorErrorCode.INVALID_ASSIGNMENT
    assert group.targets() == {}
    assert not group.beat("a").should_compute_assignment
    assert group.beat("b").should_compute_assignment
    assert group.install("a", group_epoch, {"a": foo(0, 1, 2)}) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_result_for_an_unprepared_epoch_is_refused() -> None:
    group = Group("a")
    assert group.install("a", 1, {"a": foo(0, 1, 2)}) == CoordinatorErrorCode.INVALID_ASSIGNMENT
    group.beat("a")
    group_epoch = group.prepare("a").group_epoch
    assert (
        group.install("a", group_epoch + 1, {"a": foo(0, 1, 2)})
        == CoordinatorErrorCode.INVALID_ASSIGNMENT
    )


def test_a_result_is_stale_once_a_classic_member_made_the_server_compute() -> None:
    group = Group("m1")
    prepared = group.prepare("m1")
    joined = group.classic_join("i1", "range")
    assert (prepared.group_epoch, joined.generation_id) == (1, 2)
    targets = group.targets()
    assert len(targets) == 2
    code = group.install("m1", prepared.group_epoch, {"m1": foo(0, 1, 2)})
    assert code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.shard.groups["g"].assignment_epoch == 2
    assert group.targets() == targets


def test_a_classic_member_with_the_same_assignor_keeps_the_computation() -> None:
    reads_all = (replace(STREAMS, minimum_version=-1),)
    group = Group("m1", client_assignors=reads_all)
    first = group.prepare("m1")
    joined = group.classic_join("i1", "streams")
    assert group.install("m1", first.group_epoch, {"m1": foo(0, 1, 2)}) == 0
    assert group.beat("m1", client_assignors=reads_all).should_compute_assignment
    second = group.prepare("m1")
    assert {each.member_id for each in second.members} == {"m1", joined.member_id}
    assert group.install("m1", 2, {"m1": foo(0, 1), joined.member_id: foo(2)}) == 0
    assert group.targets() == {"m1": foo(0, 1), joined.member_id: foo(2)}


def test_a_classic_group_of_client_side_assignors_is_migrated() -> None:
    """The last classic member is replaced, then the last one of the consumer protocol."""
    group = Group()
    reads_all = (replace(STREAMS, minimum_version=-1),)
    first = group.classic_join("i1", "streams")
    assert group.join("m1", client_assignors=reads_all).error_code == 0
    assert group.beat("m1").should_compute_assignment
    prepared = group.prepare("m1")
    assert {each.member_id for each in prepared.members} == {"m1", first.member_id}
    shares = {first.member_id: foo(0, 1), "m1": foo(2)}
    assert group.install("m1", prepared.group_epoch, shares) == 0
    group.join("m2", instance_id="i1", client_assignors=reads_all)
    assert {each.classic for each in group.shard.groups["g"].members.values()} == {None}
    assert group.targets() == {"m1": foo(2), "m2": foo(0, 1)}
    group.leave("m1")
    group.leave("m2")
    assert group.classic_join("i2", "streams").error_code == 0


def test_an_error_keeps_the_target_and_is_reported() -> None:
    group = Group("a")
    group.prepare("a")
    group.install("a", 1, {"a": foo(0, 1, 2)})
    group.beat("a", topic_partitions=NO_PARTITIONS)
    group.join("b")
    group.beat("a", topic_partitions=foo(0, 1, 2))
    chosen = "a" if group.beat("a").should_compute_assignment else "b"
    group_epoch = group.prepare(chosen).group_epoch
    assert group.install(chosen, group_epoch, {}, error=3) == ErrorCode.NONE
    assert group.targets() == {"a": foo(0, 1, 2)}
    answer = group.beat("a", topic_partitions=foo(0, 1, 2))
    assert answer.assignment_error == 3
    assert answer.member_epoch == group_epoch
    assert not answer.should_compute_assignment


def test_after_a_timeout_another_member_is_asked_and_none_is_fenced() -> None:
    group = Group("a", "b")
    assert group.beat("a").should_compute_assignment
    group.prepare("a")
    group.elapse(9.0)
    assert not group.beat("b").should_compute_assignment
    group.elapse(1.1)
    assert not group.beat("a").should_compute_assignment
    assert group.beat("b").should_compute_assignment
    assert group.prepare("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.prepare("b").error_code == ErrorCode.NONE


def test_the_timeout_starts_when_the_member_is_asked() -> None:
    group = Group("a", "b")
    group.elapse(10.1)
    group.elapse(8.0)
    assert group.beat("b").should_compute_assignment
    group.elapse(8.0)
    assert group.beat("b").should_compute_assignment
    assert not group.beat("a").should_compute_assignment


def test_when_the_chosen_member_leaves_another_one_is_asked() -> None:
    group = Group("a", "b")
    group.leave("a")
    assert group.beat("b").should_compute_assignment


def test_when_the_chosen_member_leaves_its_computation_ends() -> None:
    """Also if no heartbeat follows: here the group becomes a classic one."""
    group = Group("a")
    group.prepare("a")
    computing = TimerKey(TimerKind.CLIENT_ASSIGNMENT, "g")
    assert group.shard.timer(computing)
    group.leave("a")
    assert group.shard.timer(computing) is None
    group.classic_join("i1", "range")
    assert group.shard.timer(computing) is None


def test_a_new_coordinator_asks_again() -> None:
    group = Group("a", "b")
    group.prepare("a")
    group.shard = Shard(KIP_848, Settings(), TOPICS, group.log, group.now)
    assert group.prepare("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("b").should_compute_assignment


def test_a_failed_append_undoes_its_computation() -> None:
    group = Group()
    request = m.KipHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=("foo",),
        topic_partitions=NO_PARTITIONS,
        client_assignors=(STREAMS,),
    )
    group.shard.submit(request, 0.0)
    group.shard.fail_append(0.0)
    assert group.shard.groups == {}
    group.elapse(11.0)
    assert group.join("b").should_compute_assignment


def test_the_server_computes_without_a_common_assignor() -> None:
    group = Group("a")
    group.prepare("a")
    group.join("b", client_assignors=None)
    assert group.shard.groups["g"].assignment_epoch == 2
    assert sorted(map(len, group.targets().values())) == [1, 2]
    assert group.install("a", 1, {"a": foo(0, 1, 2)}) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "changed",
    [
        ClientAssignor("streams", 0, 5, reason=2, metadata_version=5, metadata=b"metadata"),
        ClientAssignor("streams", 0, 5, metadata_version=5, metadata=b"else"),
        ClientAssignor("streams", 0, 6, metadata_version=5, metadata=b"metadata"),
    ],
    ids=["reason", "metadata", "versions"],
)
def test_changed_client_assignors_bump_the_group_epoch(changed: ClientAssignor) -> None:
    group = Group("a")
    group.beat("a", client_assignors=(STREAMS,))
    assert group.shard.groups["g"].group_epoch == 1
    group.beat("a", client_assignors=(changed,))
    assert group.shard.groups["g"].group_epoch == 2


def test_requests_are_checked_in_the_order_of_the_kip() -> None:
    group = Group("a")
    shard = group.shard

    def code(group_id: str, member_id: str, member_epoch: int) -> int:
        request = m.PrepareAssignmentRequest(
            group_id=group_id, member_id=member_id, member_epoch=member_epoch
        )
        response = shard.ask(request, 0.0)
        assert isinstance(response, m.PrepareAssignmentResponse)
        return response.error_code

    assert code("", "a", 0) == ErrorCode.INVALID_REQUEST
    assert code("g", "", 0) == ErrorCode.INVALID_REQUEST
    assert code("g", "a", -1) == ErrorCode.INVALID_REQUEST
    assert code("other", "a", 0) == ErrorCode.GROUP_ID_NOT_FOUND
    assert code("g", "b", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code("g", "a", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert code("g", "a", 0) == ErrorCode.NONE


def test_a_timeout_is_repeated_after_a_failed_append() -> None:
    group = Group("a", "b")
    assert group.beat("a").should_compute_assignment
    leave = m.KipHeartbeatRequest(group_id="g", member_id="b", member_epoch=-1)
    group.shard.submit(leave, 9.9)
    group.shard.wake(10.0)
    group.shard.fail_append(10.0)
    group.now = 10.2
    assert group.beat("a").should_compute_assignment
    group.elapse(0.5)
    assert group.beat("b").should_compute_assignment


def test_a_static_member_at_epoch_0_may_wait_for_its_target() -> None:
    group = Group("a")
    group.join("b", instance_id="i")
    assert group.prepare("a").group_epoch == 2
    group.join("b", instance_id="i")
    group.install("a", 2, {"a": foo(0, 1), "b": foo(2)})
    assert group.join("b", instance_id="i").assignment == foo(2)


def assignor(
    name: str = "s", least: int = 0, greatest: int = 0, used: int | None = None
) -> ClientAssignor:
    version = greatest if used is None else used
    return ClientAssignor(name, least, greatest, metadata_version=version)


def member(
    member_id: str, *assignors: ClientAssignor, instance_id: str | None = None
) -> GroupMember:
    return GroupMember(member_id=member_id, client_assignors=assignors, instance_id=instance_id)


def group(*members: GroupMember) -> dict[str, GroupMember]:
    return {each.member_id: each for each in members}


def heartbeat(
    *assignors: ClientAssignor, server_assignor: str | None = None
) -> KipHeartbeatRequest:
    return KipHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        client_assignors=assignors,
        server_assignor=server_assignor,
    )


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (assignor(""), "Name"),
        (assignor("s", -2, 1), "MinimumVersion"),
        (assignor("s", -1, -1), "MaximumVersion"),
        (assignor("s", 3, 2), "MaximumVersion"),
        (assignor("s", 1, 2, used=3), "Version"),
        (assignor("s", 1, 2, used=0), "Version"),
    ],
)
def test_an_invalid_assignor_is_an_invalid_request(bad: ClientAssignor, word: str) -> None:
    with pytest.raises(RefusedError) as caught:
        with_assignors(member("a"), heartbeat(assignor("fine"), bad), {})
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert f"Assignor.{word}" in (caught.value.message or "")


def test_the_least_versions_that_are_allowed() -> None:
    lowest = assignor("s", -1, 0, used=-1)
    assert with_assignors(member("a"), heartbeat(lowest), {}).client_assignors == (lowest,)


def test_a_server_assignor_beside_those_of_the_member_is_refused() -> None:
    with pytest.raises(RefusedError) as caught:
        with_assignors(member("a"), heartbeat(assignor(), server_assignor="range"), {})
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_null_keeps_the_assignors_and_equal_ones_change_nothing() -> None:
    before = member("a", assignor())
    plain = HeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    unchanged = KipHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    assert with_assignors(before, plain, {}) is before
    assert with_assignors(before, unchanged, {}) is before
    assert with_assignors(before, heartbeat(assignor()), {}) is before
    assert with_assignors(before, heartbeat(), {}).client_assignors == ()


@pytest.mark.parametrize(
    ("least", "greatest", "is_taken"),
    [(0, 1, False), (0, 2, True), (3, 3, True), (4, 9, True), (5, 9, False), (0, 9, True)],
)
def test_versions_have_to_overlap_with_every_other_member(
    least: int, greatest: int, is_taken: bool
) -> None:
    members = group(member("a", assignor("s", 9, 9)), member("b", assignor("s", 2, 4)))
    request = heartbeat(assignor("s", least, greatest), assignor("other", 7, 7))
    if is_taken:
        assert (
            with_assignors(members["a"], request, members).client_assignors
            == request.client_assignors
        )
        return
    with pytest.raises(RefusedError) as caught:
        with_assignors(members["a"], request, members)
    assert caught.value.code == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_static_member_is_not_compared_with_its_predecessor() -> None:
    members = group(member("old", assignor("s", 1, 1), instance_id="i"))
    joiner = member("a", instance_id="i")
    assert with_assignors(joiner, heartbeat(assignor("s", 2, 2)), members).client_assignors


def test_the_common_assignor_that_most_prefer_is_used() -> None:
    x, y, z = assignor("x"), assignor("y"), assignor("z")
    assert chosen({}) is None
    assert chosen(group(member("a"))) is None
    assert chosen(group(member("a", x), member("b"))) is None
    assert chosen(group(member("a", x), member("b", y))) is None
    assert chosen(group(member("a", x, y), member("b", y))) == "y"
    assert chosen(group(member("a", z, y, x), member("b", y, x), member("c", x, y))) == "y"
    assert chosen(group(member("a", y, x), member("b", y, x), member("c", x, y))) == "y"


def test_the_member_that_computes_handles_all_versions_of_the_others() -> None:
    # The example of the KIP: A [1-5], B [3-4], C [2-4].
    members = group(
        member("A", assignor("s", 1, 5)),
        member("B", assignor("s", 3, 4)),
        member("C", assignor("s", 2, 4)),
    )
    assert readers(members, "s") == ["A"]
    assert chosen(members) == "s"


def test_if_no_member_handles_all_versions_one_that_reads_all_metadata_computes() -> None:
    members = group(member("A", assignor("s", 1, 3)), member("B", assignor("s", 2, 4)))
    assert readers(members, "s") == ["B"]
    members = group(member("A", assignor("s", 1, 3, 2)), member("B", assignor("s", 2, 4, 3)))
    assert readers(members, "s") == ["A", "B"]


def test_an_assignor_that_no_member_can_run_is_not_used() -> None:
    unreadable = (assignor("s", 1, 3, 1), assignor("s", 2, 4, 4))
    members = group(*(member(name, each) for name, each in zip("AB", unreadable, strict=True)))
    assert chosen(members) is None
    other = assignor("t")
    members = group(
        *(member(name, each, other) for name, each in zip("AB", unreadable, strict=True))
    )
    assert chosen(members) == "t"


def test_the_entry_of_an_assignor() -> None:
    assert entry_of(member("a", assignor("x"), assignor("s", 1, 2)), "s") == assignor("s", 1, 2)
    assert entry_of(member("a"), "s") == ClientAssignor("s")


def classic(member_id: str, metadata: bytes = b"") -> GroupMember:
    """Return a member whose classic protocol is `streams`, with metadata."""
    return GroupMember(
        member_id=member_id,
        client_assignors=(
            ClientAssignor("streams", -1, -1, metadata_version=-1, metadata=metadata),
        ),
        classic=ClassicMetadata(10_000, (ClassicProtocol("streams"),)),
    )


@pytest.mark.parametrize(
    ("least", "metadata", "is_refused"), [(-1, b"old", False), (0, b"old", True), (0, b"", False)]
)
def test_metadata_of_classic_members_has_version_minus_1(
    least: int, metadata: bytes, *, is_refused: bool
) -> None:
    own = ClientAssignor("streams", least, 5, metadata_version=5)
    request = KipHeartbeatRequest(
        group_id="g", member_id="m1", member_epoch=0, client_assignors=(own,)
    )
    others = {"k1": classic("k1", metadata)}
    if is_refused:
        with pytest.raises(RefusedError, match="must support version -1") as refused:
            with_assignors(GroupMember(member_id="m1"), request, others)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        return
    member = with_assignors(GroupMember(member_id="m1"), request, others)
    members = {**others, "m1": member}
    # Only a member that reads the metadata of all computes, and never a classic one.
    assert readers(members, "streams") == (["m1"] if least == -1 else [])
    assert chosen(members) == ("streams" if least == -1 else None)
    assert chosen(others) is None
