"""The next micro-batch: positions, ends, limits, AvailableNow, truncated logs."""

from __future__ import annotations

import pytest

from spark_groups.client import Channel
from spark_groups.errors import DataLossError
from spark_groups.offsets.events import DataLost
from spark_groups.offsets.planning import PlanLimit
from spark_groups.offsets.resolution import Resolved
from spark_groups.offsets.validation import DOUBT_S
from spark_groups.protocol import messages as m
from tests.client.hands import Hands, accepted, all_of, committed, ends, key, parts

ALL = PlanLimit()


def ready(offsets: dict[int, int], *, available_now: bool = False, **arguments: bool) -> Hands:
    """A member whose first plan, without ranges, is behind it."""
    hands = Hands(**arguments)  # type: ignore[arg-type]
    if available_now:
        hands.client.prepare_available_now()
    hands.own(*offsets, offsets=offsets)
    plan = hands.client.plan(ALL, {}, hands.now)
    assert plan is not None
    assert plan.ranges == ()
    hands.client.finish(plan, hands.now)
    return hands


def tell_whole_log(hands: Hands, log_ends: dict[int, int]) -> None:
    """Answer the question for the ends of logs, whatever transactions have not decided."""
    wait_at_most_s = 10.0
    while not isinstance(hands.request(Channel.CLUSTER), m.ListOffsetsRequest):
        hands.wait(0.1)
        wait_at_most_s -= 0.1
        assert wait_at_most_s > 0
    hands.answer(Channel.CLUSTER, m.ListOffsetsResponse(offsets=ends(log_ends)))


def batch(
    hands: Hands, offsets: dict[int, int], limit: PlanLimit = ALL, leader_epoch: int = -1
) -> dict[int, tuple[int, int]]:
    """Plan and finish; the ranges by partition."""
    epochs = dict.fromkeys(ends(offsets), leader_epoch)
    plan = hands.plan(limit, ends(offsets), epochs)
    hands.pump()
    if plan is None:
        return {}
    hands.client.finish(plan, hands.now)
    hands.pump()
    if isinstance(hands.request(Channel.OFFSETS), m.OffsetCommitRequest):
        hands.answer(Channel.OFFSETS, all_of(hands.request(Channel.OFFSETS)))
    return {each.partition: (each.from_offset, each.until_offset) for each in plan.ranges}


def test_batches_go_on_where_the_last_one_ended() -> None:
    hands = ready({0: 5, 1: 0})
    assert batch(hands, {0: 9, 1: 0}) == {0: (5, 9)}
    assert batch(hands, {0: 9, 1: 3}) == {1: (0, 3)}
    assert batch(hands, {0: 9, 1: 3}) == {}
    assert hands.client.planner.log_ends == ends({0: 9, 1: 3})


def test_partition_whose_end_is_not_known_is_left_out() -> None:
    assert batch(ready({0: 0, 1: 0}), {1: 3}) == {1: (0, 3)}


def test_limit_is_divided_in_proportion() -> None:
    hands = ready({0: 0, 1: 0})
    assert batch(hands, {0: 90, 1: 10}, PlanLimit(max_offsets=10)) == {0: (0, 9), 1: (0, 1)}


def test_small_backlog_waits_but_not_for_ever() -> None:
    hands = ready({0: 0})
    limit = PlanLimit(min_offsets=10, max_trigger_delay_s=60.0)
    assert batch(hands, {0: 1}, limit) == {0: (0, 1)}, "the first batch does not wait"
    began = hands.now
    while hands.now < began + 59.0:
        hands.beat(accepted(2))
        assert hands.now >= began + 60.0 or batch(hands, {0: 9}, limit) == {}
    hands.wait(began + 60.0 - hands.now)
    assert batch(hands, {0: 9}, limit) == {0: (1, 9)}
    assert batch(hands, {0: 19}, limit) == {0: (9, 19)}, "ten are enough"


def test_available_now_reads_what_was_there_when_a_partition_came_and_no_more() -> None:
    hands = ready({0: 0}, available_now=True)
    assert batch(hands, {0: 10}, PlanLimit(max_offsets=6)) == {0: (0, 6)}
    assert batch(hands, {0: 99}, PlanLimit(max_offsets=6)) == {0: (6, 10)}
    assert batch(hands, {0: 99}) == {}


