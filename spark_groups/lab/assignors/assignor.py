"""What an assignor is given and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition


class AssignorError(Exception):
    """An assignor could not assign; Kafka answers UNKNOWN_SERVER_ERROR and keeps nothing."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as an assignor sees it.

    Args:
        subscribed: The ids of the topics it subscribes to, by name and by pattern.
        instance_id: Its static identity, if it has one.
    """

    subscribed: frozenset[TopicId]
    instance_id: str | None = None
    rack_id: str | None = None
    target: Assignment = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group as an assignor sees it.

    Args:
        members: By member id, in the order in which the coordinator goes through them: who keeps
            the partition too many depends on it.
        is_homogeneous: Whether all members subscribe to the same topics.
        partition_counts: How many partitions each subscribed topic has, in the coordinator's order.
        meant: What the coordinator had meant for anybody, which is more than the members' targets
            where a member takes the place of another one; None: just those.
    """

    members: Mapping[str, MemberSpec]
    is_homogeneous: bool
    partition_counts: Mapping[TopicId, int] = field(default_factory=dict)
    meant: frozenset[TopicIdPartition] | None = None


class Assignor(Protocol):
    """Decides who is meant to have what."""

    @property
    def name(self) -> str:
        """What members ask for it by."""

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member.

        Raises:
            AssignorError: It cannot assign.
        """
