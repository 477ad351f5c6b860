"""The next micro-batch: positions, ends, limits, AvailableNow, truncated logs."""

from __future__ import annotations

import pytest

from spark_groups.errors import DataLossError
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.commit_metadata import is_truncated
from spark_groups.group.ledger.events import DataLost
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.ledger.truncation import DOUBT_S
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel
from tests.answers import epoch_answer, list_answer
from tests.group.harness import ClientHarness, accepted, all_of, committed, ends, key, parts

ALL = PlanLimit()


def ready(
    offsets: dict[int, int], *, available_now: bool = False, **arguments: bool
) -> ClientHarness:
    """A member whose first plan, without ranges, is behind it."""
    harness = ClientHarness(**arguments)  # type: ignore[arg-type]
    if available_now:
        harness.client.parts.available_now.prepare()
    harness.own(*offsets, offsets=offsets)
    plan = harness.client.plan(ALL, {}, harness.now)
    assert plan is not None
    assert plan.ranges == ()
    harness.client.finish(plan, harness.now)
    return harness


def tell_whole_log(harness: ClientHarness, log_ends: dict[int, int]) -> None:
    """Answer the request for log ends, including undecided transactions."""
    wait_at_most_s = 10.0
    while not isinstance(harness.request(Channel.CLUSTER), m.ListOffsetsRequest):
        harness.wait(0.1)
        wait_at_most_s -= 0.1
        assert wait_at_most_s > 0
    harness.answer(Channel.CLUSTER, list_answer(offsets=ends(log_ends)))


def batch(
    harness: ClientHarness, offsets: dict[int, int], limit: PlanLimit = ALL, leader_epoch: int = -1
) -> dict[int, tuple[int, int]]:
    """Plan and finish; the ranges by partition."""
    epochs = dict.fromkeys(ends(offsets), leader_epoch)
    plan = harness.plan(limit, ends(offsets), epochs)
    harness.pump()
    if plan is None:
        return {}
    harness.client.finish(plan, harness.now)
    harness.pump()
    if isinstance(harness.request(Channel.OFFSETS), m.OffsetCommitRequest):
        harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS)))
    return {each.partition: (each.from_offset, each.until_offset) for each in plan.ranges}


def test_batches_begin_where_the_last_one_ended() -> None:
    harness = ready({0: 5, 1: 0})
    assert batch(harness, {0: 9, 1: 0}) == {0: (5, 9)}
    assert batch(harness, {0: 9, 1: 3}) == {1: (0, 3)}
    assert batch(harness, {0: 9, 1: 3}) == {}
    assert harness.client.parts.planner.log_ends == ends({0: 9, 1: 3})


def test_plan_names_the_cluster_of_the_coordinator() -> None:
    harness = ready({0: 0})
    plan = harness.plan(ALL, ends({0: 3}), dict.fromkeys(ends({0: 3}), 1))
    assert plan is not None
    assert plan.cluster_id == "the cluster"


def test_partition_whose_end_is_not_known_is_left_out() -> None:
    assert batch(ready({0: 0, 1: 0}), {1: 3}) == {1: (0, 3)}


def test_limit_is_divided_in_proportion() -> None:
    harness = ready({0: 0, 1: 0})
    assert batch(harness, {0: 90, 1: 10}, PlanLimit(max_offsets=10)) == {0: (0, 9), 1: (0, 1)}


def test_small_backlog_waits_but_not_for_ever() -> None:
    harness = ready({0: 0})
    limit = PlanLimit(min_offsets=10, max_trigger_delay_s=60.0)
    assert batch(harness, {0: 1}, limit) == {0: (0, 1)}, "the first batch does not wait"
    began = harness.now
    while harness.now < began + 59.0:
        harness.beat(accepted(2))
        assert harness.now >= began + 60.0 or batch(harness, {0: 9}, limit) == {}
    harness.wait(began + 60.0 - harness.now)
    assert batch(harness, {0: 9}, limit) == {0: (1, 9)}
    assert batch(harness, {0: 19}, limit) == {0: (9, 19)}, "ten are enough"


