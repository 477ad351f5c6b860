"""What members report, and what they send after a failure."""

from __future__ import annotations

from collections import Counter
from typing import Final

from spark_groups.client.requests.metadata import BELIEVED_S
from spark_groups.errors import ErrorCode
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker, on
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Scene
from spark_groups.lab.sim.storage import OLD_LEADER_ANSWERS_S
from spark_groups.offsets.events import DataLost
from spark_groups.protocol.events import MemberFailed
from spark_groups.protocol.messages import HeartbeatRequest
from spark_groups.types import TopicIdPartition

HEARD_S: Final = OLD_LEADER_ANSWERS_S + 0.1
"""How long after an election a plan may be made from what the leader before has answered."""


class LossIsTold(Checker):
    """Lost data is told, and nobody goes on after it with `failOnDataLoss` true.

    Follows logs that were cut below what is committed of them.

    No query reads on from the old position before it was told: other records stand there now. It is
    over when a query that was told commits, or anybody commits below the cut. An offset that an
    operator sets has no leader epoch: until a query has committed again nobody can tell that the
    log was cut below it.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._untold: dict[TopicIdPartition, tuple[int, float]] = {}
        """Where a log was cut below what is committed, and when."""
        self._told: set[tuple[str, TopicIdPartition]] = set()
        """Which incarnations were told of it: a commit of one may be accepted after its end."""
        self._set_by_operator: set[TopicIdPartition] = set()
        """Partitions whose committed offset was set by an operator."""
        self._strict: set[str] = set()
        """Incarnations with `failOnDataLoss`."""
        self._stopped: dict[str, str] = {}
        """What an incarnation that has to end says is lost, by query."""

    @on(facts.Began)
    def _began(self, fact: facts.Began) -> None:
        self._stopped.pop(fact.who, None)
        if fact.client.config.fail_on_data_loss:
            self._strict.add(fact.incarnation)

    @on(facts.OffsetReset)
    def _reset(self, fact: facts.OffsetReset) -> None:
        self._set_by_operator.add(fact.key)
        self._forget(fact.key)

    def _forget(self, key: TopicIdPartition) -> None:
        self._untold.pop(key, None)
        self._told = {each for each in self._told if each[1] != key}

    @on(facts.Committed)
    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        self._set_by_operator.discard(each.key)
        if each.key in self._untold:
            is_told = (_incarnation(each.member_id), each.key) in self._told
            if is_told or each.committed_offset <= self._untold[each.key][0]:
                self._forget(each.key)

    @on(facts.Cut)
    def _cut(self, fact: facts.Cut) -> None:
        if fact.key in self._set_by_operator:
            return
        committed = self.scene.coordination.committed(fact.key)
        end, _ = self._untold.get(fact.key, (fact.end_offset, 0.0))
        if committed is not None and committed > fact.end_offset:
            self._forget(fact.key)
            self._untold[fact.key] = (min(end, fact.end_offset), self.scene.now)

    @on(facts.Happened)
    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if not isinstance(event, DataLost):
            return
        query = fact.who.rpartition(".")[0]
        for key in self._untold:
            name = f"{self.scene.storage.name_of(key.topic_id)}-{key.partition}"
            if f" {name} " in f" {event.message}":
                self._told.add((fact.who, key))
        if fact.who in self._strict:
            self._stopped[query] = event.message

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is None or not fact.plan.ranges:
            return
        if fact.who in self._stopped:
            self.fail(f"{fact.who} goes on, although {self._stopped[fact.who]}")
        for each in fact.plan.ranges:
            if (_incarnation(fact.plan.member_id), each.key) in self._told:
                continue
            end, cut_at = self._untold.get(each.key, (each.from_offset, 0.0))
            if each.from_offset > end and self.scene.now - cut_at > HEARD_S:
                self.fail(f"{fact.who} planned {each}, but its log was cut at {end}, untold")


def _incarnation(member_id: str) -> str:
    """Return the incarnation of a query that a member id belongs to."""
    return member_id.rpartition(".")[0]


FIGHTS: Final = (ErrorCode.FENCED_INSTANCE_ID.name, ErrorCode.UNRELEASED_INSTANCE_ID.name)
"""What whoever loses an instance id is told."""

DENIALS: Final = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED.name,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
)
DENIAL_HEARD_S: Final = 40.0
"""How late an answer of before may be heard: whoever stands still hears it when awake."""


ABSENCE_HEARD_S: Final = 10.0 + BELIEVED_S
"""How long after a topic was deleted it may be believed to be away: longest absence and belief."""


class NoFinalFailure(Checker):
    """No fault that passes is final, but a right that is missing; data is lost only where it is.

    Everything that goes wrong here passes: no member may give up for good.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._lost: set[str] = set()
        """Partitions whose log has lost something, by name: its topic may be gone by then."""
        self._deleted_at: dict[str, float] = {}
        """When topics were deleted, by name: each is created again."""
        self._asked_at: dict[str, float] = {}
        """When a query began or was asked for a batch last: while one runs it says nothing."""

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
            if name not in there or asked_at - deleted_at <= ABSENCE_HEARD_S
        }
        if not any(name in fact.message for name in away):
            self.fail(f"no topic was away: {fact.who} says {fact.message}")

    @on(facts.Cut, facts.Aged)
    def _loses(self, fact: facts.Cut | facts.Aged) -> None:
        name = self.scene.storage.name_of(fact.key.topic_id)
        self._lost.add(f"{name}-{fact.key.partition}")

    @on(facts.Happened)
    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, MemberFailed) and not (
            self._is_replaced(event) or self._is_denied(event)
        ):
            self.fail(f"{fact.who} gives up for good: {event.message}")
        if isinstance(event, DataLost) and not (
            any(f" {name} " in f" {event.message}" for name in self._lost)
            or self._is_named_beyond(event)
        ):
            self.fail(f"no log was cut: {event.message}")

    def _is_named_beyond(self, event: DataLost) -> bool:
        """Tell whether `startingOffsets` names what a topic that was created again lacks."""
        is_start = event.message.startswith("startingOffsets of ")
        return is_start and any(f" {name}-" in event.message for name in self._deleted_at)

    def _is_denied(self, event: MemberFailed) -> bool:
        """Tell whether a right was missing when a member gives up for that, or a moment before."""
        is_said = any(name in event.message for name in DENIALS)
        return is_said and self.scene.rights.missed_since(self.scene.now - DENIAL_HEARD_S)

    def _is_replaced(self, event: MemberFailed) -> bool:
        """Tell whether two runs of one query fight for its instance id, as frozen ones do."""
        if not event.message.startswith(FIGHTS):
            return False
        current = [each.member for each in self.scene.participants if each.member]
        is_current = any(each.member_id == event.member_id for each in current)
        return not is_current or bool(self.scene.swarm.static and self.scene.swarm.zombies)


class FullHeartbeats(Checker):
    """A heartbeat whose answer was lost is followed by one that says everything.

    Looks at the requests themselves.

    A coordinator answers with the assignment if that is new, or if it is told all that the member
    owns. Where the answer with a new one was lost, only a full heartbeat gets it again; a short
    one with the epoch before is fenced, and the member loses what it reads. Each run of a query is
    asked for itself: the next one says good-bye in the name of the one before, which may yet live.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._unanswered: set[tuple[str, str]] = set()
        """Who got no answer to a heartbeat that may have arrived, and in which member's name."""

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
            self.fail(f"{fact.who} lost the answer to a heartbeat and does not say everything")


REQUESTS_PER_SECOND_MAX: Final = 60
"""More on one channel means that something is asked without a pause."""


class RequestPace(Checker):
    """Nothing is asked again and again without a pause.

    Counts the requests of each channel in each second.
    """

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
            self.fail(f"{fact.who} asks {fact.outgoing.request} again and again")
