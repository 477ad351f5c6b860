"""Plain consumers beside the queries: they revoke at once and commit at any time.

The next owner reads their uncommitted records again, as in any consumer group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from group_lab.sim.facts import Consumed, ReleasedWhileCommitting, Sent
from group_lab.sim.scene import Scene
from spark_groups.errors import ErrorCode, Reaction
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import PartitionsLost, PartitionsRevoked
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import TopicIdPartition

POLL_S: Final = 0.25
RECORDS_A_POLL: Final = 20
TIMEOUT_S: Final = {Channel.SEARCH: 3.0, Channel.HEARTBEAT: 5.0, Channel.OFFSETS: 10.0}
SEARCH_AGAIN_S: Final = 0.2


class PlainConsumer:
    """A consumer that reads its partitions from the committed offset, or else the beginning."""

    def __init__(self, scene: Scene, name: str, topics: Subscription) -> None:
        self.name = name
        self._scene = scene
        self._positions: dict[TopicIdPartition, int] = {}
        self._consumed_from: dict[TopicIdPartition, int] = {}
        """Since the last commit."""
        self._asked: set[TopicIdPartition] = set()
        """Partitions whose offsets were requested and that were not revoked since."""
        self._committing: frozenset[TopicIdPartition] = frozenset()
        """Partitions of the commit under way."""
        self._node: m.Node | None = None
        self._busy: set[Channel] = set()
        swarm = scene.swarm
        config = MemberConfig(
            group_id=scene.coordination.group_id,
            subscription=topics,
            rebalance_timeout_ms=int(swarm.rebalance_s * 1000),
            session_timeout_ms=int(swarm.session_s * 1000),
            fast_heartbeats=False,
        )
        ids = iter(range(1, 1_000))
        self.member = Member(config, lambda: f"{name}.{next(ids)}")

    def start(self) -> None:
        """Join the group and poll from now on."""
        self.member.join(self._scene.now)
        self._poll()

    def restless(self) -> str:
        """Return why it is not settled, or ""."""
        member = self.member
        if member.state is not MemberState.STABLE or self._missing():
            return f"{self.name} is not settled ({member.state.name})"
        return ""

    def _missing(self) -> frozenset[TopicIdPartition]:
        return self.member.assigned.partitions - self._positions.keys()

    def _poll(self) -> None:
        scene = self._scene
        for key in sorted(self._positions):
            log = scene.storage.logs.get(key)
            if log is None:
                continue
            # Retention moves the position. Runs with plain consumers truncate no logs.
            position = max(self._positions[key], log.start_offset)
            self._positions[key] = min(log.end_offset, position + RECORDS_A_POLL)
        self._pump()
        if (
            self._node is not None
            and self.member.state is MemberState.STABLE
            and Channel.OFFSETS not in self._busy
        ):
            self._ask_about_offsets()
        scene.schedule.after(POLL_S, self._poll)

    def _pump(self) -> None:
        now = self._scene.now
        if self.member.revoking and self.member.state is MemberState.RECONCILING:
            self.member.acknowledge(now)
        self._take_events()
        if self._node is None:
            self._search()
            return
        heartbeat = self.member.poll_heartbeat(now)
        if heartbeat is not None:
            self._send(Channel.HEARTBEAT, heartbeat, self._heartbeat_answered, self._heartbeat_lost)

    def _take_events(self) -> None:
        for event in self.member.poll_events():
            match event:
                case PartitionsRevoked(partitions=gone) | PartitionsLost(partitions=gone):
                    self._note_release(event.member_id, gone.partitions & self._committing)
                    for key in gone:
                        self._positions.pop(key, None)
                        self._consumed_from.pop(key, None)
                    self._asked -= gone.partitions
            self._scene.log.add(self._scene.now, self.name, str(event.member_epoch), "says", event)

    def _note_release(self, member_id: str, partitions: frozenset[TopicIdPartition]) -> None:
        if partitions:
            self._scene.publish(ReleasedWhileCommitting(member_id, partitions))

    # Requests.

    def _search(self) -> None:
        if Channel.SEARCH in self._busy:
            return
        request = m.FindCoordinatorRequest(group_id=self.member.config.group_id)
        self._send(Channel.SEARCH, request, self._found, self._search_later)

    def _search_later(self) -> None:
        """Search again after a pause; the channel stays busy until then."""
        self._busy.add(Channel.SEARCH)

        def again() -> None:
            self._busy.discard(Channel.SEARCH)
            self._pump()

        self._scene.schedule.after(SEARCH_AGAIN_S, again)

    def _found(self, response: m.Response) -> None:
        assert isinstance(response, m.FindCoordinatorResponse)
        self._node = response.coordinator
        if self._node is None:
            self._search_later()

    def _heartbeat_answered(self, response: m.Response) -> None:
        assert isinstance(response, m.HeartbeatResponse)
        if self.member.handle_response(response, self._scene.now) is Reaction.REDISCOVER:
            self._node = None

    def _heartbeat_lost(self) -> None:
        self.member.handle_failure(self._scene.now)
        self._node = None

    def _ask_about_offsets(self) -> None:
        missing = self._missing()
        member = self.member
        if missing:
            self._asked = set(missing)
            request = m.OffsetFetchRequest(
                group_id=member.config.group_id,
                member_id=member.member_id,
                member_epoch=member.member_epoch,
                partitions=missing,
            )
            self._send(Channel.OFFSETS, request, self._fetched, lambda: None)
        elif self._scene.chance.random() < (0.2 if self._scene.is_faulty else 1.0):
            self._commit()

    def _fetched(self, response: m.Response) -> None:
        assert isinstance(response, m.OffsetFetchResponse)
        if response.error_code:
            return
        found, _ = m.found_and_failed(response.answers)
        for key in self._asked & found.keys():
            committed_offset = found[key].committed_offset
            self._positions[key] = self._consumed_from[key] = max(0, committed_offset)

    def _commit(self) -> None:
        scene, member = self._scene, self.member
        offsets, ranges, records = {}, {}, {}
        for key in sorted(self._positions):
            log, position = scene.storage.logs.get(key), self._positions[key]
            if log is None:
                continue
            first = min(self._consumed_from[key], position)
            self._consumed_from[key] = position
            offsets[key] = m.OffsetAndMetadata(position)
            ranges[key], records[key] = (first, position), log.read(first, position)
        if not offsets:
            return
        scene.publish(Consumed(self.name, member.member_id, ranges, records, scene.now))
        request = m.OffsetCommitRequest(
            group_id=member.config.group_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            offsets=offsets,
        )
        self._committing = frozenset(offsets)
        self._send(Channel.OFFSETS, request, self._committed, self._commit_ended)

    def _commit_ended(self) -> None:
        self._committing = frozenset()

    def _committed(self, response: m.Response) -> None:
        assert isinstance(response, m.OffsetCommitResponse)
        self._commit_ended()
        if ErrorCode.NOT_COORDINATOR in response.errors.values():
            self._node = None

    def _send(
        self,
        channel: Channel,
        request: m.Request,
        answered: Callable[[m.Response], None],
        failed: Callable[[], None],
    ) -> None:
        self._busy.add(channel)
        node = self._node if channel.leads_to_coordinator else None
        outgoing = Outgoing(channel, request, node, TIMEOUT_S[channel])

        def answer(response: m.Response) -> None:
            self._busy.discard(channel)
            answered(response)
            self._pump()

        def fail(_failed: m.RequestFailed) -> None:
            self._busy.discard(channel)
            failed()
            self._pump()

        self._scene.publish(Sent(self.name, outgoing))
        self._scene.network.send(self.name, outgoing, answer, fail)
