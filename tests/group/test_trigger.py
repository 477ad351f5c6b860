"""What a trigger waits for, how long, and how it ends: no broker, no thread, no clock."""

from __future__ import annotations

import pytest

from spark_groups.errors import AvailableNowError, BrokerUnreachableError
from spark_groups.group.batches.batch_bytes import UNKNOWN_RECORD_BYTES
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import BatchLimited, NothingUnread
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel
from spark_groups.group.requests.metadata import BELIEVED_S
from spark_groups.group.trigger import OUTAGE_S, NothingToRead, Over, Patience, Planned
from tests.answers import epoch_answer
from tests.group.harness import accepted, all_of, committed, described, key, parts
from tests.group.trigger_setup import KB, Carried

LIMIT = PlanLimit(max_bytes=10 * KB)
USUAL = Patience()


def test_first_plan_waits_for_the_first_answer_no_longer_than_the_api_timeout() -> None:
    carried = Carried(owns=False, patience=Patience(answer_s=7.0))
    with pytest.raises(BrokerUnreachableError, match=r"localhost:1 let this query join .* 7 s"):
        carried.run()
    assert carried.waits == [7.0]


def test_first_plan_waits_for_partitions_of_others_and_then_plans_without_them() -> None:
    carried = Carried(owns=False)
    harness = carried.harness
    harness.describes = False
    harness.cluster()
    harness.beat(accepted(2, parts()))
    harness.cluster()
    joined_at, member = carried.now, carried.client.parts.member
    harness.until(m.DescribeGroupRequest)
    target = described(member.member_id, 2, parts(0, 1), parts())
    harness.answer(Channel.OFFSETS, target)
    end = carried.run()
    assert isinstance(end, Planned), "the checkpoint names the member"
    assert end.plan.ranges == ()
    assert carried.now >= joined_at + USUAL.first_assignment_s


def test_plan_includes_the_partitions_of_a_heartbeat_under_way() -> None:
    carried = Carried(owns=False)
    harness = carried.harness
    harness.own(0)
    harness.beat(accepted(2))
    harness.wait(1)
    assert carried.read({0: 5}) == {0: 5}
    assert isinstance(harness.request(Channel.HEARTBEAT), m.HeartbeatRequest)

    def assign() -> None:
        harness.answer(Channel.HEARTBEAT, accepted(3, parts(0, 1)))
        harness.beat(accepted(3))

    def resolve() -> None:
        harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS)))
        harness.until(m.OffsetFetchRequest)
        harness.answer(Channel.OFFSETS, committed({0: 5, 1: 0}))

    carried.after(0.05, assign)
    carried.after(0.1, resolve)
    assert carried.read({0: 6, 1: 4}) == {0: 6, 1: 4}
    assert carried.cluster.listings == 2, "ends are listed once in a trigger"


def test_plan_does_not_wait_longer_for_a_heartbeat_than_its_patience() -> None:
    carried = Carried()
    carried.harness.beat(accepted(2))
    carried.harness.wait(1)
    assert carried.read({0: 5, 1: 5}) == {0: 5, 1: 5}
    began_at = carried.now
    assert isinstance(carried.harness.request(Channel.HEARTBEAT), m.HeartbeatRequest)
    assert carried.read({0: 6, 1: 5}) == {0: 6}
    assert carried.now == pytest.approx(began_at + USUAL.under_way_s)


def test_plan_waits_for_a_new_leader_to_confirm_a_position_and_then_omits_it() -> None:
    carried = Carried()
    carried.cluster.leader_epoch = 2
    assert carried.read({0: 5, 1: 5}) == {0: 5, 1: 5}
    carried.cluster.leader_epoch = 3
    began_at = carried.now
    assert carried.read({0: 9, 1: 9}) == {}
    assert carried.now >= began_at + USUAL.validation_s
    ends = {key(0): m.EpochEnd(5, 2), key(1): m.EpochEnd(5, 2)}
    carried.harness.answer(Channel.CLUSTER, epoch_answer(ends=ends))
    assert carried.read({0: 9, 1: 9}) == {0: 9, 1: 9}


def test_query_ends_after_an_outage_and_the_error_names_the_addresses() -> None:
    carried = Carried()
    carried.client.parts.search.failing_since = carried.now - OUTAGE_S
    carried.cluster.ends = {0: 1, 1: 1}
    assert isinstance(carried.run(), Planned)
    carried.harness.wait(1.0)
    carried.client.parts.search.failing_since = carried.now - OUTAGE_S - 1
    with pytest.raises(BrokerUnreachableError, match="localhost:1"):
        carried.run()


def test_trigger_that_finds_nothing_ends_at_once() -> None:
    carried = Carried()
    began_at = carried.now
    carried.cluster.ends = {0: 0, 1: 0}
    assert carried.run() == NothingToRead()
    assert carried.now == began_at
    assert carried.waits == []


def test_run_whose_first_trigger_finds_no_records_reports_it_once() -> None:
    carried = Carried()
    carried.cluster.ends = {0: 0, 1: 0}
    for _ in range(2):
        assert not isinstance(carried.run(), Planned)
        (found,) = carried.harness.find(NothingUnread)
    assert found.text(lambda _: "orders") == (
        "nothing to read: the group has committed every record of orders-0, orders-1"
    )


def test_run_that_has_read_records_does_not_report_that_nothing_is_left() -> None:
    carried = Carried()
    assert carried.read({0: 5, 1: 0}) == {0: 5}
    carried.run()
    assert carried.harness.find(NothingUnread) == []


