"""The commands of KIP-848's case studies: a group that is given, and the states it goes through.

A heartbeat is one atomic batch of records. The KIP shows the states between them, and so does
`states`: it applies new records one by one. The state of a classic member is in no record, but
follows from the group and the member's timers. Pending partitions are in no record either: they are
those of the last response that has an assignment for the member.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from group_lab.assignors.embedded import encode_assignment, encode_subscription
from group_lab.coordinator import records as r
from group_lab.coordinator.classic import messages as k
from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.effects import CoordinatorErrorCode, TimerKey, TimerKind
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.log import Log
from group_lab.coordinator.member import GroupMember, ReconciliationState
from group_lab.coordinator.messages import (
    CoordinatorRequest,
    KipHeartbeatResponse,
    LeaveGroupRequest,
    LeavingMember,
)
from group_lab.coordinator.mixed import must_join
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.records import Record
from group_lab.coordinator.shard import Shard
from lab.tests.scenarios.model_world import CLIENT_ID, ModelWorld
from lab.tests.scenarios.scene import Command, RawMember, Scene
from lab.tests.scenarios.wording import by_topic_text
from spark_groups.group.member import messages as m
from spark_groups.group.member.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    EmbeddedAssignment,
    Subscription,
    decode_assignment,
)
from spark_groups.types import NO_PARTITIONS, Assignment, TopicPartition

SHOWS = (r.GroupMetadataKey, r.TargetMetadataKey, r.CurrentAssignmentKey)
"""After one of these records the KIP shows the state of the group."""


def rebalance_state(
    group: ConsumerGroup, member: GroupMember, profile: Profile, *, is_syncing: bool
) -> ClassicState:
    """Return the KIP's state of a classic member in a consumer group.

    Args:
        is_syncing: Whether its sync timer is set.
    """
    if is_syncing:
        return ClassicState.COMPLETING_REBALANCE
    if must_join(group, member, profile):
        return ClassicState.PREPARING_REBALANCE
    return ClassicState.STABLE


def _classic_members(group: ConsumerGroup) -> list[GroupMember]:
    return [each for each in group.members.values() if each.classic]


@dataclass
class KipWorld(ModelWorld):
    """A cluster that remembers which partitions its responses called pending.

    Args:
        pending: Responses with an assignment: how many records the log had then, the member and its
            pending partitions.
    """

    pending: list[tuple[int, str, Assignment]] = field(default_factory=list)

    def ask(self, request: m.Request, client_id: str = CLIENT_ID) -> m.Response | m.RequestFailed:
        answer = super().ask(request, client_id)
        if isinstance(answer, KipHeartbeatResponse) and answer.assignment is not None:
            written = sum(1 for _ in self.shard.log.replay())
            self.pending.append((written, answer.member_id, answer.pending_topic_partitions))
        return answer


class KipStates:
    """The commands given and states.

    Args:
        scene: What commands share.
        world: The world of the scene.
    """

    def __init__(self, scene: Scene, world: KipWorld) -> None:
        self.scene = scene
        self.world = world
        self.commands = {
            "given": self._given,
            "given-classic": self._given_classic,
            "states": self._states,
            "classic": self._classic,
        }
        self._seen = 0
        self._group = ConsumerGroup(scene.group_id)
        self._last: list[str] = []
        self._epochs: dict[str, int] = {}
        self._pending: dict[str, Assignment] = {}

    def _given(self, command: Command) -> list[str]:
        """`given epoch=21 A=foo[0-2] B=foo[3-5]`: a stable group, as a coordinator loads it."""
        group_epoch = int(command.options.pop("epoch"))
        records = [
            Record(r.GroupMetadataKey(self.scene.group_id), r.GroupMetadataValue(group_epoch)),
            Record(
                r.PartitionMetadataKey(self.scene.group_id),
                r.PartitionMetadataValue(
                    {
                        name: (topic.topic_id, topic.partition_count)
                        for name, topic in self.world.shard.topics.by_name.items()
                    }
                ),
            ),
            Record(r.TargetMetadataKey(self.scene.group_id), r.TargetMetadataValue(group_epoch)),
        ]
        for name, text in command.options.items():
            records += self._member(name, text, group_epoch)
        self._load(records)
        self._states(command)
        return self._last

    def _given_classic(self, command: Command) -> list[str]:
        """`given-classic generation=22 A=foo[0-1] B=foo[2]`: a stable classic group, likewise."""
        generation_id = int(command.options.pop("generation"))
        value = r.ClassicGroupMetadataValue(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            generation=generation_id,
            protocol="range",
            leader=min(command.options),
            members=tuple(
                r.ClassicMemberMetadata(
                    member_id=name,
                    rebalance_timeout_ms=30_000,
                    session_timeout_ms=20_000,
                    subscription=self._subscription(frozenset(), generation_id),
                    assignment=encode_assignment(EmbeddedAssignment(partitions=self._named(text))),
                )
                for name, text in command.options.items()
            ),
        )
        self._load([Record(r.ClassicGroupMetadataKey(self.scene.group_id), value)])
        self._seen = 1
        self._epochs = dict.fromkeys(command.options, generation_id)
        return [f"Generic Group (generation={generation_id}): {', '.join(command.options)}"]

    def _named(self, text: str) -> frozenset[TopicPartition]:
        names = {each.topic_id: name for name, each in self.world.shard.topics.by_name.items()}
        return frozenset(
            TopicPartition(names[each.topic_id], each.partition)
            for each in self.scene.names.assignment(text)
        )

    def _load(self, records: list[Record]) -> None:
        log = Log()
        log.append(tuple(records))
        log.replicate()
        before = self.world.shard
        self.world.shard = Shard(
            before.profile, before.settings, before.topics, log, self.world.now()
        )

    def _subscription(self, owned: frozenset[TopicPartition], generation_id: int) -> bytes:
        topics = tuple(self.world.shard.topics.by_name)
        return encode_subscription(
            Subscription(topics=topics, owned_partitions=owned, generation_id=generation_id)
        )

    def _classic(self, command: Command) -> list[str]:
        """`classic join C`, `sync`, `beat` or `leave`: one request of an eager classic member."""
        what, name = command.words
        group_id, generation_id = self.scene.group_id, self._epochs[name]
        member = {"group_id": group_id, "generation_id": generation_id, "member_id": name}
        request: CoordinatorRequest
        if what == "join":
            metadata = self._subscription(frozenset(), generation_id)
            request = k.JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=20_000,
                rebalance_timeout_ms=30_000,
                member_id=name,
                protocols=(k.ClassicProtocol("range", metadata),),
            )
        elif what == "sync":
            request = k.SyncGroupRequest(
                protocol_type=CONSUMER_PROTOCOL_TYPE, protocol_name="range", **member
            )
        elif what == "beat":
            request = k.ClassicHeartbeatRequest(**member)
        else:
            request = LeaveGroupRequest(group_id=group_id, members=(LeavingMember(name),))
        response: Any = self.world.shard.ask(request, self.world.now())
        if response.error_code:
            return [f"{name}: {CoordinatorErrorCode(response.error_code).name}"]
        if what == "join":
            self._epochs[name] = response.generation_id
            return [f"{name}: generation {response.generation_id}"]
        if what == "sync":
            by_name: dict[str, list[int]] = {}
            for each in decode_assignment(response.assignment).partitions:
                by_name.setdefault(each.topic, []).append(each.partition)
            return [f"{name}: assigned {by_topic_text(by_name)}"]
        return [f"{name}: ok"]

    def _member(self, name: str, text: str, epoch: int) -> list[Record]:
        group_id, owned = self.scene.group_id, self.scene.names.assignment(text)
        topics = tuple(self.world.shard.topics.by_name)
        self.scene.raw[name] = RawMember(group_id, epoch, owned, topics=topics)
        return [
            Record(
                r.MemberMetadataKey(group_id, name),
                r.MemberMetadataValue(subscribed_topic_names=topics, rebalance_timeout_ms=30_000),
            ),
            Record(r.TargetMemberKey(group_id, name), r.TargetMemberValue(owned)),
            Record(
                r.CurrentAssignmentKey(group_id, name),
                r.CurrentAssignmentValue(
                    member_epoch=epoch,
                    previous_member_epoch=epoch - 1,
                    state=ReconciliationState.STABLE,
                    assigned=dict.fromkeys(owned, epoch),
                    pending_revocation={},
                ),
            ),
        ]

    def _states(self, command: Command) -> list[str]:
        """Return every state since the last call that differs from the one before."""
        lines: list[str] = []
        written = list(self.world.shard.log.replay())
        for count, record in enumerate(written[self._seen :], self._seen + 1):
            self._group.apply(record)
            self._take_responses(count)
            # The tombstones of a member that goes are one step: its last record is the group's.
            if isinstance(record.key, SHOWS) and record.value is not None and self._is_whole():
                state = self._state()
                lines += state if state != self._last else []
                self._last = state
        self._seen = len(written)
        self._take_responses(self._seen)
        if (state := self._state()) != self._last:
            # SyncGroup and a heartbeat that changes nothing write no record.
            lines, self._last = [*lines, *state], state
        return lines or ["no other state"]

    def _take_responses(self, written: int) -> None:
        """Note what the responses said that were sent before the next record was written."""
        while self.world.pending and self.world.pending[0][0] <= written:
            _, name, self._pending[name] = self.world.pending.pop(0)

    def _is_whole(self) -> bool:
        """False between the records of a conversion, which are one step."""
        return all(each.member_epoch for each in _classic_members(self._group))

    def _state(self) -> list[str]:
        group, names = self._group, self.scene.names
        targets = "; ".join(
            f"{each} {names.partitions(group.targets[each].partitions)}"
            for each in sorted(group.targets)
        )
        lines = [
            f"Group (epoch={group.group_epoch}): {', '.join(self._members()) or 'empty'}",
            f"  Target Assignment (epoch={group.assignment_epoch}): {targets or 'empty'}",
        ]
        for name in sorted(group.members):
            member = group.members[name]
            has = {*member.assigned, *member.pending_revocation}
            pending = self._pending.get(name, NO_PARTITIONS)
            lines.append(
                f"  {name}: epoch={member.member_epoch}, partitions={names.partitions(has)}"
                f", pending-partitions={names.partitions(pending)}"
            )
        return lines

    def _members(self) -> list[str]:
        """Return the names of the members, and what else is known of them in a mixed group."""
        group, profile = self._group, self.world.profile
        names = sorted(group.members)
        if not _classic_members(group):
            return names
        shown = []
        for name in names:
            key = TimerKey(TimerKind.SYNC, self.scene.group_id, name)
            is_syncing = self.world.shard.timer(key) is not None
            member = group.members[name]
            state = rebalance_state(group, member, profile, is_syncing=is_syncing).value
            shown.append(f"{name} ({state if member.classic else 'upgraded'})")
        return shown
