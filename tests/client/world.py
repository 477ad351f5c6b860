"""A small deterministic world: some queries in one group, a virtual clock, faults by seed.

Everything that happens is an entry of one heap, ordered by time; chance is one `Random(seed)`. So a
seed and a profile name are the whole run. A client is woken only when it asks to be (`next_wakeup`)
or when something comes in, so that a missing wake-up shows as a run that never comes to rest.

What it leaves out: a request does not arrive after its sender was told that it failed (`late` lets
it: that race is documented beside `CommitQueue`), topics are not deleted, ids are dynamic only.
"""

from __future__ import annotations

import heapq
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from random import Random

from spark_groups.client import Lane, Outgoing
from spark_groups.client.narration import narrate
from spark_groups.client.parts import Event
from spark_groups.errors import ErrorCode
from spark_groups.offsets.starting import StartingPoint
from spark_groups.protocol import messages as m
from tests.client.checkers import Checkers
from tests.client.partition_log import PartitionLog
from tests.client.queries import SESSION_S, Query
from tests.client.scripted_coordinator import PROFILES, Key, ScriptedCoordinator

TRACE_LENGTH = 400
PASSING_ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


@dataclass(frozen=True)
class Swarm:
    """What one run is made of; all zero is a run without faults.

    Args:
        queries: How many queries share the group.
        partitions: How many partitions the topic has at first.
        starting: `startingOffsets` of all queries.
        batch_s: How long a batch takes at most.
        rebalance_timeout_s: How long the coordinator waits for a revocation.
        chaos_s: How long faults happen.
        stops: How often a query leaves the group and comes back.
        growth: How often partitions are added.
        loss: Chance that a request, or its answer, is lost.
        delay: Chance that an answer takes long.
        errors: Chance that a coordinator refuses for now.
        moves: How often the coordinator moves.
        elections: How often a partition gets another leader that has the whole log.
        truncations: How often it gets one that lacks the end of it.
        crashes: How often a query is killed and started again from its checkpoint.
        pauses: How often a query stands still, at times for longer than its session.
        late: True if a request may arrive after its sender gave it up.
    """

    queries: int = 2
    partitions: int = 4
    starting: StartingPoint = StartingPoint.LATEST
    batch_s: float = 1.0
    rebalance_timeout_s: float = 60.0
    chaos_s: float = 60.0
    stops: int = 0
    growth: int = 0
    loss: float = 0.0
    delay: float = 0.0
    errors: float = 0.0
    moves: int = 0
    elections: int = 0
    truncations: int = 0
    crashes: int = 0
    pauses: int = 0
    late: bool = False

    @classmethod
    def drawn(cls, random: Random) -> Swarm:
        """Draw everything; about one run in four has no faults at all."""
        calm = cls(
            queries=random.choice((1, 2, 2, 3, 3, 4)),
            partitions=random.randint(1, 6),
            starting=random.choice(list(StartingPoint)),
            batch_s=random.choice((0.05, 1.0, 6.0, 20.0)),
            rebalance_timeout_s=random.choice((10.0, 30.0, 120.0)),
            stops=random.randint(0, 6),
            growth=random.randint(0, 2),
            elections=random.choice((0, 0, 3, 10)),
        )
        if random.random() < 0.25:
            return calm
        calmer = {each.name: getattr(calm, each.name) for each in fields(cls)}
        return cls(
            **calmer
            | {
                "loss": random.choice((0.0, 0.02, 0.1, 0.3)),
                "delay": random.choice((0.0, 0.05, 0.3)),
                "errors": random.choice((0.0, 0.02, 0.2)),
                "moves": random.randint(0, 3),
                "truncations": random.choice((0, 0, 2, 8)),
                "crashes": random.randint(0, 5),
                "pauses": random.randint(0, 4),
            }
        )

    @property
    def is_calm(self) -> bool:
        faults = (self.loss, self.delay, self.errors, self.moves, self.crashes, self.pauses)
        return not any((*faults, self.truncations))


