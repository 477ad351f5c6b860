"""How the member ids of earlier incarnations are released."""

from __future__ import annotations

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.messages import HeartbeatRequest, HeartbeatResponse, Node
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.group.requests.heartbeat import Releases

NODE = Node(1, "broker", 9092)


def released(*member_ids: str, instance_id: str | None = None) -> Releases:
    """Releases of a member that has begun to join."""
    subscription = Subscription.of_names("orders")
    config = MemberConfig(group_id="g", subscription=subscription, instance_id=instance_id)
    member = Member(config, lambda: "m1")
    member.join(0.0)
    coordinator = Coordinator(member, lambda _: None)
    coordinator.node = NODE
    releases = Releases(member, coordinator)
    for each in member_ids:
        releases.add(each)
    return releases


def answer(releases: Releases, code: ErrorCode = ErrorCode.NONE) -> None:
    releases.answered(due(releases), HeartbeatResponse(error_code=code), 1.0)


def due(releases: Releases) -> HeartbeatRequest:
    request = releases.next_request(1.0)
    assert request is not None
    return request


def shape(request: HeartbeatRequest) -> tuple[str, int, str | None]:
    return request.member_id, request.member_epoch, request.instance_id


def test_dynamic_member_is_released_for_good() -> None:
    assert released().next_request(1.0) is None
    releases = released("old")
    assert shape(due(releases)) == ("old", -1, None)
    answer(releases, ErrorCode.UNKNOWN_MEMBER_ID)
    assert releases.next_request(1.0) is None


def test_static_member_is_released_for_its_return() -> None:
    releases = released("old", instance_id="i1")
    assert shape(due(releases)) == ("old", -2, "i1")
    answer(releases)
    assert releases.next_request(1.0) is None


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])
def test_member_that_was_called_otherwise_is_released_by_its_member_id_alone(
    code: ErrorCode,
) -> None:
    releases = released("old", instance_id="i1")
    answer(releases, code)
    assert shape(due(releases)) == ("old", -1, None)
    answer(releases, ErrorCode.UNKNOWN_MEMBER_ID)
    assert releases.next_request(1.0) is None


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
)
def test_release_without_a_coordinator_is_sent_again_once_it_is_found(
    code: ErrorCode,
) -> None:
    releases = released("old")
    request = due(releases)
    answer(releases, code)
    assert releases.coordinator.node is None
    assert due(releases) == request


def test_ids_are_released_in_order() -> None:
    releases = released("old", "older")
    answer(releases)
    assert due(releases).member_id == "older"
