"""Shared by test_drawn_mutations.py and other tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from group_lab.coordinator import client_assignment, heartbeat
from group_lab.coordinator.effects import Computation, Timer, TimerKey, TimerKind
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.messages import InstallAssignmentRequest
from group_lab.coordinator.subscriptions import Change
from group_lab.sim.swarm import GroupProtocol
from lab.tests.sim import fence_bugs, proof_bugs, trigger_bugs
from lab.tests.sim.mutations_setup import plans_what_is_being_revoked
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.batches.planner import BatchPlanner
from spark_groups.group.batches.warm_up import WarmUp
from spark_groups.group.ledger.resolution import PositionResolver
from spark_groups.group.ledger.starting import StartingOffsets
from spark_groups.group.ledger.truncation import PositionValidator
from spark_groups.group.member import messages as m
from spark_groups.group.member.member import Member
from workshop.parts.member_bugs import (
    commits_with_the_epoch_of_the_moment,
    keeps_its_partitions_when_it_is_fenced,
    lets_go_of_what_a_replayed_batch_reads,
    looks_up_no_uncertain_commit,
    takes_a_value_for_evidence,
)

Patch = pytest.MonkeyPatch


MIXED = (GroupProtocol.CONSUMER, GroupProtocol.CLASSIC_EAGER, GroupProtocol.CLASSIC_COOPERATIVE)


SCHEDULES_MAX = 2_000
"""Within how many schedules a bug has to break its promise, from any seed."""


def repeats_nothing_after_a_lost_answer(patch: Patch) -> None:
    def unheard(self: Member, now: float) -> None:
        self._in_flight = None
        self.pace.failed(now)

    patch.setattr(Member, "handle_failure", unheard)


def starts_what_is_named_at_the_default(patch: Patch) -> None:
    of = StartingOffsets.of

    def unnamed(self: StartingOffsets, *rest: Any, **more: Any) -> int:
        return of(StartingOffsets(self.default), *rest, **more)

    patch.setattr(StartingOffsets, "of", unnamed)


def takes_an_error_for_no_offset(patch: Patch) -> None:
    found = PositionResolver.handle_fetch

    def handled(self: PositionResolver, response: m.OffsetFetchResponse, **rest: Any) -> Any:
        offsets = {
            key: m.OffsetAndMetadata(m.NO_OFFSET) if isinstance(each, m.PartitionError) else each
            for key, each in response.answers.items()
        }
        return found(self, replace(response, answers=offsets), **rest)

    patch.setattr(PositionResolver, "handle_fetch", handled)


def goes_on_after_a_loss(patch: Patch) -> None:
    begin = PositionValidator.__init__

    def forgiving(self: PositionValidator, ledger: Any, topics: Any, _fails: bool) -> None:
        begin(self, ledger, topics, False)

    patch.setattr(PositionValidator, "__init__", forgiving)


def reads_on_while_there_is_more(patch: Patch) -> None:
    patch.setattr(BatchPlanner, "_clip", lambda _, listed: listed)


def waits_for_nothing(patch: Patch) -> None:
    patch.setattr(PlanLimit, "holds_back", lambda *_: False)


def replaces_a_batch_that_is_not_committed(patch: Patch) -> None:
    patch.setattr(WarmUp, "_is_all_committed", lambda *_: True)


def computes_on_after_a_classic_member_has_joined(patch: Patch) -> None:
    """The join of a classic member stops no computation; its result is refused."""
    next_step = heartbeat.next_step

    def unstopped(change: Change, *rest: Any) -> heartbeat.Step:
        step = next_step(change, *rest)
        if change.updated_member.classic is None:
            return step
        kept = tuple(each for each in step.timers if each not in step.computing.timers)
        return replace(step, timers=kept)

    patch.setattr(heartbeat, "next_step", unstopped)


def installs_a_stale_target(patch: Patch) -> None:
    """The result of a stopped computation is installed, for any group epoch."""
    prepared, computation = client_assignment._prepared, client_assignment._computation
    last: list[Computation] = []

    def noted(group: ConsumerGroup, assignor: str, context: Any) -> Any:
        found = prepared(group, assignor, context)
        last[:] = [Computation("", assignor, is_announced=True, prepared=found)]
        return found

    def any_computation(group: ConsumerGroup, request: Any, context: Any) -> Any:
        is_result = isinstance(request, InstallAssignmentRequest)
        if context.computing is None and is_result and group.is_consumer_group and last:
            key = TimerKey(TimerKind.CLIENT_ASSIGNMENT, group.group_id)
            return Timer(key, None), last[0]
        return computation(group, request, context)

    patch.setattr(client_assignment, "_prepared", noted)
    patch.setattr(client_assignment, "_computation", any_computation)
    patch.setattr(client_assignment, "_check_is_newer", lambda *_: None)


@dataclass(frozen=True)
class Planted:
    """A bug, the promise it breaks, and a drawn schedule that detects it.

    Args:
        promise: The name of the checker that must detect it.
        plant: Plants it.
        seed: That of the schedule.
        profile: Whose coordinator it has.
        protocols: Those of the members that are drawn.
    """

    promise: str
    plant: Callable[[Patch], None]
    seed: int
    profile: str
    protocols: tuple[GroupProtocol, ...] = (GroupProtocol.CONSUMER,)


DRAWN = (
    Planted(
        "commit ownership",
        keeps_its_partitions_when_it_is_fenced,
        500_069,
        "kafka-4.0",
    ),
    Planted("commit epochs", commits_with_the_epoch_of_the_moment, 400_005, "kip-848"),
    Planted("clean hand over", lets_go_of_what_a_replayed_batch_reads, 300_001, "kafka-4.3"),
    Planted("only assigned", plans_what_is_being_revoked, 400_006, "kip-848"),
    Planted("clean hand over", looks_up_no_uncertain_commit, 400_012, "kafka-4.0"),
    Planted("full heartbeats", repeats_nothing_after_a_lost_answer, 400_005, "kafka-4.0"),
    Planted("starting offsets used", starts_what_is_named_at_the_default, 400_030, "kafka-4.0"),
    Planted("no final failure", takes_an_error_for_no_offset, 400_050, "kafka-4.2"),
    Planted("loss is reported", goes_on_after_a_loss, 400_054, "kafka-4.0"),
    Planted("available now bounds", reads_on_while_there_is_more, 400_009, "kafka-4.0"),
    Planted("trigger delay", waits_for_nothing, 400_039, "kip-848"),
    Planted("resets respected", takes_a_value_for_evidence, 400_014, "kafka-4.3"),
    Planted("read once", replaces_a_batch_that_is_not_committed, 400_015, "kafka-4.1"),
    Planted("legal target", installs_a_stale_target, 400_074, "kip-848", protocols=MIXED),
    Planted(
        "computation is due",
        computes_on_after_a_classic_member_has_joined,
        400_004,
        "kip-848",
        protocols=MIXED,
    ),
    Planted(
        "available now bounds",
        trigger_bugs.ends_available_now_at_the_first_empty_look,
        400_010,
        "kip-848",
    ),
    Planted("group settles", trigger_bugs.compares_no_log_ends_with_positions, 400_000, "kip-848"),
    Planted("group settles", trigger_bugs.plans_without_leader_epochs, 400_000, "kip-848"),
    Planted("group settles", trigger_bugs.ignores_every_failure, 400_058, "kip-848"),
    Planted(
        "no gap",
        proof_bugs.finishes_the_last_plan_for_a_late_report_of_another,
        400_002,
        "kafka-4.0",
    ),
    Planted(
        "clean hand over",
        proof_bugs.takes_a_batch_that_runs_again_for_a_finished_one,
        400_034,
        "kafka-4.0",
    ),
    Planted(
        "only assigned",
        proof_bugs.proves_only_the_first_batch,
        400_069,
        "kip-848",
    ),
    Planted(
        "no gap",
        proof_bugs.keeps_the_first_plan_that_it_read,
        400_002,
        "kip-848",
    ),
    *(Planted("exactly once", plant, *found_by) for plant, *found_by in fence_bugs.FOUND),
)
