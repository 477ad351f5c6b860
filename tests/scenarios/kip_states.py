"""The commands of KIP-848's case studies: a group that is given, and the states it goes through.

A heartbeat is one atomic batch of records. The KIP shows the states between them, and so does
`states`: it applies new records one by one.
"""

from __future__ import annotations

from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.log import Log
from spark_groups.lab.coordinator.member import ReconciliationState
from spark_groups.lab.coordinator.records import Record
from spark_groups.lab.coordinator.shard import Shard
from spark_groups.types import TopicIdPartition
from tests.scenarios.model_world import ModelWorld
from tests.scenarios.scene import Command, RawMember, Scene

SHOWS = (r.GroupMetadataKey, r.TargetMetadataKey, r.CurrentAssignmentKey)
"""After one of these records the KIP shows the state of the group."""


class KipStates:
    """The commands given and states.

    Args:
        scene: What commands share.
        world: The world of the scene.
    """

    def __init__(self, scene: Scene, world: ModelWorld) -> None:
        self.scene = scene
        self.world = world
        self.commands = {"given": self._given, "states": self._states}
        self._seen = 0
        self._group = ConsumerGroup(scene.group_id)
        self._last: list[str] = []

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
        log = Log()
        log.append(tuple(records))
        log.replicate()
        before = self.world.shard
        self.world.shard = Shard(
            before.profile, before.settings, before.topics, log, self.world.now()
        )
        self._states(command)
        return self._last

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
        for record in written[self._seen :]:
            self._group.apply(record)
            # The tombstones of a member that goes are one step: its last record is the group's.
            if isinstance(record.key, SHOWS) and record.value is not None:
                state = self._state()
                lines += state if state != self._last else []
                self._last = state
        self._seen = len(written)
        return lines or ["no other state"]

    def _state(self) -> list[str]:
        group, names = self._group, self.scene.names
        targets = "; ".join(
            f"{each} {names.partitions(group.targets[each].partitions)}"
            for each in sorted(group.targets)
        )
        lines = [
            f"Group (epoch={group.group_epoch}): {', '.join(sorted(group.members)) or 'empty'}",
            f"  Target Assignment (epoch={group.assignment_epoch}): {targets or 'empty'}",
        ]
        for name in sorted(group.members):
            member = group.members[name]
            has = {*member.assigned, *member.pending_revocation}
            lines.append(
                f"  {name}: epoch={member.member_epoch}, partitions={names.partitions(has)}"
                f", pending-partitions={names.partitions(self._pending(name))}"
            )
        return lines

    def _pending(self, name: str) -> set[TopicIdPartition]:
        """Return what a member at the epoch of the target waits for."""
        member = self._group.members[name]
        if member.member_epoch != self._group.assignment_epoch or name not in self._group.targets:
            return set()
        return set(self._group.targets[name].partitions) - set(member.assigned)
