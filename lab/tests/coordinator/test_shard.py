"""The event loop of a partition: visibility of writes, and failed appends."""

from __future__ import annotations

import copy

from group_lab.coordinator import messages as m
from group_lab.coordinator import records as r
from group_lab.coordinator.effects import Timer, TimerKey, TimerKind
from group_lab.coordinator.log import Log
from group_lab.coordinator.member import ReconciliationState
from group_lab.coordinator.profile import KAFKA_4_3
from group_lab.coordinator.records import Record
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.shard import Shard, Timers
from group_lab.coordinator.topic_images import TopicsImage
from lab.tests.coordinator.driving import FOO, TOPICS
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import NO_PARTITIONS, Assignment

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


def timer(member_id: str, at: float | None) -> Timer:
    return Timer(TimerKey(TimerKind.SESSION, "g", member_id), at)


def fired(timers: Timers, now: float) -> list[str]:
    members = []
    while due := timers.pop_due(now):
        members.append(due.key.member_id)
    return members


def test_due_timers_fire_in_order_and_those_of_one_instant_as_they_were_set() -> None:
    timers = Timers()
    for each in (timer("b", 2.0), timer("a", 1.0), timer("d", 3.0), timer("c", 2.0)):
        timers.put(each)
    assert timers.next_at() == 1.0
    assert fired(timers, 2.0) == ["a", "b", "c"]
    assert timers.next_at() == 3.0
    assert timers.get(timer("a", 0.0).key) is None


def test_a_timer_that_is_set_again_fires_once_and_a_stopped_one_never() -> None:
    timers = Timers()
    timers.put(timer("a", 1.0))
    timers.put(timer("b", 1.0))
    timers.put(timer("a", 5.0))
    timers.put(timer("b", None))
    assert fired(timers, 4.0) == []
    assert timers.next_at() == 5.0
    assert timers.get(timer("a", 0.0).key) == timer("a", 5.0)
    assert fired(timers, 5.0) == ["a"]
    assert timers.next_at() is None


def test_members_of_one_group_change_nothing_in_another() -> None:
    shard = Shard(KAFKA_4_3, Settings(), TOPICS, Log(), 0.0)

    def beat(group_id: str, member_id: str, member_epoch: int) -> HeartbeatResponse:
        is_join = member_epoch == 0
        request = HeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            rebalance_timeout_ms=60_000 if is_join else -1,
            subscribed_topic_names=("foo",) if is_join else None,
            topic_partitions=NO_PARTITIONS if is_join else None,
        )
        response = shard.ask(request, shard.now)
        assert isinstance(response, HeartbeatResponse)
        return response

    everything = Assignment.of({FOO: range(6)})
    assert beat("g", "m", 0).assignment == everything
    settled = copy.deepcopy(shard.groups["g"])
    # The same topic, and the same member id.
    assert beat("h", "m", 0).assignment == everything
    assert beat("h", "n", 0).error_code == ErrorCode.NONE
    assert beat("h", "m", -1).error_code == ErrorCode.NONE
    assert beat("h", "n", 99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert shard.groups["g"] == settled
    assert beat("g", "m", settled.group_epoch).error_code == ErrorCode.NONE
