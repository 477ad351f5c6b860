"""Errors that members report, and the requests they send after a failure."""

from __future__ import annotations

from collections import Counter
from typing import Final

from group_lab.sim import facts
from group_lab.sim.checkers.checker import Checker, on
from group_lab.sim.history import History
from group_lab.sim.scene import Scene
from group_lab.sim.storage import OLD_LEADER_ANSWERS_S
from spark_groups.errors import ErrorCode
from spark_groups.group.ledger.events import DataLost
from spark_groups.group.member.events import MemberFailed
from spark_groups.group.member.messages import HeartbeatRequest, ListOffsetsRequest
from spark_groups.group.requests.channels import Channel
from spark_groups.group.requests.metadata import BELIEVED_S
from spark_groups.types import TopicIdPartition

ANSWER_AGE_S: Final = OLD_LEADER_ANSWERS_S + 0.1
"""For how long after an election the old leader may answer for the log ends of a plan."""


class LossIsReported(Checker):
    """Members report lost data, and with `failOnDataLoss` no query continues after a loss.

    A log is truncated below its committed offset. No query reads on from the old position before it
    has reported the loss: other records are there now. The case is closed when a query that
    reported it commits, or any member commits below the new end. An offset that an operator has
    set, or from which a query continues because its offset was deleted, has no leader epoch: no
    member can detect a truncation below it until a query commits again.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._unreported: dict[TopicIdPartition, tuple[int, float]] = {}
        """Where a log was truncated below its committed offset, and when."""
        self._reported: set[tuple[str, TopicIdPartition]] = set()
        """Incarnations that reported the loss; their commits may be accepted after they end."""
        self._set_by_operator: set[TopicIdPartition] = set()
        """Partitions whose committed offset an operator has set."""
        self._strict: set[str] = set()
        """Incarnations with `failOnDataLoss`."""
        self._stopped: dict[str, str] = {}
        """The loss reported by an incarnation that must stop, by query."""
        self._listed_at: dict[str, float] = {}
        """When an incarnation last asked for the log ends of a plan."""

    @on(facts.Sent)
    def _sent(self, fact: facts.Sent) -> None:
        is_for_plan = fact.outgoing.channel is Channel.TRIGGER
        if is_for_plan and isinstance(fact.outgoing.request, ListOffsetsRequest):
            self._listed_at[fact.who] = self.scene.now

    @on(facts.Began)
    def _began(self, fact: facts.Began) -> None:
        self._stopped.pop(fact.who, None)
        if fact.client.parts.config.fail_on_data_loss:
            self._strict.add(fact.incarnation)

    @on(facts.OffsetReset, facts.OffsetDeleted)
    def _reset(self, fact: facts.OffsetReset | facts.OffsetDeleted) -> None:
        self._set_by_operator.add(fact.key)
        self._forget(fact.key)

    def _forget(self, key: TopicIdPartition) -> None:
        self._unreported.pop(key, None)
        self._reported = {each for each in self._reported if each[1] != key}

    @on(facts.Committed)
    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        if each.before is not None or each.key not in self.history.deleted:
            # A start after a deletion has no leader epoch either.
            self._set_by_operator.discard(each.key)
        if each.key in self._unreported:
            is_reported = (_incarnation(each.member_id), each.key) in self._reported
            if is_reported or each.committed_offset <= self._unreported[each.key][0]:
                self._forget(each.key)

    @on(facts.Cut)
    def _cut(self, fact: facts.Cut) -> None:
        if fact.key in self._set_by_operator:
            return
        committed = self.scene.coordination.committed(fact.key)
        end, _ = self._unreported.get(fact.key, (fact.end_offset, 0.0))
        if committed is not None and committed > fact.end_offset:
            self._forget(fact.key)
            self._unreported[fact.key] = (min(end, fact.end_offset), self.scene.now)

    @on(facts.Happened)
    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if not isinstance(event, DataLost):
            return
        query = fact.who.rpartition(".")[0]
        for key in self._unreported:
            name = f"{self.scene.storage.name_of(key.topic_id)}-{key.partition}"
            if f" {name} " in f" {event.message}":
                self._reported.add((fact.who, key))
        if fact.who in self._strict:
            self._stopped[query] = event.message

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is None or not fact.plan.ranges:
            return
        if fact.who in self._stopped:
            self.fail(f"{fact.who} continues after: {self._stopped[fact.who]}")
        incarnation = _incarnation(fact.plan.member_id)
        listed_at = self._listed_at.get(incarnation, self.scene.now)
        for offset_range in fact.plan.ranges:
            if (incarnation, offset_range.key) in self._reported:
                continue
            end, cut_at = self._unreported.get(offset_range.key, (offset_range.from_offset, 0.0))
            if offset_range.from_offset > end and listed_at - cut_at > ANSWER_AGE_S:
                self.fail(
                    f"{fact.who} planned {offset_range}, but its log was truncated at {end}"
                    " and it has not reported that"
                )


def _incarnation(member_id: str) -> str:
    return member_id.rpartition(".")[0]


FIGHTS: Final = (ErrorCode.FENCED_INSTANCE_ID.name, ErrorCode.UNRELEASED_INSTANCE_ID.name)
"""Errors of a member that loses its instance id."""

DENIALS: Final = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED.name,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
)
DENIAL_AGE_S: Final = 40.0
"""How old a denial may be when a member fails: a paused process reads it late."""


ABSENCE_AGE_S: Final = 10.0 + BELIEVED_S
"""How long a deleted topic may count as missing: its absence plus the client's cache time."""


OFFSETS_GONE: Final = "the group has no committed offset for "
"""How a member begins that reports deleted offsets."""


