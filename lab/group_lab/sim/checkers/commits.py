"""Which member may commit which offset."""

from __future__ import annotations

from collections import defaultdict

from group_lab.coordinator.member import GroupMember
from group_lab.sim import facts
from group_lab.sim.checkers.checker import Checker, on
from group_lab.sim.coordination import AcceptedOffset
from group_lab.sim.history import History
from group_lab.sim.scene import Scene
from spark_groups.errors import ErrorCode
from spark_groups.group.member.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from spark_groups.group.member.messages import OffsetCommitRequest, OffsetCommitResponse
from spark_groups.types import TopicIdPartition


class CommitOwnership(Checker):
    """An accepted commit is of a partition held since the plan, or of an inherited batch.

    An inherited batch begins at the committed offset, or at the start of a finished batch before
    it. Where a log was truncated, a member commits the new end of the log. A delayed request was
    planned in time; only its epoch can fence it. The same holds for one that was under way when its
    member released the partition: a plain consumer, or a query whose rebalance timeout was over.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._holders: dict[TopicIdPartition, list[tuple[float, str | None]]] = {}
        """The holders of a partition in order, with the time each began; None: no member."""
        self._planned: dict[tuple[str, TopicIdPartition, int], float] = {}
        """When a member planned a partition up to an offset."""
        self._cuts: dict[TopicIdPartition, set[int]] = defaultdict(set)
        """Offsets at which a log was truncated."""
        self._members: list[GroupMember] = []
        """The members at the last change."""

    @on(facts.Cut)
    def _cut(self, fact: facts.Cut) -> None:
        self._cuts[fact.key].add(fact.end_offset)

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        members = list(fact.group.members.values())
        if members == self._members or fact.group.in_memory:
            # Most changes are commits.
            return
        self._members = members
        held: dict[TopicIdPartition, str | None] = dict.fromkeys(self._holders)
        for member in members:
            for key in (*member.assigned, *member.pending_revocation):
                held[key] = member.member_id
        for key, holder in held.items():
            self._hold(key, holder)

    @on(facts.ClassicHappened)
    def _classic(self, fact: facts.ClassicHappened) -> None:
        """Follow the members of a classic group: only they know what they own."""
        if not self.scene.coordination.group.in_memory:
            return
        event = fact.event
        if isinstance(event, PartitionsAssigned | PartitionsRevoked | PartitionsLost):
            for key in event.partitions:
                self._hold(key, self.scene.coordination.holder(key))

    def _hold(self, key: TopicIdPartition, holder: str | None) -> None:
        holders = self._holders.setdefault(key, [])
        if not holders or holders[-1][1] != holder:
            holders.append((self.scene.now, holder))

    @on(facts.TakenBack)
    def _taken_back(self, fact: facts.TakenBack) -> None:
        self._members = []
        for holders in self._holders.values():
            while len(holders) > 1 and holders[-1][0] >= fact.since:
                holders.pop()

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is not None:
            for offset_range in fact.plan.ranges:
                by = (fact.plan.member_id, offset_range.key, offset_range.until_offset)
                self._planned[by] = self.scene.now

    @on(facts.Consumed)
    def _consumed(self, fact: facts.Consumed) -> None:
        for key, (_, until_offset) in fact.ranges.items():
            self._planned[fact.member_id, key, until_offset] = fact.began_at

    @on(facts.Committed)
    def _committed(self, fact: facts.Committed) -> None:
        each, late = fact.offset, self.scene.late
        if late.is_late(each) or late.undoes_late(each):
            return
        if each.holder != each.member_id:
            self.fail(f"{each.member_id} commits {each.key}, but {each.holder} holds it")
        if each.before is None or each.committed_offset <= each.before:
            # A start, or nothing new; `CommitsNeverGoBack` checks the rest.
            return
        if each.committed_offset in self._cuts[each.key]:
            return
        planned_at = self._planned.get((each.member_id, each.key, each.committed_offset))
        # The commit is replicated by now, and another member may hold the partition.
        held_since = [since for since, _ in self._holders[each.key] if since <= each.at][-1]
        if planned_at is not None and planned_at >= held_since:
            return
        if not self._is_inherited(each):
            self.fail(
                f"{each.member_id} commits {each.key} at {each.committed_offset} over"
                f" {each.before}, planned at {planned_at}, held since {held_since}"
            )

    def _is_inherited(self, each: AcceptedOffset) -> bool:
        begins = {from_offset for from_offset, _ in self.history.finished.get(each.key, ())}
        taken = self.history.inherited.get(each.key, ())
        return each.before in begins and any(until == each.committed_offset for _, until in taken)


Place = tuple[str, TopicIdPartition, int]
"""A member, a partition and the offset it commits."""


class CommitEpochs(Checker):
    """A finished batch is committed with the member epoch of its plan.

    This checks requests before the coordinator judges them. The ledger and the coordinator both
    fence stale commits: if members always sent their current epoch, neither fence would ever be
    tested. A newer epoch is correct once the coordinator has refused that of the plan. Inherited
    batches and offsets of truncated logs are committed with the current epoch.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._planned: defaultdict[Place, set[int]] = defaultdict(set)
        self._refused: set[Place] = set()
        self._cuts: set[tuple[TopicIdPartition, int]] = set()
        self._doubtful: list[tuple[Place, str]] = []
        """Commits just sent; the sender reports inherited batches once all of a moment are sent."""
        self._doubtful_since_s = 0.0

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        plan = fact.plan
        for each in plan.ranges if plan else ():
            assert plan is not None
            self._planned[plan.member_id, each.key, each.until_offset].add(plan.member_epoch)

    @on(facts.Sent)
    def _sent(self, fact: facts.Sent) -> None:
        if self.scene.now > self._doubtful_since_s:
            self._judge()
        request = fact.outgoing.request
        if not isinstance(request, OffsetCommitRequest):
            return
        for key, offset in request.offsets.items():
            place = (request.member_id, key, offset.committed_offset)
            epochs = self._planned.get(place)
            if epochs and request.member_epoch not in epochs and place not in self._refused:
                text = (
                    f"{fact.who} commits {key} at {offset.committed_offset} with epoch"
                    f" {request.member_epoch}, planned at {sorted(epochs)}"
                )
                self._doubtful.append((place, text))
                self._doubtful_since_s = self.scene.now

    @on(facts.Cut)
    def _cut(self, fact: facts.Cut) -> None:
        self._cuts.add((fact.key, fact.end_offset))

    @on(facts.Quiet)
    def _quiet(self, _fact: facts.Quiet) -> None:
        self._judge()

    def _judge(self) -> None:
        doubtful, self._doubtful = self._doubtful, []
        for (_, key, committed_offset), text in doubtful:
            if not self._is_inherited(key, committed_offset):
                self.fail(text)

    @on(facts.Answered)
    def _answered(self, fact: facts.Answered) -> None:
        self._judge()
        request, response = fact.request, fact.response
        if not isinstance(request, OffsetCommitRequest):
            return
        assert isinstance(response, OffsetCommitResponse)
        for key, code in response.errors.items():
            if code == ErrorCode.STALE_MEMBER_EPOCH:
                committed_offset = request.offsets[key].committed_offset
                self._refused.add((request.member_id, key, committed_offset))

    def _is_inherited(self, key: TopicIdPartition, committed_offset: int) -> bool:
        if (key, committed_offset) in self._cuts:
            return True
        taken = self.history.inherited.get(key, ())
        return any(until_offset == committed_offset for _, until_offset in taken)


