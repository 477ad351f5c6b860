"""The account of a run finds every planted failure and reports every cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from workshop.chaos.faults.schedule import MachineFaultKind
from workshop.chaos.results.account import Cause, SessionLoss, SinkRow, account
from workshop.chaos.results.facts import Commit, End, Note
from workshop.tests.chaos.stories import PLAIN, SESSION_S, TABLE, TOPIC, Story


def two_batches() -> Story:
    """Two members, one after the other, all in good order."""
    story = Story()
    story.whole_batch("q1.1", 0, range(5))
    story.note_partition("q1.1", Note.REVOKED)
    story.whole_batch("q2.1", 0, range(5, 10))
    return story


def read_twice(between: Callable[[Story], None], *, run: str = "q1.1") -> Story:
    """A batch that is not committed, what happens then, and another member that reads it again."""
    story = Story()
    story.plan(run, 0)
    story.write(run, 0, range(5))
    between(story)
    story.whole_batch("q2.1", 0, range(5))
    return story


def test_good_order_has_no_problem() -> None:
    found = two_batches().account()
    assert found.problems() == []
    assert (found.produced, found.append.rows, found.tables[TABLE].rows) == (10, 10, 10)
    assert not found.causes


def test_lost_records_are_found_in_each_sink() -> None:
    story = two_batches()
    del story.append[3]
    story.end_offset = 12
    found = story.account()
    assert (found.append.lost, found.tables[TABLE].lost) == (3, 2)
    # The record behind the one that is missing came without its predecessor.
    assert found.problems() == [
        "3 records lost in the append sink",
        "2 records lost in delta",
        "1 rows out of order in the append sink",
    ]
    assert "append: lost: 3 of ants-0, the first at 3" in found.examples


def test_partition_of_which_nothing_arrived_is_lost() -> None:
    story = Story()
    story.end_offset = 7
    assert story.account().tables[TABLE].lost == 7


def test_rows_that_a_table_has_twice_are_found() -> None:
    story = Story()
    story.whole_batch("q1.1", 0, range(5))
    story.plan("q2.1", 0)
    story.write("q2.1", 0, range(5, 10), planned=(0, 10))
    story.table.append(story.table[2]._replace(execution="q2.1.0"))
    found = story.account()
    assert found.problems() == ["1 rows doubled in delta"]
    why = "q2.1.0 read it after q1.1.0, though 5 was committed"
    assert found.examples == [
        "delta: doubled: ants-0 at 2, written by q2.1.0",
        f"delta: doubled: ants-0 at 2: {why}",
    ]
    assert found.table_causes == {TABLE: {Cause.NONE: 1}}
    assert not found.causes, "the append sink has no doubles"


def test_doubles_of_a_table_have_a_cause_of_their_own() -> None:
    story = read_twice(frozen)
    story.table += [row for row in story.append if row.execution == "q2.1.0"]
    found = story.account()
    assert found.problems() == ["5 rows doubled in delta"]
    assert found.table_causes == {TABLE: {Cause.FENCED_FROZEN: 5}}


@pytest.mark.parametrize("entry", [(0, 9), (0, 11), (1, 10)])
def test_entry_that_is_not_that_of_the_rows_is_found(entry: tuple[int, int]) -> None:
    story = two_batches()
    story.entry = entry
    found = story.account()
    assert found.problems() == ["1 partitions of delta whose entry is not that of its rows"]
    (example,) = found.examples
    assert example.endswith(f"the entry is [{entry[0]}, {entry[1]}), the rows are 10 of [0, 10)")


def test_entry_without_rows_is_found() -> None:
    story = Story()
    story.entry = (0, 3)
    assert story.account().tables[TABLE].misfenced == 1


def test_wrong_checksum_and_foreign_rows_are_found() -> None:
    story = two_batches()
    story.table[4] = story.table[4]._replace(is_right=False)
    story.append.append(SinkRow("q2.1.0", TOPIC, 0, 10, True))
    assert story.account().problems() == [
        "1 rows with a wrong checksum or place",
        "1 rows of records that were never produced",
    ]


def test_rows_out_of_order_are_found() -> None:
    story = two_batches()
    story.table[1], story.table[2] = story.table[2], story.table[1]
    story.append[6], story.append[7] = story.append[7], story.append[6]
    found = story.account()
    assert found.append.disordered
    assert not found.tables[TABLE].disordered, "rows of a table have no order"
    assert found.append.lost == 0


def test_order_of_members_is_that_of_their_writes_not_of_their_files() -> None:
    story = two_batches()
    story.append = story.append[5:] + story.append[:5]
    assert story.account().problems() == []


def test_committed_offset_that_went_back_is_found() -> None:
    story = two_batches()
    story.commits.append(Commit(99.0, 5))
    found = story.account()
    assert found.went_back == ["ants-0: from 10 to 5"]
    assert found.problems() == ["1 committed offsets that went back"]


def test_process_that_ended_by_itself_is_found() -> None:
    story = two_batches()
    story.note("q2.1", Note.FAILS, error="DataLossError: gone")
    story.ends("q2.1", End.FAILED)
    story.note("q3.1", Note.BEGINS)
    story.ends("q3.1", End.FAILED)
    found = story.account()
    assert found.failures == ["q2.1: DataLossError: gone", "q3.1: it left no word"]
    assert found.problems() == ["2 processes that ended by themselves"]


def test_refused_gap_is_found() -> None:
    story = two_batches()
    story.note("q2.1", Note.GAP, error="begins at 10, and 7 is the next")
    assert story.account().gaps == ["q2.1: begins at 10, and 7 is the next"]
    assert story.account().problems() == ["1 gaps refused by a table"]


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (End.KILLED, Cause.REPLAYED_KILLED),
        (End.STOPPED, Cause.REPLAYED_STOPPED),
    ],
)
def test_replay_after_an_end_is_a_cause(end: End, cause: Cause) -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(5))
    story.ends("q1.1", end)
    story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True)
    found = story.account()
    assert found.problems() == []
    assert (found.replays, found.append.doubled, found.causes) == (1, 5, {cause: 5})


def test_replay_of_a_half_written_batch_doubles_the_written_half() -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(2), in_table=[], planned=(0, 5))
    story.ends("q1.1")
    story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True)
    found = story.account()
    assert found.problems() == []
    assert found.causes == {Cause.REPLAYED_KILLED: 2}


def test_replay_of_a_batch_in_the_commit_log_has_no_cause() -> None:
    story = Story()
    story.whole_batch("q1.1", 0, range(5))
    story.ends("q1.1")
    story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True)
    assert story.account().causes == {Cause.NONE: 5}
    assert story.account().problems() == ["5 doubled rows of the append sink without a cause"]


@pytest.mark.parametrize(("is_replay", "end"), [(False, 5), (True, 6)])
def test_replay_that_is_none_or_has_other_ranges_has_no_cause(is_replay: bool, end: int) -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(5))
    story.ends("q1.1")
    story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=is_replay, planned=(0, end))
    assert story.account().causes == {Cause.NONE: 5}


def test_batch_of_the_same_number_with_another_plan_has_no_cause() -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(5))
    story.ends("q1.1")
    story.write("q1.2", 0, range(5), plan="another", is_replay=True)
    assert story.account().causes == {Cause.NONE: 5}


def test_row_that_the_plan_of_its_batch_does_not_have_has_no_cause() -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(6), planned=(0, 5))
    story.ends("q1.1")
    story.write("q1.2", 0, range(6), plan="plan 0 of q1.1", is_replay=True, planned=(0, 5))
    found = story.account()
    assert found.causes == {Cause.REPLAYED_KILLED: 5, Cause.NONE: 2}
    why = "q1.1.0 wrote it, whose plan does not have it"
    assert f"append: doubled: ants-0 at 5: {why}" in found.examples


def test_replay_beside_the_living_has_no_cause() -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(5))
    story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True)
    assert story.account().causes == {Cause.NONE: 5}


def test_replay_with_other_rows_or_another_plan_is_found() -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(5))
    story.ends("q1.1")
    story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True, digest="others")
    assert story.account().replays_differ == ["batch 0 of q1"]
    story.ends("q1.2")
    story.write("q1.3", 0, [], plan="another", is_replay=True)
    assert story.account().replays_differ == ["batch 0 of q1", "batch 0 of q1"]
    assert "2 replays that differ" in story.account().problems()


def test_plan_that_never_reached_the_offset_log_may_be_another_the_next_time() -> None:
    story = Story()
    story.note("q1.1", Note.PLANNED, batch=0, plan="never logged", partitions=[])
    story.ends("q1.1")
    story.whole_batch("q1.2", 0, range(5))
    assert story.account().problems() == []


def test_batch_may_have_reached_the_offset_log_unnoted() -> None:
    story = Story()
    for run, plan in (("q1.1", "never logged"), ("q1.2", "logged, but not noted")):
        story.note(run, Note.PLANNED, batch=0, plan=plan, partitions=[[TOPIC, 0]])
        story.ends(run)
    story.write("q1.3", 0, range(5), plan="logged, but not noted", is_replay=True)
    assert story.account().problems() == []


def killed(story: Story) -> None:
    story.ends("q1.1")


def killed_after_commit_log(story: Story) -> None:
    story.finish("q1.1", 0)
    story.ends("q1.1")


def stopped(story: Story) -> None:
    story.note("q1.1", Note.LEAVES)
    story.ends("q1.1", End.STOPPED)


def frozen(story: Story) -> None:
    story.note("q1.1", Note.FROZE)
    story.note("q1.1", Note.THAWED)
    story.note_partition("q1.1", Note.LOST)


def frozen_and_never_thawed(story: Story) -> None:
    story.note("q1.1", Note.FROZE)


def fenced(story: Story) -> None:
    story.note("q1.1", Note.SILENT, silent_s=SESSION_S / 2)
    story.note_partition("q1.1", Note.LOST)


def fenced_by_a_broker(story: Story) -> None:
    story.broker_fails()
    fenced(story)


def fenced_by_the_network(story: Story) -> None:
    story.broker_fails()
    story.network_fails("q1", "q3")
    fenced(story)


def fenced_beside_another_network(story: Story) -> None:
    story.network_fails("q2")
    fenced(story)


def given_up(story: Story) -> None:
    story.note_partition("q1.1", Note.GIVEN_UP)
    story.note_partition("q1.1", Note.REVOKED)


@pytest.mark.parametrize(
    ("between", "cause"),
    [
        (killed, Cause.KILLED_IN_BATCH),
        (killed_after_commit_log, Cause.KILLED_BEFORE_COMMIT),
        (stopped, Cause.STOPPED),
        (frozen, Cause.FENCED_FROZEN),
        (fenced, Cause.FENCED_BY_LOAD),
        (fenced_by_a_broker, Cause.FENCED_BY_BROKER),
        (fenced_by_the_network, Cause.FENCED_BY_NETWORK),
        (fenced_beside_another_network, Cause.FENCED_BY_LOAD),
        (given_up, Cause.GIVEN_UP),
    ],
)
def test_uncommitted_batch_is_read_again_for_a_cause(
    between: Callable[[Story], None], cause: Cause
) -> None:
    found = read_twice(between).account()
    assert found.problems() == []
    assert found.causes == {cause: 5}


def stopped_well(
    story: Story, *, is_proven: bool = True, listens: bool = False, unanswered: bool = False
) -> None:
    """End `q1.1` in good order, with batch 0 in the commit log."""
    story.note("q1.1", Note.BEGINS, reports_batches=listens)
    story.finish("q1.1", 0)
    if is_proven:
        story.note("q1.1", Note.PROVEN, plan="plan 0 of q1.1")
    story.note("q1.1", Note.LEAVES)
    story.note("q1.1", Note.LEFT, partitions=[[TOPIC, 0]] if unanswered else [])
    story.ends("q1.1", End.STOPPED)


@pytest.mark.parametrize(
    ("is_proven", "listens", "cause"),
    [(True, False, Cause.NONE), (False, True, Cause.NONE), (False, False, Cause.STOPPED)],
)
def test_stop_in_good_order_explains_only_a_batch_not_known_to_be_finished(
    is_proven: bool, listens: bool, cause: Cause
) -> None:
    story = read_twice(lambda story: stopped_well(story, is_proven=is_proven, listens=listens))
    assert story.account().causes == {cause: 5}


def no_fault(_: Story) -> None:
    """Nothing happens."""


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (no_fault, Cause.NONE),
        (lambda story: story.network_fails("q2"), Cause.NONE),
        (lambda story: story.network_fails("q1"), Cause.STOPPED_UNANSWERED),
        (lambda story: story.broker_fails(), Cause.STOPPED_UNANSWERED),
        (
            lambda story: story.note("q1.1", Note.LATE, overdue_s=3.0),
            Cause.STOPPED_UNANSWERED,
        ),
    ],
)
def test_last_commit_may_have_no_answer_only_for_a_reason(
    fault: Callable[[Story], None], cause: Cause
) -> None:
    def stopped_unanswered(story: Story) -> None:
        fault(story)
        stopped_well(story, unanswered=True)

    assert read_twice(stopped_unanswered).account().causes == {cause: 5}


def alive(story: Story) -> None:
    pass


def revoked(story: Story) -> None:
    story.finish("q1.1", 0)
    story.note_partition("q1.1", Note.REVOKED)


def committed_and_killed(story: Story) -> None:
    story.finish("q1.1", 0)
    story.commit(5)
    story.ends("q1.1")


@pytest.mark.parametrize("between", [alive, revoked, committed_and_killed])
def test_double_without_a_cause_is_a_failure(between: Callable[[Story], None]) -> None:
    found = read_twice(between).account()
    assert found.causes == {Cause.NONE: 5}
    assert "5 doubled rows of the append sink without a cause" in found.problems()
    assert any("append: doubled: ants-0 at 0: q2.1.0 read it after" in e for e in found.examples)


def test_member_that_was_fenced_in_its_sleep_may_die_in_it() -> None:
    story = read_twice(frozen_and_never_thawed)
    story.ends("q1.1")
    assert story.account().causes == {Cause.FENCED_FROZEN: 5}


def test_member_that_died_after_another_read_its_batch_has_no_excuse() -> None:
    story = read_twice(alive)
    story.ends("q1.1")
    assert story.account().causes == {Cause.NONE: 5}


def test_rows_written_late_are_traced_to_the_plan_that_came_first() -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.note("q1.1", Note.FROZE)
    story.whole_batch("q2.1", 0, range(5))
    story.note("q1.1", Note.THAWED)
    story.write("q1.1", 0, range(5))
    story.note_partition("q1.1", Note.LOST)
    found = story.account()
    assert found.problems() == []
    assert found.causes == {Cause.FENCED_FROZEN: 5}


def test_each_double_of_a_record_has_its_own_cause() -> None:
    story = read_twice(killed)
    story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True)
    found = story.account()
    assert found.problems() == []
    assert found.causes == {Cause.KILLED_IN_BATCH: 5, Cause.REPLAYED_KILLED: 5}


def test_same_row_twice_in_one_execution_has_no_cause() -> None:
    story = two_batches()
    story.append.append(story.append[-1])
    found = story.account()
    assert found.causes == {Cause.NONE: 1}
    assert found.append.disordered == 1


def test_row_of_an_execution_without_a_note_has_no_cause() -> None:
    story = two_batches()
    story.append.append(story.append[-1]._replace(execution="q9.1.0"))
    assert story.account().causes == {Cause.NONE: 1}


def plain(between: Callable[[Story], None]) -> Story:
    story = Story()
    story.note_partition(f"{PLAIN}.1", Note.ASSIGNED)
    story.plan(f"{PLAIN}.1", 0)
    story.write(f"{PLAIN}.1", 0, range(5))
    between(story)
    story.whole_batch("q2.1", 0, range(5))
    return story


def plain_killed(story: Story) -> None:
    story.ends(f"{PLAIN}.1")


def plain_frozen(story: Story) -> None:
    story.note(f"{PLAIN}.1", Note.FROZE)
    story.note(f"{PLAIN}.1", Note.THAWED)
    story.note_partition(f"{PLAIN}.1", Note.LOST)


def plain_refused(story: Story) -> None:
    story.note(f"{PLAIN}.1", Note.REFUSED, batch=0, error="UNKNOWN_MEMBER_ID")


@pytest.mark.parametrize(
    ("between", "cause"),
    [
        (plain_killed, Cause.PLAIN_KILLED),
        (plain_frozen, Cause.PLAIN_FENCED),
        (plain_refused, Cause.PLAIN_REFUSED),
    ],
)
def test_plain_consumer_loses_a_batch_for_a_cause(
    between: Callable[[Story], None], cause: Cause
) -> None:
    found = plain(between).account()
    assert found.problems() == []
    assert found.causes == {cause: 5}


def test_plain_consumer_that_stopped_in_good_order_has_no_excuse() -> None:
    story = plain(lambda story: story.ends(f"{PLAIN}.1", End.STOPPED))
    assert story.account().causes == {Cause.NONE: 5}


def test_plain_consumer_reads_on_from_where_it_stood_when_it_was_assigned() -> None:
    story = Story()
    story.note_partition(f"{PLAIN}.1", Note.ASSIGNED)
    story.note(f"{PLAIN}.1", Note.FROZE)
    story.whole_batch("q2.1", 0, range(5))
    story.note(f"{PLAIN}.1", Note.THAWED)
    # What it fetched before it stood still is written before it hears that it is fenced.
    story.plan(f"{PLAIN}.1", 0)
    story.write(f"{PLAIN}.1", 0, range(5))
    story.note(f"{PLAIN}.1", Note.REFUSED, batch=0, error="UNKNOWN_MEMBER_ID")
    found = story.account()
    assert found.problems() == []
    assert found.causes == {Cause.PLAIN_REFUSED: 5}


def test_fault_of_the_process_separates_lost_sessions_from_late_heartbeats() -> None:
    story = two_batches()
    frozen(story)
    story.note("q1.1", Note.LATE, overdue_s=30.0)
    story.note("q2.1", Note.LATE, overdue_s=2.5)
    story.note("q2.1", Note.LATE, overdue_s=1.5)
    fenced_again = story.at_s + SESSION_S + 1
    while story.at_s < fenced_again:
        story.note("q2.1", Note.BEGINS)
    fenced(story)
    found = story.account()
    assert found.sessions_lost == {SessionLoss.FROZEN: 1, SessionLoss.LOAD: 1}
    assert (found.late_heartbeats, found.latest_heartbeat_s) == (2, 2.5)
    assert found.problems() == []


def test_sessions_lost_to_a_jump_of_a_clock_are_no_excuse() -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(5))
    story.machine_fails(MachineFaultKind.JUMP, lambda: fenced(story))
    story.whole_batch("q2.1", 0, range(5))
    found = story.account()
    assert found.sessions_lost == {SessionLoss.CLOCK: 1}
    assert found.problems() == ["1 sessions lost to jumps of a clock"]


@pytest.mark.parametrize("is_replay", [True, False])
def test_full_disk_explains_rows_that_are_read_again(is_replay: bool) -> None:
    story = Story()

    def fail() -> None:
        story.plan("q1.1", 0)
        story.write("q1.1", 0, range(5))
        story.note("q1.1", Note.FAILS, error="No space left on device")
        # The member leaves the group when it has failed.
        story.note_partition("q1.1", Note.REVOKED)
        story.ends("q1.1", End.NO_ROOM)

    story.machine_fails(MachineFaultKind.TABLES_FULL, fail)
    if is_replay:
        story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True)
    else:
        story.whole_batch("q2.1", 0, range(5))
    found = story.account()
    assert found.problems() == []
    assert found.causes == {Cause.REPLAYED_NO_ROOM if is_replay else Cause.NO_ROOM: 5}


def test_full_disk_that_the_run_did_not_fill_is_a_problem() -> None:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(5))
    story.note("q1.1", Note.FAILS, error="No space left on device")
    story.ends("q1.1", End.NO_ROOM)
    found = story.account()
    assert found.problems() == ["1 processes that ended by themselves"]
    assert found.failures == ["q1.1: No space left on device"]


def test_sessions_lost_to_faults_of_brokers_are_a_class_of_their_own() -> None:
    story = Story()
    story.broker_fails()
    story.note("q1.1", Note.LATE, overdue_s=4.0)
    story.note_partition("q1.1", Note.LOST)
    found = story.account()
    assert (found.sessions_lost, found.late_heartbeats) == ({SessionLoss.BROKER: 1}, 0)
    for _ in range(int(SESSION_S) + 1):
        story.note("q1.1", Note.BEGINS)
    story.note("q2.1", Note.LATE, overdue_s=2.5)
    story.note_partition("q2.1", Note.LOST)
    found = story.account()
    assert found.sessions_lost == {SessionLoss.BROKER: 1, SessionLoss.LOAD: 1}
    assert found.late_heartbeats == 1


def test_sessions_lost_to_the_network_are_those_of_its_members() -> None:
    story = Story()
    story.network_fails("q1")
    for member in ("q1", "q2"):
        story.note(f"{member}.1", Note.LATE, overdue_s=4.0)
        story.note_partition(f"{member}.1", Note.LOST)
    found = story.account()
    assert found.sessions_lost == {SessionLoss.NETWORK: 1, SessionLoss.LOAD: 1}
    assert found.late_heartbeats == 1
    for _ in range(int(SESSION_S) + 1):
        story.note("q1.1", Note.BEGINS)
    fenced(story)
    lost = story.account().sessions_lost[SessionLoss.LOAD]
    assert lost == 2, "a session after the fault it is no cause any more"


def test_member_behind_a_bad_network_may_never_learn_that_it_was_fenced() -> None:
    def is_cut_off(story: Story) -> None:
        story.network_fails("q1")
        story.note("q1.1", Note.SILENT, silent_s=SESSION_S / 2)

    story = read_twice(is_cut_off)
    story.ends("q1.1")
    assert story.account().causes == {Cause.FENCED_BY_NETWORK: 5}


def test_member_whose_heartbeats_were_accepted_was_not_fenced_by_a_fault() -> None:
    def is_accepted(story: Story) -> None:
        story.network_fails("q1")
        story.broker_fails()
        story.note_partition("q1.1", Note.LOST)

    assert read_twice(is_accepted).account().causes == {Cause.NONE: 5}


def test_failure_before_a_fault_that_ends_the_process_is_a_failure() -> None:
    story = Story()
    story.note("q1.1", Note.FAILS, error="what it died of")
    story.ends("q1.1", End.KILLED)
    assert story.account().failures == ["q1.1: what it died of"]


def test_records_that_are_still_in_the_log_were_not_deleted() -> None:
    story = overtaken(committed=5, before=8)
    evidence = replace(story.evidence(), starts={(TOPIC, 0): 6})
    found = account(evidence)
    assert (found.append.deleted, found.append.lost) == (1, 2)


@pytest.mark.parametrize(
    ("in_commit_log", "cause"),
    [(True, Cause.KILLED_BEFORE_COMMIT), (False, Cause.KILLED_IN_BATCH)],
)
def test_batch_of_an_application_is_finished_by_its_commit_log(
    in_commit_log: bool, cause: Cause
) -> None:
    def is_killed(story: Story) -> None:
        if in_commit_log:
            story.finished_s["a1", 0] = story.at_s
        story.ends("a1.1")

    found = read_twice(is_killed, run="a1.1").account()
    assert found.causes == {cause: 5}
    assert found.problems() == []


@pytest.mark.parametrize("in_commit_log", [True, False])
def test_application_that_runs_a_finished_batch_again_has_no_cause(in_commit_log: bool) -> None:
    story = Story()
    story.plan("a1.1", 0)
    story.write("a1.1", 0, range(5))
    if in_commit_log:
        story.finished_s["a1", 0] = story.at_s
    story.ends("a1.1")
    story.write("a1.2", 0, range(5), plan="plan 0 of a1.1", is_replay=True)
    expected = Cause.NONE if in_commit_log else Cause.REPLAYED_KILLED
    assert story.account().causes == {expected: 5}


def overtaken(*, committed: int, before: int) -> Story:
    """Two batches; the records between were deleted when some of them were committed."""
    story = Story()
    story.whole_batch("q1.1", 0, range(5))
    story.commits[-1] = story.commits[-1]._replace(offset=committed)
    story.delete_before(before)
    story.whole_batch("q1.1", 1, range(8, 12))
    return story


def test_records_deleted_before_they_were_read_are_not_lost() -> None:
    found = overtaken(committed=5, before=8).account()
    assert found.problems() == []
    assert (found.append.deleted, found.append.lost) == (3, 0)


@pytest.mark.parametrize(("committed", "before", "lost"), [(7, 8, 2), (5, 7, 1)])
def test_records_that_were_committed_or_not_deleted_are_lost(
    committed: int, before: int, lost: int
) -> None:
    found = overtaken(committed=committed, before=before).account()
    assert (found.append.deleted, found.append.lost) == (3 - lost, lost)
    assert f"{lost} records lost in the append sink" in found.problems()
