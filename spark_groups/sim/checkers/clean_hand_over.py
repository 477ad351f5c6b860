"""A partition is given up when nothing reads it and all that was finished of it is committed."""

from __future__ import annotations

from spark_groups.protocol.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from spark_groups.protocol.membership import MemberState
from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.history import History
from spark_groups.sim.scene import Listeners, Scene
from spark_groups.types import BatchPlan, TopicIdPartition


class CleanHandOver(Checker):
    """Follows what each query reads and has finished, replayed batches included.

    A member may say that it gives partitions up uncommitted: then its time to revoke is over. Who
    leaves may have to leave something behind, too. A commit that got no answer is looked up before:
    whatever arrives after that nobody can tell.
    What a replayed batch finished is committed unless an operator or a plain consumer was the last
    to set the offset, be it to the same one.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._running: dict[str, BatchPlan] = {}
        """What each query reads, under whatever member id that was planned."""
        self._reached: dict[tuple[str, TopicIdPartition], int] = {}
        """Up to where a member has finished a partition since it was assigned."""
        self._replayed: dict[tuple[str, TopicIdPartition], tuple[int, int]] = {}
        """What a query has finished in a replayed batch, until it reads another: a run that starts
        then knows nothing of it any more."""
        self._committed: dict[TopicIdPartition, int] = {}
        self._committed_by_query: set[TopicIdPartition] = set()
        """Partitions whose committed offset was set by a query."""
        self._plain_members: set[str] = set()
        """Member ids of plain consumers that have read anything."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.Read: self._reads,
            facts.Forgotten: self._forgotten,
            facts.Finished: self._finished,
            facts.Committed: self._noted,
            facts.OffsetReset: self._reset,
            facts.Consumed: lambda fact: self._plain_members.add(fact.member_id),
            facts.Happened: self._happened,
        }

    def _reads(self, fact: facts.Read) -> None:
        self._running[fact.who] = fact.plan
        self._forget_replayed(fact.who)

    def _forget_replayed(self, who: str) -> None:
        for name, key in [each for each in self._replayed if each[0] == who]:
            del self._replayed[name, key]

    def _forgotten(self, fact: facts.Forgotten) -> None:
        self._running.pop(fact.who, None)
        self._forget_replayed(fact.who)

    def _finished(self, fact: facts.Finished) -> None:
        if self._running.get(fact.who) == fact.plan:
            del self._running[fact.who]
            members = [each.member for each in self.scene.participants if each.name == fact.who]
            is_own = any(each and each.member_id == fact.plan.member_id for each in members)
            for each in fact.plan.ranges:
                if is_own:
                    self._reached[fact.plan.member_id, each.key] = each.until_offset
                else:
                    self._replayed[fact.who, each.key] = (each.from_offset, each.until_offset)

    def _noted(self, fact: facts.Committed) -> None:
        key = fact.offset.key
        self._committed[key] = fact.offset.committed_offset
        if fact.offset.member_id in self._plain_members:
            self._committed_by_query.discard(key)
        else:
            self._committed_by_query.add(key)

    def _reset(self, fact: facts.OffsetReset) -> None:
        self._committed[fact.key] = fact.new_offset
        self._committed_by_query.discard(fact.key)

    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, PartitionsRevoked):
            for key in event.partitions.partitions - self.history.given_up:
                self._look(fact.who, event.member_id, key)
        if isinstance(event, PartitionsAssigned | PartitionsRevoked | PartitionsLost):
            for key in event.partitions:
                self._reached.pop((event.member_id, key), None)

    def _look(self, who: str, member_id: str, key: TopicIdPartition) -> None:
        query = next(
            (
                each.name
                for each in self.scene.participants
                if each.member
                and each.member.member_id == member_id
                and each.member.state is MemberState.ACKNOWLEDGING
            ),
            None,
        )
        if query is None:
            return
        plan = self._running.get(query)
        if plan is not None and key in plan.partitions():
            self.fail(f"{who} gave up {key} while a batch reads it")
        if key not in self.scene.storage.logs:
            return
        if self.scene.late.is_doubted(member_id, key):
            self.fail(
                f"{who} gave up {key}, but a commit of it got no answer and was not looked up"
            )
        committed = self._committed.get(key, 0)
        from_offset, until_offset = self._replayed.get((query, key), (0, 0))
        if self.scene.late.is_race(key, committed):
            return
        is_lost_commit = key in self._committed_by_query and committed == from_offset
        if is_lost_commit and from_offset < self.history.floor(key, until_offset):
            self.fail(f"{who} gave up {key}, replayed up to {until_offset}, uncommitted")
        reached = self._reached.get((member_id, key), 0)
        if committed < self.history.floor(key, reached):
            self.fail(f"{who} gave up {key}, finished up to {reached}, which is not committed")
