"""Which member may read a partition, and how it changes hands."""

from __future__ import annotations

from typing import Final

from group_lab.coordinator.member import GroupMember
from group_lab.sim import facts
from group_lab.sim.checkers.checker import Checker, on
from group_lab.sim.classic_consumer import ClassicRun
from group_lab.sim.history import History
from group_lab.sim.scene import MemberView, Scene
from spark_groups.group.member.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import BatchPlan, TopicIdPartition


class SingleOwner(Checker):
    """No two members that consider themselves current own one partition at the same time.

    Checked on the coordinator, in the clients and in their plans. An exception are partitions that
    a delayed heartbeat took from a member, which it cannot know (`LateRequests`). In a classic
    group it holds within a generation: a static member that misses a rebalance stays in the group,
    and owns its partitions in its own view until the next answer. A group of the 0.9 design has
    each generation id once, so members that it does not know any more count as well.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._members: list[GroupMember] = []
        self._given: dict[tuple[int, TopicIdPartition], str] = {}
        """The consumer that a generation of the 0.9 design gave a partition, by generation id."""

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        members = list(fact.group.members.values())
        if members == self._members:
            # Most changes are commits.
            return
        self._members = members
        held: dict[TopicIdPartition, str] = {}
        for member in members:
            for key in (*member.assigned, *member.pending_revocation):
                if held.setdefault(key, member.member_id) != member.member_id:
                    self.fail(f"at the coordinator {held[key]} and {member.member_id} hold {key}")

    @on(facts.Happened, facts.ClassicHappened)
    def _happened(self, fact: facts.Happened | facts.ClassicHappened) -> None:
        event = fact.event
        if not isinstance(event, PartitionsAssigned):
            return
        if self.scene.coordination.profile.assigns_in_join:
            self._check_given(event)
        members = self.scene.coordination.member_ids
        if event.member_id not in members:
            return
        for other in self.scene.participants:
            member = other.member
            if member is None or member.member_id not in members:
                continue
            # A leaving member uses its partitions no more, whether or not it got an answer.
            if member.member_id == event.member_id or member.state is MemberState.LEAVING:
                continue
            if self._is_behind(member):
                continue
            for key in event.partitions.partitions & member.owned.partitions:
                if not self.scene.late.is_taken_unaware(member.member_id, key):
                    self.fail(f"{fact.who} is given {key} while {other.name} owns it")

    def _check_given(self, event: PartitionsAssigned) -> None:
        """Check that a generation of the 0.9 design gives a partition to one consumer."""
        for key in event.partitions:
            by = (event.member_epoch, key)
            member_id = self._given.setdefault(by, event.member_id)
            if member_id != event.member_id:
                self.fail(
                    f"in generation {event.member_epoch} {key} is given to {event.member_id} and"
                    f" to {member_id}"
                )

    def _is_behind(self, member: MemberView) -> bool:
        """Return whether a classic member is of an earlier generation than its group."""
        group = self.scene.coordination.group.in_memory
        if group is None or not isinstance(member, ClassicRun):
            return False
        return member.generation_id != group.generation_id

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        coordination, plan = self.scene.coordination, fact.plan
        if plan is None or self.is_unaware(plan.member_id):
            return
        for offset_range in plan.ranges:
            holder = coordination.holder(offset_range.key)
            is_taken_unaware = self.scene.late.is_taken_unaware(plan.member_id, offset_range.key)
            if holder != plan.member_id and not is_taken_unaware:
                self.fail(
                    f"{fact.who} planned {offset_range} as {plan.member_id}, but {holder} holds it"
                )


class OnlyAssigned(Checker):
    """A batch contains only partitions of the member's last assignment.

    Planning a partition that is being revoked would delay the other members by another batch.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._assigned: dict[str, frozenset[TopicIdPartition]] = {}
        """The last assignment sent to each member."""

    @on(facts.Triggered)
    def _triggered(self, fact: facts.Triggered) -> None:
        if fact.plan is None:
            return
        assigned = self._assigned.get(fact.plan.member_id, frozenset())
        if planned := sorted(map(str, fact.plan.partitions() - assigned)):
            self.fail(f"{fact.who} planned {', '.join(planned)}, which it is not assigned")

    @on(facts.Answered)
    def _answered(self, fact: facts.Answered) -> None:
        request, response = fact.request, fact.response
        if not isinstance(request, HeartbeatRequest):
            return
        assert isinstance(response, HeartbeatResponse)
        if response.assignment is not None and not response.error_code:
            self._assigned[request.member_id] = response.assignment.partitions


_IN_A_GENERATION: Final = (MemberState.STABLE, MemberState.RECONCILING)


