"""The interface of assignors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition


class AssignorError(Exception):
    """An assignor failed; Kafka answers UNKNOWN_SERVER_ERROR and stores nothing."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member in the input of an assignor.

    Args:
        subscribed: Ids of the topics it subscribes to, by name and by pattern.
        target: Its previous target.
    """

    subscribed: frozenset[TopicId]
    instance_id: str | None = None
    rack_id: str | None = None
    target: Assignment = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group in the input of an assignor.

    Args:
        members: By member id, in the coordinator's order: surplus partitions depend on it.
        is_homogeneous: Whether all members subscribe to the same topics.
        partition_counts: Partition counts of the subscribed topics, in the coordinator's order.
        targeted: All partitions in the group's targets, which are more than those of these members
            if one replaces another; None for just those.
    """

    members: Mapping[str, MemberSpec]
    is_homogeneous: bool
    partition_counts: Mapping[TopicId, int] = field(default_factory=dict)
    targeted: frozenset[TopicIdPartition] | None = None


class Assignor(Protocol):
    """Computes targets."""

    @property
    def name(self) -> str:
        """Its name in requests."""

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member; raise AssignorError."""
