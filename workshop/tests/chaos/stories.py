"""The notes that a run's processes would write, step by step, and the rows in its sinks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

from workshop.chaos.faults.schedule import FaultClass, MachineFaultKind, ResetFaultKind
from workshop.chaos.results.account import Account, Evidence, SinkRow, TableEvidence, account
from workshop.chaos.results.facts import (
    Commit,
    Deletion,
    Disruption,
    End,
    Note,
    Partition,
    Trouble,
    read_facts,
)

TOPIC = "ants"
TABLE = "delta"
SESSION_S = 10.0
REBALANCE_TIMEOUT_S = 2.0
PLAIN = "c1"


class Story:
    """A run with one partition, in order of time: each note is a second later."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.append: list[SinkRow] = []
        self.table: list[SinkRow] = []
        self.entry: tuple[int, int] | None = None
        """The table's entry; None: that of its rows."""
        self.commits: list[Commit] = []
        self.disruptions: list[Disruption] = []
        self.finished_s: dict[tuple[str, int], float] = {}
        """When batches of applications were in the commit log."""
        self.troubles: list[Trouble] = []
        self.deletions: list[Deletion] = []
        self.end_offset = 0
        self._seconds = itertools.count(1.0)
        self.at_s = 0.0

    def note(self, run: str, what: Note, **fields: Any) -> None:
        """Note something as a run such as `q1.1`."""
        member, number = run.split(".")
        self.at_s = next(self._seconds)
        note = {"at_s": self.at_s, "member": member, "run": int(number), "what": what.value}
        self.lines.append(json.dumps({**note, **fields}))

    def note_partition(self, run: str, what: Note) -> None:
        """Note that the partition came or went."""
        self.note(run, what, partitions=[[TOPIC, 0]])

    def plan(self, run: str, batch: int, plan: str = "") -> None:
        """Plan a batch, and write offsets/N."""
        plan = plan or f"plan {batch} of {run}"
        self.note(run, Note.PLANNED, batch=batch, plan=plan, partitions=[[TOPIC, 0]])
        self.note(run, Note.LOGGED, batch=batch, plan=plan)

    def write(
        self,
        run: str,
        batch: int,
        offsets: Iterable[int],
        *,
        plan: str = "",
        is_replay: bool = False,
        digest: str = "the rows",
        in_table: Iterable[int] | None = None,
        planned: tuple[int, int] | None = None,
    ) -> None:
        """Run a batch up to both sinks; by default the table gets the rows that it lacks.

        The range that is `planned` is by default that of the offsets.
        """
        offsets = list(offsets)
        plan = plan or f"plan {batch} of {run}"
        first, until = planned or (min(offsets, default=0), max(offsets, default=-1) + 1)
        ranges = [[TOPIC, 0, first, until]]
        self.note(run, Note.READS, batch=batch, plan=plan, replay=is_replay, ranges=ranges)
        self.note(run, Note.READ, batch=batch, digest=f"{digest} of {plan}")
        self.note(run, Note.WRITES, batch=batch)
        there = {row.offset for row in self.table}
        new = [each for each in offsets if each not in there] if in_table is None else in_table
        self.append += [SinkRow(f"{run}.{batch}", TOPIC, 0, each, True) for each in offsets]
        self.table += [SinkRow(f"{run}.{batch}", TOPIC, 0, each, True) for each in new]
        self.end_offset = max([self.end_offset, *(each + 1 for each in offsets)])

    def finish(self, run: str, batch: int) -> None:
        """Write commits/N."""
        self.note(run, Note.FINISHED, batch=batch)

    def commit(self, offset: int) -> None:
        """Have Kafka accept an offset."""
        self.at_s = next(self._seconds)
        self.commits.append(Commit(self.at_s, offset))

    def whole_batch(self, run: str, batch: int, offsets: range) -> None:
        """Run a batch from its plan to Kafka's commit."""
        self.plan(run, batch)
        self.write(run, batch, offsets)
        self.finish(run, batch)
        self.commit(offsets.stop)

    def begins(self, run: str) -> None:
        """Start a process."""
        self.note(run, Note.BEGINS)

    def ends(self, run: str, how: End = End.KILLED) -> None:
        """End a process."""
        self.note(run, Note.ENDED, how=how.value)

    def broker_fails(
        self, kind: str = "a broker: SIGKILL", *, leads: bool = True, coordinates: bool = True
    ) -> None:
        """Have a broker fail: it is down, up and in sync again, each a second later."""
        from_s = next(self._seconds)
        down_s, up_s, in_sync_s = (next(self._seconds) for _ in range(3))
        led = ((TOPIC, 0),) if leads else ()
        self.disruptions.append(
            Disruption(kind, 2, from_s, down_s, up_s, in_sync_s, led, coordinates)
        )

    def network_fails(self, *members: str, kind: str = "network: nothing passes") -> None:
        """Have the network of some members fail for a second."""
        from_s, until_s = next(self._seconds), next(self._seconds)
        self.troubles.append(Trouble(FaultClass.NETWORK, kind, members, from_s, until_s))

    def machine_fails(self, kind: MachineFaultKind, between: Callable[[], None]) -> None:
        """Have the machine of `q1` fail, with what happens meanwhile."""
        from_s = next(self._seconds)
        between()
        until_s = next(self._seconds)
        self.troubles.append(Trouble(kind.part, kind.value, ("q1",), from_s, until_s))

    def between_runs(self, *offsets: int, restored: str = "") -> None:
        """Have an operator set offsets while no member runs, and give one another checkpoint."""
        from_s = next(self._seconds)
        for each in offsets:
            self.commit(each)
        if restored:
            self.note(restored, Note.RESTORED)
        kind = ResetFaultKind.EARLIER.value
        found = Trouble(FaultClass.RESETS, kind, ("q1", "q2"), from_s, next(self._seconds))
        self.troubles.append(found)

    def delete_before(self, offset: int) -> None:
        """Have retention delete records; the topic is in no table then."""
        self.deletions.append(Deletion(next(self._seconds), (TOPIC, 0), offset))

    def account(self) -> Account:
        """Compare the sinks with the produced rows."""
        return account(self.evidence())

    def evidence(self) -> Evidence:
        """Return all that is known of the run."""
        partition: Partition = (TOPIC, 0)
        last = (0, max((row.offset + 1 for row in self.table), default=0))
        table = TableEvidence(self.table, {partition: self.entry or last})
        return Evidence(
            ends={partition: self.end_offset},
            append=self.append,
            tables={} if self.deletions else {TABLE: table},
            facts=read_facts(self.lines, [PLAIN], self.finished_s),
            commits={partition: self.commits},
            session_s=SESSION_S,
            rebalance_timeout_s=REBALANCE_TIMEOUT_S,
            disruptions=tuple(self.disruptions),
            troubles=tuple(self.troubles),
            deletions=tuple(self.deletions),
            starts={
                partition: max((deletion.before_offset for deletion in self.deletions), default=0)
            },
            short_lived=frozenset({TOPIC} if self.deletions else ()),
        )
