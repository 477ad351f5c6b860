"""One trigger of a query: from Spark's call to the plan of its next batch, with every wait between.

The caller calls `begin`, then `poll` until that returns an end: `Planned`, `NothingToRead`
or `Over`. Until then `poll` says what it waits for. It has no clock, no thread and no socket; the
runner of a query and the simulation drive the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from math import inf
from typing import Final, TypeAlias

from spark_groups.errors import BrokerUnreachableError
from spark_groups.group.batches.batch_bytes import BytesSearch
from spark_groups.group.batches.first_batches import FirstBatches
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.client import GroupClient
from spark_groups.group.ledger.events import NothingUnread
from spark_groups.group.member.messages import ListedOffset, RecordSample
from spark_groups.group.requests.channels import Channel
from spark_groups.group.requests.record_samples import SAMPLING_S
from spark_groups.types import BatchPlan, TopicIdPartition
from spark_groups.values import dataclass

Ends: TypeAlias = Mapping[TopicIdPartition, ListedOffset]
"""Log ends that were listed."""

MEMBERSHIP_UNCONFIRMED: Final = "membership not confirmed"
OUTAGE_S: Final = 300.0
"""How long a running query continues without an answer from any broker."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a trigger waits, for what; all in seconds.

    Args:
        answer_s: For the coordinator's first answer, and under AvailableNow for log ends
            (`kafka.default.api.timeout.ms`).
        settled_s: Under AvailableNow, for the whole target assignment.
        first_assignment_s: In the first plan, for partitions that other members still own; and in
            each plan for a position, if none is known.
        under_way_s: For a heartbeat under way: a healthy coordinator answers in milliseconds, and a
            slow one must not delay every batch.
        resolving_s: For the positions of partitions that were assigned this recently: no member
            reads those that a plan omits for a whole batch.
        validation_s: For new leaders that confirm positions; unconfirmed partitions are omitted.
        again_s: Between two looks under AvailableNow.
    """

    answer_s: float = 60.0
    settled_s: float = 60.0
    first_assignment_s: float = 3.0
    under_way_s: float = 0.1
    resolving_s: float = 0.5
    validation_s: float = 2.0
    again_s: float = 0.1


@dataclass(frozen=True, slots=True)
class Planned:
    """An end: Spark runs this batch."""

    plan: BatchPlan


@dataclass(frozen=True, slots=True)
class NothingToRead:
    """An end: there is nothing to read, and nothing new to record."""


@dataclass(frozen=True, slots=True)
class Over:
    """The end of AvailableNow: nothing is left that this member may read."""


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Poll again at this time, or after any input of the client.

    Args:
        at: Seconds of the client's clock; infinite: only after an input.
    """

    at: float


@dataclass(frozen=True, slots=True)
class _Until:
    """A wait inside the trigger: until a condition holds, or until a time."""

    is_met: Callable[[], bool]
    at: float


End: TypeAlias = Planned | NothingToRead | Over
Step: TypeAlias = End | WaitUntil
_Steps: TypeAlias = Generator[_Until, None, End]
"""Yields each wait, continues once that is over, and returns the end."""