def test_available_now_reads_to_the_log_end_at_which_a_partition_came() -> None:
    harness = ready({0: 0}, available_now=True)
    assert batch(harness, {0: 10}, PlanLimit(max_offsets=6)) == {0: (0, 6)}
    assert batch(harness, {0: 99}, PlanLimit(max_offsets=6)) == {0: (6, 10)}
    assert batch(harness, {0: 99}) == {}


def test_available_now_does_not_wait_for_a_larger_backlog() -> None:
    harness = ready({0: 0}, available_now=True)
    assert batch(harness, {0: 1}, PlanLimit(min_offsets=1_000)) == {0: (0, 1)}


def test_unread_offsets_are_those_that_a_plan_would_read() -> None:
    harness = ready({0: 5, 1: 4})
    client = harness.client
    assert client.parts.next_batch.unread(
        PlanLimit(max_offsets=1), ends({0: 9, 1: 4}), harness.now
    ) == {key(0): (5, 9)}
    plan = client.plan(ALL, ends({0: 9}), harness.now)
    assert plan is not None
    assert client.parts.next_batch.unread(ALL, ends({0: 19}), harness.now) == {}, "a batch runs"
    client.finish(plan, harness.now)
    assert client.parts.next_batch.unread(ALL, ends({0: 19}), harness.now) == {key(0): (9, 19)}
    harness.wait(3_600.0)
    assert client.parts.next_batch.unread(ALL, ends({0: 19}), harness.now) == {}, (
        "ownership is not proven"
    )


def test_unread_offsets_under_available_now_end_at_its_targets_and_set_none() -> None:
    harness = ready({0: 0}, available_now=True)
    assert harness.client.parts.next_batch.unread(ALL, ends({0: 99}), harness.now) == {
        key(0): (0, 99)
    }
    assert batch(harness, {0: 10}, PlanLimit(max_offsets=6)) == {0: (0, 6)}
    assert harness.client.parts.next_batch.unread(ALL, ends({0: 99}), harness.now) == {
        key(0): (6, 10)
    }
    assert batch(harness, {0: 99}) == {0: (6, 10)}
    assert harness.client.parts.next_batch.unread(ALL, ends({0: 99}), harness.now) == {}


def test_a_backlog_that_is_held_back_is_not_unread_for_a_plan() -> None:
    harness = ready({0: 0})
    limit = PlanLimit(min_offsets=10, max_trigger_delay_s=60.0)
    assert harness.client.parts.next_batch.unread(limit, ends({0: 1}), harness.now) == {
        key(0): (0, 1)
    }
    assert batch(harness, {0: 1}, limit) == {0: (0, 1)}
    assert harness.client.parts.next_batch.unread(limit, ends({0: 9}), harness.now) == {}
    assert harness.client.parts.next_batch.unread(limit, ends({0: 11}), harness.now) == {
        key(0): (1, 11)
    }


def test_only_partitions_with_an_end_of_the_batch_are_read() -> None:
    harness = ready({0: 0, 1: 0, 2: 7})
    limit = PlanLimit(max_offsets=1, until_offsets={key(0): 6, key(2): 7})
    assert batch(harness, {0: 90, 1: 50, 2: 9}, limit) == {0: (0, 6)}
    assert batch(harness, {0: 90, 1: 50, 2: 9}, PlanLimit(until_offsets={})) == {}
    assert batch(harness, {0: 90, 1: 50, 2: 9}) == {0: (6, 90), 1: (0, 50), 2: (7, 9)}


def test_end_below_the_position_is_doubted_then_final() -> None:
    harness = ready({0: 8, 1: 0})
    assert batch(harness, {0: 5, 1: 2}) == {1: (0, 2)}, "the others continue"
    harness.wait(DOUBT_S - 0.1)
    assert batch(harness, {0: 5, 1: 3}) == {1: (2, 3)}
    harness.wait(0.2)
    assert batch(harness, {0: 5, 1: 3}) == {}, "5 may be a last stable offset"
    tell_whole_log(harness, {0: 5})
    with pytest.raises(DataLossError, match=r"orders-0 ends at 5.*read it up to 8"):
        harness.client.plan(ALL, ends({0: 5, 1: 3}), harness.now)
    with pytest.raises(DataLossError):
        harness.client.check()