class NoFinalFailure(Checker):
    """Members fail only without a permission or their instance id, and report only real loss.

    Every other fault in a run is temporary.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._lost: set[str] = set()
        """Partitions whose log lost records, by name: the topic may be deleted by then."""
        self._deleted_at: dict[str, float] = {}
        """When topics were deleted, by name; each is created again."""
        self._asked_at: dict[str, float] = {}
        """When a query last began or planned: it reports nothing while a batch runs."""

    @on(facts.Began, facts.Triggered)
    def _asked(self, fact: facts.Began | facts.Triggered) -> None:
        self._asked_at[fact.who] = self.scene.now

    @on(facts.Deleted)
    def _deleted(self, fact: facts.Deleted) -> None:
        self._deleted_at[fact.topic.name] = self.scene.now

    @on(facts.Unavailable)
    def _unavailable(self, fact: facts.Unavailable) -> None:
        there = self.scene.storage.image.by_name
        asked_at = self._asked_at.get(fact.who, self.scene.now)
        away = {
            name
            for name, deleted_at in self._deleted_at.items()
            if name not in there or asked_at - deleted_at <= ABSENCE_AGE_S
        }
        if not any(name in fact.message for name in away):
            self.fail(f"no topic was missing, but {fact.who} reports: {fact.message}")

    @on(facts.Cut, facts.Aged)
    def _loses(self, fact: facts.Cut | facts.Aged) -> None:
        name = self.scene.storage.name_of(fact.key.topic_id)
        self._lost.add(f"{name}-{fact.key.partition}")

    @on(facts.Happened, facts.ClassicHappened)
    def _happened(self, fact: facts.Happened | facts.ClassicHappened) -> None:
        event = fact.event
        if isinstance(event, MemberFailed) and not (
            self._is_replaced(event) or self._is_denied(event) or self._is_forgotten(fact)
        ):
            self.fail(f"{fact.who} failed permanently: {event.message}")
        if isinstance(event, DataLost) and not (
            any(f" {name} " in f" {event.message}" for name in self._lost)
            or self._is_named_beyond(event)
            or (self.history.deleted and event.message.startswith(OFFSETS_GONE))
        ):
            self.fail(f"no log was truncated, but a member reports: {event.message}")

    def _is_named_beyond(self, event: DataLost) -> bool:
        """Return whether `startingOffsets` is beyond the end of a recreated topic."""
        is_start = event.message.startswith("startingOffsets of ")
        return is_start and any(f" {name}-" in event.message for name in self._deleted_at)

    def _is_denied(self, event: MemberFailed) -> bool:
        """Return whether the permission was missing now or shortly before."""
        is_denial = any(name in event.message for name in DENIALS)
        return is_denial and self.scene.rights.missed_since(self.scene.now - DENIAL_AGE_S)

    def _is_forgotten(self, fact: facts.Happened | facts.ClassicHappened) -> bool:
        """Return whether a coordinator may have lost the new member id of a static classic member.

        The id is recorded when the leader of the generation syncs. A coordinator that takes over
        before that knows the former id, and fences the member.
        """
        swarm = self.scene.swarm
        takes_over = swarm.moves or swarm.coordinator_crashes or swarm.failed_appends
        return isinstance(fact, facts.ClassicHappened) and bool(swarm.static and takes_over)

    def _is_replaced(self, event: MemberFailed) -> bool:
        """Return whether two runs of one query compete for its instance id, as paused ones do."""
        if not event.message.startswith(FIGHTS):
            return False
        current = [
            participant.member for participant in self.scene.participants if participant.member
        ]
        is_current = any(each.member_id == event.member_id for each in current)
        return not is_current or bool(self.scene.swarm.static and self.scene.swarm.zombies)


class FullHeartbeats(Checker):
    """A heartbeat without an answer is followed by a full heartbeat.

    The coordinator sends the assignment if it is new or if the request is full. If the answer with
    a new assignment is lost, only a full heartbeat gets it again; a short heartbeat with the old
    epoch is fenced, and the member loses its partitions. Each run of a query counts for itself: the
    next run leaves on behalf of the previous one, which may still be alive.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._unanswered: set[tuple[str, str]] = set()
        """Senders and member ids of heartbeats that got no answer."""

    @on(facts.Unanswered)
    def _lost(self, fact: facts.Unanswered) -> None:
        if isinstance(fact.request, HeartbeatRequest):
            self._unanswered.add((fact.who, fact.request.member_id))

    @on(facts.Sent)
    def _sent(self, fact: facts.Sent) -> None:
        request = fact.outgoing.request
        if not isinstance(request, HeartbeatRequest):
            return
        by = (fact.who, request.member_id)
        if by not in self._unanswered:
            return
        self._unanswered.discard(by)
        if request.member_epoch >= 0 and not request.is_full:
            self.fail(f"{fact.who} got no answer to a heartbeat and sends no full one")


REQUESTS_PER_SECOND_MAX: Final = 60
"""More on one channel means requests without a pause."""


class RequestRate(Checker):
    """No channel repeats requests without a pause."""

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._counts: Counter[tuple[str, object]] = Counter()
        self._second = -1

    @on(facts.Sent)
    def _sent(self, fact: facts.Sent) -> None:
        if int(self.scene.now) != self._second:
            self._second = int(self.scene.now)
            self._counts.clear()
        channel = (fact.who, fact.outgoing.channel)
        self._counts[channel] += 1
        if self._counts[channel] > REQUESTS_PER_SECOND_MAX:
            self.fail(f"{fact.who} repeats {fact.outgoing.request} without a pause")
