"""Faults of members and their effects; the processes are stand-ins here."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from workshop.chaos.faults.schedule import Fault, FaultKind, Point
from workshop.chaos.members.ensemble import FAILURES_MAX, Ensemble, Member, Outcome
from workshop.chaos.members.journal import Journal
from workshop.chaos.members.kinds import MemberKind
from workshop.chaos.members.query import NO_ROOM, REFUSED_GAP, REFUSED_LOSS
from workshop.chaos.results.facts import End, Note, RunKey, read_facts, read_notes
from workshop.chaos.setting import Files

KINDS = {"q1": MemberKind.QUERY, "c1": MemberKind.PLAIN}


class Process:
    """A process that ends on a signal, unless it stands still."""

    def __init__(self) -> None:
        self.exitcode: int | None = None
        self.signals: list[signal.Signals] = []


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path / "run", tmp_path)
    files.make()
    return files


@pytest.fixture
def ensemble(files: Files, monkeypatch: pytest.MonkeyPatch) -> Ensemble:
    def start(member: Member) -> None:
        member.number += 1
        member.start_s = None
        member.process = Process()  # type: ignore[assignment]

    def send(member: Member, number: signal.Signals) -> None:
        process = member.process
        assert isinstance(process, Process)
        process.signals.append(number)
        if number is signal.SIGKILL:
            process.exitcode = -signal.SIGKILL
        elif number is signal.SIGTERM:
            process.exitcode = 0

    monkeypatch.setattr(Member, "start", start)
    monkeypatch.setattr(Member, "send", send)
    made = Ensemble(files, KINDS, lambda _, more: more < 3)
    made.start(["q1", "c1"])
    return made


def process_of(ensemble: Ensemble, name: str = "q1") -> Process:
    process = ensemble.members[name].process
    assert isinstance(process, Process)
    return process


def end_of(files: Files, number: int = 1) -> End | None:
    lines = (files.journals / "ensemble.jsonl").read_text().splitlines()
    return read_facts(lines).runs[RunKey("q1", number)].end


def fault(kind: FaultKind, point: Point | None = None, takes_s: float = 0.0) -> Fault:
    return Fault(0.0, kind, "q1", takes_s=takes_s, point=point)


@pytest.mark.parametrize(
    ("kind", "end"), [(FaultKind.KILL, End.KILLED), (FaultKind.TERMINATE, End.STOPPED)]
)
def test_member_that_was_ended_comes_back(
    ensemble: Ensemble, files: Files, kind: FaultKind, end: End
) -> None:
    ensemble.carry_out(fault(kind))
    ensemble.tick()
    assert end_of(files) is end
    assert ensemble.outcomes == {(kind, Outcome.DONE): 1}
    ensemble.tick()
    assert ensemble.members["q1"].number == 2


def test_crash_is_counted_at_its_point_once_it_was_carried_out(
    ensemble: Ensemble, files: Files
) -> None:
    ensemble.carry_out(fault(FaultKind.CRASH, Point.IN_COMMIT))
    ensemble.tick()
    assert ensemble.outcomes == {}
    assert ensemble.members["q1"].orders.take(Point.IN_COMMIT) is not None
    process_of(ensemble).exitcode = -signal.SIGKILL
    ensemble.tick()
    assert end_of(files) is End.KILLED
    assert ensemble.points == {Point.IN_COMMIT: 1}


def test_process_that_somebody_else_killed_failed(ensemble: Ensemble, files: Files) -> None:
    ensemble.carry_out(fault(FaultKind.CRASH, Point.IN_COMMIT))
    process_of(ensemble).exitcode = -signal.SIGKILL
    ensemble.tick()
    assert end_of(files) is End.FAILED
    assert not ensemble.points


def test_member_that_stands_still_is_thawed_when_its_time_is_over(ensemble: Ensemble) -> None:
    ensemble.carry_out(fault(FaultKind.FREEZE, takes_s=1000.0))
    ensemble.tick()
    assert process_of(ensemble).signals == [signal.SIGSTOP]
    assert ensemble.running() == 1
    ensemble.settle()
    ensemble.tick()
    assert process_of(ensemble).signals == [signal.SIGSTOP, signal.SIGCONT]
    assert ensemble.outcomes == {(FaultKind.FREEZE, Outcome.DONE): 1}


def test_second_fault_of_a_member_is_skipped(ensemble: Ensemble) -> None:
    ensemble.carry_out(fault(FaultKind.PAUSE, takes_s=1000.0))
    ensemble.carry_out(fault(FaultKind.KILL))
    assert ensemble.outcomes == {(FaultKind.KILL, Outcome.SKIPPED): 1}


def test_topic_that_cannot_grow_any_more_is_left_alone(ensemble: Ensemble, files: Files) -> None:
    for more in (1, 3):
        ensemble.carry_out(Fault(0.0, FaultKind.GROW, "ants", partitions=more))
    assert ensemble.outcomes == {
        (FaultKind.GROW, Outcome.DONE): 1,
        (FaultKind.GROW, Outcome.SKIPPED): 1,
    }
    notes = read_notes((files.journals / "ensemble.jsonl").read_text().splitlines())
    assert [(note["what"], note["topic"]) for note in notes] == [(Note.GREW.value, "ants")]


@pytest.mark.parametrize(("exit_code", "starts"), [(REFUSED_GAP, 1), (3, FAILURES_MAX)])
def test_member_that_fails_by_itself_is_given_up(
    ensemble: Ensemble, exit_code: int, starts: int
) -> None:
    member = ensemble.members["q1"]
    while member.process is not None:
        process_of(ensemble).exitcode = exit_code
        ensemble.tick()
        ensemble.settle()
        ensemble.tick()
    assert member.number == starts
    assert not ensemble.is_extinct()
    process_of(ensemble, "c1").exitcode = REFUSED_GAP
    ensemble.tick()
    assert ensemble.is_extinct()


@pytest.mark.parametrize("exit_code", [0, -15, 143])
def test_application_that_is_ended_while_its_query_starts_has_not_failed(
    ensemble: Ensemble, files: Files, exit_code: int
) -> None:
    ensemble.carry_out(fault(FaultKind.TERMINATE))
    process_of(ensemble).exitcode = exit_code
    ensemble.tick()
    assert (end_of(files), ensemble.members["q1"].failures) == (End.STOPPED, 0)
    assert ensemble.outcomes == {(FaultKind.TERMINATE, Outcome.DONE): 1}


@pytest.mark.parametrize("kind", [FaultKind.CRASH, FaultKind.FREEZE])
def test_all_end_during_every_kind_of_fault(ensemble: Ensemble, kind: FaultKind) -> None:
    point = Point.IN_COMMIT if kind is FaultKind.CRASH else None
    ensemble.carry_out(fault(kind, point, takes_s=1000.0))
    ensemble.settle()
    last = process_of(ensemble)
    ensemble.end()
    assert last.signals[-1] is signal.SIGTERM
    assert not any(member.is_running for member in ensemble.members.values())


def test_held_members_start_only_when_somebody_starts_them(
    ensemble: Ensemble, files: Files
) -> None:
    first = process_of(ensemble)
    assert not ensemble.hold(killed=["q1"])
    ensemble.tick()
    assert ensemble.hold()
    ensemble.settle()
    ensemble.tick()
    assert first.signals == [signal.SIGKILL]
    assert ensemble.waiting() == ["q1", "c1"]
    assert (end_of(files), ensemble.members["q1"].number) == (End.KILLED, 1)
    ensemble.start(["c1"])
    assert ensemble.waiting() == ["q1"]
    ensemble.release()
    ensemble.tick()
    assert ensemble.running() == 2


def test_query_that_refuses_deleted_offsets_has_not_failed(
    ensemble: Ensemble, files: Files
) -> None:
    process_of(ensemble).exitcode = REFUSED_LOSS
    ensemble.tick()
    assert (end_of(files), ensemble.members["q1"].failures) == (End.REFUSED, 0)


def test_member_that_does_not_die_is_reported_and_not_awaited_for_ever(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workshop.chaos.members.ensemble.UNREACHED_S", 0.0)
    monkeypatch.setattr("workshop.chaos.members.ensemble.ENDS_S", 0.2)
    monkeypatch.setattr("workshop.chaos.members.ensemble.SAYS_WHERE_S", 0.0)
    monkeypatch.setattr(Member, "send", lambda *_: None)
    ensemble.carry_out(fault(FaultKind.KILL))
    ensemble.tick()
    assert ensemble.hung == ["q1.1 did not end in time: SIGKILL"]
    ensemble.end()
    assert ensemble.hung[1:] == ["q1.1, c1.1: running 0.2 s after the end"]


def test_members_without_a_batch_are_named_if_they_can_have_one(
    ensemble: Ensemble, files: Files
) -> None:
    assert ensemble.without_batch(files.journals, 1) == [], "one has no partition"
    assert ensemble.without_batch(files.journals, 2) == ["c1", "q1"]
    Journal(files.journals, RunKey("q1", 1)).note_reads(0, "a plan", [], is_replay=False)
    process_of(ensemble, "c1").exitcode = REFUSED_GAP
    ensemble.tick()
    assert ensemble.without_batch(files.journals, 2) == []


def test_member_whose_disk_is_full_comes_back_however_often_that_happens(
    ensemble: Ensemble, files: Files
) -> None:
    member = ensemble.members["q1"]
    for number in range(1, FAILURES_MAX + 2):
        process_of(ensemble).exitcode = NO_ROOM
        ensemble.tick()
        assert end_of(files, number) is End.NO_ROOM
        ensemble.settle()
        ensemble.tick()
    assert member.number == FAILURES_MAX + 2