def test_end_that_recovers_in_time_is_forgiven() -> None:
    harness = ready({0: 8})
    assert batch(harness, {0: 5}) == {}
    harness.wait(DOUBT_S - 0.1)
    assert batch(harness, {0: 9}) == {0: (8, 9)}
    assert batch(harness, {0: 5}) == {}
    harness.wait(1.0)
    assert batch(harness, {0: 5}) == {}


def test_a_doubted_end_does_not_change_the_unread_count() -> None:
    harness = ready({0: 0})
    assert batch(harness, {0: 12}, PlanLimit(max_offsets=8)) == {0: (0, 8)}
    assert batch(harness, {0: 2}) == {}, "of a topic that was created again under this name"
    assert harness.client.parts.planner.log_ends == {key(0): 12}
    assert harness.client.parts.planner.forget(key(0)) == 4


def test_without_fail_on_data_loss_a_truncated_log_is_read_from_its_end() -> None:
    harness = ready({0: 8}, fail_on_data_loss=False)
    assert batch(harness, {0: 5}) == {}
    harness.wait(DOUBT_S - 0.1)
    assert batch(harness, {0: 5}) == {}
    assert len(harness.find(DataLost)) == 0
    harness.wait(0.2)
    tell_whole_log(harness, {0: 5})
    assert batch(harness, {0: 5}) == {}
    assert len(harness.find(DataLost)) == 1
    assert isinstance(harness.request(Channel.OFFSETS), m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS)))
    assert batch(harness, {0: 7}) == {0: (5, 7)}


def test_a_revoked_partition_takes_its_log_end_along() -> None:
    harness = ready({0: 0, 1: 0})
    assert batch(harness, {0: 4, 1: 4}, PlanLimit(max_offsets=4))
    harness.beat(accepted(2, parts(1)))
    assert harness.client.parts.planner.log_ends == ends({1: 4})
    assert harness.client.parts.deleted.unread_when_dropped == {key(0): 2}


def test_commits_carry_the_leader_epoch_and_a_new_one_is_asked_about_first() -> None:
    harness = ready({0: 0, 1: 0})
    assert batch(harness, {0: 4, 1: 4}, leader_epoch=2) == {0: (0, 4), 1: (0, 4)}
    plan = harness.plan(ALL, ends({0: 6, 1: 6}), {key(0): 2, key(1): 3})
    assert plan is not None
    assert [each.partition for each in plan.ranges] == [0]
    harness.pump()
    request = harness.request(Channel.CLUSTER)
    assert isinstance(request, m.OffsetForLeaderEpochRequest)
    assert request.lookups == {key(1): m.EpochLookup(2, 3)}
    confirmed = epoch_answer(ends={key(1): m.EpochEnd(4, 2)})
    harness.answer(Channel.CLUSTER, confirmed)
    harness.client.finish(plan, harness.now)
    harness.pump()
    commit = harness.request(Channel.OFFSETS)
    assert isinstance(commit, m.OffsetCommitRequest)
    assert commit.offsets[key(0)].leader_epoch == 2
    harness.answer(Channel.OFFSETS, all_of(commit))
    assert batch(harness, {0: 6, 1: 6}, leader_epoch=3) == {1: (4, 6)}, "0 is asked about now"
    assert Channel.CLUSTER in harness.under_way


def test_log_that_was_cut_and_has_grown_again_fails_the_query() -> None:
    harness = ready({0: 0})
    assert batch(harness, {0: 8}, leader_epoch=2) == {0: (0, 8)}
    assert batch(harness, {0: 99}, leader_epoch=3) == {}
    cut = epoch_answer(ends={key(0): m.EpochEnd(5, 2)})
    harness.answer(Channel.CLUSTER, cut)
    with pytest.raises(DataLossError, match=r"orders-0 was truncated.*\[5, 8\)"):
        harness.client.check()
    harness.wait(2.0)
    assert Channel.CLUSTER not in harness.under_way, "the same is not asked again"


