"""Bugs that are planted in a member: functions that replace those of the product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from spark_groups.errors import ErrorCode
from spark_groups.group.after_input import AfterInput
from spark_groups.group.client import GroupClient
from spark_groups.group.ledger.commits import CommitOutcome, CommitQueue
from spark_groups.group.ledger.ledger import FinishedBatch, FinishedRun, Ledger, OwnedPartition
from spark_groups.group.member.messages import OffsetCommitResponse
from spark_groups.types import (
    NO_PARTITIONS,
    Assignment,
    BatchPlan,
)


class Patch(Protocol):
    """Replaces attributes, as pytest's MonkeyPatch does."""

    def setattr(self, target: object, name: str, value: object, /) -> None:
        """Set an attribute."""


def acknowledges_before_its_batch_is_committed(patch: Patch) -> None:
    """Let a member release partitions that a batch still reads."""
    patch.setattr(Ledger, "delaying_revocation", lambda *_, **__: NO_PARTITIONS)


def commits_with_the_epoch_of_the_moment(patch: Patch) -> None:
    """Let a member commit a batch with its current member epoch, not that of the plan."""
    finish, finished = GroupClient.finish, Ledger.finish
    epochs: WeakKeyDictionary[Ledger, int] = WeakKeyDictionary()

    def with_epoch(self: GroupClient, plan: BatchPlan, now: float) -> None:
        epochs[self.parts.ledger] = self.parts.member.member_epoch
        finish(self, plan, now)

    def bent(self: Ledger, plan: BatchPlan) -> FinishedBatch:
        found = finished(self, plan)
        commits = tuple(replace(each, member_epoch=epochs[self]) for each in found.commits)
        return replace(found, commits=commits)

    patch.setattr(GroupClient, "finish", with_epoch)
    patch.setattr(Ledger, "finish", bent)


def keeps_its_partitions_when_it_is_fenced(patch: Patch) -> None:
    """Let a member own what it had when the coordinator fenced its epoch."""
    drop = AfterInput._drop

    def kept(self: AfterInput, partitions: Assignment, reason: str, now: float) -> None:
        if not reason.startswith(ErrorCode.FENCED_MEMBER_EPOCH.name):
            drop(self, partitions, reason, now)

    patch.setattr(AfterInput, "_drop", kept)


def looks_up_no_uncertain_commit(patch: Patch) -> None:
    """Let a member take a commit that was sent again for accepted, without looking it up."""
    handled = CommitQueue.handle_response

    def certain(self: CommitQueue, response: OffsetCommitResponse, now: float) -> CommitOutcome:
        self._sent = {key: replace(each, uncertain=False) for key, each in self._sent.items()}
        return handled(self, response, now)

    patch.setattr(CommitQueue, "handle_response", certain)


def commits_when_it_plans(patch: Patch) -> None:
    """Let a member commit the end of a batch when it plans the batch."""
    plan = GroupClient.plan

    def planned(self: GroupClient, *rest: Any) -> BatchPlan | None:
        found = plan(self, *rest)
        if found is not None:
            epoch, ledger = self.parts.member.member_epoch, self.parts.ledger
            keys = found.partitions() & ledger.owned.keys()
            self.parts.commits.add(ledger.commit_of_position(key, epoch) for key in keys)
        return found

    patch.setattr(GroupClient, "plan", planned)


def takes_a_value_for_evidence(patch: Patch) -> None:
    """Let a member take any committed offset at which its batch began for its own commit."""

    def stands(self: OwnedPartition, run: FinishedRun) -> bool:
        is_committed = self.committed_offset == self.position
        return is_committed and self.position in [
            boundary.offset for boundary in run.boundaries[:-1]
        ]

    patch.setattr(OwnedPartition, "stands_at_batch_start_of", stands)


def lets_go_of_what_a_replayed_batch_reads(patch: Patch) -> None:
    """Let a member release partitions that a replayed batch reads."""
    patch.setattr(Ledger, "replay", lambda *_: None)
