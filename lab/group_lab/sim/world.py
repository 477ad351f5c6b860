"""A run: queries and plain consumers in one group, a virtual clock, faults by seed.

Every event is an entry of one heap, ordered by time, and all randomness has one source: a seed and
a profile determine the whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from group_lab.coordinator.profile import Profile
from group_lab.coordinator.settings import BrokerSettings, Settings
from group_lab.coordinator.shard import DEFAULT_ORIGIN, Origin
from group_lab.sim import facts
from group_lab.sim.chance import Chance
from group_lab.sim.checkers.registry import all_checkers
from group_lab.sim.classic_consumer import ClassicConsumer, NamedOutgoing
from group_lab.sim.classic_owners import ClassicOwners
from group_lab.sim.client_side import ComputingNetwork
from group_lab.sim.coordination import AcceptedOffset, Coordination, Watch
from group_lab.sim.deployment import Deployment
from group_lab.sim.history import History
from group_lab.sim.incarnation import HELD_S
from group_lab.sim.incidents import NO_MEMBER_ID, Incidents, longest_reset_s
from group_lab.sim.network import Network, Reply
from group_lab.sim.plain_consumer import PlainConsumer
from group_lab.sim.queries import Query
from group_lab.sim.rights import Finish, sent_by_name
from group_lab.sim.scene import Application, Listeners, Scene, restless
from group_lab.sim.schedule import Schedule
from group_lab.sim.storage import NONE_REFUSED, Refused, Storage
from group_lab.sim.swarm import VERSIONS, Swarm
from group_lab.sim.tables import Table
from spark_groups.errors import ErrorCode
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.group.member import messages as m
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    TopicIdPartition,
    TopicPartition,
)

MISSING: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
GROUP_ID: Final = "g"
LEADER_ERRORS: Final = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
)
OLD_LEADER_PART: Final = 0.3
"""How often a deposed leader answers for log ends, while it still can."""
WRITTEN_EVERY_S: Final = 0.1
"""How often a planned run writes records."""
QUIET_S: Final = 30.0
"""How long a group may take to settle after the last fault, in addition to its own timeouts."""


class World:
    """One run."""

    def __init__(
        self,
        chance: Chance,
        profile: Profile,
        swarm: Swarm,
        listeners: Sequence[Callable[[Scene], Listeners]] = (),
    ) -> None:
        names = [f"orders{number}" for number in range(1, swarm.topics + 1)]
        schedule = Schedule()
        storage = Storage(dict.fromkeys(names, swarm.partitions))
        for log in storage.logs.values():
            log.append(chance.randint(0, 50))
        coordination = Coordination(
            GROUP_ID, profile, _settings(swarm), storage, schedule, chance, swarm.replication_s
        )
        network = self._network(schedule, chance, profile, swarm)
        self.scene = scene = Scene(schedule, chance, swarm, storage, coordination, network)
        scene.table = _table(scene) if swarm.table else None
        scene.starting = _starting(swarm, storage, chance)
        scene.rights.may_not_describe = bool(swarm.undescribed)
        subscription = (
            Subscription.of_pattern("orders.*")
            if swarm.by_pattern
            else Subscription.of_names(names)
        )
        self.queries = [
            Query(
                scene,
                f"q{each}",
                subscription,
                f"i{each}" if each <= swarm.static else None,
                is_job=each <= swarm.available_now,
            )
            for each in range(1, swarm.queries + 1)
        ]
        consumed = Subscription.of_names(names)
        self.consumers = [
            PlainConsumer(scene, f"c{each}", consumed) for each in range(1, swarm.consumers + 1)
        ]
        self.classic = [
            ClassicConsumer(
                scene, f"k{each}", tuple(names), f"k{each}" if each <= swarm.static else None
            )
            for each in range(1, swarm.classic + 1)
        ]
        applications: list[Application] = [*self.queries, *self.classic]
        scene.participants += [*self.queries, *self.consumers, *self.classic]
        history = History()
        checkers = all_checkers(scene, history)
        scene.listen([ClassicOwners(scene).listeners()])
        scene.listen([scene.late.listeners(), history.listeners()])
        scene.listen(checker.listeners() for checker in checkers)
        scene.listen(listener(scene) for listener in listeners)
        coordination.watch = Watch(
            lambda group: scene.publish(facts.GroupChanged(group)),
            self._committed,
            self._deleted,
            self._replaced,
            lambda since: scene.publish(facts.TakenBack(since)),
        )
        self._incidents = Incidents(scene, applications)
        self._deployment = Deployment(scene, applications)
        scene.listen([self._deployment.listeners()])
        self._written = dict.fromkeys(storage.logs, 0)
        """Records that a run for capacity planning has written to each partition."""

    def _network(
        self, schedule: Schedule, chance: Chance, profile: Profile, swarm: Swarm
    ) -> Network:
        if not (swarm.computing and profile.kip_heartbeats):
            return Network(schedule, chance, swarm, self._serve, self._serve_late)
        computing = ComputingNetwork(schedule, chance, swarm, self._serve, self._serve_late)
        computing.publish = self._computed
        return computing

    @property
    def quiet_s(self) -> float:
        """How long a group may take to settle after the last fault."""
        swarm = self.scene.swarm
        # A member that Spark calls rarely has a longer budget, and a listener may use all of it.
        held_s = swarm.holds * 2 * max(HELD_S)
        down_s = min(1, swarm.resets + swarm.deletions) * longest_reset_s(swarm)
        # The answer to a lost JoinGroup is awaited for as long as a rebalance may take.
        rebalances_s = (4 if swarm.classic else 1) * swarm.rebalance_s
        waits_s = 3 * swarm.session_s + 2 * swarm.batch_s + rebalances_s + held_s + down_s
        # A member that does not install its result is replaced after this time.
        waits_s += swarm.computing * swarm.rebalance_s
        if swarm.table:
            # Batches are staged again, and those that a table refuses begin with a restart.
            waits_s += QUIET_S + 3 * swarm.batch_s
        return QUIET_S + waits_s

    def run(self) -> None:
        """Play the faults, then continue without faults until all is read, committed and stable.

        Raises:
            BrokenInvariantError: A promise is broken.
        """
        scene, swarm, schedule = self.scene, self.scene.swarm, self.scene.schedule
        self.begin()
        schedule.run_until(swarm.chaos_s)
        while not self._deployment.is_over:
            schedule.run_until(scene.now + 1.0)
        scene.network.is_faulty = False
        self._say("quiet")
        ends_at = scene.now + self.quiet_s
        while scene.now < ends_at and next(restless(scene), None):
            schedule.run_until(scene.now + 1.0)
        scene.publish(facts.Quiet())

    def begin(self) -> None:
        """Schedule the start of the run."""
        scene, swarm = self.scene, self.scene.swarm
        chance, schedule = scene.chance, scene.schedule
        for start in (participant.start for participant in scene.participants):
            schedule.at(chance.uniform(0.0, swarm.starts_s), start)
        self._deployment.begin()
        schedule.at(0.0, self._produce_evenly if swarm.planned else self._produce)
        if swarm.planned:
            scene.listen([{facts.CountingBegins: lambda _: self._schedule_incidents(0.0)}])
        else:
            self._schedule_incidents(min(5.0, swarm.chaos_s / 2))

    def _schedule_incidents(self, from_s: float) -> None:
        scene = self.scene
        for act in self._incidents.drawn():
            scene.schedule.after(scene.chance.uniform(from_s, scene.swarm.chaos_s), act)

    def _committed(self, offset: AcceptedOffset) -> None:
        if offset.member_id != NO_MEMBER_ID:
            self.scene.publish(facts.Committed(offset))
            return
        self._say("resets", offset.key, "to", offset.committed_offset)
        self.scene.publish(facts.OffsetReset(offset.key, offset.committed_offset))

    def _deleted(self, key: TopicIdPartition) -> None:
        self._say("forgets", key)
        self.scene.publish(facts.OffsetDeleted(key))

    def _computed(self, fact: facts.Computed) -> None:
        self._say("computes", fact)
        self.scene.publish(fact)

    def _replaced(self) -> None:
        self._say("moves", "to", self.scene.coordination.node)
        self.scene.publish(facts.Replaced())

    def _say(self, what: str, *details: object) -> None:
        epochs = self.scene.coordination.epochs
        self.scene.log.add(self.scene.now, "group", epochs, what, *details)

    def _produce(self) -> None:
        scene, swarm = self.scene, self.scene.swarm
        wait_s = scene.chance.uniform(0.2, 3.0)
        for log in scene.storage.logs.values():
            count = int(scene.chance.choice((0.0, 0.0, 0.2, 1.0, 4.0)) * swarm.rate * wait_s)
            log.append(count, scene.now)
        if scene.now < swarm.chaos_s:
            scene.schedule.after(wait_s, self._produce)

    def _produce_evenly(self) -> None:
        scene, logs = self.scene, self.scene.storage.logs
        for index, (key, log) in enumerate(logs.items()):
            # Partitions are staggered, so that they do not write at once.
            due = int(scene.swarm.rate * scene.now + index / len(logs))
            log.append(due - self._written.get(key, 0), scene.now)
            self._written[key] = due
        if scene.is_faulty:
            scene.schedule.after(WRITTEN_EVERY_S, self._produce_evenly)

    # The brokers.

    def _serve(self, outgoing: Outgoing, reply: Reply) -> None:
        scene = self.scene
        storage = scene.storage
        request, finish, refusal = scene.rights.authorize(
            outgoing.request, storage.image, scene.now
        )
        if request is None:
            self._say("denies", outgoing.request, "->", refusal)
            reply(refusal)
            return
        if finish is not None:
            outgoing, reply = replace(outgoing, request=request), _finishing(finish, reply)
        fails = scene.is_faulty and scene.chance.random() < scene.swarm.errors
        match request:
            case m.FindCoordinatorRequest():
                reply(self._coordinator(fails=fails))
            case m.MetadataRequest():
                reply(_electing(request) if fails else storage.metadata(request))
            case m.GroupSettingsRequest():
                reply(m.GroupSettingsResponse(session_timeout_ms=int(scene.swarm.session_s * 1000)))
            case m.ListOffsetsRequest() if outgoing.channel is Channel.TRIGGER:
                reply(self._log_ends(request, fails=fails))
            case m.SampleRecordsRequest():
                reply(storage.sample_records(request))
            case m.ListOffsetsRequest():
                reply(storage.list_offsets(request, self._refused(request.partitions, fails)))
            case m.OffsetForLeaderEpochRequest():
                reply(storage.epoch_ends(request, self._refused(request.lookups, fails)))
            case m.OffsetFetchRequest() if fails and scene.chance.random() < 0.5:
                finish = self._unstable(request.partitions)
                self._ask_coordinator(outgoing, ErrorCode.NONE, _finishing(finish, reply))
            case _:
                code = (
                    scene.chance.choice(scene.coordination.passing_errors)
                    if fails
                    else ErrorCode.NONE
                )
                self._ask_coordinator(outgoing, code, reply)

    def _serve_late(self, outgoing: Outgoing, reply: Reply) -> None:
        """Serve a late request.

        If it is a heartbeat, publish the partitions that it made the coordinator take from its
        sender, or give to it.
        """
        scene, request = self.scene, outgoing.request
        scene.publish(facts.CameLate(request, scene.now))
        if not isinstance(request, m.HeartbeatRequest):
            self._serve(outgoing, reply)
            return
        held = self._held(request.member_id)
        self._serve(outgoing, reply)
        holds = self._held(request.member_id)
        plain = {consumer.member.member_id for consumer in self.consumers}
        # A query notices partitions that it was assigned unknowingly, from a description of the
        # group (`TargetAssignment.unreported`); a plain consumer does not.
        given = holds - held if request.member_id in plain else frozenset()
        if held - holds or given:
            scene.publish(facts.ChangedByLateHeartbeat(request.member_id, held - holds, given))

    def _held(self, member_id: str) -> frozenset[TopicIdPartition]:
        """Return a member's partitions in the coordinator's view."""
        member = self.scene.coordination.group.members.get(member_id)
        return frozenset((*member.assigned, *member.pending_revocation)) if member else frozenset()

    def _coordinator(self, *, fails: bool) -> m.FindCoordinatorResponse:
        """Find the coordinator; a failing broker has an outdated answer, or none."""
        coordination = self.scene.coordination
        if not fails:
            return m.FindCoordinatorResponse(coordinator=coordination.node)
        if self.scene.chance.random() < 0.5:
            return m.FindCoordinatorResponse(coordinator=coordination.former_node)
        return m.FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _log_ends(self, request: m.ListOffsetsRequest, *, fails: bool) -> m.ListOffsetsResponse:
        """Return log ends for a plan: a deposed leader may answer with an old one."""
        scene, answers = self.scene, dict[TopicIdPartition, m.ListedOffset | m.PartitionError]()
        refused = self._refused(request.partitions, fails)
        for key in sorted(request.partitions - refused.keys()):
            end = scene.storage.list_end(
                key,
                scene.now,
                old=scene.chance.random() < OLD_LEADER_PART,
                read_committed=request.read_committed,
            )
            answers[key] = m.PartitionError(MISSING) if end is None else m.ListedOffset(*end)
        failed = {key: m.PartitionError(code) for key, code in refused.items()}
        return m.ListOffsetsResponse(answers={**answers, **failed})

    def _refused(self, partitions: Iterable[TopicIdPartition], fails: bool) -> Refused:
        """Draw the partitions whose leaders refuse, if a broker fails."""
        chance = self.scene.chance
        if not fails:
            return NONE_REFUSED
        return {
            key: chance.choice(LEADER_ERRORS) for key in sorted(partitions) if chance.random() < 0.7
        }

    def _unstable(self, partitions: Iterable[TopicIdPartition]) -> Finish:
        """Draw partitions with offsets in an open transaction, and answer so for them."""
        chance = self.scene.chance
        drawn = [key for key in sorted(partitions) if chance.random() < 0.5]
        unstable = dict.fromkeys(drawn, m.PartitionError(int(ErrorCode.UNSTABLE_OFFSET_COMMIT)))

        def finish(response: m.Response) -> m.Response:
            if not isinstance(response, m.OffsetFetchResponse) or response.error_code:
                return response
            return replace(response, answers={**response.answers, **unstable})

        return finish

    def _ask_coordinator(self, outgoing: Outgoing, code: int, reply: Reply) -> None:
        coordination = self.scene.coordination
        request = outgoing.request
        complete_response: Finish = _unchanged
        if not coordination.profile.commits_topic_ids:
            request, complete_response = sent_by_name(request, self.scene.storage.image)
            if request is not outgoing.request:
                outgoing = replace(outgoing, request=request)

        def answer(response: m.Response | None) -> None:
            self._say("answers", request, "->", response)
            reply(response and complete_response(response))

        origin = DEFAULT_ORIGIN
        if isinstance(outgoing, NamedOutgoing):
            origin = Origin(outgoing.client_id)
        coordination.serve(outgoing, origin, code, answer)


def _table(scene: Scene) -> Table:
    is_there = scene.chance.random() < 0.7
    return Table(scene.publish, has_versions=scene.swarm.table == VERSIONS, is_there=is_there)


def _finishing(finish: Finish, reply: Reply) -> Reply:
    return lambda response: reply(response and finish(response))


def _electing(request: m.MetadataRequest) -> m.MetadataResponse | None:
    """Answer like a broker that knows no leaders; Kafka has no such answer for topic ids."""
    if request.topic_ids:
        return None
    code = int(ErrorCode.LEADER_NOT_AVAILABLE)
    return m.MetadataResponse(errors=dict.fromkeys(sorted(request.topic_names), code))


def _starting(swarm: Swarm, storage: Storage, chance: Chance) -> StartingOffsets:
    """Draw `startingOffsets`: a default, and offsets of some partitions."""
    default = StartingPoint.LATEST if swarm.from_latest else StartingPoint.EARLIEST
    named = {}
    for key in sorted(storage.logs) if swarm.named else ():
        if chance.random() < 0.6:
            first = chance.randint(0, storage.logs[key].end_offset)
            name = storage.name_of(key.topic_id) or ""
            offset = chance.choice((EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, first, first))
            named[TopicPartition(name, key.partition)] = offset
    return StartingOffsets(default, named)


def _unchanged(response: m.Response) -> m.Response:
    return response


def _settings(swarm: Swarm) -> Settings:
    return Settings(
        BrokerSettings(
            session_timeout_s=swarm.session_s,
            min_session_timeout_s=swarm.session_s,
            heartbeat_interval_s=swarm.heartbeat_s,
            min_heartbeat_interval_s=swarm.heartbeat_s,
            max_session_timeout_s=max(60.0, swarm.session_s),
            max_heartbeat_interval_s=max(15.0, swarm.heartbeat_s),
            classic_initial_rebalance_delay_s=swarm.initial_delay_s,
        )
    )
