"""A group of the design for Kafka 0.9 and its states, as frozen values.

`DesignGenerationValue` in the log stands for the group's metadata in ZooKeeper: the generation id,
the consumers with what they own, and the partition counts behind it, in one atomic write. The rest
is in memory only, and a failover forgets it. `ConsumerGroup.design` holds the value.

Where the design is silent or contradicts itself, the model reads it like this:

- The group has its new generation id as soon as Rebalancing begins, and its old one again if the
  write fails; then the parked joins get COORDINATOR_NOT_AVAILABLE, and all must join again.
- Every known consumer has a full session timeout for its JoinGroup from the beginning of Prepare
  for rebalance, and heartbeats do not extend it.
- Only an accepted heartbeat starts a session timeout again; a commit does not.
- A consumer that is marked dead stays known until the round is complete: its heartbeat is answered
  ILLEGAL_GENERATION, its commit with the current generation is accepted, and it may join with its
  id.
- The heartbeat of a dead consumer cancels the round if it is the only dead one, no other consumer
  has learned of the round or joined, and no partition count has changed; then all sessions begin
  again.
- After the round, the id of a dead consumer is unknown: "Consumer id assignment" (4) wins over
  "Slow consumers" (6), which holds between the decision and the responses.
- If no consumer is left to wait for, the group has an empty generation at once.
- Every JoinGroup of a known consumer to a steady group begins a rebalance, also with unchanged
  topics: a consumer sends it if it has missed the response (failure in phase 5).
- A consumer that joins without an id gets one when its JoinGroup arrives, but the id is valid only
  from the response on.
- The coordinator cannot recognize a JoinGroup without an id that is sent again: the first one
  counts as another consumer, until its session expires.
- All alive consumers of a group must name the same strategy, and a lone one may change it.
- A topic that is deleted changes the partition counts too, so the group rebalances.
- A commit without a generation is accepted from an operator while the group has no consumers.
- A group is kept for ever, so that its generation ids only increase ("Memory management: TBD").

Source: Kafka 0.9 Consumer Rewrite Design, "State diagram", "Consumer id assignment", "Offset
commits during rebalance", "Slow consumers", and the states in Jun Rao's comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import Final

from group_lab.coordinator import records as r
from group_lab.coordinator.design_0_9.messages import DesignErrorCode
from group_lab.coordinator.topic_images import TopicsImage
from spark_groups.group.member.messages import OffsetCommitRequest
from spark_groups.values import dataclass


class CoordinatorState(Enum):
    """The state of the coordinator for one group, by the design's names.

    Down and Catch up are those of the shard: there is none, or it reads its log. A loaded group
    passes through Ready; a group stays there only without consumers.
    """

    DOWN = "Down"
    CATCH_UP = "Catch up"
    READY = "Ready"
    PREPARE_FOR_REBALANCE = "Prepare for rebalance"
    REBALANCING = "Rebalancing"
    STEADY = "Steady"


SUCCESSORS: Final[Mapping[CoordinatorState, frozenset[CoordinatorState]]] = {
    CoordinatorState.DOWN: frozenset({CoordinatorState.CATCH_UP}),
    CoordinatorState.CATCH_UP: frozenset({CoordinatorState.READY, CoordinatorState.DOWN}),
    CoordinatorState.READY: frozenset(
        {
            CoordinatorState.PREPARE_FOR_REBALANCE,
            CoordinatorState.STEADY,
            CoordinatorState.DOWN,
        }
    ),
    CoordinatorState.PREPARE_FOR_REBALANCE: frozenset(
        # Back to Steady: a slow consumer cancels the round.
        {CoordinatorState.REBALANCING, CoordinatorState.STEADY, CoordinatorState.DOWN}
    ),
    CoordinatorState.REBALANCING: frozenset(
        # Back to the first two if the write fails, and to Ready if no consumer is left.
        {
            CoordinatorState.READY,
            CoordinatorState.PREPARE_FOR_REBALANCE,
            CoordinatorState.STEADY,
            CoordinatorState.DOWN,
        }
    ),
    CoordinatorState.STEADY: frozenset(
        {CoordinatorState.PREPARE_FOR_REBALANCE, CoordinatorState.DOWN}
    ),
}
"""The states that each state may be followed by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignGroup:
    """A group of the design; a change makes another value.

    Args:
        written: The last replicated generation.
        decided: The generation being written, in Rebalancing only.
        joins: Consumers whose JoinGroup is parked for the next decision, by id; those decided on
            are in `decided`.
        dead: Consumers of the written generation that were marked dead in this round.
        informed: Those that have learned of this round from a heartbeat, or have joined it.
    """

    group_id: str
    state: CoordinatorState = CoordinatorState.READY
    written: r.DesignGenerationValue = field(default_factory=r.DesignGenerationValue)
    decided: r.DesignGenerationValue | None = None
    joins: Mapping[str, r.DesignConsumer] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    informed: frozenset[str] = frozenset()

    @property
    def generation_id(self) -> int:
        """The current generation id, replicated or not."""
        return (self.decided or self.written).generation_id

    @property
    def consumers(self) -> Mapping[str, r.DesignConsumer]:
        """The consumers of the written generation, dead or alive, by id."""
        return _by_id(self.written.consumers)

    @property
    def members(self) -> Mapping[str, r.DesignConsumer]:
        """The consumers of the written generation that are not marked dead, by id."""
        return {key: consumer for key, consumer in self.consumers.items() if key not in self.dead}

    @property
    def decided_consumers(self) -> Mapping[str, r.DesignConsumer]:
        """The consumers of the generation being written, by id."""
        return _by_id(self.decided.consumers if self.decided else ())

    @property
    def present(self) -> Mapping[str, r.DesignConsumer]:
        """The consumers that the next decision counts on, as they joined last, by id."""
        return {**(self.decided_consumers if self.decided else self.members), **self.joins}

    @property
    def awaited(self) -> tuple[r.DesignConsumer, ...]:
        """The alive consumers that have not joined this round."""
        return tuple(member for key, member in self.members.items() if key not in self.joins)

    def knows(self, consumer_id: str) -> bool:
        """Return whether an id is in the group; one that is dead is until the round is complete."""
        return any(
            consumer_id in each for each in (self.consumers, self.decided_consumers, self.joins)
        )

    def is_outdated(self, topics: TopicsImage) -> bool:
        """Return whether the written ownership was decided on other partition counts."""
        counts = partition_counts(self.written.consumers, topics)
        return counts != self.written.partition_counts

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a consumer subscribes to a topic."""
        return any(topic in each.topics for each in self.present.values())

    def can_cancel(self, consumer_id: str, topics: TopicsImage) -> bool:
        """Return whether the heartbeat of a consumer marked dead cancels the round."""
        return (
            self.state is CoordinatorState.PREPARE_FOR_REBALANCE
            and self.dead == {consumer_id}
            and not self.informed
            and not self.is_outdated(topics)
        )

    def commit_error(self, request: OffsetCommitRequest) -> int:
        """Return the error of a commit; its member epoch is the generation id."""
        if request.member_epoch < 0 and self.state is CoordinatorState.READY:
            return DesignErrorCode.NONE
        if not self.knows(request.member_id):
            return DesignErrorCode.UNKNOWN_CONSUMER
        # A higher one is a bug of the consumer; an older one is that of a former owner.
        if request.member_epoch != self.generation_id:
            return DesignErrorCode.ILLEGAL_GENERATION
        return DesignErrorCode.NONE

    def moved(self, state: CoordinatorState) -> DesignGroup:
        """Return the group in another state.

        Raises:
            ValueError: The state may not follow the current one.
        """
        if state not in SUCCESSORS[self.state]:
            raise ValueError(f"{state.value} may not follow {self.state.value}")
        return replace(self, state=state)


def partition_counts(consumers: Iterable[r.DesignConsumer], topics: TopicsImage) -> dict[str, int]:
    """Return the partition counts of all topics of consumers that exist."""
    names = {topic for consumer in consumers for topic in consumer.topics}
    known = ((name, topics.by_name.get(name)) for name in sorted(names))
    return {name: topic.partition_count for name, topic in known if topic}


def generation_record(group_id: str, generation: r.DesignGenerationValue) -> r.Record:
    """Return the record of a generation."""
    return r.Record(r.DesignGroupKey(group_id), generation)


def loaded_design(group_id: str, generation: r.DesignGenerationValue) -> DesignGroup:
    """Return the group of a record, in the state in which the coordinator catches up."""
    return DesignGroup(group_id=group_id, state=CoordinatorState.CATCH_UP, written=generation)


def _by_id(consumers: Iterable[r.DesignConsumer]) -> Mapping[str, r.DesignConsumer]:
    return {consumer.consumer_id: consumer for consumer in consumers}