class World:
    """One run.

    Args:
        seed: Decides everything else.
        profile: A name in `PROFILES`.
        swarm: What the run is made of, drawn from the seed unless it is given.
    """

    def __init__(self, seed: int, profile: str, swarm: Swarm | None = None) -> None:
        self.random = Random(seed)
        self.swarm = swarm or Swarm.drawn(self.random)
        self.now = 0.0
        self.faults_on = True
        self.trace: deque[str] = deque(maxlen=TRACE_LENGTH)
        topic = m.TopicMetadata(uuid.UUID(int=1), "orders", self.swarm.partitions)
        self.topics = {topic.topic_id: topic}
        self.coordinator = ScriptedCoordinator(
            PROFILES[profile], self.topics, session_timeout_s=SESSION_S
        )
        self.logs = {
            key: PartitionLog(self.random.randint(0, 50)) for key in self.coordinator.partitions()
        }
        self.queries = [Query(self, f"q{index}") for index in range(self.swarm.queries)]
        self.check = Checkers(self)
        self.coordinator.on_commit = self.check.commit_accepted
        self._node = m.Node(1, "broker", 9092)
        self._loading_until = 0.0
        self._requests: Counter[tuple[str, Lane, int]] = Counter()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._entries = 0

    @property
    def ends(self) -> dict[Key, int]:
        """How far each log reaches."""
        return {key: log.end_offset for key, log in self.logs.items()}

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Let something happen later; things of the same instant happen in the order asked."""
        self._entries += 1
        heapq.heappush(self._heap, (max(when, self.now), self._entries, act))

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        text = text.replace("00000000-0000-0000-0000-00000000000", "")
        self.trace.append(f"{self.now:9.3f} {text[:400]}")

    def happened(self, query: Query, event: Event) -> None:
        """Take an event of a client."""
        assert query.client is not None
        self.check.happened(query, event)
        self.say(f"{query.name}: {narrate(event, query.client.topics.name)[1]}")

    def run(self) -> None:
        """Faults first, then quiet until everything is read, committed and stable."""
        swarm, random = self.swarm, self.random
        for query in self.queries:
            self.at(random.uniform(0, 10), query.start)
        self.at(0.0, self._produce)
        for count, act in (
            (swarm.growth, self._grow),
            (swarm.moves, self._move_coordinator),
            (swarm.elections, lambda: self._elect(0)),
            (swarm.truncations, lambda: self._elect(random.choice((1, 5, 60)))),
            (swarm.stops, lambda: self._one().stop(random.choice((0.1, 3.0, 10.0)))),
            (swarm.crashes, lambda: self._one().kill(random.choice((0.1, 3.0, 20.0)))),
            (swarm.pauses, lambda: self._one().stand_still(random.choice((2.0, 11.0, 14.0, 30.0)))),
        ):
            for _ in range(count):
                self.at(random.uniform(5, swarm.chaos_s), act)
        self._run_until(swarm.chaos_s)
        self.faults_on = False
        self.say("faults stop")
        quiet_s = 30.0 + 3 * SESSION_S + 2 * swarm.batch_s + swarm.rebalance_timeout_s
        while self.now < swarm.chaos_s + quiet_s and not self.check.is_at_rest():
            self._run_until(self.now + 1.0)
        self.check.at_rest()

    def _run_until(self, end: float) -> None:
        while self._heap and self._heap[0][0] <= end:
            self.now, _, act = heapq.heappop(self._heap)
            act()
        self.now = end

    def _one(self) -> Query:
        return self.random.choice(self.queries)

    # The cluster.

    def _produce(self) -> None:
        for log in self.logs.values():
            log.append(self.random.choice((0, 0, 1, 5, 40)))
        if self.now < self.swarm.chaos_s:
            self.at(self.now + self.random.uniform(0.2, 3.0), self._produce)

    def _grow(self) -> None:
        (topic,) = self.topics.values()
        count = topic.partition_count + 1
        self.topics[topic.topic_id] = m.TopicMetadata(topic.topic_id, topic.name, count)
        self.logs[Key(topic.topic_id, count - 1)] = PartitionLog(self.random.randint(0, 30))
        if self.coordinator.committed:
            self.check.added.add(Key(topic.topic_id, count - 1))
        self.say(f"the topic has {count} partitions")

    def _move_coordinator(self) -> None:
        self._node = m.Node(self._node.node_id + 1, "broker", 9092)
        self._loading_until = self.now + self.random.choice((0.0, 0.5, 3.0))
        self.coordinator.loaded(self.now)
        self.say(f"the coordinator moves to {self._node}")

    def _elect(self, lost: int) -> None:
        """Give a partition a new leader, whose log lacks so many records and has others since."""
        key = self.random.choice(sorted(self.logs))
        log = self.logs[key]
        log.elect(lost, self.now)
        if lost:
            self.check.truncated(key, log.end_offset)
            log.append(self.random.choice((0, 1, 80)))
        self.say(f"{key} lost {lost}, leader epoch {log.leader_epoch}, ends at {log.end_offset}")

    def list_end(self, key: Key) -> tuple[int, int]:
        """Return an end and its leader epoch; for a moment the old leader may still answer."""
        log = self.logs[key]
        if self.now < log.deposed_at + 2.0 and self.random.random() < 0.3:
            return log.deposed
        return log.end_offset, log.leader_epoch

    def _epoch_ends(self, lookups: Mapping[Key, m.EpochLookup]) -> m.OffsetForLeaderEpochResponse:
        fails = self.faults_on and self.random.random() < self.swarm.errors
        if fails:
            fenced = int(ErrorCode.FENCED_LEADER_EPOCH)
            return m.OffsetForLeaderEpochResponse(errors=dict.fromkeys(lookups, fenced))
        for key, each in lookups.items():
            assert each.leader_epoch < each.current_leader_epoch <= self.logs[key].leader_epoch
        return m.OffsetForLeaderEpochResponse(
            ends={key: self.logs[key].end_of(each.leader_epoch) for key, each in lookups.items()}
        )

    def _answer(self, outgoing: Outgoing) -> m.Response:
        request = outgoing.request
        match request:
            case m.FindCoordinatorRequest():
                return m.FindCoordinatorResponse(coordinator=self._node)
            case m.MetadataRequest():
                found = [
                    each
                    for each in self.topics.values()
                    if each.name in request.topic_names or each.topic_id in request.topic_ids
                ]
                return m.MetadataResponse(topics=tuple(found))
            case m.GroupSettingsRequest():
                return m.GroupSettingsResponse(session_timeout_ms=int(SESSION_S * 1000))
            case m.ListOffsetsRequest():
                first = request.timestamp_ms == m.EARLIEST_TIMESTAMP
                ends = self.ends
                return m.ListOffsetsResponse(
                    offsets={key: 0 if first else ends[key] for key in request.partitions},
                    leader_epochs={
                        key: 0 if first else self.logs[key].leader_epoch
                        for key in request.partitions
                    },
                )
            case m.OffsetForLeaderEpochRequest(lookups=lookups):
                return self._epoch_ends(lookups)
        code = ErrorCode.NONE
        if outgoing.node != self._node:
            code = ErrorCode.NOT_COORDINATOR
        elif self.now < self._loading_until:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        elif self.faults_on and self.random.random() < self.swarm.errors:
            code = self.random.choice(PASSING_ERRORS)
        return self.coordinator.answer(request, code, self.now)

    # The network.

    def send(self, query: Query, outgoing: Outgoing) -> None:
        """Carry a request, and its answer or the news that there is none."""
        client, random = query.client, self.random
        lane = (f"{query.name}.{query.incarnation}", outgoing.lane, int(self.now))
        self._requests[lane] += 1
        self.check.pace(lane, self._requests[lane])
        lost = self.faults_on and random.random() < self.swarm.loss
        slow = self.faults_on and random.random() < self.swarm.delay
        there_s = random.uniform(0.001, 0.01)
        back_s = random.uniform(0.5, 4.0) if slow else random.uniform(0.001, 0.01)

        def arrive() -> None:
            response = self._answer(outgoing)
            self.say(f"{query.name} asks {outgoing.request} -> {response}")
            if not lost:
                self.at(
                    self.now + back_s,
                    lambda: query.deliver(
                        client, lambda c: c.handle_response(outgoing, response, self.now)
                    ),
                )

        arrives = True
        if lost:
            arrives = random.random() < 0.5
            gives_up_s = random.choice((0.02, 1.0, outgoing.timeout_s))
            there_s = random.uniform(0.0, 6.0) if self.swarm.late else min(there_s, gives_up_s)
            failed = m.RequestFailed("lost", may_have_arrived=arrives or random.random() < 0.5)
            self.say(f"{query.name} loses {type(outgoing.request).__name__}, arrives: {arrives}")
            self.at(
                self.now + gives_up_s,
                lambda: query.deliver(
                    client, lambda c: c.handle_failure(outgoing, failed, self.now)
                ),
            )
        if arrives:
            self.at(self.now + there_s, arrive)
