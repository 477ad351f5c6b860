"""How the member ids of earlier incarnations are released."""

from __future__ import annotations

import pytest

from spark_groups.client.releases import Releases
from spark_groups.errors import ErrorCode, Reaction
from spark_groups.protocol.messages import HeartbeatRequest, HeartbeatResponse

DONE = HeartbeatResponse()


def refused(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def shape(request: HeartbeatRequest) -> tuple[str, int, str | None]:
    return request.member_id, request.member_epoch, request.instance_id


def test_dynamic_member_is_released_for_good() -> None:
    releases = Releases("g", None)
    assert not releases
    releases.add("old")
    request = releases.next_request()
    assert shape(request) == ("old", -1, None)
    assert releases.is_one(request)
    assert releases.answered(request, refused(ErrorCode.UNKNOWN_MEMBER_ID)) is Reaction.ACCEPT
    assert not releases


def test_static_member_is_released_for_its_return() -> None:
    releases = Releases("g", "i1")
    releases.add("old")
    request = releases.next_request()
    assert shape(request) == ("old", -2, "i1")
    assert releases.answered(request, DONE) is Reaction.ACCEPT
    assert not releases


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])
def test_member_that_was_called_otherwise_is_released_by_its_member_id_alone(
    code: ErrorCode,
) -> None:
    releases = Releases("g", "i1")
    releases.add("old")
    releases.answered(releases.next_request(), refused(code))
    assert shape(releases.next_request()) == ("old", -1, None)
    releases.answered(releases.next_request(), refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert not releases


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Reaction.RETRY),
        (ErrorCode.NOT_COORDINATOR, Reaction.REDISCOVER),
    ],
)
def test_release_that_finds_nobody_home_is_sent_again(code: ErrorCode, reaction: Reaction) -> None:
    releases = Releases("g", None)
    releases.add("old")
    request = releases.next_request()
    assert releases.answered(request, refused(code)) is reaction
    assert releases.next_request() == request


def test_only_what_is_under_way_is_one_of_them() -> None:
    releases = Releases("g", None)
    own = HeartbeatRequest(group_id="g", member_id="m1", member_epoch=3)
    assert not releases.is_one(own)
    releases.add("old")
    releases.add("older")
    assert not releases.is_one(own)
    releases.answered(releases.next_request(), DONE)
    assert releases.next_request().member_id == "older"
