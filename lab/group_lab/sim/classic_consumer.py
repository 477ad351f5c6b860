"""Consumers of the classic protocol: applications that poll, process a batch, and commit.

An application commits what it has processed before it gives up partitions. Heartbeats are sent
beside a batch, but it joins, revokes and takes assignments only between batches, when it polls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final, cast

from group_lab.assignors.classic import ClassicRangeAssignor
from group_lab.assignors.incremental import LeaderConfig, Policy
from group_lab.assignors.sticky import CooperativeStickyAssignor
from group_lab.sim.classic_membership import (
    AFTER,
    After,
    Assigned,
    ClassicConfig,
    ClassicEvent,
    ClassicMembership,
    Failed,
    Lost,
    Membership,
    Phase,
    Revoked,
)
from group_lab.sim.design_0_9_membership import DesignConfig, DesignMembership
from group_lab.sim.embedded_protocols import ConsumerProtocol, EmbeddedProtocol, IncrementalProtocol
from group_lab.sim.facts import ClassicHappened, Consumed, Sent
from group_lab.sim.queries import LEAVE_S, PLANNED_LEAST, RESTART_S
from group_lab.sim.scene import RestartedApplication, Scene
from group_lab.sim.swarm import GroupProtocol, Swarm
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import (
    Event,
    MemberFailed,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import Assignment, TopicIdPartition, TopicPartition
from spark_groups.values import dataclass

POLL_S: Final = 0.1
"""How often an application polls that has nothing to read."""
BEAT_S: Final = 0.25
"""How often the thread for heartbeats looks whether one is due."""
RECORDS_A_POLL: Final = 20
SEARCH_AGAIN_S: Final = 0.2
COMMIT_AGAIN_S: Final = 0.2
COMMITS_S: Final = 20.0
"""How long a commit is repeated."""
METADATA_S: Final = 3.0
"""How old the metadata may be with which an application detects new partitions."""
TIMEOUT_S: Final = {Channel.SEARCH: 3.0, Channel.HEARTBEAT: 5.0, Channel.OFFSETS: 10.0}
COMMITS_OFTEN: Final = 0.3
"""The chance that an application of a drawn run commits after a batch."""
_STATES: Final = {
    Phase.UNJOINED: MemberState.JOINING,
    Phase.PREPARING_REBALANCE: MemberState.RECONCILING,
    Phase.COMPLETING_REBALANCE: MemberState.RECONCILING,
    Phase.STABLE: MemberState.STABLE,
    Phase.LEAVING: MemberState.LEAVING,
    Phase.LEFT: MemberState.UNSUBSCRIBED,
    Phase.FATAL: MemberState.FATAL,
}


@dataclass(frozen=True, slots=True)
class NamedOutgoing(Outgoing):
    """A request with the client id that the broker makes a member id of."""

    client_id: str = ""


class ClassicRun:
    """One run of an application, with a member of its own."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        membership: Membership,
        left: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        self.name = name
        self.is_alive = True
        self.membership = membership
        self._left = left
        """Called when it leaves the group."""
        self._failed = failed
        """Called when its member failed for good."""
        self._scene = scene
        self._positions: dict[TopicIdPartition, int] = {}
        self._committed: dict[TopicIdPartition, int] = {}
        """What of that is committed."""
        self._node: m.Node | None = None
        self._busy: set[Channel] = set()
        self._paused_until = 0.0
        self._is_idle = False
        """Whether it waits in a poll."""
        self._waits = 0
        """How often it has waited; only the last wait ends in a poll."""
        self._leaves = False
        self._counts: dict[str, int] = {}
        self._counted_at: float | None = None
        self._batch_began_at = 0.0

    # The member, as checkers see it.

    @property
    def member_id(self) -> str:
        return self.membership.member_id

    @property
    def generation_id(self) -> int:
        return self.membership.generation_id

    @property
    def state(self) -> MemberState:
        membership = self.membership
        if membership.phase is Phase.STABLE and not membership.is_settled:
            return MemberState.RECONCILING
        return _STATES[membership.phase]

    @property
    def assigned(self) -> Assignment:
        return self.owned

    @property
    def owned(self) -> Assignment:
        return self._of(self.membership.owned)

    def _of(self, partitions: frozenset[TopicPartition]) -> Assignment:
        by_name = self._scene.storage.image.by_name
        return Assignment(
            frozenset(
                TopicIdPartition(by_name[each.topic].topic_id, each.partition)
                for each in partitions
                if each.topic in by_name
            )
        )

    @property
    def is_settled(self) -> bool:
        """True if it has its assignment and knows from where on to read it."""
        is_ready = self.owned.partitions <= self._positions.keys()
        return self.membership.is_settled and is_ready

    # What happens to it.

    def start(self) -> None:
        """Poll from now on."""
        self._poll()
        self._beat()

    def stand_still(self, for_s: float) -> None:
        """Do nothing, notice nothing, for some seconds."""
        self._paused_until = self._scene.now + for_s

    def leave(self) -> None:
        """Leave the group after the running batch."""
        self._leaves = True
        if self._is_idle:
            self._poll()

    def die(self) -> None:
        """End without a leave."""
        self.is_alive = False

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Act after a delay, once it is awake, if it is still alive."""
        self._scene.schedule.after(delay_s, lambda: self._awake(act))

    def _awake(self, act: Callable[[], None]) -> None:
        if not self.is_alive:
            return
        if self._scene.now < self._paused_until:
            self._scene.schedule.at(self._paused_until, lambda: self._awake(act))
        else:
            act()

    # The thread of the application.

    def _poll(self) -> None:
        """Poll: rebalance, read a batch, or wait."""
        membership = self.membership
        self._is_idle = False
        if self._leaves:
            if membership.phase not in (Phase.LEAVING, Phase.LEFT):
                self._commit(self._leave)
            return
        membership.poll(self._scene.now, self._partition_counts())
        self._tell()
        if membership.phase is Phase.FATAL:
            self._failed()
        elif membership.is_preparing:
            self._commit(self._prepared)
        elif membership.revoking:
            self._commit(self._revoked)
        elif missing := self._of(membership.readable).partitions - self._positions.keys():
            self._fetch(missing)
            self._wait()
        elif not self._read():
            is_due = self._scene.chance.random() < (0.2 if self._scene.is_faulty else 1.0)
            if is_due and self._uncommitted():
                self._commit(self._wait)
            else:
                self._wait()

    def _wait(self) -> None:
        self._is_idle = True
        self._waits += 1
        self._pump()
        self._later(POLL_S, partial(self._poll_if_idle, self._waits))

    def _poll_if_idle(self, waits: int) -> None:
        if self._is_idle and waits == self._waits:
            self._poll()

    def _prepared(self) -> None:
        self.membership.prepared()
        self._tell()
        self._wait()

    def _revoked(self) -> None:
        self.membership.revoked()
        self._tell()
        self._poll()

    def _leave(self) -> None:
        self._left()
        self.membership.leave()
        self._tell()
        self._pump()

    def _partition_counts(self) -> dict[str, int]:
        now = self._scene.now
        if self._counted_at is None or now - self._counted_at >= METADATA_S:
            self._counted_at = now
            topics = self._scene.storage.image.by_name.values()
            self._counts = {topic.name: topic.partition_count for topic in topics}
        return self._counts

    def _read(self) -> bool:
        """Begin a batch of what there is to read; return whether there is anything."""
        scene, swarm = self._scene, self._scene.swarm
        ranges: dict[TopicIdPartition, tuple[int, int]] = {}
        for key in self._of(self.membership.readable):
            log = scene.storage.logs.get(key)
            if log is None:
                continue
            # Retention moves the position. Runs with these consumers truncate no logs.
            begins = self._positions[key]
            ends = log.end_offset
            if scene.is_faulty and not swarm.planned:
                ends = min(ends, max(begins, log.start_offset) + RECORDS_A_POLL)
            if begins < ends:
                ranges[key] = (begins, ends)
        if not ranges:
            return False
        began_at = scene.now
        if swarm.planned and swarm.trigger_s and self._until_trigger_s() > 0.0:
            return False
        self._batch_began_at = began_at
        records = {key: scene.storage.logs[key].read(*ranges[key]) for key in ranges}
        longest_s = swarm.batch_s if scene.is_faulty else min(1.0, swarm.batch_s)
        least_s = PLANNED_LEAST * longest_s if swarm.planned else 0.01
        self._pump()

        def end() -> None:
            scene.publish(Consumed(self.name, self.member_id, ranges, records, began_at))
            for key, (begins, ends) in ranges.items():
                if self._positions.get(key, ends) <= begins:
                    self._positions[key] = ends
            is_due = swarm.planned or not scene.is_faulty
            if is_due or scene.chance.random() < COMMITS_OFTEN:
                self._commit(self._poll)
            else:
                self._poll()

        self._later(scene.chance.uniform(min(least_s, longest_s), longest_s), end)
        return True

    def _until_trigger_s(self) -> float:
        """Return the time until the next batch may begin, as at a processing-time trigger."""
        interval_s = self._scene.swarm.trigger_s
        due_at = (self._batch_began_at // interval_s + 1) * interval_s
        return due_at - self._scene.now

    # Offsets.

    def _uncommitted(self) -> dict[TopicIdPartition, int]:
        return {
            key: position
            for key, position in sorted(self._positions.items())
            if self._committed.get(key) != position and key in self._scene.storage.logs
        }

    def _commit(self, then: Callable[[], None], ends_at: float | None = None) -> None:
        """Commit all positions, then act; also if the commit is refused or takes too long."""
        membership, now = self.membership, self._scene.now
        if ends_at is None:
            ends_at = now + min(COMMITS_S, membership.commit_time_s)
        positions = self._uncommitted()
        if not positions or not membership.may_commit or now >= ends_at:
            then()
            return
        again = partial(self._commit, then, ends_at)
        if self._node is None:
            self._search()
            self._later(COMMIT_AGAIN_S, again)
            return
        generation_id, member_id = membership.generation_id, membership.member_id
        request = m.OffsetCommitRequest(
            group_id=membership.group_id,
            member_id=member_id,
            member_epoch=generation_id,
            instance_id=membership.group_instance_id,
            offsets={key: m.OffsetAndMetadata(position) for key, position in positions.items()},
        )

        def answered(response: Any) -> None:
            codes = set(response.errors.values()) - {ErrorCode.NONE}
            for key, code in response.errors.items():
                if code == ErrorCode.NONE and key in self._positions:
                    self._committed[key] = positions[key]
            for code in sorted(codes):
                if membership.commit_refused(code, generation_id, member_id):
                    self._node = None
            if all(AFTER.get(each) in (After.RETRY, After.REDISCOVER) for each in codes):
                self._later(COMMIT_AGAIN_S if codes else 0.0, again)
            else:
                then()

        self._send(Channel.OFFSETS, request, answered, lambda: self._later(COMMIT_AGAIN_S, again))

    def _fetch(self, missing: frozenset[TopicIdPartition]) -> None:
        if self._node is None or Channel.OFFSETS in self._busy:
            return
        request = m.OffsetFetchRequest(group_id=self.membership.group_id, partitions=missing)
        generation_id = self.membership.generation_id

        def answered(response: Any) -> None:
            if response.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT):
                self._node = None
            if response.error_code or generation_id != self.membership.generation_id:
                return
            found, _ = m.found_and_failed(response.answers)
            for key in missing & found.keys() & self.owned.partitions:
                committed_offset = found[key].committed_offset
                self._positions.setdefault(key, max(0, committed_offset))
                self._committed.setdefault(key, committed_offset)

        self._send(Channel.OFFSETS, request, answered, lambda: None)

    # The thread that sends heartbeats, and all other requests.

    def _beat(self) -> None:
        self._pump()
        if self.membership.phase not in (Phase.LEFT, Phase.FATAL):
            self._later(BEAT_S, self._beat)

    def _pump(self) -> None:
        if self._node is None:
            self._search()
            return
        if Channel.HEARTBEAT in self._busy:
            return
        request = self.membership.next_request(self._scene.now)
        if request is None:
            return
        timeout_s = self.membership.response_timeout_s(request)

        def answered(response: Any) -> None:
            if self.membership.handle_response(response, self._scene.now):
                self._node = None
            self._pump()
            if self._is_idle:
                self._poll()

        def failed() -> None:
            self._node = None
            self.membership.handle_failure(self._scene.now)

        self._send(Channel.HEARTBEAT, request, answered, failed, timeout_s)

    def _search(self) -> None:
        if Channel.SEARCH in self._busy:
            return
        request = m.FindCoordinatorRequest(group_id=self.membership.group_id)

        def found(response: Any) -> None:
            self._node = response.coordinator
            if self._node is None:
                later()
            else:
                self._pump()

        def later() -> None:
            self._busy.add(Channel.SEARCH)
            self._later(SEARCH_AGAIN_S, again)

        def again() -> None:
            self._busy.discard(Channel.SEARCH)
            self._pump()

        self._send(Channel.SEARCH, request, found, later)

    def _send(
        self,
        channel: Channel,
        request: object,
        answered: Callable[[Any], None],
        failed: Callable[[], None],
        timeout_s: float | None = None,
    ) -> None:
        self._busy.add(channel)
        node = self._node if channel.leads_to_coordinator else None
        timeout_s = TIMEOUT_S[channel] if timeout_s is None else timeout_s
        outgoing = NamedOutgoing(channel, cast(m.Request, request), node, timeout_s, self.name)
        is_open = True

        def end(act: Callable[[], None]) -> None:
            nonlocal is_open
            if is_open and self.is_alive:
                is_open = False
                self._busy.discard(channel)
                act()

        self._scene.publish(Sent(self.name, outgoing))
        self._scene.network.send(
            self.name,
            outgoing,
            lambda response: self._awake(lambda: end(lambda: answered(response))),
            lambda _: self._awake(lambda: end(failed)),
        )
        # A coordinator may keep a request for ever, if another one of the same member replaces it.
        self._later(timeout_s, lambda: end(failed))

    def _tell(self) -> None:
        """Publish what happened to the member, and forget the positions of what it gave up."""
        membership = self.membership
        events, membership.events = membership.events, []
        for each in events:
            kept = self._of(membership.owned).partitions
            for key in self._positions.keys() - kept:
                del self._positions[key]
                self._committed.pop(key, None)
            event = self._event(each)
            self._scene.log.add(
                self._scene.now, self.name, str(membership.generation_id), "says", each
            )
            self._scene.publish(ClassicHappened(self.name, event))

    def _event(self, each: ClassicEvent) -> Event:
        about = (self._scene.now, self.member_id, self.membership.generation_id)
        match each:
            case Assigned(added=added):
                return PartitionsAssigned(*about, self._of(added))
            case Revoked(partitions=partitions):
                return PartitionsRevoked(*about, self._of(partitions))
            case Lost(partitions=partitions, reason=reason):
                return PartitionsLost(*about, self._of(partitions), reason)
            case Failed(error=error):
                return MemberFailed(*about, error)


def embedded_protocol(swarm: Swarm) -> EmbeddedProtocol:
    """Return the embedded protocol of one run; range is Kafka's default for eager members."""
    match swarm.classic_protocol:
        case GroupProtocol.CLASSIC_EAGER:
            return ConsumerProtocol((ClassicRangeAssignor(),))
        case GroupProtocol.CLASSIC_COOPERATIVE:
            return ConsumerProtocol((CooperativeStickyAssignor(),))
        case _:
            return IncrementalProtocol(
                LeaderConfig(
                    policy=Policy(swarm.classic_protocol.value),
                    scheduled_rebalance_delay_s=swarm.rebalance_delay_s,
                    first_delay_s=swarm.first_delay_s,
                    moves_max=swarm.moves_max,
                    move_interval_s=swarm.move_interval_s,
                )
            )