def test_run_that_does_not_know_all_ends_does_not_report_that_nothing_is_unread() -> None:
    carried = Carried()
    carried.cluster.ends = {0: 0}
    carried.run()
    assert carried.harness.find(NothingUnread) == []


def test_available_now_is_over_once_all_is_read() -> None:
    carried = Carried(available_now=True)
    assert carried.read({0: 3, 1: 2}) == {0: 3, 1: 2}
    assert carried.run() == Over()


def test_available_now_fails_if_log_ends_stay_unknown() -> None:
    patience = Patience(answer_s=20.0, settled_s=10.0)
    carried = Carried(available_now=True, patience=patience)
    carried.cluster.ends = {0: 0}
    began_at = carried.now
    why = "within 20 s: 1 partitions: NOT_LEADER_OR_FOLLOWER"
    with pytest.raises(BrokerUnreachableError, match=why):
        carried.run()
    assert carried.now - began_at == pytest.approx(20.0, abs=2 * patience.again_s)


def test_log_ends_are_listed_periodically_while_a_topic_is_in_doubt() -> None:
    carried = Carried(available_now=True)
    names, client = m.MetadataRequest(topic_names=frozenset({"flihgts"})), carried.client
    assert carried.read({0: 1, 1: 1}) == {0: 1, 1: 1}
    client.parts.absent.learn(names, m.MetadataResponse(), carried.now)
    began_at, carried.cluster.listings = carried.now, 0
    for count in range(1, 10):
        carried.after(BELIEVED_S * count / 5, carried.harness.cluster)
    with pytest.raises(AvailableNowError, match="flihgts"):
        carried.run()
    assert 2 <= carried.cluster.listings <= 2 + (carried.now - began_at) / USUAL.again_s


def test_doubt_whether_a_topic_exists_ends_with_an_error_if_no_broker_answers() -> None:
    carried = Carried(available_now=True)
    names = m.MetadataRequest(topic_names=frozenset({"flihgts"}))
    assert carried.read({0: 1, 1: 1}) == {0: 1, 1: 1}
    carried.client.parts.absent.learn(names, m.MetadataResponse(), carried.now)
    began_at = carried.now

    def accept() -> None:
        if carried.harness.request(Channel.HEARTBEAT) is not None:
            carried.harness.answer(
                Channel.HEARTBEAT, accepted(carried.client.parts.member.member_epoch)
            )

    for count in range(1, 100):
        carried.after(float(count), accept)
    with pytest.raises(BrokerUnreachableError, match="whether all topics of subscribe exist"):
        carried.run()
    assert USUAL.answer_s <= carried.now - began_at <= USUAL.answer_s + 1.0


def test_partition_that_becomes_ready_while_others_are_sampled_is_for_the_next_plan() -> None:
    carried = Carried(patience=Patience(resolving_s=0.0, first_assignment_s=0.0))
    carried.cluster.during = carried.hide(1)
    assert carried.read({0: 100, 1: 90}, LIMIT) == {0: 10}
    assert carried.read({0: 100, 1: 90}, LIMIT) == {0: 15, 1: 5}


def test_available_now_does_not_end_before_a_partition_that_became_ready_is_read() -> None:
    patience = Patience(resolving_s=0.0, first_assignment_s=0.0)
    carried = Carried(available_now=True, patience=patience)
    carried.cluster.ends = {0: 0, 1: 3}
    carried.after(0.01, carried.hide(1))
    end = carried.run()
    assert isinstance(end, Planned)
    assert [(each.partition, each.until_offset) for each in end.plan.ranges] == [(1, 3)]


def test_under_available_now_the_limit_is_divided_among_the_unread_records() -> None:
    carried = Carried(available_now=True)
    assert carried.read({0: 20, 1: 20}, LIMIT) == {0: 5, 1: 5}
    # All that was written since is for another query.
    assert carried.read({0: 1_000_000, 1: 20}, LIMIT) == {0: 10, 1: 10}


def test_backlog_that_is_held_back_is_not_sampled() -> None:
    carried = Carried()
    limit = PlanLimit(max_bytes=10 * KB, min_offsets=50, max_trigger_delay_s=3_600.0)
    assert carried.read({0: 8, 1: 0}, limit) == {0: 8}
    sampled = len(carried.cluster.sampled)
    assert carried.read({0: 57, 1: 0}, limit) == {}
    assert len(carried.cluster.sampled) == sampled
    assert carried.read({0: 58, 1: 0}, limit) == {0: 18}


def test_deleted_offsets_are_planned_whole() -> None:
    carried = Carried()
    carried.cluster.reached = {key(0): 1_000_000}
    assert carried.read({0: 1_000_090, 1: 10}, LIMIT) == {0: 1_000_009, 1: 1}
    (event,) = carried.harness.find(BatchLimited)
    assert isinstance(event, BatchLimited)
    assert (event.offsets, event.unread_offsets) == (1_000_010, 1_000_100)


def test_throttled_plan_uses_the_last_known_sizes() -> None:
    carried = Carried()
    carried.cluster.is_throttled = True
    limit = PlanLimit(max_bytes=10 * UNKNOWN_RECORD_BYTES)
    assert carried.read({0: 20_000, 1: 0}, limit) == {0: 10}
    carried.cluster.is_throttled = False
    assert carried.read({0: 20_000, 1: 0}, limit) == {0: 10 + 10 * KB}
    carried.cluster.is_throttled = True
    assert carried.read({0: 40_000, 1: 0}, limit) == {0: 10 + 20 * KB}
