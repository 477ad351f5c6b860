"""Assignors that members bring: what is refused, which is used, who may run it."""

from __future__ import annotations

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.client_assignors import brought_by, chosen, readers, told
from spark_groups.lab.coordinator.member import ClientAssignor, GroupMember
from spark_groups.lab.coordinator.messages import KipHeartbeatRequest
from spark_groups.lab.coordinator.refusal import RefusedError
from spark_groups.protocol.messages import HeartbeatRequest


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
def test_an_assignor_that_makes_no_sense_is_an_invalid_request(
    bad: ClientAssignor, word: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        told(member("a"), heartbeat(assignor("fine"), bad), {})
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert f"Assignor.{word}" in (caught.value.message or "")


def test_the_least_versions_that_are_allowed() -> None:
    lowest = assignor("s", -1, 0, used=-1)
    assert told(member("a"), heartbeat(lowest), {}).client_assignors == (lowest,)


def test_a_server_assignor_beside_those_of_the_member_is_refused() -> None:
    with pytest.raises(RefusedError) as caught:
        told(member("a"), heartbeat(assignor(), server_assignor="range"), {})
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_what_is_not_said_stays_and_what_is_the_same_changes_nothing() -> None:
    before = member("a", assignor())
    plain = HeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    unchanged = KipHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    assert told(before, plain, {}) is before
    assert told(before, unchanged, {}) is before
    assert told(before, heartbeat(assignor()), {}) is before
    assert told(before, heartbeat(), {}).client_assignors == ()


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
        assert told(members["a"], request, members).client_assignors == request.client_assignors
        return
    with pytest.raises(RefusedError) as caught:
        told(members["a"], request, members)
    assert caught.value.code == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_static_member_is_not_compared_with_the_one_whose_place_it_takes() -> None:
    members = group(member("old", assignor("s", 1, 1), instance_id="i"))
    joiner = member("a", instance_id="i")
    assert told(joiner, heartbeat(assignor("s", 2, 2)), members).client_assignors


def test_of_the_assignors_that_all_have_the_one_that_most_prefer_is_used() -> None:
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


def test_where_nobody_handles_all_versions_who_reads_all_metadata_computes() -> None:
    members = group(member("A", assignor("s", 1, 3)), member("B", assignor("s", 2, 4)))
    assert readers(members, "s") == ["B"]
    members = group(member("A", assignor("s", 1, 3, 2)), member("B", assignor("s", 2, 4, 3)))
    assert readers(members, "s") == ["A", "B"]


def test_an_assignor_that_nobody_can_run_is_not_used() -> None:
    unreadable = (assignor("s", 1, 3, 1), assignor("s", 2, 4, 4))
    members = group(*(member(name, each) for name, each in zip("AB", unreadable, strict=True)))
    assert chosen(members) is None
    other = assignor("t")
    members = group(
        *(member(name, each, other) for name, each in zip("AB", unreadable, strict=True))
    )
    assert chosen(members) == "t"


def test_what_a_member_brought() -> None:
    assert brought_by(member("a", assignor("x"), assignor("s", 1, 2)), "s") == assignor("s", 1, 2)
    assert brought_by(member("a"), "s") == ClientAssignor("s")
