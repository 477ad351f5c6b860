"""The members of a run as processes: started, killed, stopped and thawed, each by its pid."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

from workshop.chaos.faults import clocks
from workshop.chaos.faults.schedule import Fault, FaultKind, Point
from workshop.chaos.members import application_session, plain_consumer, query
from workshop.chaos.members.journal import Action, Journal, Orders
from workshop.chaos.members.kinds import MemberKind
from workshop.chaos.results.facts import End, Note, RunKey
from workshop.chaos.setting import Files
from workshop.chaos.systems.tables import SINKS
from workshop.parts.lifetime import be_parent, die_with_parent

UNREACHED_S: Final = 45.0
"""How long an order waits until its point is reached."""
STARTING_S: Final = 90.0
"""How much longer it waits for an application, which may have to start first."""
END_S: Final = 120.0
"""How long a member may take to end after SIGTERM, on a slow machine too."""
SAYS_WHERE_S: Final = 0.5
"""How long a member that hangs may take to log what its threads do."""
KILL_S: Final = 30.0
"""How long a process may take to end after SIGKILL."""
ENDS_S: Final = 3 * END_S
"""How long all members together may take to end."""
FAILED_AGAIN_S: Final = 2.0
FAILURES_MAX: Final = 5
"""A member that fails so often is not started again."""


class Outcome(Enum):
    """What became of a fault that was due."""

    DONE = "done"
    SKIPPED = "skipped"
    UNREACHED = "not reached"


_READS: Final = f'"what": "{Note.READS.value}"'
Main = Callable[[Files, RunKey], int]
MAINS: Final[Mapping[MemberKind, Main]] = {
    MemberKind.QUERY: query.main,
    MemberKind.PLAIN: plain_consumer.main,
    MemberKind.APPLICATION: application_session.main,
    MemberKind.CLASSIC: partial(plain_consumer.main, is_classic=True),
}
"""What a process of a member runs."""
ENDS: Final = {
    query.NO_ROOM: End.NO_ROOM,
    query.REFUSED_LOSS: End.REFUSED,
    query.REFUSED_CLUSTER: End.LED_AWAY,
}
"""The ends that a process gives a reason for."""
ENDED_IN_ORDER: Final = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""A process that has just begun dies of SIGTERM; an application exits while its query starts."""
BY_ITSELF: Final = (End.FAILED, End.NO_ROOM, End.REFUSED, End.LED_AWAY)
"""The ends that no fault of the process is the reason of."""