class CommitsNeverGoBack(Checker):
    """Committed offsets of a partition never go back.

    A truncated log may be committed below its old end. A request that arrives after its sender's
    timeout may move offsets back and forth; `CleanHandOver` and `GroupSettles` check that members
    notice.
    """

    @on(facts.Committed)
    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        late = self.scene.late
        if each.before is None or late.is_late(each) or late.undoes_late(each):
            return
        if each.committed_offset < self.history.floor(each.key, each.before):
            self.fail(
                f"{each.member_id} takes {each.key} back from {each.before} to"
                f" {each.committed_offset}"
            )


class ResetsRespected(Checker):
    """The next batch of a partition begins at the offset that an operator has set.

    Nothing in a checkpoint undoes a reset; a replayed batch is not a new batch. Where a log was
    truncated, a member continues below its old end.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._set: dict[TopicIdPartition, int] = {}
        """Reset offsets that no batch has started from yet."""

    @on(facts.OffsetReset)
    def _reset(self, fact: facts.OffsetReset) -> None:
        self._set[fact.key] = fact.new_offset

    @on(facts.OffsetDeleted)
    def _deleted(self, fact: facts.OffsetDeleted) -> None:
        self._set.pop(fact.key, None)

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        for each in fact.plan.ranges if fact.plan else ():
            new_offset = self._set.pop(each.key, None)
            if new_offset is not None:
                self._compare(f"{fact.who} plans", each.key, each.from_offset, new_offset)

    @on(facts.Committed)
    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        new_offset = self._set.get(each.key)
        if new_offset is not None:
            self._compare(f"{each.member_id} commits", each.key, each.committed_offset, new_offset)

    def _compare(self, what: str, key: TopicIdPartition, offset: int, new_offset: int) -> None:
        if offset != new_offset and key not in self.history.cut:
            self.fail(f"{what} {key} from {offset} on, but it was reset to {new_offset}")