class Trigger:
    """The triggers of one run of a query, one after another.

    Args:
        servers: The bootstrap servers, for errors.
    """

    def __init__(
        self, client: GroupClient, patience: Patience, servers: tuple[str, ...] = ()
    ) -> None:
        self._client, self._parts = client, client.parts
        self._patience = patience
        self._servers = servers
        self._is_available_now = False
        self._has_begun = False
        self._is_first = True
        """Whether no plan has read records, and none was found to have nothing to read."""
        self._steps: _Steps | None = None
        self._wait: _Until | None = None
        """What the steps wait for; None: they continue with the next poll."""
        self._now = 0.0
        """The time of the current call."""
        self._first_batches = FirstBatches()
        self._sizes: BytesSearch[TopicIdPartition] | None = None
        """How the plan is limited in bytes; None: it is not."""
        self._samples: Mapping[TopicIdPartition, RecordSample] = {}
        """The last sample of each partition, for plans that cannot sample it."""

    def prepare_available_now(self) -> None:
        """Read each partition up to its end at the time of its assignment, then end."""
        self._is_available_now = True
        self._parts.available_now.prepare()

    def begin(
        self,
        limit: PlanLimit,
        now: float,
        *,
        tasks: int = 0,
        trigger_interval_s: float | None = None,
    ) -> None:
        """Note that Spark asks for the next batch: a query that waits for the answer is alive.

        Args:
            limit: The query's limit of a batch.
            tasks: The number of tasks that read at once; 0: the first batches have no limit in
                offsets.
            trigger_interval_s: Seconds between batch starts, 0 if not fixed; None: unknown.
        """
        if self._parts.liveness.is_absent:
            self._has_begun = False
        self._client.called(now)
        tasks = 0 if self._is_available_now else tasks
        limited = self._first_batches.limited(limit, tasks, trigger_interval_s)
        self._wait, self._sizes, self._steps = None, None, self._run(limited)

    def poll(self, now: float) -> Step:
        """Return what this trigger needs now, or its end.

        Raises:
            GroupError: The coordinator refused the member; not retried.
            CheckpointError: The checkpoint is of another cluster, or of another group.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
            BrokerUnreachableError: No broker answered in time; names the addresses.
            AvailableNowError: AvailableNow cannot read all its records.
        """
        assert self._steps is not None, "begin was not called"
        self._now = now
        self.check(now)
        while True:
            wait = self._wait
            if wait is not None and now < wait.at and not wait.is_met():
                return WaitUntil(wait.at)
            try:
                self._wait = next(self._steps)
            except StopIteration as stopped:
                end: End = stopped.value
                return end

    def finish(self, plan: BatchPlan, now: float) -> None:
        """Note that a batch is proven finished, and have its offsets committed; idempotent."""
        self._client.finish(plan, now)
        self._first_batches.finished(now)

    def ended(self, now: float) -> None:
        """Note that Spark's call returns, or fails: idle time counts from now."""
        self._parts.liveness.activity.call_ended(now)

    def check(self, now: float) -> None:
        """Raise what prevents the query from continuing.

        Raises as `poll` does, except AvailableNowError for unread records.
        """
        parts, patience = self._parts, self._patience
        self._client.check()
        since, released_by = parts.search.failing_since, parts.member.instance_deadline
        if released_by is not None and now <= released_by + patience.answer_s:
            # As long as brokers answer, the member itself fails when its wait is over.
            return
        if since is not None and now - since > max(OUTAGE_S, patience.answer_s):
            raise BrokerUnreachableError(self._unreachable(OUTAGE_S))

    # The steps.

    def _run(self, limit: PlanLimit) -> _Steps:
        patience, began_at = self._patience, self._now
        if not self._has_begun:
            yield from self._await_first_answer()
            if self._parts.warm_up.is_warming:
                return self._plan(limit, {})
            self._has_begun, began_at = True, self._now
            wait_s = patience.first_assignment_s
            if self._is_available_now:
                wait_s = patience.settled_s
            yield self._until(self._may_begin, wait_s)
        if self._is_available_now:
            return (yield from self._run_available_now(limit, began_at))
        # This plan includes the partitions that a heartbeat under way brings.
        since = self._now - patience.under_way_s
        yield self._until(lambda: not self._is_heartbeat_under_way(since), patience.under_way_s)
        ends = yield from self._list_ends()
        fitting = yield from self._in_offsets(limit, ends)
        return self._plan(fitting, ends)

    def _run_available_now(self, limit: PlanLimit, began_at: float) -> _Steps:
        """Plan until no records are left; an unanswered request does not end the query."""
        parts, patience, answered_at = self._parts, self._patience, self._now
        next_batch, available_now = parts.next_batch, parts.available_now
        answer_s = max(patience.settled_s, patience.answer_s)
        while True:
            ends = yield from self._list_ends()
            fitting = yield from self._in_offsets(limit, ends)
            end, offsets, now = self._plan(fitting, ends), _offsets(ends), self._now
            if isinstance(end, Planned):
                return end
            # A partition that became ready while others were sampled is for the next plan.
            is_all_read = not next_batch.unread(limit, offsets, now)
            knows_all_ends = is_all_read and next_batch.knows_all_ends(offsets, now)
            if knows_all_ends and not available_now.is_in_doubt:
                answered_at = now
                if available_now.is_over(now - began_at, now):
                    return Over()
            if now - answered_at >= answer_s:
                problem = self._parts.log_ends.problem
                doubt = "whether all topics of subscribe exist" if knows_all_ends else ""
                raise BrokerUnreachableError(
                    f"the brokers {', '.join(self._servers)} did not report"
                    f" {doubt or 'the remaining records'} within {answer_s:.0f} s"
                    f"{'' if doubt else f': {problem or MEMBERSHIP_UNCONFIRMED}'}"
                )
            yield self._until(lambda: next_batch.is_settled, patience.again_s)
            if not knows_all_ends or available_now.is_in_doubt:
                # Settled, but a request is unanswered or a topic is in doubt.
                yield self._until(_never, patience.again_s)

    def _await_first_answer(self) -> Generator[_Until, None, None]:
        """Wait until the member has joined or may warm up, and for the instance id's release."""
        parts, began_at, wait_s = self._parts, self._now, self._patience.answer_s

        def has_answer() -> bool:
            return parts.liveness.is_member or parts.warm_up.is_warming

        while True:
            yield self._until(has_answer, wait_s)
            if has_answer():
                return
            # Before this deadline the member itself decides whether it has waited long enough.
            released_by = parts.member.instance_deadline or began_at
            wait_s = released_by + self._patience.answer_s - self._now
            if wait_s <= 0:
                raise BrokerUnreachableError(self._unreachable(self._now - began_at))

    def _list_ends(self) -> Generator[_Until, None, Ends]:
        log_ends, validator = self._parts.log_ends, self._parts.validator
        if self._parts.next_batch.ask_for_ends(self._now):
            # The request itself has a deadline.
            yield self._until(lambda: log_ends.is_listed, inf)
        ends = log_ends.found
        yield from self._await_positions()
        if validator.compare(_offsets(ends), _leader_epochs(ends)):
            yield self._until(lambda: not validator.is_waiting, self._patience.validation_s)
        return ends

    def _await_positions(self) -> Generator[_Until, None, None]:
        """Wait for the positions of partitions assigned recently; longer while none is known."""
        parts, patience, now = self._parts, self._patience, self._now

        def may_plan() -> bool:
            is_recent = parts.positions.is_resolving(now - patience.first_assignment_s)
            return not is_recent or bool(parts.next_batch.readable(self._now))

        yield self._until(may_plan, patience.first_assignment_s)
        since = now - patience.resolving_s
        yield self._until(lambda: not parts.positions.is_resolving(since), patience.resolving_s)

    def _in_offsets(self, limit: PlanLimit, ends: Ends) -> Generator[_Until, None, PlanLimit]:
        """Turn the limit in bytes into an end for each partition, by samples of their records."""
        if limit.max_bytes is None:
            return limit
        parts, until, asked = self._parts, self._now + SAMPLING_S, self._parts.samples
        unread = parts.next_batch.unread(limit, _offsets(ends), self._now)
        assigned = parts.member.assigned
        known = {key: sample for key, sample in self._samples.items() if key in assigned}
        self._sizes = sizes = BytesSearch(unread, limit.max_bytes, limit.max_offsets, known)
        while wanted := sizes.wanted():
            asked.ask(wanted, until - self._now, self._now)
            # The request itself has a deadline.
            yield self._until(lambda: asked.is_sampled, inf)
            sizes.take(asked.found, asked.reached)
        self._samples = sizes.known
        return replace(limit, until_offsets=sizes.until_offsets())

    def _plan(self, limit: PlanLimit, ends: Ends) -> Planned | NothingToRead:
        client, now = self._client, self._now
        plan = client.plan(limit, _offsets(ends), now, _leader_epochs(ends))
        if self._is_first:
            self._look_at_first(plan, ends)
        if plan is None:
            return NothingToRead()
        for event in self._first_batches.planned(plan, self._sizes, now):
            self._parts.positions.emit(event)
        return Planned(plan)

    def _look_at_first(self, plan: BatchPlan | None, ends: Ends) -> None:
        """Report once that a run finds nothing to read: until records come, nothing else does."""
        parts, now = self._parts, self._now
        if plan is not None and plan.ranges:
            self._is_first = False
            return
        owned = tuple(sorted(parts.ledger.positions(parts.member.assigned)))
        is_settled = parts.next_batch.is_settled and not parts.commits.is_pending
        if owned and is_settled and parts.next_batch.knows_all_ends(_offsets(ends), now):
            self._is_first = False
            parts.positions.emit(NothingUnread(now, owned))

    def _until(self, is_met: Callable[[], bool], wait_s: float) -> _Until:
        return _Until(is_met, self._now + wait_s)

    def _may_begin(self) -> bool:
        parts = self._parts
        if self._is_available_now:
            return parts.next_batch.is_settled and not parts.available_now.is_in_doubt
        # Without DESCRIBE permission the member never learns that its assignment is complete.
        has_some = parts.target.is_refused or bool(parts.member.assigned)
        return parts.next_batch.is_settled or has_some

    def _is_heartbeat_under_way(self, since: float) -> bool:
        """Return whether a heartbeat sent since `since` is unanswered: it may assign partitions."""
        sent_at = self._parts.member.pace.last_sent_at
        is_asking = self._parts.channels.is_under_way(Channel.HEARTBEAT)
        return is_asking and sent_at is not None and sent_at >= since

    def _unreachable(self, waited_s: float) -> str:
        parts = self._parts
        reason = parts.search.last_failure or "the coordinator did not answer a join"
        return (
            f"none of the brokers {', '.join(self._servers)} let this query join the group"
            f" {parts.config.member.group_id!r} within {waited_s:.0f} s: {reason}"
        )


def _never() -> bool:
    return False


def _offsets(ends: Ends) -> dict[TopicIdPartition, int]:
    return {key: end.offset for key, end in ends.items()}


def _leader_epochs(ends: Ends) -> dict[TopicIdPartition, int]:
    return {key: end.leader_epoch for key, end in ends.items()}
