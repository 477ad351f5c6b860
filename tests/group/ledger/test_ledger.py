"""Tenures, positions, finished batches: commits and inherited runs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest

from spark_groups.group.ledger.commits import PendingCommit
from spark_groups.group.ledger.ledger import (
    FINISHED_KEPT,
    MAX_BOUNDARIES,
    Boundary,
    FinishedRun,
    Ledger,
    OwnedPartition,
    Phase,
)
from spark_groups.group.ledger.marks import NO_MARK, mark_at_end
from spark_groups.group.member.messages import NO_OFFSET
from spark_groups.types import NO_PARTITIONS, Assignment, BatchPlan, OffsetRange, TopicIdPartition
from tests.group.ledger.ledger_setup import TOPIC, commits, key, owning, parts, plan, ready, span


def next_plan(ledger: Ledger, *ranges: OffsetRange) -> BatchPlan:
    """Return a plan whose ranges stand on the last commits of the ledger, as planners make it."""
    return replace(plan(*ranges), marks=tuple(ledger.owned[each.key].mark for each in ranges))


def regained(
    ledger: Ledger, committed: dict[int, int], marks: Mapping[int, str] | None = None
) -> None:
    """Lose partitions and get them back."""
    ledger.drop(parts(*committed))
    ledger.assign(parts(*committed), 5)
    ready(ledger, committed, marks)


def test_partition_is_fetched_before_it_is_ready() -> None:
    ledger = Ledger("run")
    ledger.assign(parts(0, 1), 3)
    assert set(ledger.in_phase(Phase.FETCHING)) == ledger.unready() == {key(0), key(1)}
    assert ledger.positions(parts(0, 1)) == {}
    assert ledger.owned[key(0)].position == NO_OFFSET
    ready(ledger, {0: 7})
    assert ledger.positions(parts(0, 1)) == {key(0): 7}
    assert ledger.positions(parts(1)) == {}, "revoked partitions are not planned"


def test_each_time_of_owning_is_a_tenure_of_its_own() -> None:
    ledger = Ledger("run")
    ledger.assign(parts(0), 3)
    first = ledger.tenure(key(0))
    ledger.assign(parts(1), 3)
    assert ledger.tenure(key(0)) == first
    ledger.drop(parts(0))
    assert ledger.tenure(key(0)) is None
    ledger.assign(parts(0), 3)
    assert ledger.tenure(key(0)) not in (first, None, ledger.tenure(key(1)))


def test_finished_batch_is_committed_with_the_epoch_of_its_plan() -> None:
    ledger = owning({0: 5, 1: 0})
    batch = plan(span(0, 5, 9), span(1, 0, 2))
    ledger.record(batch)
    assert ledger.positions(parts(0, 1)) == {key(0): 9, key(1): 2}
    assert ledger.in_flight is batch
    finished = ledger.finish(batch)
    assert commits(finished.commits) == {0: (9, 3), 1: (2, 3)}
    assert finished.lost == ()
    assert ledger.in_flight is None
    assert ledger.inherit(4).commits == ()


@pytest.mark.parametrize("later_batches", [0, 1, FINISHED_KEPT - 1])
def test_finishing_again_changes_nothing_even_batches_later(later_batches: int) -> None:
    ledger = owning({0: 0})
    first = plan(span(0, 0, 1))
    ledger.record(first)
    ledger.finish(first)
    for number in range(1, later_batches + 1):
        batch = next_plan(ledger, span(0, number, number + 1))
        ledger.record(batch)
        ledger.finish(batch)
    before = ledger.uncommitted(key(0))
    again = ledger.finish(first)
    assert (again.commits, again.lost) == ((), ())
    assert ledger.uncommitted(key(0)) == before
    inheritance = ledger.inherit(4)
    assert (inheritance.taken, inheritance.overruled) == ((), ())


def test_proof_that_comes_late_leaves_the_running_batch_alone() -> None:
    ledger = owning({0: 0})
    first, second = plan(span(0, 0, 1)), plan(span(0, 1, 2))
    ledger.record(first)
    ledger.finish(first)
    ledger.record(second)
    ledger.finish(first)
    assert ledger.in_flight is second
    assert commits(ledger.finish(second).commits) == {0: (2, 3)}


def test_same_plan_made_again_is_finished_again() -> None:
    ledger = owning({0: 0})
    batch = plan(span(0, 0, 1))
    for _ in range(2):
        ready(ledger, {0: 0})
        ledger.record(batch)
        assert commits(ledger.finish(batch).commits) == {0: (1, 3)}
        assert ledger.in_flight is None


def test_lost_ranges_are_not_committed() -> None:
    ledger = owning({0: 0, 1: 0})
    batch = plan(span(0, 0, 4), span(1, 0, 4))
    ledger.record(batch)
    ledger.drop(parts(1))
    finished = ledger.finish(batch)
    assert commits(finished.commits) == {0: (4, 3)}
    assert finished.lost == (span(1, 0, 4),)


def test_lost_and_regained_in_the_middle_of_the_batch_is_lost_then_inherited() -> None:
    ledger = owning({0: 0})
    batch = plan(span(0, 0, 4))
    ledger.record(batch)
    regained(ledger, {0: 0})
    assert ledger.inherit(5).taken == ()
    finished = ledger.finish(batch)
    assert (finished.commits, finished.lost) == ((), (span(0, 0, 4),))
    inheritance = ledger.inherit(5)
    assert inheritance.taken == (span(0, 0, 4),)
    assert commits(inheritance.commits) == {0: (4, 5)}
    assert ledger.positions(parts(0)) == {key(0): 4}
    assert ledger.inherit(5).taken == ()


def test_batch_of_an_earlier_incarnation_is_inherited() -> None:
    ledger = Ledger("run")
    ledger.finish(plan(span(0, 0, 4), span(1, 0, 4), member_id="old", epoch=9))
    assert ledger.inherit(3).taken == ()
    ledger.assign(parts(0, 1), 3)
    assert ledger.inherit(3).taken == (), "not before the committed offset is known"
    ready(ledger, {0: 0, 1: 2})
    inheritance = ledger.inherit(3)
    assert inheritance.taken == (span(0, 0, 4),)
    assert inheritance.overruled == (span(1, 0, 4),)
    assert commits(inheritance.commits) == {0: (4, 3)}
    assert ledger.positions(parts(0, 1)) == {key(0): 4, key(1): 2}


def test_finished_run_of_an_earlier_member_is_undecided_until_it_is_inherited() -> None:
    ledger = Ledger("run")
    ledger.finish(plan(span(0, 0, 4), member_id="old"))
    assert ledger.undecided_runs() == {key(0)}
    ledger.assign(parts(0), 3)
    ready(ledger, {0: 0})
    assert ledger.undecided_runs() == {key(0)}
    assert commits(ledger.inherit(3).commits) == {0: (4, 3)}
    assert ledger.undecided_runs() == frozenset()


def test_batch_that_was_committed_after_all_is_neither_taken_nor_overruled() -> None:
    ledger = Ledger("run")
    ledger.finish(plan(span(0, 0, 4), member_id="old"))
    ledger.assign(parts(0), 3)
    ready(ledger, {0: 4})
    inheritance = ledger.inherit(3)
    assert (inheritance.taken, inheritance.overruled) == ((), ())


def three_batches() -> tuple[Ledger, list[str]]:
    """Return a ledger with the uncommitted run [0, 30), and the marks of its three commits."""
    ledger = owning({0: 0})
    marks = []
    for number in range(3):
        (commit,) = finished_commits(ledger, span(0, number * 10, number * 10 + 10))
        marks.append(commit.mark)
    assert ledger.uncommitted(key(0)) == span(0, 0, 30)
    return ledger, marks


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_run_of_several_batches_is_inherited_from_any_of_its_beginnings(batches: int) -> None:
    ledger, marks = three_batches()
    at = ["at0", *marks][batches]
    regained(ledger, {0: batches * 10}, {0: at})
    inheritance = ledger.inherit(5)
    assert inheritance.taken == (span(0, 0, 30),)
    assert [(each.committed_offset, each.mark) for each in inheritance.commits] == [(30, marks[2])]
    assert ledger.positions(parts(0)) == {key(0): 30}


@pytest.mark.parametrize(
    ("offset", "mark_of_batch"), [(0, 1), (10, 1), (20, 0), (10, None), (20, None)]
)
def test_offset_that_comes_back_with_another_mark_is_not_evidence(
    offset: int, mark_of_batch: int | None
) -> None:
    """An operator set it, another member read the same range, or a tool copied the metadata."""
    ledger, marks = three_batches()
    mark = NO_MARK if mark_of_batch is None else marks[mark_of_batch]
    regained(ledger, {0: offset}, {0: mark})
    inheritance = ledger.inherit(5)
    assert (inheritance.taken, inheritance.overruled) == ((), (span(0, 0, 30),))
    assert ledger.positions(parts(0)) == {key(0): offset}


def test_range_without_a_mark_is_never_inherited() -> None:
    """Its plan is of an earlier version, or stands on the commit of another client."""
    ledger = Ledger("run")
    ledger.finish(BatchPlan("g", "old", 9, (span(0, 0, 4),)))
    ledger.assign(parts(0), 3)
    ready(ledger, {0: 0}, {0: NO_MARK})
    assert ledger.inherit(3).overruled == (span(0, 0, 4),)


def test_batch_read_after_an_offset_came_back_does_not_continue_the_run_before() -> None:
    """Two runs of the same offsets: only the last one may be inherited."""
    ledger = owning({0: 0})
    finished_commits(ledger, span(0, 0, 10))
    regained(ledger, {0: 10}, {0: "of another member"})
    ledger.inherit(5)
    finished_commits(ledger, span(0, 10, 20))
    assert ledger.uncommitted(key(0)) == span(0, 10, 20)


def test_mark_of_a_commit_depends_on_member_epoch_range_and_the_mark_before() -> None:
    first = span(0, 0, 4)
    plans = (plan(first), plan(first, member_id="m2"), plan(first, epoch=4))
    marks = {mark_at_end(each, first, "at0") for each in plans}
    marks |= {mark_at_end(plans[0], first, "at1"), mark_at_end(plans[0], span(0, 0, 5), "at0")}
    marks |= {mark_at_end(plans[0], span(1, 0, 4), "at0")}
    assert len(marks) == 6
    assert mark_at_end(plan(first), first, "at0") in marks, "each plan has one mark for a range"


def test_starting_positions_have_marks_of_their_own_in_each_run_and_tenure() -> None:
    marks = set()
    for run in ("run", "another run"):
        ledger = Ledger(run)
        for _ in range(2):
            ledger.assign(parts(0), 3)
            ledger.start_at(key(0), 5, -1, Phase.COMMITTING_START)
            marks.add(ledger.commit_of_position(key(0), 3).mark)
        ledger.move_back(key(0), 5, -1)
        marks.add(ledger.commit_of_position(key(0), 3).mark)
    assert len(marks - {NO_MARK}) == 6


def test_topics_are_those_of_the_owned_partitions() -> None:
    ledger, other = Ledger("run"), TopicIdPartition(uuid.UUID(int=99), 0)
    assert ledger.topic_ids() == frozenset()
    ledger.assign(Assignment(frozenset({key(0), key(1), other})), 1)
    assert ledger.topic_ids() == {key(0).topic_id, other.topic_id}
    ledger.drop([other])
    assert ledger.topic_ids() == {key(0).topic_id}
    ledger.drop([key(0), key(1)])
    assert ledger.topic_ids() == frozenset()


def test_an_accepted_commit_leaves_later_batches_uncommitted() -> None:
    ledger = owning({0: 0})
    (first,) = finished_commits(ledger, span(0, 0, 10))
    (second,) = finished_commits(ledger, span(0, 10, 20))
    ledger.committed(first)
    assert ledger.uncommitted(key(0)) == span(0, 10, 20)
    ledger.committed(second)
    assert ledger.uncommitted(key(0)) is None
    regained(ledger, {0: 0})
    assert ledger.inherit(5).taken == (), "committed and moved back by somebody: that wins"


def finished_commits(ledger: Ledger, *ranges: OffsetRange) -> tuple[PendingCommit, ...]:
    batch = next_plan(ledger, *ranges)
    ledger.record(batch)
    return ledger.finish(batch).commits


def test_commit_of_an_earlier_tenure_finishes_no_run() -> None:
    ledger = owning({0: 0})
    (commit,) = finished_commits(ledger, span(0, 0, 10))
    regained(ledger, {0: 0})
    ledger.inherit(5)
    ledger.committed(commit)
    assert ledger.uncommitted(key(0)) == span(0, 0, 10)


def test_boundaries_of_a_run_are_bounded() -> None:
    ledger = owning({0: 0})
    for number in range(5 * MAX_BOUNDARIES):
        finished_commits(ledger, span(0, number, number + 1))
    assert ledger.uncommitted(key(0)) == span(0, 0, 5 * MAX_BOUNDARIES)
    assert len(ledger._committing[key(0)].boundaries) <= MAX_BOUNDARIES + 1


def test_nothing_is_inherited_while_a_batch_reads_it() -> None:
    ledger = Ledger("run")
    old = plan(span(0, 0, 4), member_id="old")
    ledger.finish(plan(span(0, 0, 4), member_id="older"))
    ledger.replay(old)
    ledger.assign(parts(0), 3)
    ready(ledger, {0: 0})
    assert ledger.inherit(3).taken == ()
    assert not ledger.deciding(), "a leave would wait for the end of the batch"
    ledger.finish(old)
    assert ledger.deciding() == {key(0)}


def test_replay_is_in_flight_unless_it_is_this_members_own() -> None:
    ledger = owning({0: 0})
    old, own = plan(span(0, 0, 4), member_id="old"), plan(span(0, 0, 4))
    ledger.record(own)
    ledger.replay(own)
    assert ledger.in_flight is own
    ledger.finish(own)
    ledger.replay(own)
    assert ledger.in_flight is None
    ledger.replay(old)
    assert ledger.in_flight is old
    ledger.finish(old)
    ledger.replay(old)
    assert ledger.in_flight is None


def test_checkpoint_tells_how_far_it_has_read() -> None:
    ledger = Ledger("run")
    assert ledger.checkpointed(key(0)) is None
    ledger.replay(plan(span(0, 3, 4), member_id="old"))
    assert ledger.checkpointed(key(0)) == (3, "at3")
    assert ledger.checkpointed(key(1)) is None
    finished = plan(span(0, 3, 4), member_id="old")
    ledger.finish(finished)
    end_mark = mark_at_end(finished, finished.ranges[0], "at3")
    assert ledger.checkpointed(key(0)) == (4, end_mark)


def delaying_revocation(ledger: Ledger, *pending: int, is_start_first: bool = True) -> Assignment:
    return ledger.delaying_revocation(
        parts(0, 1), frozenset(key(each) for each in pending), commits_start_first=is_start_first
    )


def test_revocation_is_free_when_nothing_touches_it() -> None:
    ledger = owning({0: 0, 1: 0, 2: 0})
    ledger.record(plan(span(2, 0, 4)))
    assert delaying_revocation(ledger, 2) == NO_PARTITIONS
    assert (
        ledger.delaying_revocation(NO_PARTITIONS, frozenset({key(2)}), commits_start_first=True)
        == NO_PARTITIONS
    )


def test_revocation_is_delayed_by_batches_commits_and_starts() -> None:
    ledger = owning({0: 0, 1: 0})
    ledger.record(plan(span(0, 0, 4)))
    assert delaying_revocation(ledger) == parts(0)
    assert delaying_revocation(ledger, 1, 2) == parts(0, 1)
    ledger.finish(plan(span(0, 0, 4)))
    assert delaying_revocation(ledger) == NO_PARTITIONS
    ledger.owned[key(1)].phase = Phase.COMMITTING_START
    assert delaying_revocation(ledger) == parts(1)
    assert delaying_revocation(ledger, is_start_first=False) == NO_PARTITIONS


def test_start_in_a_topic_that_is_gone_contests_nothing() -> None:
    ledger = Ledger("run")
    ledger.assign(parts(0, 1), 3)
    ledger.note_topics(there=(), gone=(TOPIC,))
    assert delaying_revocation(ledger) == NO_PARTITIONS
    assert ledger.unready() == {key(0), key(1)}
    ledger.note_topics(there=(), gone=())
    assert delaying_revocation(ledger) == NO_PARTITIONS


def test_start_in_a_topic_that_a_broker_learned_late_is_settled_first() -> None:
    ledger = Ledger("run")
    ledger.assign(parts(0, 1), 3)
    ledger.note_topics(there=(), gone=(TOPIC,))
    ledger.note_topics(there=(TOPIC,), gone=())
    assert delaying_revocation(ledger) == parts(0, 1)


def test_commits_and_positions_carry_the_leader_epoch_of_the_end_they_were_planned_from() -> None:
    ledger = owning({0: 5, 1: 5})
    ledger.owned[key(1)].leader_epoch, ledger.owned[key(1)].reached_offset = 2, 5
    batch = plan(span(0, 5, 9), span(1, 5, 9))
    ledger.record(batch, {key(0): 4})
    assert (ledger.owned[key(0)].leader_epoch, ledger.owned[key(0)].reached_offset) == (4, 9)
    assert (ledger.owned[key(1)].leader_epoch, ledger.owned[key(1)].reached_offset) == (2, 5)
    finished = ledger.finish(batch).commits
    assert {each.key.partition: each.leader_epoch for each in finished} == {0: 4, 1: -1}


@pytest.mark.parametrize(
    ("run_epoch", "listed_end", "commit_epoch", "reached"),
    [(4, -1, 4, (4, 9)), (-1, 8, None, (2, 5)), (-1, 9, 2, (2, 9))],
)
def test_inherited_run_keeps_the_leader_epoch_that_is_known(
    run_epoch: int, listed_end: int, commit_epoch: int | None, reached: tuple[int, int]
) -> None:
    """An end that no log is known to have reached is not committed before one has."""
    ledger = owning({0: 5})
    batch = plan(span(0, 5, 9))
    ledger.record(batch, {key(0): run_epoch})
    ledger.drop([key(0)])
    ledger.finish(batch)
    regained(ledger, {0: 5})
    owned = ledger.owned[key(0)]
    owned.stand_at(5, 2, "at5")
    owned.listed_end = listed_end
    commits = ledger.inherit(6).commits
    expected = [] if commit_epoch is None else [(9, commit_epoch)]
    assert [(each.committed_offset, each.leader_epoch) for each in commits] == expected
    assert (owned.position, owned.leader_epoch, owned.reached_offset) == (9, *reached)


def test_run_of_an_earlier_incarnation_waits_for_an_answer_of_the_current_leader() -> None:
    ledger = owning({0: 5})
    ledger.owned[key(0)].leader_epoch = 2
    ledger.finish(plan(span(0, 5, 9), member_id="before"))
    assert ledger.inherit(6).taken == ()
    assert ledger.undecided() == {key(0)}
    ledger.owned[key(0)].listed_end = 30
    assert ledger.inherit(6).taken == (span(0, 5, 9),)
    assert not ledger.undecided()


def test_position_that_is_being_confirmed_does_not_keep_a_revocation() -> None:
    ledger = owning({0: 5, 1: 5})
    ledger.owned[key(0)].phase = Phase.VALIDATING
    assert ledger.unready() == {key(0)}
    assert (
        ledger.delaying_revocation(parts(0), frozenset(), commits_start_first=True) == NO_PARTITIONS
    )


def test_an_offset_that_somebody_else_set_is_never_taken_for_a_lost_commit() -> None:
    """Also at the offset where the run began: the operator wants to read from there."""
    ledger = owning({0: 5})
    ledger.finish(plan(span(0, 5, 9), member_id="before"))
    ledger.owned[key(0)].mark = NO_MARK
    inheritance = ledger.inherit(6)
    assert (inheritance.taken, inheritance.overruled) == ((), (span(0, 5, 9),))
    assert not inheritance.commits
    assert ledger.positions(parts(0)) == {key(0): 5}
    assert not ledger.undecided()


def owned(leader_epoch: int, listed_end: int = -1) -> OwnedPartition:
    each = OwnedPartition(tenure=1, assigned_epoch=3)
    each.stand_at(5, leader_epoch, "at5")
    each.listed_end = listed_end
    return each


@pytest.mark.parametrize(
    ("committed_offset", "mark", "position", "were_lost"),
    [
        (5, "at5", 5, True),
        (5, "another", 5, False),
        (5, NO_MARK, 5, False),
        (7, "at5", 7, False),
        (9, "at9", 9, False),
        (5, "at5", 7, False),
    ],
)
def test_commits_were_lost_where_the_commit_is_that_at_the_beginning_of_a_run(
    committed_offset: int, mark: str, position: int, were_lost: bool
) -> None:
    each = owned(2)
    each.position, each.committed_offset = position, committed_offset
    each.mark = mark
    assert each.stands_at_batch_start_of(run(2)) is were_lost


def run(leader_epoch: int) -> FinishedRun:
    return FinishedRun("orders", [Boundary(5, "at5"), Boundary(9, "at9")], leader_epoch)


@pytest.mark.parametrize(
    ("own_epoch", "listed_end", "run_epoch", "can"),
    [(2, -1, -1, False), (2, 30, -1, True), (-1, -1, -1, True), (2, -1, 2, True)],
)
def test_run_is_settled_once_the_current_leader_has_answered(
    own_epoch: int, listed_end: int, run_epoch: int, can: bool
) -> None:
    """Without a leader epoch no leader can confirm; a run with one is confirmed itself."""
    assert owned(own_epoch, listed_end).can_inherit(run(run_epoch)) is can


@pytest.mark.parametrize(
    ("listed_end", "run_epoch", "stands"),
    [(-1, 4, (9, 9, 4)), (9, -1, (9, 9, 2)), (8, -1, (9, 5, 2))],
)
def test_position_after_a_run_has_an_epoch_that_reached_it_or_keeps_the_one_before(
    listed_end: int, run_epoch: int, stands: tuple[int, int, int]
) -> None:
    each = owned(2, listed_end)
    each.inherit(run(run_epoch))
    assert (each.position, each.reached_offset, each.leader_epoch) == stands


def test_run_continues_or_begins_again() -> None:
    each = run(2)
    each.extend(Boundary(9, "at9"), Boundary(12, "at12"), 3)
    assert ([at.offset for at in each.boundaries], each.leader_epoch) == ([5, 9, 12], 3)
    each.extend(Boundary(12, "another"), Boundary(21, "at21"), 4)
    assert (each.boundaries, each.until_offset) == (
        [Boundary(12, "another"), Boundary(21, "at21")],
        21,
    )
