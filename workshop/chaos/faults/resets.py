"""What an operator does between two runs of all members: offsets, checkpoints, topics.

All members end, and the group becomes empty. Then offsets are reset or deleted, by the commands of
the package; checkpoints are replaced by older ones or by those of other queries; a topic appears
to which members have subscribed before. Members start again one after the other. The first one is
a query whose checkpoint knows the changed topics, as an operator would choose it; if it refuses to
start because offsets are gone, the operator runs the command that its error prints.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from spark_groups.cli.table_names import TableKind
from spark_groups.errors import SparkGroupsError
from spark_groups.types import BatchPlan, OffsetRange
from workshop.chaos.faults.schedule import FaultClass, ResetFaultKind, Standstill
from workshop.chaos.members.checkpoint import Checkpoint
from workshop.chaos.members.ensemble import ENDS_S, Ensemble, Outcome
from workshop.chaos.members.kinds import MemberKind
from workshop.chaos.results.facts import Note, Partition, Trouble
from workshop.chaos.setting import Files
from workshop.chaos.systems.cluster import Broker
from workshop.chaos.systems.tables import Places, command_name, delete_rows, open_table

PARTITIONS_MAX: Final = 3
"""How many partitions a reset is for, at most."""
SHIFTED: Final = (1, 2_000)
BATCHES_BACK: Final = (1, 20)
"""How many batches older a restored checkpoint is."""
EMPTY_S: Final = 60.0
"""How long the coordinator may take to remove members that were killed."""
STARTS_S: Final = 180.0
"""How long the first member may take until each partition has a committed offset."""
COMMAND_S: Final = 120.0
REFUSALS_MAX: Final = 20
NO_BATCH: Final = -1
_REMEDY: Final = re.compile(r"`spark-groups (reset-offsets [^`]*)`")
_SET_BACK: Final = re.compile(r"`spark-groups (table set-offsets [^`]*--backwards[^`]*)`")
_ANY_TABLE: Final = "TABLE"
"""What a printed command has in place of a table."""

Until = Callable[[Callable[[], bool], float], bool]


@dataclass(frozen=True, slots=True)
class AtHand:
    """What an operator has at hand.

    Args:
        broker: The broker.
        bootstrap_servers: Its address.
        group_id: The group.
        files: The files of the run.
        places: Where the tables are.
        tables: Their kinds.
        ensemble: The members.
        kinds: What each member is, by name.
        counts: The topics that are written to the tables, with their numbers of partitions.
        add_topic: Creates a topic that members subscribe to already; its name, None: all are there.
        is_quiet: Ends all other faults; returns whether they are over.
        until: Waits for a condition for so many seconds, and keeps everything else going.
        say: Shows a line.
    """

    broker: Broker
    bootstrap_servers: str
    group_id: str
    files: Files
    places: Places
    tables: Sequence[TableKind]
    ensemble: Ensemble
    kinds: Mapping[str, MemberKind]
    counts: Callable[[], Mapping[str, int]]
    add_topic: Callable[[], str | None]
    is_quiet: Callable[[], bool]
    until: Until
    say: Callable[[str], None]


class Resets:
    """Does the work of an operator while no member runs.

    Args:
        at_hand: What an operator has at hand.
        chance: What partitions, offsets and members are drawn from.
    """

    def __init__(self, at_hand: AtHand, chance: random.Random) -> None:
        self.outcomes: Counter[tuple[ResetFaultKind, Outcome]] = Counter()
        self.troubles: list[Trouble] = []
        self.problems: list[str] = []
        """What did not end in time."""
        self.stood_s = 0.0
        """For how long there was no fault because no member ran."""
        self._run = at_hand
        self._chance = chance
        self._acts: Mapping[ResetFaultKind, Callable[[], str | None]] = {
            ResetFaultKind.EARLIEST: lambda: self._reset("--to-earliest"),
            ResetFaultKind.EARLIER: lambda: self._reset(f"--shift-by=-{chance.randint(*SHIFTED)}"),
            ResetFaultKind.TABLE: self._reset_to_tables,
            ResetFaultKind.REWRITTEN: self._rewrite,
            ResetFaultKind.METADATA_KEPT: self._set_back,
            ResetFaultKind.DELETED: self._delete,
            ResetFaultKind.RESTORED: self._restore,
            ResetFaultKind.COPIED: self._copy,
            ResetFaultKind.TOPIC: at_hand.add_topic,
        }
        self._first: list[str] = []
        """The members of which one starts before all others."""

    def carry_out(self, standstill: Standstill) -> None:
        """End all members, do the drawn work, and start them again one after the other."""
        began_s = time.monotonic()
        run = self._run
        killed = {each for each in run.kinds if self._chance.random() < standstill.killed}
        if not run.until(run.is_quiet, ENDS_S):
            self.problems.append(f"other faults lasted for {ENDS_S:g} s")
        run.say("all members end")
        if run.until(lambda: self._hold(killed), ENDS_S) and self._await_empty():
            self._first = [each for each in run.kinds if self._is_query(each)]
            for kind in standstill.kinds:
                self._act(kind, self._acts[kind])
            self._start(standstill.apart_s)
        else:
            self.problems.append("members did not end, or the group did not become empty")
        run.ensemble.release()
        self.stood_s += time.monotonic() - began_s

    def _hold(self, killed: set[str]) -> bool:
        self._run.ensemble.settle()
        return self._run.ensemble.hold(killed)

    def _await_empty(self) -> bool:
        run = self._run
        return run.until(lambda: run.broker.is_empty(run.group_id), EMPTY_S)

    def _act(self, kind: ResetFaultKind, act: Callable[[], str | None]) -> None:
        from_s = time.time()
        try:
            done = act()
        except (SparkGroupsError, subprocess.SubprocessError) as error:
            # Parts of it may be done: the broker tells what it has accepted.
            self._run.say(f"{kind.value}: {error}")
            done = None
        self.outcomes[kind, Outcome.SKIPPED if done is None else Outcome.DONE] += 1
        members = tuple(self._run.kinds)
        self.troubles.append(
            Trouble(FaultClass.RESETS, kind.value, members, from_s, time.time(), done or "")
        )
        if done is not None:
            self._run.say(f"{kind.value}: {done}")

    def _start(self, apart_s: float) -> None:
        run = self._run
        order = run.ensemble.waiting()
        self._chance.shuffle(order)
        known = [each for each in order if each in self._first and self._plan(each) is not None]
        first = next(iter(known), None)
        if first is not None:
            order.remove(first)
            self._start_first(first)
        for name in order:
            run.until(lambda: False, apart_s)
            run.ensemble.start([name])

    def _start_first(self, name: str) -> None:
        """Start a query, until each partition has a committed offset; do what it says meanwhile."""
        run = self._run
        member = run.ensemble.members[name]

        def has_begun() -> bool:
            wanted = {(topic, index) for topic, n in run.counts().items() for index in range(n)}
            return not member.is_running or set(run.broker.committed(run.group_id)) >= wanted

        for _ in range(REFUSALS_MAX):
            run.ensemble.start([name])
            if not run.until(has_begun, STARTS_S):
                self.problems.append(f"{member.key}: not each partition has a committed offset")
                return
            printed = None if member.is_running else self._printed(name)
            if printed is None:
                return
            self._await_empty()
            self._act(ResetFaultKind.REMEDY, partial(self._done, *printed))
        self.problems.append(f"{member.key}: refused {REFUSALS_MAX} times")

    def _printed(self, name: str) -> list[str] | None:
        """Return the command in the error of a query that has ended; None: it prints none."""
        path = self._run.files.journals / f"{name}.jsonl"
        notes = map(json.loads, filter(None, path.read_text(encoding="ascii").splitlines()))
        errors = [note["error"] for note in notes if note["what"] == Note.FAILS.value]
        return _words(_REMEDY, errors[-1]) if errors else None

    # Offsets.

    def _output(self, *words: str) -> str | None:
        """Run a command as an operator does, and return what it prints; None: it was refused."""
        command = (sys.executable, "-m", "spark_groups.cli.main", *words)
        if "--bootstrap-server" not in words:
            command += ("--bootstrap-server", self._run.bootstrap_servers)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        if done.returncode:
            self._run.say(f"refused: {' '.join(words)}\n{done.stdout}{done.stderr}")
            return None
        return done.stdout

    def _done(self, *words: str) -> str | None:
        """Run a command, and return it; None: it was refused."""
        return None if self._output(*words) is None else " ".join(words)

    def _reset(self, *where: str) -> str | None:
        words = self._reset_words(self._some(self._committed()), *where)
        return self._done(*words) if words else None

    def _reset_words(self, chosen: Sequence[Partition], *where: str) -> list[str]:
        """Return the command that resets partitions; empty: there are none."""
        named = [word for topic, index in chosen for word in ("--topic", f"{topic}:{index}")]
        words = ["reset-offsets", self._run.group_id, *named, *where, "--execute"]
        return words if chosen else []

    def _rewrite(self) -> str | None:
        """Reset partitions, delete their rows from there on, and do what the command prints."""
        run, committed = self._run, self._committed()
        tables = [command_name(each, run.places) for each in run.tables]
        # A query with a new checkpoint may skip a partition without a committed offset.
        is_whole = len(committed) == sum(run.counts().values())
        where = f"--shift-by=-{self._chance.randint(*SHIFTED)}"
        words = self._reset_words(self._some(committed), where, "--json")
        shown = self._output(*words) if is_whole and None not in tables else None
        if shown is None:
            return None
        view = json.loads(shown)
        printed = _words(_SET_BACK, view["next_start"])
        if printed is None:
            return None
        for kind in run.tables:
            for each in view["rows"]:
                delete_rows(
                    kind, run.places, (each["topic"], each["partition"]), each["new_offset"]
                )
        for table in filter(None, tables):
            if self._done(*(table if word == _ANY_TABLE else word for word in printed)) is None:
                self.problems.append(f"a command that was printed is refused: {printed}")
        for name in filter(self._is_query, run.kinds):
            # The old one holds batches whose rows are not there any more.
            self._checkpoint(name).go_back(NO_BATCH, is_finished=True)
            run.ensemble.note_restored(name)
        return " ".join(words)

    def _reset_to_tables(self) -> str | None:
        """Reset partitions to the table that has least of each, so that none refuses a gap."""
        run = self._run
        found: dict[Partition, tuple[int, TableKind]] = {}
        names = run.broker.names(run.counts())
        entries = {
            kind: {
                (names[key.topic_id], key.partition): entry.next_offset
                for key, entry in open_table(kind, run.places).read(run.group_id).entries.items()
                if key.topic_id in names
            }
            for kind in run.tables
        }
        for each in self._some(set.intersection(*(set(each) for each in entries.values()))):
            found[each] = min(
                ((entries[kind][each], kind) for kind in run.tables), key=lambda one: one[0]
            )
        done: list[str | None] = []
        for kind in run.tables:
            named = command_name(kind, run.places)
            chosen = [each for each, (_, least) in found.items() if least is kind]
            if chosen and named is not None:
                done.append(self._done(*self._reset_words(chosen, "--from-table", named)))
        return "; ".join(filter(None, done)) or None

    def _set_back(self) -> str | None:
        """Set an offset to where the last batch of a checkpoint began, with the metadata kept."""
        run, committed = self._run, self._committed()
        chosen = [
            (name, each)
            for name in run.ensemble.waiting()
            if name in self._first
            for each in self._last_ranges(name)
            if committed.get((each.topic, each.partition), 0) > each.from_offset
        ]
        if not chosen:
            return None
        name, each = self._chance.choice(chosen)
        run.broker.commit_keeping_metadata(run.group_id, each.key, each.from_offset)
        # The query whose checkpoint ends with this batch gets the partition first.
        self._first = [name]
        place = f"{each.topic}-{each.partition}"
        return f"{place} to {each.from_offset}, where the last batch of {name} began"

    def _delete(self) -> str | None:
        """Delete offsets of a topic, or of some of its partitions."""
        run, committed = self._run, self._committed()
        there = [each for each in run.ensemble.waiting() if each in self._first]
        known = {
            topic: found
            for topic in sorted({topic for topic, _ in committed})
            if (found := [name for name in there if self._knows(name, topic)])
        }
        if not known:
            return None
        topic = self._chance.choice(list(known))
        # Another query takes the topic for one that the group has never read.
        self._first = [self._chance.choice(known[topic])]
        (first,) = self._first
        last = [each for each in self._last_ranges(first) if each.topic == topic]
        # What its last batch has read it does not begin again without a decision.
        chosen = self._some((topic, each.partition) for each in last)
        if not chosen:
            chosen = self._some(each for each in committed if each[0] == topic)
        is_whole = self._chance.random() < 1 / 2
        named = topic if is_whole else f"{topic}:{','.join(str(index) for _, index in chosen)}"
        return self._done("delete-offsets", run.group_id, "--topic", named)

    def _committed(self) -> dict[Partition, int]:
        """Return the committed offsets of the topics that tables hold."""
        counts = self._run.counts()
        found = self._run.broker.committed(self._run.group_id)
        return {each: offset for each, offset in found.items() if each[0] in counts}

    def _some(self, partitions: Iterable[Partition]) -> list[Partition]:
        known = sorted(partitions)
        count = min(len(known), self._chance.randint(1, PARTITIONS_MAX))
        return sorted(self._chance.sample(known, count))

    # Checkpoints.

    def _restore(self) -> str | None:
        found = []
        for name in self._run.ensemble.waiting():
            last = self._checkpoint(name).last_planned() if self._plan(name) else None
            if last:
                found.append((name, last))
        if not found:
            return None
        name, last = self._chance.choice(found)
        batch = max(0, last - self._chance.randint(*BATCHES_BACK))
        is_finished = self._chance.random() < 1 / 2
        self._checkpoint(name).go_back(batch, is_finished=is_finished)
        self._run.ensemble.note_restored(name)
        return f"{name} back at batch {batch}, {'finished' if is_finished else 'planned'}"

    def _copy(self) -> str | None:
        found = [
            (source, target)
            for source in self._run.kinds
            if self._plan(source) is not None
            for target in self._run.ensemble.waiting()
            if target != source and self._run.kinds[target] is self._run.kinds[source]
        ]
        if not found:
            return None
        source, target = self._chance.choice(found)
        self._checkpoint(target).copy_from(self._run.files.checkpoint(source))
        self._run.ensemble.note_restored(target)
        return f"{target} has that of {source}"

    def _is_query(self, name: str) -> bool:
        return self._run.kinds[name] in (MemberKind.QUERY, MemberKind.APPLICATION)

    def _checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(self._run.files.checkpoint(name))

    def _plan(self, name: str) -> BatchPlan | None:
        """Return the last plan of a checkpoint; None: there is none."""
        return self._checkpoint(name).last_plan() if self._is_query(name) else None

    def _last_ranges(self, name: str) -> Iterator[OffsetRange]:
        """Yield the ranges of the last batch of a checkpoint, if it is finished."""
        plan, checkpoint = self._plan(name), self._checkpoint(name)
        if plan is not None and checkpoint.last_planned() == checkpoint.last_committed():
            yield from (
                offset_range
                for offset_range in plan.ranges
                if offset_range.topic in self._run.counts()
            )

    def _knows(self, name: str, topic: str) -> bool:
        plan = self._plan(name)
        return plan is not None and any(each.is_read and each.name == topic for each in plan.topics)


def _words(pattern: re.Pattern[str], text: str) -> list[str] | None:
    """Return the words of a command that a text prints; None: it prints none."""
    found = pattern.search(text)
    return shlex.split(found[1]) if found else None
