"""Chooses the broker for the records of each partition, while leaders move."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spark_groups.errors import (
    BrokerUnreachableError,
    ErrorCode,
    Reaction,
    SparkGroupsError,
    rule_for,
)
from spark_groups.group.member.grant_command import Identity, remedy_of
from spark_groups.group.member.messages import Node
from spark_groups.types import TopicId, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.fetch.fetch_messages import NO_REPLICA, FetchCursor
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.topic_metadata import NO_LEADER, Leader

_RETRY_S: Final = 0.1
"""The pause before leaders are looked up again."""
_KNOWN_S: Final = 300.0
"""How long leaders are kept; one that has moved refuses and is looked up again."""

_ASKED_AT_ONCE: Final = 2_000

Wanted = Mapping[TopicIdPartition, FetchCursor]


class LostTopic(NamedTuple):
    """A topic whose id no broker knows.

    Args:
        is_recreated: Whether another topic has the name now.
    """

    topic_id: TopicId
    name: str
    is_recreated: bool


def fail_if_final(
    name: str, code: int, identity: Identity | None = None, topics: Iterable[str] = ()
) -> None:
    """Raise an error with its remedy, if a retry is useless.

    Args:
        name: The unreadable broker, topic or partition.
        identity: The reader, for errors about missing permissions.
        topics: The topics that are read.

    Raises:
        SparkGroupsError: The error is final.
    """
    if rule_for(code).lookup is Reaction.FAIL:
        remedy = remedy_of(code, identity, group_id="", topics=topics)
        raise SparkGroupsError(f"{name} cannot be read: {ErrorCode.name_of(code)}; {remedy}")


class FetchLeaders:
    """The known leaders of partitions.

    Args:
        identity: The reader, for errors about missing permissions.
    """

    def __init__(self, cluster: Cluster, identity: Identity | None = None) -> None:
        self._identity = identity
        self.nodes: dict[int, Node] = {}
        self.last_error = ""
        self._cluster = cluster
        self._leaders: dict[TopicIdPartition, Leader] = {}
        self._forget_at = 0.0
        self._outdated: set[TopicIdPartition] = set()
        self._refresh_at = 0.0

    def begin(self, wanted: Wanted) -> None:
        """Start a read: look up leaders that are unknown or failed last."""
        now = time.monotonic()
        if now >= self._forget_at:
            self._leaders.clear()
            self._forget_at = now + _KNOWN_S
        unknown = wanted.keys() - self._leaders.keys()
        self._outdated = unknown | (self._outdated & wanted.keys())
        self._refresh_at = 0.0
        self.last_error = ""

    @property
    def wake_at(self) -> float:
        """When to look up leaders again; infinite if all are known."""
        return self._refresh_at if self._outdated else math.inf

    def note(self, problem: str, cursors: Iterable[FetchCursor]) -> None:
        """Record a problem with partitions, and look up their leaders again.

        Args:
            cursors: The partitions; they are read from their leaders again.
        """
        self.last_error = problem
        for cursor in cursors:
            cursor.read_from_leader()
            self._outdated.add(cursor.key)
        self._refresh_at = max(self._refresh_at, time.monotonic() + _RETRY_S)

    def refresh(self, wanted: Wanted) -> list[LostTopic]:
        """Look up unknown leaders if it is time to, and return topics without any.

        Raises:
            BrokerUnreachableError: No broker answered, and none ever did.
            SparkGroupsError: A broker refuses; not retried.
        """
        self._outdated &= wanted.keys()
        if time.monotonic() < self.wake_at:
            return []
        cursors = [wanted[each] for each in self._outdated]
        try:
            known = self._cluster.topics({cursor.topic_partition.topic for cursor in cursors})
        except BrokerUnreachableError as error:
            if not self._leaders:
                raise
            self.note(str(error), cursors)
            return []
        self.nodes = dict(known.nodes)
        for name, code in known.errors.items():
            fail_if_final(name, code, self._identity, [name])
        self._outdated.clear()
        names = {each.topic.name for each in known.topics.values()}
        lost: set[LostTopic] = set()
        for cursor in cursors:
            name, topic = cursor.topic_partition.topic, known.topics.get(cursor.key.topic_id)
            leader = topic.leaders.get(cursor.key.partition) if topic is not None else None
            if leader is not None and leader.node_id != NO_LEADER:
                self._leaders[cursor.key] = leader
                continue
            self.note(f"{cursor.topic_partition} has no leader", [cursor])
            if topic is None and name not in known.errors:
                lost.add(LostTopic(cursor.key.topic_id, name, name in names))
        return sorted(lost)

    def route(self, cursors: Iterable[FetchCursor]) -> dict[int, list[FetchCursor]]:
        """Return partitions by the id of the broker to read from, without those that are not known.

        A request names a bounded number of partitions, because a response has room for few.
        """
        by_node: dict[int, list[FetchCursor]] = {}
        unknown: list[FetchCursor] = []
        for cursor in cursors:
            key = cursor.key
            if key in self._outdated:
                continue
            node_id = cursor.replica_id
            if node_id == NO_REPLICA:
                node_id = self._leaders[key].node_id
            if node_id in self.nodes:
                asked = by_node.setdefault(node_id, [])
                if len(asked) < _ASKED_AT_ONCE:
                    asked.append(cursor)
            else:
                unknown.append(cursor)
                self.last_error = f"broker {node_id} is not alive"
        if unknown:
            self.note(self.last_error, unknown)
        return by_node

    def leader_epochs(self, cursors: Iterable[FetchCursor]) -> dict[TopicIdPartition, int]:
        """Return the leader epochs of routed partitions."""
        return {cursor.key: self._leaders[cursor.key].leader_epoch for cursor in cursors}

    def learn_nodes(self, endpoints: Iterable[Values]) -> None:
        """Store the brokers that a response names for moved leaders (KIP-951)."""
        for endpoint in endpoints:
            self.nodes[endpoint["node_id"]] = Node(
                endpoint["node_id"], endpoint["host"], endpoint["port"]
            )

    def note_refusal(self, cursor: FetchCursor, code: int, current_leader: Values) -> None:
        """Handle an error of a partition: follow the leader in the answer, or look it up.

        Args:
            current_leader: The leader in the answer; its id is -1 if the answer names none.

        Raises:
            SparkGroupsError: The error is final.
        """
        partition = cursor.topic_partition
        fail_if_final(str(partition), code, self._identity, [partition.topic])
        leader = Leader(current_leader["leader_id"], current_leader["leader_epoch"])
        if (
            leader.leader_epoch > self._leaders[cursor.key].leader_epoch
            and leader.node_id in self.nodes
        ):
            self._leaders[cursor.key] = leader
            cursor.read_from_leader()
        else:
            self.note(f"{cursor.topic_partition}: {ErrorCode.name_of(code)}", [cursor])