class CleanHandOver(Checker):
    """A partition is released only when no batch reads it and all finished offsets are committed.

    Replayed batches count. Exceptions: a member reports that it releases partitions uncommitted
    because its rebalance timeout is over, and a member that leaves. A commit without an answer must
    be looked up first; no member can detect one that arrives after that. A replayed batch need not
    be committed where an operator or a plain consumer was the last to set the offset. A classic
    consumer commits what it has read before it releases partitions, unless a fault prevents that.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._running: dict[str, BatchPlan] = {}
        """The batch that each query reads, under any member id."""
        self._reached: dict[tuple[str, TopicIdPartition], int] = {}
        """The offset up to which a member has finished a partition since its assignment."""
        self._replayed: dict[tuple[str, TopicIdPartition], tuple[int, int]] = {}
        """The range that a query has finished in a replayed batch, until its next batch: a new run
        knows nothing of it."""
        self._committed: dict[TopicIdPartition, int] = {}
        self._committed_by_query: set[TopicIdPartition] = set()
        """Partitions that a query committed last."""
        self._plain_members: set[str] = set()
        """Member ids of plain consumers."""
        self._consumed_to: dict[tuple[str, TopicIdPartition], int] = {}
        """The offset up to which a consumer without a checkpoint has read a partition."""
        swarm = scene.swarm
        faults = swarm.faults.items()
        has_faults = any(value for name, value in faults if name not in ("classic", "consumers"))
        # A static member that misses a rebalance may not commit any more.
        self._is_calm = not has_faults and not swarm.static

    @on(facts.Read)
    def _reads(self, fact: facts.Read) -> None:
        self._running[fact.who] = fact.plan
        self._forget_replayed(fact.who)

    def _forget_replayed(self, who: str) -> None:
        for name, key in [each for each in self._replayed if each[0] == who]:
            del self._replayed[name, key]

    @on(facts.Forgotten, facts.NotReplayed)
    def _forgotten(self, fact: facts.Forgotten | facts.NotReplayed) -> None:
        self._running.pop(fact.who, None)
        self._forget_replayed(fact.who)

    @on(facts.Finished)
    def _finished(self, fact: facts.Finished) -> None:
        if self._running.get(fact.who) == fact.plan:
            del self._running[fact.who]
            members = [
                participant.member
                for participant in self.scene.participants
                if participant.name == fact.who
            ]
            is_own = any(member and member.member_id == fact.plan.member_id for member in members)
            for offset_range in fact.plan.ranges:
                if is_own:
                    self._reached[fact.plan.member_id, offset_range.key] = offset_range.until_offset
                else:
                    self._replayed[fact.who, offset_range.key] = (
                        offset_range.from_offset,
                        offset_range.until_offset,
                    )

    @on(facts.Committed)
    def _committed_offset(self, fact: facts.Committed) -> None:
        key = fact.offset.key
        self._committed[key] = fact.offset.committed_offset
        if fact.offset.member_id in self._plain_members:
            self._committed_by_query.discard(key)
        else:
            self._committed_by_query.add(key)

    @on(facts.OffsetReset)
    def _reset(self, fact: facts.OffsetReset) -> None:
        self._committed[fact.key] = fact.new_offset
        self._committed_by_query.discard(fact.key)

    @on(facts.OffsetDeleted)
    def _offset_deleted(self, fact: facts.OffsetDeleted) -> None:
        self._committed.pop(fact.key, None)
        self._committed_by_query.discard(fact.key)

    @on(facts.Consumed)
    def _consumed(self, fact: facts.Consumed) -> None:
        self._plain_members.add(fact.member_id)
        for key, (_, until_offset) in fact.ranges.items():
            self._consumed_to[fact.who, key] = until_offset

    @on(facts.ClassicHappened)
    def _classic_happened(self, fact: facts.ClassicHappened) -> None:
        event = fact.event
        if not isinstance(event, PartitionsRevoked | PartitionsLost):
            return
        # A member that leaves during a rebalance has no generation to commit with.
        members = [
            participant.member for participant in self.scene.participants if participant.member
        ]
        is_member = any(
            member.member_id == event.member_id and member.state in _IN_A_GENERATION
            for member in members
        )
        for key in event.partitions:
            reached = self._consumed_to.pop((fact.who, key), 0)
            is_committed = self._committed.get(key, 0) >= reached
            if (
                is_member
                and self._is_calm
                and isinstance(event, PartitionsRevoked)
                and not is_committed
            ):
                self.fail(f"{fact.who} released {key}, read up to {reached}, uncommitted")

    @on(facts.Happened)
    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, PartitionsRevoked):
            for key in event.partitions.partitions - self.history.given_up:
                self._check(fact.who, event.member_id, key)
        if isinstance(event, PartitionsAssigned | PartitionsRevoked | PartitionsLost):
            for key in event.partitions:
                self._reached.pop((event.member_id, key), None)

    def _check(self, who: str, member_id: str, key: TopicIdPartition) -> None:
        query = next(
            (
                participant.name
                for participant in self.scene.participants
                if participant.member
                and participant.member.member_id == member_id
                and participant.member.state is MemberState.ACKNOWLEDGING
            ),
            None,
        )
        if query is None:
            return
        plan = self._running.get(query)
        if plan is not None and key in plan.partitions():
            self.fail(f"{who} released {key} while a batch reads it")
        if key not in self.scene.storage.logs:
            return
        if self.scene.late.is_doubted(member_id, key):
            self.fail(f"{who} released {key} without looking up a commit that got no answer")
        committed = self._committed.get(key, 0)
        from_offset, until_offset = self._replayed.get((query, key), (0, 0))
        if self.scene.late.is_race(key, committed):
            return
        is_lost_commit = key in self._committed_by_query and committed == from_offset
        if is_lost_commit and from_offset < self.history.floor(key, until_offset):
            self.fail(f"{who} released {key}, replayed up to {until_offset}, uncommitted")
        reached = self._reached.get((member_id, key), 0)
        if committed < self.history.floor(key, reached):
            self.fail(f"{who} released {key}, finished up to {reached}, which is not committed")