def test_the_end_of_a_cut_log_is_committed_at_once() -> None:
    """The next owner could not detect it by the former committed offset."""
    harness = ready({0: 0}, fail_on_data_loss=False)
    assert batch(harness, {0: 8}, leader_epoch=2) == {0: (0, 8)}
    assert batch(harness, {0: 99}, leader_epoch=3) == {}
    cut = epoch_answer(ends={key(0): m.EpochEnd(5, 2)})
    harness.answer(Channel.CLUSTER, cut)
    commit = harness.request(Channel.OFFSETS)
    assert isinstance(commit, m.OffsetCommitRequest)
    assert commit.offsets[key(0)].committed_offset == 5
    assert commit.offsets[key(0)].leader_epoch == 3
    assert is_truncated(commit.offsets[key(0)].metadata)
    assert batch(harness, {0: 99}, leader_epoch=3) == {}, "a batch of it could run before that"
    harness.answer(Channel.OFFSETS, all_of(commit))
    assert len(harness.find(DataLost)) == 1
    assert batch(harness, {0: 99}, leader_epoch=3) == {0: (5, 99)}


def test_a_plan_waits_for_the_heartbeat_of_its_boundary_and_for_what_it_brings() -> None:
    harness = ClientHarness()
    harness.own(0)
    client = harness.client
    harness.beat(accepted(2))
    harness.wait(1)
    plan = harness.client.plan(ALL, ends({0: 5}), harness.now)
    assert plan is not None
    assert not client.parts.channels.is_under_way(Channel.HEARTBEAT)
    harness.client.finish(plan, harness.now)
    harness.pump()
    asked_at = harness.now
    assert isinstance(harness.request(Channel.HEARTBEAT), m.HeartbeatRequest)
    assert client.parts.channels.is_under_way(Channel.HEARTBEAT)
    assert client.parts.member.pace.last_sent_at == asked_at
    harness.answer(Channel.HEARTBEAT, accepted(3, parts(0, 1)))
    harness.beat(accepted(3))
    assert client.parts.positions.is_resolving(since=asked_at), (
        "where the new partition stands is not known"
    )
    harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS)))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 5, 1: 0}))
    assert not client.parts.positions.is_resolving(since=asked_at)


def test_position_that_moved_back_is_committed_at_once() -> None:
    harness = ClientHarness()
    harness.own(0, 1, offsets={0: 8, 1: 4})
    harness.client.parts.ledger.owned[key(0)].stand_at(5, 3, "")
    event = DataLost(harness.now, "it was cut")
    harness.client.parts.positions.take(Resolved(events=[event], to_commit=[key(0)]))
    harness.pump()
    request = harness.request(Channel.OFFSETS)
    assert isinstance(request, m.OffsetCommitRequest)
    assert {each.partition for each in request.offsets} == {0}
    assert request.offsets[key(0)].committed_offset == 5
    assert request.offsets[key(0)].leader_epoch == 3
    assert harness.find(DataLost) == [event]
    assert harness.client.parts.positions.data_loss is None


def test_data_loss_that_is_final_is_kept() -> None:
    harness = ClientHarness()
    harness.client.parts.positions.take(Resolved(data_loss="it was cut"))
    harness.client.parts.positions.take(Resolved())
    assert harness.client.parts.positions.data_loss == "it was cut"


def test_a_query_that_must_fail_asks_nothing_more() -> None:
    harness = ClientHarness()
    assert not harness.client.parts.positions.must_fail
    harness.client.parts.positions.take(Resolved(refusal="it is of another group"))
    harness.client.parts.positions.take(Resolved())
    assert (harness.client.parts.positions.refusal, harness.client.parts.positions.must_fail) == (
        "it is of another group",
        True,
    )
