"""What must hold in every run of `tests.client.world`, whatever the faults; one method each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_groups.client.parts import Event
from spark_groups.offsets.events import DataLost, PartitionsGivenUp, RangesInherited
from spark_groups.offsets.starting import StartingPoint
from spark_groups.protocol.events import MemberFailed, PartitionsRevoked
from spark_groups.protocol.messages import NO_OFFSET
from spark_groups.types import BatchPlan, OffsetRange
from tests.client.scripted_coordinator import Key

if TYPE_CHECKING:
    from tests.client.queries import Query
    from tests.client.world import World

REQUESTS_PER_SECOND_MAX = 60
"""More on one lane means that something is asked again and again without a pause."""


class Checkers:
    """Watches a world from outside.

    Args:
        world: The run.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._first: dict[Key, int] = {}
        self._finished: dict[Key, list[tuple[int, int]]] = {}
        self.commits = 0
        self.moved = 0
        self.read_again = 0
        self.events: dict[str, int] = {}
        self.added: set[Key] = set()
        """Partitions that were added while the group was reading the topic."""
        self._committers: dict[Key, str] = {}
        self._given_up: set[Key] = set()
        self._cut: dict[Key, int] = {}
        self._lowest: dict[Key, int] = {}
        """From where on every record must have been read."""
        self._read: dict[Key, set[int]] = {}
        self._inherited: dict[Key, list[OffsetRange]] = {}

    def planned(self, query: str, plan: BatchPlan) -> None:
        """Only the single owner plans, and never what is committed already.

        A member that was removed because it took too long to revoke cannot know it before its next
        heartbeat is answered; a session that ran out it must notice by its own clock.
        """
        coordinator = self._world.coordinator
        if coordinator.removed.get(plan.member_id) == "rebalance":
            return
        for each in plan.ranges:
            holder = coordinator.holder(each.key)
            assert holder == plan.member_id, (
                f"{query} planned {each} as {plan.member_id}, but {holder} has it"
            )
            committed = coordinator.committed.get(each.key)
            assert committed is not None, f"{query} planned {each} before its start was committed"
            cut = self._cut.get(each.key, committed.committed_offset)
            assert each.from_offset >= min(cut, committed.committed_offset), (
                f"{query} planned {each} again: {committed.committed_offset} is committed"
            )

    def truncated(self, key: Key, end_offset: int) -> None:
        """Note that a log lost its end: what is below may be committed and read again."""
        self._cut[key] = min(end_offset, self._cut.get(key, end_offset))
        if key in self._lowest:
            self._lowest[key] = min(end_offset, self._lowest[key])

    def read(self, plan: BatchPlan) -> dict[Key, list[int]]:
        """Return the records that a batch reads when it runs."""
        logs = self._world.logs
        return {
            each.key: logs[each.key].records[each.from_offset : each.until_offset]
            for each in plan.ranges
        }

    def finished(self, plan: BatchPlan, records: dict[Key, list[int]]) -> None:
        """Note what a batch that is in Spark's commit log has read."""
        for key, found in records.items():
            self._read.setdefault(key, set()).update(found)
        for each in plan.ranges:
            intervals = self._finished.setdefault(each.key, [])
            if any(a < each.until_offset and each.from_offset < b for a, b in intervals):
                self.read_again += 1
            intervals.append((each.from_offset, each.until_offset))

    def commit_accepted(self, member_id: str, key: Key, committed_offset: int) -> None:
        """The owner commits, offsets never go back, and all below was in a finished batch."""
        coordinator = self._world.coordinator
        self.commits += 1
        holder = coordinator.holder(key)
        assert holder == member_id, f"{member_id} commits {key}, but {holder} has it"
        before = coordinator.committed.get(key)
        if before is None:
            self._first[key] = self._lowest[key] = committed_offset
            assert key not in self.added or committed_offset == 0, (
                f"{key} was added later, but begins at {committed_offset}"
            )
        elif not self._world.swarm.late:
            cut = self._cut.get(key, before.committed_offset)
            assert committed_offset >= min(cut, before.committed_offset), (
                f"{member_id} takes {key} back from {before.committed_offset} to {committed_offset}"
            )
        if self._committers.setdefault(key, member_id) != member_id:
            self.moved += 1
            self._committers[key] = member_id
        reached = self._first[key]
        for from_offset, until_offset in sorted(self._finished.get(key, [])):
            if from_offset <= reached:
                reached = max(reached, until_offset)
        assert committed_offset <= reached, (
            f"{member_id} commits {key} at {committed_offset}, finished is {reached}: rows skipped"
        )

    def happened(self, query: Query, event: Event) -> None:
        """No fault that passes is final; where a partition starts is committed before it goes."""
        name = type(event).__name__
        self.events[name] = self.events.get(name, 0) + 1
        assert not isinstance(event, MemberFailed), f"{query.name}: {event}"
        if isinstance(event, DataLost):
            lost = int(event.message.partition("orders-")[2].split()[0])
            assert lost in {key.partition for key in self._cut}, f"no log was cut: {event}"
        if isinstance(event, RangesInherited):
            for each in event.ranges:
                self._inherited.setdefault(each.key, []).append(each)
        if isinstance(event, PartitionsGivenUp):
            self._given_up.update(event.partitions)
        if isinstance(event, PartitionsRevoked):
            latest = self._world.swarm.starting is StartingPoint.LATEST
            for key in event.partitions if latest else ():
                assert key in self._world.coordinator.committed or key in self._given_up, (
                    f"{query.name} gave up {key} before its start was committed"
                )

    def pace(self, lane_second: object, count: int) -> None:
        """Nothing is asked again and again without a pause."""
        assert count <= REQUESTS_PER_SECOND_MAX, f"{lane_second}: {count} requests"

    def is_at_rest(self) -> bool:
        return not self._restless()

    def at_rest(self) -> None:
        """Some time after the last fault everything is stable, read and committed."""
        restless = self._restless()
        assert not restless, "never came to rest: " + "; ".join(restless)
        if self._world.swarm.is_calm and not self._given_up:
            assert not self.read_again, f"{self.read_again} ranges were read twice without a fault"
        for key, log in self._world.logs.items():
            unread = [
                offset
                for offset, record in enumerate(log.records)
                if offset >= self._lowest[key] and record not in self._read.get(key, ())
            ]
            unread = [offset for offset in unread if not self._is_inherited(key, offset)]
            assert not unread, f"records of {key} were never read, at {unread}"

    def _is_inherited(self, key: Key, offset: int) -> bool:
        """A plan in a checkpoint has no leader epochs: a log cut inside it cannot be told."""
        return any(
            each.from_offset <= offset < each.until_offset for each in self._inherited.get(key, ())
        )

    def _restless(self) -> list[str]:
        world, found = self._world, []
        if world.coordinator.state() != "Stable":
            found.append(f"the group is {world.coordinator.state()}")
        for query in world.queries:
            client = query.client
            if client is None or not client.is_settled:
                state = client.member.state.name if client else "down"
                found.append(f"{query.name} is not settled ({state})")
                continue
            # Whoever has not heard of a new leader cannot know that its log was cut.
            found += [
                f"{query.name} has not heard of the leader of {key.partition}"
                for key, owned in client.ledger.owned.items()
                if owned.leader_epoch < world.logs[key].leader_epoch
            ]
        for key in world.coordinator.partitions():
            committed = world.coordinator.committed.get(key)
            offset = committed.committed_offset if committed else NO_OFFSET
            if offset != world.ends[key]:
                found.append(f"{key.partition} is committed at {offset} of {world.ends[key]}")
        return found