def test_available_now_does_not_wait_for_a_larger_backlog() -> None:
    hands = ready({0: 0}, available_now=True)
    assert batch(hands, {0: 1}, PlanLimit(min_offsets=1_000)) == {0: (0, 1)}


def test_end_below_the_position_is_doubted_then_final() -> None:
    hands = ready({0: 8, 1: 0})
    assert batch(hands, {0: 5, 1: 2}) == {1: (0, 2)}, "the others go on"
    hands.wait(DOUBT_S - 0.1)
    assert batch(hands, {0: 5, 1: 3}) == {1: (2, 3)}
    hands.wait(0.2)
    assert batch(hands, {0: 5, 1: 3}) == {}, "5 may be a last stable offset"
    tell_whole_log(hands, {0: 5})
    with pytest.raises(DataLossError, match=r"orders-0 ends at 5.*read it up to 8"):
        hands.client.plan(ALL, ends({0: 5, 1: 3}), hands.now)
    with pytest.raises(DataLossError):
        hands.client.check()


def test_end_that_recovers_in_time_is_forgiven() -> None:
    hands = ready({0: 8})
    assert batch(hands, {0: 5}) == {}
    hands.wait(DOUBT_S - 0.1)
    assert batch(hands, {0: 9}) == {0: (8, 9)}
    assert batch(hands, {0: 5}) == {}
    hands.wait(1.0)
    assert batch(hands, {0: 5}) == {}


def test_end_that_is_doubted_says_nothing_about_what_is_left_unread() -> None:
    hands = ready({0: 0})
    assert batch(hands, {0: 12}, PlanLimit(max_offsets=8)) == {0: (0, 8)}
    assert batch(hands, {0: 2}) == {}, "of a topic that was created again under this name"
    assert hands.client.planner.log_ends == {key(0): 12}
    assert hands.client.planner.forget(key(0)) == 4


def test_truncated_log_is_gone_on_with_where_that_is_wanted() -> None:
    hands = ready({0: 8}, fail_on_data_loss=False)
    assert batch(hands, {0: 5}) == {}
    hands.wait(DOUBT_S - 0.1)
    assert batch(hands, {0: 5}) == {}
    assert len(hands.find(DataLost)) == 0
    hands.wait(0.2)
    tell_whole_log(hands, {0: 5})
    assert batch(hands, {0: 5}) == {}
    assert len(hands.find(DataLost)) == 1
    assert isinstance(hands.request(Channel.OFFSETS), m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(hands.request(Channel.OFFSETS)))
    assert batch(hands, {0: 7}) == {0: (5, 7)}


def test_what_is_known_of_a_partition_goes_with_it() -> None:
    hands = ready({0: 0, 1: 0})
    assert batch(hands, {0: 4, 1: 4}, PlanLimit(max_offsets=4))
    hands.beat(accepted(2, parts(1)))
    assert hands.client.planner.log_ends == ends({1: 4})
    assert hands.client.deleted.unread_left == {key(0): 2}


def test_commits_carry_the_leader_epoch_and_a_new_one_is_asked_about_first() -> None:
    hands = ready({0: 0, 1: 0})
    assert batch(hands, {0: 4, 1: 4}, leader_epoch=2) == {0: (0, 4), 1: (0, 4)}
    plan = hands.plan(ALL, ends({0: 6, 1: 6}), {key(0): 2, key(1): 3})
    assert plan is not None
    assert [each.partition for each in plan.ranges] == [0]
    hands.pump()
    request = hands.request(Channel.CLUSTER)
    assert isinstance(request, m.OffsetForLeaderEpochRequest)
    assert request.lookups == {key(1): m.EpochLookup(2, 3)}
    confirmed = m.OffsetForLeaderEpochResponse(ends={key(1): m.EpochEnd(4, 2)})
    hands.answer(Channel.CLUSTER, confirmed)
    hands.client.finish(plan, hands.now)
    hands.pump()
    commit = hands.request(Channel.OFFSETS)
    assert isinstance(commit, m.OffsetCommitRequest)
    assert commit.offsets[key(0)].leader_epoch == 2
    hands.answer(Channel.OFFSETS, all_of(commit))
    assert batch(hands, {0: 6, 1: 6}, leader_epoch=3) == {1: (4, 6)}, "0 is asked about now"
    assert Channel.CLUSTER in hands.under_way