class ClassicConsumer(RestartedApplication[ClassicRun]):
    """An application with a consumer of the classic protocol, restarted after it ends."""

    def __init__(
        self, scene: Scene, name: str, topics: tuple[str, ...], instance_id: str | None
    ) -> None:
        super().__init__(scene, name)
        self._runs = count(1)
        swarm = scene.swarm
        self._config = ClassicConfig(
            group_id=scene.coordination.group_id,
            topics=topics,
            instance_id=instance_id,
            session_timeout_s=swarm.session_s,
            heartbeat_interval_s=swarm.heartbeat_s,
            rebalance_timeout_s=swarm.rebalance_s,
        )

    def _membership(self) -> Membership:
        """Return the member of another run."""
        swarm, config = self._scene.swarm, self._config
        if swarm.classic_protocol is not GroupProtocol.DESIGN_0_9:
            return ClassicMembership(config, embedded_protocol(swarm))
        return DesignMembership(
            DesignConfig(
                group_id=config.group_id,
                subscription=config.topics,
                session_timeout_s=swarm.session_s,
                heartbeat_frequency=max(1, round(swarm.session_s / swarm.heartbeat_s)),
            )
        )

    @property
    def member(self) -> ClassicRun | None:
        return self.current

    def start(self) -> None:
        """Start another run, unless one runs."""
        scene = self._scene
        if self.current is not None or not self.is_wanted:
            return
        if scene.now < self._down_until:
            scene.schedule.at(self._down_until, self.start)
            return
        name = f"{self.name}.{next(self._runs)}"
        self._stop_for_s = None
        self.current = run = ClassicRun(scene, name, self._membership(), self._leaves, self._fails)
        self._say(run, "starts")
        run.start()

    def kill(self, for_s: float, *, forget: bool) -> None:  # noqa: ARG002
        """End without a leave; restart after some seconds."""
        if self.current is not None:
            self._suffer(self.current, "dies")
            self.current.die()
            self.current = None
        self._scene.schedule.after(for_s, self.start)

    def stop(self, for_s: float | None) -> None:
        """Leave the group after the running batch, and restart after some seconds.

        Args:
            for_s: Added to the time a leave may take; None stops it for good.
        """
        if for_s is None:
            self.is_wanted = False
        if self.current is not None and self._stop_for_s is None:
            self._stop_for_s = for_s or 0.0
            self.current.leave()

    def _leaves(self) -> None:
        run = self.current
        if run is None:
            return
        self._suffer(run, "leaves")

        def gone() -> None:
            run.die()
            if self.current is run:
                self.current = None
                self.start()

        self._scene.schedule.after(LEAVE_S + (self._stop_for_s or 0.0), gone)

    def _fails(self) -> None:
        self.kill(RESTART_S, forget=False)

    def fail(self, for_s: float) -> None:
        """Fail the running batch: the process ends."""
        self.kill(for_s, forget=False)

    def restless(self) -> str:
        """Return why it is not settled, or ""."""
        if self.current is None:
            return f"{self.name} is down" if self.is_wanted else ""
        if not self.current.is_settled:
            return f"{self.name} is not settled ({self.current.membership.phase.name})"
        return ""

    def _epoch(self, run: ClassicRun) -> str:
        return str(run.membership.generation_id)
