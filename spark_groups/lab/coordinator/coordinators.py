"""The coordinators of a cluster: who leads which offsets partition, and who answers when.

Each node has one thread that takes the events of its partitions in turn; each partition fails over
alone. Everything takes as long as `Costs` says, in virtual time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.effects import NEWEST_API_VERSION
from spark_groups.lab.coordinator.log import Log
from spark_groups.lab.coordinator.messages import (
    AlterGroupConfigRequest,
    AlterGroupConfigResponse,
    GroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    error_answer,
)
from spark_groups.lab.coordinator.metrics import PartitionState, Sensors, metrics
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.records import GroupMetadataValue
from spark_groups.lab.coordinator.settings import Settings, alter
from spark_groups.lab.coordinator.shard import NOBODY, Origin, Shard, Ticket
from spark_groups.lab.coordinator.sharding import partition_for
from spark_groups.lab.coordinator.topic_images import TopicsImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """How long things take, in seconds.

    Args:
        event_s: One event, at the thread of its node.
        flush_s: Writing a batch, which is part of its event.
        replication_s: Until a batch is replicated.
        election_s: Until a partition has a new leader.
        load_s: Loading one record of a log.
    """

    event_s: float = 0.0
    flush_s: float = 0.0
    replication_s: float = 0.0
    election_s: float = 0.0
    load_s: float = 0.0


NO_COSTS: Final = Costs()


@dataclass(frozen=True, slots=True)
class _Event:
    """A request that waits for its turn."""

    ticket: Ticket
    partition: int
    origin: Origin
    api_version: int
    queued_at: float


@dataclass(slots=True)
class _Node:
    """A broker: its thread, and what happened there."""

    sensors: Sensors
    is_alive: bool = True
    busy_until: float = 0.0
    queue: deque[_Event] = field(default_factory=deque)


@dataclass(slots=True)
class _Partition:
    """An offsets partition.

    Args:
        log: Its log, which outlives its leaders.
        leader: The node that leads it; None: nobody.
        state: How far that node is.
        ready_at: When it is loaded, or when somebody is elected.
        elected_at: When it was elected.
        shard: Its event loop, once it is loaded.
        replicated_at: When what is appended will be replicated.
        taken_at: When the requests were taken that wait for it.
    """

    log: Log = field(default_factory=Log)
    leader: int | None = None
    state: PartitionState = PartitionState.ACTIVE
    ready_at: float | None = None
    elected_at: float = 0.0
    shard: Shard | None = None
    replicated_at: float | None = None
    taken_at: dict[Ticket, float] = field(default_factory=dict)


class Coordinators:
    """All coordinators of a cluster.

    Args:
        profile: Which coordinator they behave like.
        settings: What is configured.
        topics: The cluster's topics.
        nodes: Ids of the brokers.
        now: Seconds.
        costs: How long things take.
        unreadable: Partitions whose log nobody can load.
    """

    def __init__(
        self,
        profile: Profile,
        settings: Settings,
        topics: TopicsImage,
        nodes: tuple[int, ...],
        *,
        now: float = 0.0,
        costs: Costs = NO_COSTS,
        unreadable: frozenset[int] = frozenset(),
    ) -> None:
        self.profile = profile
        self.settings = settings
        self.topics = topics
        self.now = now
        self._costs = costs
        self._unreadable = unreadable
        self._nodes = {each: _Node(Sensors(now)) for each in nodes}
        count = settings.broker.offsets_partitions
        self._partitions = [_Partition() for _ in range(count)]
        for index in range(count):
            self._elect(index, nodes[index % len(nodes)])

    def find(self, group_id: str) -> int | None:
        """Return the node that coordinates a group; None: COORDINATOR_NOT_AVAILABLE."""
        return self._partitions[self.partition_for(group_id)].leader

    def partition_for(self, group_id: str) -> int:
        """Return the partition of a group."""
        return partition_for(group_id, len(self._partitions))

    def log(self, partition: int) -> Log:
        """Return the log of a partition."""
        return self._partitions[partition].log

    def submit(
        self,
        node_id: int,
        request: GroupRequest | ListGroupsRequest,
        now: float,
        origin: Origin = NOBODY,
        api_version: int = NEWEST_API_VERSION,
    ) -> Ticket:
        """Send a request to a node.

        Args:
            node_id: A node that is alive.
            request: The request.
            now: Seconds.
            origin: Where it comes from.
            api_version: Its version.

        Returns:
            Its ticket: answered, or to be answered by a later `wake`.
        """
        self.wake(now)
        ticket = Ticket(request)
        node = self._nodes[node_id]
        assert node.is_alive
        if isinstance(request, ListGroupsRequest):
            ticket.response = self._list(node_id, request)
            return ticket
        partition = self.partition_for(request.group_id)
        if (error_code := self._error(node_id, partition)) != ErrorCode.NONE:
            ticket.response = error_answer(request, error_code)
            return ticket
        node.queue.append(_Event(ticket, partition, origin, api_version, now))
        self._work(node_id)
        return ticket

    def next_wakeup(self) -> float | None:
        """Return when something happens next, in seconds."""
        times = [node.busy_until for node in self._nodes.values() if node.is_alive and node.queue]
        for each in self._partitions:
            timer = each.shard.next_wakeup() if each.shard else None
            times += [at for at in (each.ready_at, each.replicated_at, timer) if at is not None]
        return min(times, default=None)

    def wake(self, now: float) -> None:
        """Let everything happen that is due, in the order of its time.

        Args:
            now: Seconds.
        """
        while (at := self.next_wakeup()) is not None and at <= now:
            self.now = max(self.now, at)
            for index, partition in enumerate(self._partitions):
                self._wake_partition(index, partition)
            for node_id, node in self._nodes.items():
                if node.is_alive:
                    self._work(node_id)
        self.now = now

    def crash(self, node_id: int, now: float, *, keeps_appended: bool = False) -> None:
        """Stop a node: who waits for it hears nothing; its partitions get other leaders.

        Args:
            node_id: The node.
            now: Seconds.
            keeps_appended: Whether what was appended and not replicated is found by the next
                leader.
        """
        self.wake(now)
        self._nodes[node_id].is_alive = False
        self._nodes[node_id].queue.clear()
        for partition in self._partitions:
            if partition.leader == node_id:
                if not keeps_appended:
                    partition.log.truncate()
                self._leave(partition, now + self._costs.election_s)
        self.wake(now)

    def restart(self, node_id: int, now: float) -> None:
        """Start a node again; it leads nothing until something is moved to it or to nobody."""
        self.wake(now)
        self._nodes[node_id] = _Node(Sensors(now), busy_until=now)
        for partition in self._partitions:
            if partition.leader is None:
                partition.ready_at = now + self._costs.election_s
        self.wake(now)

    def move(self, partition: int, node_id: int, now: float) -> None:
        """Give a partition to another node; who waits for the former is told NOT_COORDINATOR."""
        self.wake(now)
        moved = self._partitions[partition]
        if moved.shard:
            moved.shard.fail_append(now, ErrorCode.NOT_COORDINATOR)
        self._leave(moved, None)
        self._elect(partition, node_id)
        self.wake(now)

    def set_topics(self, topics: TopicsImage, now: float) -> None:
        """Take a new image of the cluster's topics."""
        self.wake(now)
        self.topics = topics
        for partition in self._partitions:
            if partition.shard:
                partition.shard.set_topics(topics, now)
                self._appended(partition)

    def alter_config(
        self, request: AlterGroupConfigRequest, now: float
    ) -> AlterGroupConfigResponse:
        """Change what is configured for a group; the controller does it, for all nodes."""
        self.wake(now)
        self.settings, response = alter(self.settings, request, self.profile)
        for partition in self._partitions:
            if partition.shard:
                partition.shard.set_settings(self.settings, now)
        return response

    def metrics(self, node_id: int, now: float) -> Mapping[str, float]:
        """Return the metrics of a node by name."""
        self.wake(now)
        node = self._nodes[node_id]
        led = [each for each in self._partitions if each.leader == node_id]
        groups = (group for each in led if each.shard for group in each.shard.groups.values())
        states = (each.state for each in led)
        return metrics(node.sensors, groups, states, len(node.queue), now)

    def _error(self, node_id: int, partition: int) -> ErrorCode:
        led = self._partitions[partition]
        if led.leader != node_id or led.state is PartitionState.FAILED:
            return ErrorCode.NOT_COORDINATOR
        if led.state is PartitionState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def _list(self, node_id: int, request: ListGroupsRequest) -> ListGroupsResponse:
        led = [each for each in self._partitions if each.leader == node_id]
        if any(each.state is PartitionState.LOADING for each in led):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answers = [each.shard.ask(request, self.now) for each in led if each.shard]
        listed = [each for each in answers if isinstance(each, ListGroupsResponse)]
        return ListGroupsResponse(groups=tuple(group for each in listed for group in each.groups))

    def _leave(self, partition: _Partition, ready_at: float | None) -> None:
        partition.leader = None
        partition.shard = None
        partition.replicated_at = None
        partition.taken_at.clear()
        partition.ready_at = ready_at

    def _elect(self, index: int, node_id: int) -> None:
        partition = self._partitions[index]
        partition.leader = node_id
        partition.elected_at = self.now
        if index in self._unreadable:
            partition.state = PartitionState.FAILED
            return
        partition.state = PartitionState.LOADING
        records = sum(len(each.records) for each in partition.log.batches)
        partition.ready_at = self.now + records * self._costs.load_s
        self._wake_partition(index, partition)

    def _wake_partition(self, index: int, partition: _Partition) -> None:
        if partition.ready_at is not None and partition.ready_at <= self.now:
            partition.ready_at = None
            if partition.leader is None:
                alive = [each for each, node in self._nodes.items() if node.is_alive]
                if alive:
                    self._elect(index, alive[index % len(alive)])
            else:
                self._loaded(index, partition, partition.leader)
        if partition.replicated_at is not None and partition.replicated_at <= self.now:
            self._replicate(partition)
        timer = partition.shard.next_wakeup() if partition.shard else None
        if partition.shard and timer is not None and timer <= self.now:
            partition.shard.wake(self.now)
            self._appended(partition)

    def _loaded(self, index: int, partition: _Partition, leader: int) -> None:
        partition.state = PartitionState.ACTIVE
        self._nodes[leader].sensors.load.record(self.now, self.now - partition.elected_at)
        partition.shard = Shard(
            self.profile, self.settings, self.topics, partition.log, self.now, index
        )
        self._appended(partition)

    def _work(self, node_id: int) -> None:
        node = self._nodes[node_id]
        while node.queue and node.busy_until <= self.now:
            event = node.queue.popleft()
            node.sensors.queue.record(self.now, self.now - event.queued_at)
            partition = self._partitions[event.partition]
            error_code = self._error(node_id, event.partition)
            if partition.shard is None or error_code != ErrorCode.NONE:
                event.ticket.response = error_answer(event.ticket.request, error_code)
                continue
            end_offset = partition.log.end_offset
            partition.shard.take(event.ticket, self.now, event.origin, event.api_version)
            duration_s = self._costs.event_s
            if partition.log.end_offset > end_offset:
                duration_s += self._costs.flush_s
                node.sensors.flush.record(self.now, self._costs.flush_s)
            node.sensors.processing.record(self.now, duration_s)
            node.busy_until = self.now + duration_s
            if event.ticket.response is None:
                partition.taken_at[event.ticket] = self.now
            self._appended(partition)

    def _appended(self, partition: _Partition) -> None:
        if partition.log.end_offset == partition.log.high_watermark:
            return
        if partition.replicated_at is None:
            partition.replicated_at = self.now + self._costs.replication_s
        if partition.replicated_at <= self.now:
            self._replicate(partition)

    def _replicate(self, partition: _Partition) -> None:
        partition.replicated_at = None
        if partition.shard is None or partition.leader is None:
            return
        sensors = self._nodes[partition.leader].sensors
        for batch in partition.log.batches[::-1]:
            if batch.base_offset < partition.log.high_watermark:
                break
            for record in batch.records:
                if isinstance(record.value, GroupMetadataValue):
                    sensors.rebalanced(self.now)
        for ticket in partition.shard.replicate(self.now):
            sensors.purgatory.record(self.now, self.now - partition.taken_at.pop(ticket))
