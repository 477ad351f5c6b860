"""An operator who sets committed offsets back while the group has no members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_groups.client.channels import Channel, Outgoing
from spark_groups.lab.sim.queries import LEAVE_S, Query
from spark_groups.lab.sim.scene import Scene
from spark_groups.lab.sim.swarm import Swarm
from spark_groups.offsets.starting import commit_metadata, parse_commit_metadata
from spark_groups.protocol import messages as m
from spark_groups.types import TopicIdPartition

NAME: Final = "operator"
NO_MEMBER_ID: Final = ""
NO_MEMBER_EPOCH: Final = -1
"""With these a commit comes from outside: it is refused while the group has members."""
TRY_AGAIN_S: Final = 0.5
MARGIN_S: Final = 5.0
"""For how long, about, the group has no members before its queries start again."""


def longest_reset_s(swarm: Swarm) -> float:
    """Return how many seconds no query runs at most: whoever leaves ends its batch before."""
    return swarm.session_s + MARGIN_S + swarm.batch_s + LEAVE_S


class Operator:
    """Commits from outside, again and again until that is accepted or too late.

    Args:
        scene: Where.
        queries: What they have read last says where an offset may be set to.
        until: When to give up, in seconds.
    """

    def __init__(self, scene: Scene, queries: Sequence[Query], until: float) -> None:
        self._scene = scene
        self._queries = queries
        self._until = until
        self._is_marked = scene.chance.random() < 0.5
        """Whether the tool says that it was a reset; Kafka's own keeps nothing beside an offset."""

    def act(self) -> None:
        """Set offsets if the group has no members, else try again in a moment."""
        scene, coordination = self._scene, self._scene.coordination
        if scene.now >= self._until:
            return
        offsets = {} if coordination.group.members else self._offsets()
        if not offsets or not coordination.answers:
            scene.schedule.after(TRY_AGAIN_S, self.act)
            return
        request = m.OffsetCommitRequest(
            group_id=coordination.group_id,
            member_id=NO_MEMBER_ID,
            member_epoch=NO_MEMBER_EPOCH,
            offsets=offsets,
        )
        outgoing = Outgoing(Channel.OFFSETS, request, coordination.node)
        scene.network.send(NAME, outgoing, self._answered, lambda _: None)

    def _offsets(self) -> dict[TopicIdPartition, m.OffsetAndMetadata]:
        """Return where to set some partitions back to: at times, where a batch began."""
        chance = self._scene.chance
        begins: dict[TopicIdPartition, list[int]] = {}
        for query in self._queries:
            for each in query.plan.ranges if query.plan else ():
                begins.setdefault(each.key, []).append(each.from_offset)
        offsets = {}
        for key, log in sorted(self._scene.storage.logs.items()):
            kept = self._scene.coordination.kept(key)
            if kept is None or chance.random() < 0.3:
                continue
            end = min(kept.committed_offset, log.end_offset)
            choices = [each for each in begins.get(key, ()) if log.start_offset <= each <= end]
            if log.start_offset <= end:
                choices += [log.start_offset, chance.randint(log.start_offset, end)]
            if not choices:
                continue
            count = parse_commit_metadata(kept.metadata) or 0
            metadata = commit_metadata(count, is_reset=True) if self._is_marked else ""
            offsets[key] = m.OffsetAndMetadata(chance.choice(choices), metadata)
        return offsets

    def _answered(self, answer: m.Response) -> None:
        assert isinstance(answer, m.OffsetCommitResponse)
        if any(answer.errors.values()):
            self._scene.schedule.after(TRY_AGAIN_S, self.act)