def test_log_that_was_cut_and_has_grown_again_fails_the_query() -> None:
    hands = ready({0: 0})
    assert batch(hands, {0: 8}, leader_epoch=2) == {0: (0, 8)}
    assert batch(hands, {0: 99}, leader_epoch=3) == {}
    cut = m.OffsetForLeaderEpochResponse(ends={key(0): m.EpochEnd(5, 2)})
    hands.answer(Channel.CLUSTER, cut)
    with pytest.raises(DataLossError, match=r"orders-0 was truncated.*\[5, 8\)"):
        hands.client.check()
    hands.wait(2.0)
    assert Channel.CLUSTER not in hands.under_way, "the same is not asked again"


def test_where_it_is_gone_on_with_a_cut_log_is_committed_at_once() -> None:
    """Whoever comes next could not tell from the offset that was committed before."""
    hands = ready({0: 0}, fail_on_data_loss=False)
    assert batch(hands, {0: 8}, leader_epoch=2) == {0: (0, 8)}
    assert batch(hands, {0: 99}, leader_epoch=3) == {}
    cut = m.OffsetForLeaderEpochResponse(ends={key(0): m.EpochEnd(5, 2)})
    hands.answer(Channel.CLUSTER, cut)
    commit = hands.request(Channel.OFFSETS)
    assert isinstance(commit, m.OffsetCommitRequest)
    assert commit.offsets[key(0)].committed_offset == 5
    assert commit.offsets[key(0)].leader_epoch == 3
    hands.answer(Channel.OFFSETS, all_of(commit))
    assert len(hands.find(DataLost)) == 1
    assert batch(hands, {0: 99}, leader_epoch=3) == {0: (5, 99)}


def test_a_plan_waits_for_the_heartbeat_of_its_boundary_and_for_what_it_brings() -> None:
    hands = Hands()
    hands.own(0)
    client = hands.client
    hands.beat(accepted(2))
    hands.wait(1)
    plan = hands.client.plan(ALL, ends({0: 5}), hands.now)
    assert plan is not None
    assert not client.is_news_near(since=0.0)
    hands.client.finish(plan, hands.now)
    hands.pump()
    asked_at = hands.now
    assert isinstance(hands.request(Channel.HEARTBEAT), m.HeartbeatRequest)
    assert client.is_news_near(since=asked_at)
    assert not client.is_news_near(since=asked_at + 0.1), "it began before"
    hands.answer(Channel.HEARTBEAT, accepted(3, parts(0, 1)))
    hands.beat(accepted(3))
    assert client.is_news_near(since=asked_at), "where the new partition stands is not known"
    hands.answer(Channel.OFFSETS, all_of(hands.request(Channel.OFFSETS)))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({0: 5, 1: 0}))
    assert not client.is_news_near(since=asked_at)


def test_position_that_moved_back_is_committed_at_once() -> None:
    hands = Hands()
    hands.own(0, 1, offsets={0: 8, 1: 4})
    hands.client.ledger.owned[key(0)].stand_at(5, 3)
    event = DataLost(hands.now, "it was cut")
    hands.client.positions.take(Resolved(events=[event], to_commit=[key(0)]))
    hands.pump()
    request = hands.request(Channel.OFFSETS)
    assert isinstance(request, m.OffsetCommitRequest)
    assert {each.partition for each in request.offsets} == {0}
    assert request.offsets[key(0)].committed_offset == 5
    assert request.offsets[key(0)].leader_epoch == 3
    assert hands.find(DataLost) == [event]
    assert hands.client.positions.data_loss is None


def test_data_loss_that_is_final_is_kept() -> None:
    hands = Hands()
    hands.client.positions.take(Resolved(data_loss="it was cut"))
    hands.client.positions.take(Resolved())
    assert hands.client.positions.data_loss == "it was cut"


def test_a_query_that_must_fail_asks_nothing_more() -> None:
    hands = Hands()
    assert not hands.client.positions.must_fail
    hands.client.positions.take(Resolved(refusal="it is of another group"))
    hands.client.positions.take(Resolved())
    assert (hands.client.positions.refusal, hands.client.positions.must_fail) == (
        "it is of another group",
        True,
    )
