"""The event loop of a partition: who sees what when, and what a failed append leaves behind."""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import messages as m
from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.log import Log
from spark_groups.lab.coordinator.member import ReconciliationState
from spark_groups.lab.coordinator.profile import KAFKA_4_3
from spark_groups.lab.coordinator.records import Record
from spark_groups.lab.coordinator.settings import Settings
from spark_groups.lab.coordinator.shard import Shard
from spark_groups.lab.coordinator.topic_images import TopicsImage
from spark_groups.protocol.messages import HeartbeatRequest

EMPTY_GROUP = (
    Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(3)),
    Record(r.TargetMetadataKey("g"), r.TargetMetadataValue(3)),
    Record(r.OffsetCommitKey("g", "t", 0), r.OffsetCommitValue(7)),
)
LIST = m.ListGroupsRequest()
DELETE = m.DeleteGroupsRequest(group_id="g")


def shard_of(*batches: tuple[Record, ...]) -> Shard:
    log = Log()
    for each in batches:
        log.append(each)
    log.replicate()
    return Shard(KAFKA_4_3, Settings(), TopicsImage(), log, 0.0)


def listed(shard: Shard) -> list[str]:
    response = shard.ask(LIST, shard.now)
    assert isinstance(response, m.ListGroupsResponse)
    return [each.group_id for each in response.groups]


def test_a_write_is_answered_when_it_is_replicated_and_a_read_sees_it_only_then() -> None:
    shard = shard_of(EMPTY_GROUP)
    ticket = shard.submit(DELETE, 1.0)
    assert ticket.response is None
    assert shard.groups == {}
    reading = shard.submit(LIST, 1.0)
    assert isinstance(reading.response, m.ListGroupsResponse)
    assert [each.group_id for each in reading.response.groups] == ["g"]
    assert shard.replicate(1.1) == [ticket]
    assert ticket.response == m.DeleteGroupsResponse()
    assert listed(shard) == []


def test_an_answer_without_records_waits_for_what_it_may_have_seen() -> None:
    shard = shard_of(EMPTY_GROUP)
    first = shard.submit(DELETE, 1.0)
    second = shard.submit(DELETE, 1.0)
    assert second.response is None
    assert shard.replicate(1.1) == [first, second]
    assert second.response == m.DeleteGroupsResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)


def test_a_failed_append_leaves_everything_as_it_was() -> None:
    shard = shard_of(EMPTY_GROUP)
    twin = shard_of(EMPTY_GROUP)
    tickets = [shard.submit(DELETE, 1.0), shard.submit(DELETE, 1.0)]
    assert shard.fail_append(1.1) == tickets
    for each in tickets:
        assert each.response == m.DeleteGroupsResponse(
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
    assert shard.groups == twin.groups
    assert shard.log == twin.log


def test_a_new_shard_over_the_log_has_the_same_groups() -> None:
    shard = shard_of(EMPTY_GROUP)
    other = Shard(KAFKA_4_3, Settings(), TopicsImage(), shard.log, 5.0)
    assert other.groups == shard.groups


def test_a_new_shard_looks_up_the_patterns_that_another_one_looked_up() -> None:
    pattern = Record(r.RegularExpressionKey("g", "t.*"), r.RegularExpressionValue((), 0, 1.0))
    member = Record(
        r.MemberMetadataKey("g", "m"), r.MemberMetadataValue(subscribed_topic_regex="t.*")
    )
    current = r.CurrentAssignmentValue(
        member_epoch=3,
        previous_member_epoch=2,
        state=ReconciliationState.STABLE,
        assigned={},
        pending_revocation={},
    )
    has = Record(r.CurrentAssignmentKey("g", "m"), current)
    log = shard_of((*EMPTY_GROUP, member, has, pattern)).log
    shard = Shard(KAFKA_4_3, Settings(), TopicsImage(), log, 5.0)
    beat = HeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
    for now, looks_up in ((10.0, False), (20.0, True), (40.0, False)):
        shard.ask(beat, now)
        assert (shard.next_wakeup() == now) is looks_up
        shard.wake(now)
        shard.replicate(now)


def test_a_group_that_only_has_offsets_is_a_classic_one() -> None:
    shard = shard_of(EMPTY_GROUP[2:])
    response = shard.ask(LIST, 1.0)
    assert response == m.ListGroupsResponse(
        groups=(
            m.ListedGroup(
                group_id="g", protocol_type="", group_state="Empty", group_type="classic"
            ),
        )
    )


def test_a_group_with_members_is_not_deleted() -> None:
    member = Record(r.MemberMetadataKey("g", "m"), r.MemberMetadataValue())
    shard = shard_of(EMPTY_GROUP, (member,))
    assert shard.ask(DELETE, 1.0) == m.DeleteGroupsResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