class Member:
    """A member: one process after the other.

    Args:
        name: Its name.
        kind: What it is.
        files: The files of the run.
    """

    def __init__(self, name: str, kind: MemberKind, files: Files) -> None:
        self.name = name
        self.orders = Orders(files.orders(name))
        self.process: ForkServerProcess | None = None
        self.number = 0
        self.fault: Fault | None = None
        """The current fault."""
        self.fault_by_s = 0.0
        """Until when its point has to be reached, or it has to end."""
        self.thaw_s: float | None = None
        self.start_s: float | None = None
        """When to start it; None if it runs, or is not wanted yet or any more."""
        self.failures = 0
        self._kind = kind
        self._files = files
        files.member(name).mkdir(parents=True)

    @property
    def is_running(self) -> bool:
        """Whether there is a process, which may stand still."""
        return self.process is not None

    @property
    def key(self) -> RunKey:
        """Its process of the moment, or the last one."""
        return RunKey(self.name, self.number)

    @property
    def unreached_s(self) -> float:
        """How long an order waits until its point is reached."""
        is_slow = self._kind is MemberKind.APPLICATION
        return UNREACHED_S + STARTING_S if is_slow else UNREACHED_S

    def start(self) -> None:
        """Start the next process, on the same checkpoint."""
        self.number += 1
        self.start_s = None
        self.orders.withdraw()
        context = multiprocessing.get_context("forkserver")
        process = context.Process(
            target=_work, args=(self._files, self.key, self._kind), name=str(self.key)
        )
        process.start()
        self.process = process

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, unless it has ended."""
        assert self.process is not None
        _send(self.process, self._signal(number))

    def _signal(self, number: signal.Signals) -> signal.Signals:
        is_session = self._kind is MemberKind.APPLICATION
        return application_session.SIGNAL_TO_SESSION.get(number, number) if is_session else number

    def kill(self) -> str | None:
        """Make sure that no process is left, in any state; return those that are."""
        process, self.process = self.process, None
        if process is None:
            return None
        _send(process, self._signal(signal.SIGKILL))
        process.join(KILL_S)
        if process.exitcode is None:
            # What holds an application does not act on signals: the application is left.
            _send(process, signal.SIGKILL)
            process.join(KILL_S)
        is_left = process.exitcode is None
        return f"{self.key} (pid {process.pid}) does not die of SIGKILL" if is_left else None


def _send(process: ForkServerProcess, number: signal.Signals) -> None:
    if process.exitcode is None:
        assert process.pid is not None
        os.kill(process.pid, number)


def prepare_to_fork(sinks: Iterable[str] = ()) -> None:
    """Have members forked by a process that has imported all that they need, with one thread.

    Args:
        sinks: The kinds of the tables that they write.
    """
    os.environ[SINKS] = ",".join(sinks)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    be_parent()
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["workshop.chaos.members.preloaded"]
    )


def _work(files: Files, key: RunKey, kind: MemberKind) -> None:
    """Be a process of a member, with a log and a temporary directory of its own."""
    die_with_parent(
        application_session.RUN_ENDED if kind is MemberKind.APPLICATION else signal.SIGKILL
    )
    log = os.open(files.logs / f"{key.member}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    if kind is not MemberKind.APPLICATION:
        faulthandler.register(signal.SIGUSR1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, application_session.TO_SESSION)
    # Where a driver listens is found by the parent's pid: each query looks in a place of its own.
    own = files.sockets / key.member
    own.mkdir(mode=0o700, exist_ok=True)
    os.environ["XDG_RUNTIME_DIR"] = str(own)
    clocks.follow(files.clock(key.member))
    exit_code = query.FAILED
    try:
        exit_code = MAINS[kind](files, key)
    except BaseException:
        traceback.print_exc()
    finally:
        # Threads of libraries may still run: nothing is left to wait for.
        os._exit(exit_code)


class Ensemble:
    """All members and their faults.

    Args:
        files: The files of the run.
        kinds: What each member is, by name.
        grow: Gives a topic so many more partitions; tells whether there was room for them.
    """

    def __init__(
        self,
        files: Files,
        kinds: Mapping[str, MemberKind],
        grow: Callable[[str, int], bool],
    ) -> None:
        self.members = {name: Member(name, kind, files) for name, kind in kinds.items()}
        self.outcomes: Counter[tuple[FaultKind, Outcome]] = Counter()
        self.points: Counter[Point] = Counter()
        """Crash points at which a process was killed or stood still."""
        self.hung: list[str] = []
        """Members that did not end when they had to."""
        self._journal = Journal(files.journals, RunKey("ensemble", 0))
        self._grow = grow
        self._is_over = self._is_held = False
        self._silent = set(kinds)

    def start(self, names: Iterable[str]) -> None:
        """Start members for the first time.

        Args:
            names: Which ones.
        """
        for name in names:
            self.members[name].start()

    def carry_out(self, fault: Fault) -> None:
        """Begin a fault that is due, unless its target is down or has another one."""
        if fault.kind is FaultKind.GROW:
            is_done = self._grow(fault.target, fault.partitions)
            self._count(fault, Outcome.DONE if is_done else Outcome.SKIPPED)
            if is_done:
                self._journal.note(Note.GREW, topic=fault.target)
            return
        member = self.members[fault.target]
        if not member.is_running or member.fault is not None:
            self._count(fault, Outcome.SKIPPED)
            return
        member.fault, member.fault_by_s = fault, time.monotonic() + member.unreached_s
        match fault.kind:
            case FaultKind.KILL:
                self._note(member, Note.KILLED)
                member.send(signal.SIGKILL)
            case FaultKind.TERMINATE:
                member.fault_by_s = time.monotonic() + END_S
                member.send(signal.SIGTERM)
            case FaultKind.FREEZE | FaultKind.PAUSE:
                self._note(member, Note.FROZE)
                member.send(signal.SIGSTOP)
                member.thaw_s = time.monotonic() + fault.takes_s
            case FaultKind.SLOW_BATCH:
                member.orders.give(Action.BE_SLOW, Point.AFTER_READ, fault.takes_s)
            case FaultKind.CRASH | FaultKind.FREEZE_AT_POINT:
                assert fault.point is not None
                is_crash = fault.kind is FaultKind.CRASH
                member.orders.give(Action.KILL if is_crash else Action.STAND_STILL, fault.point)

    def tick(self) -> None:
        """Continue the faults: notice ends, thaw, restart."""
        now_s = time.monotonic()
        for member in self.members.values():
            if member.process is not None:
                exit_code = member.process.exitcode
                if exit_code is not None:
                    self._ended(member, exit_code, now_s)
                elif member.fault is not None:
                    self._go_on(member, member.fault, now_s)
            elif member.start_s is not None and now_s >= member.start_s and not self._is_held:
                member.start()

    def settle(self) -> None:
        """Undo all faults: thaw all members, and start those that are down."""
        for member in self.members.values():
            if member.start_s is not None:
                member.start_s = 0.0
            if member.process is None or member.fault is None:
                continue
            if member.thaw_s is not None:
                member.thaw_s = 0.0
            elif member.fault.point is not None or member.fault.kind is FaultKind.SLOW_BATCH:
                member.fault_by_s = 0.0

    def end(self) -> None:
        """End all members by SIGTERM, and wait for that."""
        self._is_over = True
        deadline_s = time.monotonic() + ENDS_S
        while not self.hold():
            if time.monotonic() > deadline_s:
                running = (str(m.key) for m in self.members.values() if m.is_running)
                self.hung.append(f"{', '.join(running)}: running {ENDS_S:g} s after the end")
                return
            self.tick()
            time.sleep(0.05)

    def hold(self, killed: Collection[str] = ()) -> bool:
        """End all members, and let none start until `release`; return whether none runs.

        Args:
            killed: Those that end by SIGKILL; all others end by SIGTERM.
        """
        self._is_held = True
        for member in self.members.values():
            # Any other fault of it ends first.
            if member.process is not None and member.fault is None:
                kind = FaultKind.KILL if member.name in killed else FaultKind.TERMINATE
                self.carry_out(Fault(0.0, kind, member.name))
        return not any(member.is_running for member in self.members.values())

    def waiting(self) -> list[str]:
        """Return the members that are down, and are to be started again."""
        return [name for name, member in self.members.items() if member.start_s is not None]

    def release(self) -> None:
        """Let members that are down start again."""
        self._is_held = False

    def note_restored(self, name: str) -> None:
        """Note that a member has another checkpoint than it had, with earlier or other batches."""
        self._note(self.members[name], Note.RESTORED)

    def kill(self) -> None:
        """Make sure that no process is left, in any state."""
        self._is_over = self._is_held = True
        self.hung += filter(None, [member.kill() for member in self.members.values()])

    def without_batch(self, journals: Path, partitions: int) -> list[str]:
        """Return the members that have noted no batch yet, though they run or will be started.

        Args:
            journals: The directory of the notes.
            partitions: How many there are; if there are fewer than members, some have none.
        """
        if len(self.members) > partitions:
            return []
        for name, member in self.members.items():
            path = journals / f"{name}.jsonl"
            is_out = member.process is None and member.start_s is None
            if is_out or (path.exists() and _READS in path.read_text(encoding="ascii")):
                self._silent.discard(name)
        return sorted(self._silent)

    def is_extinct(self) -> bool:
        """Return whether no member runs or will be started again."""
        return all(m.process is None and m.start_s is None for m in self.members.values())

    def running(self) -> int:
        """Return how many members have a process that does not stand still."""
        return sum(member.is_running and member.thaw_s is None for member in self.members.values())

    def _go_on(self, member: Member, fault: Fault, now_s: float) -> None:
        if member.thaw_s is not None:
            if now_s >= member.thaw_s:
                member.send(signal.SIGCONT)
                self._note(member, Note.THAWED)
                self._over(member, Outcome.DONE)
        elif fault.kind is FaultKind.FREEZE_AT_POINT and not member.orders.is_given():
            assert fault.point is not None
            self.points[fault.point] += 1
            member.thaw_s = now_s + fault.takes_s
        elif fault.kind is FaultKind.SLOW_BATCH and not member.orders.is_given():
            self._over(member, Outcome.DONE)
        elif now_s < member.fault_by_s:
            return
        elif fault.kind in (FaultKind.TERMINATE, FaultKind.KILL):
            self.hung.append(f"{member.key} did not end in time: {fault.kind.value}")
            self._note(member, Note.KILLED)
            member.send(signal.SIGUSR1)
            time.sleep(SAYS_WHERE_S)
            member.send(signal.SIGKILL)
            member.fault_by_s = now_s + END_S
        elif member.orders.withdraw():
            self._over(member, Outcome.UNREACHED)

    def _ended(self, member: Member, exit_code: int, now_s: float) -> None:
        fault, member.process = member.fault, None
        how, takes_s = self._how(member, exit_code), FAILED_AGAIN_S
        if how is End.FAILED:
            member.failures += 1
        self._note(member, Note.ENDED, how=how.value, exit_code=exit_code)
        if fault is not None:
            if how not in BY_ITSELF:
                takes_s = fault.takes_s
            if fault.kind is FaultKind.CRASH and fault.point is not None and how is End.KILLED:
                self.points[fault.point] += 1
            self._over(member, Outcome.SKIPPED if how in BY_ITSELF else Outcome.DONE)
        member.thaw_s = None
        is_out = exit_code == query.REFUSED_GAP or member.failures >= FAILURES_MAX
        member.start_s = None if is_out or self._is_over else now_s + takes_s

    def _how(self, member: Member, exit_code: int) -> End:
        kind = member.fault.kind if member.fault else None
        if exit_code == -signal.SIGKILL:
            was_ordered = kind is FaultKind.CRASH and not member.orders.is_given()
            was_killed = kind is FaultKind.KILL or kind is FaultKind.TERMINATE
            return End.KILLED if was_ordered or was_killed else End.FAILED
        if exit_code in ENDS:
            return ENDS[exit_code]
        was_stopped = kind is FaultKind.TERMINATE and exit_code in ENDED_IN_ORDER
        return End.STOPPED if was_stopped else End.FAILED

    def _over(self, member: Member, outcome: Outcome) -> None:
        assert member.fault is not None
        self._count(member.fault, outcome)
        member.fault = member.thaw_s = None

    def _count(self, fault: Fault, outcome: Outcome) -> None:
        if not self._is_over:
            self.outcomes[fault.kind, outcome] += 1

    def _note(self, member: Member, what: Note, **fields: Any) -> None:
        """Add a note on behalf of the member's process."""
        key = member.key
        self._journal.note(what, member=key.member, run=key.number, **fields)
