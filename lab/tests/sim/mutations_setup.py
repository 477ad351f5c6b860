"""Shared by test_mutations.py and other tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from group_lab.coordinator import offsets, shard
from group_lab.coordinator import records as r
from group_lab.coordinator.effects import Timer, TimerKind
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import ReconciliationState
from group_lab.coordinator.shard import Timers
from group_lab.sim.storage import PartitionLog
from group_lab.sim.swarm import Swarm
from group_lab.sim.world import World
from spark_groups.errors import ErrorCode, Reaction
from spark_groups.group.batches.next_batch import NextBatch
from spark_groups.group.ledger.commits import CommitQueue
from spark_groups.group.ledger.ledger import Ledger, Phase
from spark_groups.group.ledger.resolution import PositionResolver
from spark_groups.group.member import backoff, member
from spark_groups.group.member import messages as m
from spark_groups.types import Assignment, TopicIdPartition
from workshop.parts.member_bugs import (
    acknowledges_before_its_batch_is_committed,
    commits_when_it_plans,
    commits_with_the_epoch_of_the_moment,
    takes_a_value_for_evidence,
)

Patch = pytest.MonkeyPatch


CALM = Swarm(queries=3, partitions=6, stops=3, chaos_s=40.0)


ROUGH = replace(CALM, crashes=3, pauses=3, loss=0.05)


def bend_records(patch: Patch, bend: Callable[[ConsumerGroup, r.Record], r.Record]) -> None:
    """Let the coordinator write other records than it should in answer to heartbeats."""
    heartbeat = shard.WRITES[m.HeartbeatRequest]

    def bent(group: ConsumerGroup, *rest: Any) -> Any:
        outcome = heartbeat(group, *rest)
        return replace(outcome, records=tuple(bend(group, each) for each in outcome.records))

    patch.setitem(shard.WRITES, m.HeartbeatRequest, bent)  # type: ignore[arg-type]


def one_partition_for_everybody(patch: Patch) -> None:
    seen: list[Assignment] = []

    def bend(_group: ConsumerGroup, record: r.Record) -> r.Record:
        if not isinstance(record.value, r.TargetMemberValue):
            return record
        seen.append(record.value.partitions)
        wanted = seen[0] | record.value.partitions
        return r.Record(record.key, replace(record.value, partitions=wanted))

    bend_records(patch, bend)


def frees_a_partition_too_early(patch: Patch) -> None:
    def bend(_group: ConsumerGroup, record: r.Record) -> r.Record:
        value = record.value
        if isinstance(value, r.CurrentAssignmentValue) and value.pending_revocation:
            value = replace(value, pending_revocation={})
        return r.Record(record.key, value)

    bend_records(patch, bend)


def member_ahead_of_the_target(patch: Patch) -> None:
    def bend(_group: ConsumerGroup, record: r.Record) -> r.Record:
        value = record.value
        if isinstance(value, r.CurrentAssignmentValue):
            value = replace(value, member_epoch=value.member_epoch + 1)
        return r.Record(record.key, value)

    bend_records(patch, bend)


def calls_a_waiting_member_stable(patch: Patch) -> None:
    def bend(_group: ConsumerGroup, record: r.Record) -> r.Record:
        value = record.value
        waiting = ReconciliationState.UNRELEASED_PARTITIONS
        if isinstance(value, r.CurrentAssignmentValue) and value.state is waiting:
            value = replace(value, state=ReconciliationState.STABLE)
        return r.Record(record.key, value)

    bend_records(patch, bend)


def commits_without_epoch(patch: Patch) -> None:
    patch.setattr(offsets, "_commit_error", lambda *_: 0)


def begins_below_what_is_committed(patch: Patch) -> None:
    found = PositionResolver.handle_fetch

    def handled(self: PositionResolver, response: m.OffsetFetchResponse, **rest: Any) -> Any:
        lower = {
            key: each
            if isinstance(each, m.PartitionError)
            else replace(each, committed_offset=each.committed_offset - (each.committed_offset > 0))
            for key, each in response.answers.items()
        }
        return found(self, replace(response, answers=lower), **rest)

    patch.setattr(PositionResolver, "handle_fetch", handled)


def plans_what_is_being_revoked(patch: Patch) -> None:
    def positions(self: Ledger, _assigned: Assignment) -> dict[TopicIdPartition, int]:
        ready = ((key, owned) for key, owned in self.owned.items() if owned.phase is Phase.READY)
        return {key: owned.position for key, owned in ready}

    patch.setattr(Ledger, "positions", positions)


def commits_arrive_again_later(patch: Patch) -> None:
    serve = World._serve

    def served(self: World, outgoing: Any, reply: Any) -> None:
        serve(self, outgoing, reply)
        if isinstance(outgoing.request, m.OffsetCommitRequest):
            self.scene.schedule.after(4.0, lambda: serve(self, outgoing, lambda _: None))

    patch.setattr(World, "_serve", served)


def reads_to_the_end_of_the_log(patch: Patch) -> None:
    read = PartitionLog.read
    patch.setattr(PartitionLog, "read", lambda self, first, _: read(self, first, self.end_offset))


def reads_nothing_while_more_is_to_come(patch: Patch) -> None:
    ask = NextBatch.ask_for_ends

    def eager(self: NextBatch, now: float) -> bool:
        return self.is_settled and ask(self, now)

    patch.setattr(NextBatch, "ask_for_ends", eager)


def plans_before_the_start_is_committed(patch: Patch) -> None:
    start_at = Ledger.start_at

    def started(self: Ledger, key: Any, *rest: Any) -> None:
        start_at(self, key, *rest)
        self.owned[key].phase = Phase.READY

    patch.setattr(Ledger, "start_at", started)


def takes_a_loading_coordinator_for_final(patch: Patch) -> None:
    rule_for = member.rule_for

    def rule(code: int) -> Any:
        found = rule_for(code)
        is_loading = code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return replace(found, heartbeat=Reaction.FAIL) if is_loading else found

    patch.setattr(member, "rule_for", rule)


def asks_without_a_pause(patch: Patch) -> None:
    patch.setattr(backoff.Backoff, "failed", lambda *_: None)


def forgets_a_commit_that_got_no_answer(patch: Patch) -> None:
    patch.setattr(CommitQueue, "handle_failure", lambda self, *_, **__: self._sent.clear())


def waits_for_ever(patch: Patch) -> None:
    put = Timers.put

    def kept(self: Timers, timer: Timer) -> None:
        if timer.key.kind is not TimerKind.REBALANCE:
            put(self, timer)

    patch.setattr(Timers, "put", kept)


@dataclass(frozen=True)
class Planted:
    """A bug, the run that shows it, and the promise it breaks."""

    promise: str
    plant: Callable[[Patch], None]
    swarm: Swarm
    profile: str = "kafka-4.3"
    seeds: int = 3


PLANTED = (
    Planted("legal target", one_partition_for_everybody, CALM),
    Planted("member epochs", member_ahead_of_the_target, CALM),
    Planted("single owner", frees_a_partition_too_early, replace(CALM, batch_s=6.0), seeds=1),
    Planted("stable group", calls_a_waiting_member_stable, replace(CALM, batch_s=6.0)),
    Planted(
        "commit ownership",
        commits_without_epoch,
        replace(CALM, pauses=8, listener=1, batch_s=6.0, session_s=5.0),
    ),
    Planted("commit epochs", commits_with_the_epoch_of_the_moment, CALM),
    Planted("only assigned", plans_what_is_being_revoked, replace(CALM, holds=1)),
    Planted("commits never go back", commits_arrive_again_later, replace(CALM, queries=1, stops=0)),
    Planted("no gap", commits_when_it_plans, CALM),
    Planted(
        "clean hand over",
        acknowledges_before_its_batch_is_committed,
        replace(CALM, batch_s=6.0, from_latest=0),
    ),
    Planted("read once", begins_below_what_is_committed, CALM),
    Planted("resets respected", takes_a_value_for_evidence, replace(CALM, resets=2), seeds=6),
    Planted("same rows", reads_to_the_end_of_the_log, replace(ROUGH, batch_s=6.0)),
    Planted(
        "keeps reading",
        reads_nothing_while_more_is_to_come,
        replace(CALM, queries=4, partitions=8, batch_s=20.0, stops=8, rate=30.0, chaos_s=90.0),
        seeds=6,
    ),
    Planted(
        "starts committed",
        plans_before_the_start_is_committed,
        replace(CALM, errors=0.5, trigger_s=0.05, from_latest=0),
        seeds=8,
    ),
    Planted("no final failure", takes_a_loading_coordinator_for_final, replace(ROUGH, moves=4)),
    Planted("request rate", asks_without_a_pause, replace(ROUGH, moves=8), seeds=5),
    Planted(
        "timeouts enforced",
        waits_for_ever,
        replace(CALM, pauses=20, stops=8, holds=1, rebalance_s=5.0, session_s=60.0),
        seeds=6,
    ),
    Planted(
        "group settles",
        forgets_a_commit_that_got_no_answer,
        replace(CALM, queries=1, stops=0, loss=0.3),
        seeds=6,
    ),
)
