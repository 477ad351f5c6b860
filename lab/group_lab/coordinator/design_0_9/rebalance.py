"""A rebalance of the 0.9 design, from its cause to the responses, and failure detection.

Prepare for rebalance waits until each consumer of the generation has joined or is dead. Rebalancing
lasts while the next generation is written; then the responses go out, and sessions begin.

Source: Kafka 0.9 Consumer Rewrite Design, "Co-ordinator", "Failure detection protocol", "Partition
changes for subscribed topics", "Heartbeats during rebalance", "Co-ordinator failure during
rebalance", "Slow consumers".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from group_lab.assignors.classic import ClassicMember
from group_lab.coordinator import records as r
from group_lab.coordinator.design_0_9.draft import Draft
from group_lab.coordinator.design_0_9.group import (
    CoordinatorState,
    DesignGroup,
    generation_record,
    partition_counts,
)
from group_lab.coordinator.design_0_9.messages import DesignJoinGroupResponse
from group_lab.coordinator.effects import Outcome, RequestContext, Timer, TimerKind
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.profile import Profile
from spark_groups.group.member.embedded import Subscription

RETRY_MS: Final = 500
"""Delay before a lost generation without consumers is written again."""


def begin(draft: Draft) -> None:
    """Begin a rebalance: each consumer that is alive has a session timeout to join it."""
    draft.move(CoordinatorState.PREPARE_FOR_REBALANCE)
    for each in draft.group.awaited:
        draft.start_session(each)


def complete_if_all_joined(draft: Draft) -> None:
    """Decide on the next generation, and write it, if all alive consumers have joined."""
    group = draft.group
    if group.state is not CoordinatorState.PREPARE_FOR_REBALANCE or group.awaited:
        return
    draft.move(CoordinatorState.REBALANCING)
    decided = r.DesignGenerationValue(
        generation_id=group.generation_id + 1,
        consumers=_with_partitions(group, draft.context),
        partition_counts=partition_counts(group.joins.values(), draft.context.topics),
    )
    draft.change(decided=decided, joins={})
    draft.records = (generation_record(group.group_id, decided),)
    draft.appended = _written


def _with_partitions(group: DesignGroup, context: RequestContext) -> tuple[r.DesignConsumer, ...]:
    """Return the consumers that have joined with what their strategy gives them."""
    joined = group.joins
    if not joined:
        return ()
    strategy = next(iter(joined.values())).strategy
    members = {key: ClassicMember(Subscription(topics=each.topics)) for key, each in joined.items()}
    counts = partition_counts(joined.values(), context.topics)
    assigned = context.settings.broker.assignment_strategies[strategy].assign(members, counts)
    return tuple(replace(each, partitions=assigned[key].partitions) for key, each in joined.items())


def _written(group: DesignGroup, error_code: int, context: RequestContext) -> Outcome[None]:
    """Send the responses of a generation that is written, or refuse its joins if it is lost."""
    assert group.decided is not None
    draft = Draft(group, context)
    if error_code:
        _lost(draft, error_code)
        return draft.outcome()
    informed = frozenset(group.joins)
    draft.change(written=group.decided, decided=None, dead=frozenset(), informed=informed)
    for consumer_id, consumer in draft.group.consumers.items():
        if consumer_id in group.joins:
            # It has joined once more meanwhile: the next round answers it.
            continue
        response = DesignJoinGroupResponse(
            group_generation_id=group.generation_id,
            consumer_id=consumer_id,
            partitions_to_own=consumer.partitions,
        )
        draft.answer(consumer_id, response)
        draft.start_session(consumer)
    _settle(draft)
    return draft.outcome()


def _settle(draft: Draft) -> None:
    """Put a generation into force; a JoinGroup or new partitions meanwhile begin another round."""
    group = draft.group
    draft.move(CoordinatorState.STEADY if group.written.consumers else CoordinatorState.READY)
    if group.joins or group.is_outdated(draft.context.topics):
        begin(draft)
        draft.start_round()


def _lost(draft: Draft, error_code: int) -> None:
    """Refuse all joins: the former generation is in force, and its consumers must join again."""
    group = draft.group
    for consumer_id in (*group.decided_consumers, *group.joins):
        draft.answer(consumer_id, DesignJoinGroupResponse(error_code=error_code))
    draft.change(decided=None, joins={})
    if not group.written.consumers:
        draft.move(CoordinatorState.READY)
        return
    begin(draft)
    if not draft.group.awaited:
        draft.start_round(RETRY_MS)


def cancel(draft: Draft) -> None:
    """Give a rebalance up: the consumer that was marked dead is alive."""
    draft.change(dead=frozenset())
    draft.move(CoordinatorState.STEADY)
    for member in draft.group.members.values():
        draft.start_session(member)


def session_expired(
    group: ConsumerGroup, timer: Timer, _profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Mark a consumer dead that has sent no heartbeat, or not joined, for its session timeout."""
    design, consumer_id = group.design, timer.key.member_id
    if design is None or consumer_id not in {each.consumer_id for each in design.awaited}:
        return Outcome(None)
    draft = Draft(design, context)
    draft.change(dead=design.dead | {consumer_id})
    if design.state is CoordinatorState.STEADY:
        begin(draft)
    complete_if_all_joined(draft)
    return draft.outcome()


def round_begun(
    group: ConsumerGroup, _timer: Timer, _profile: Profile, context: RequestContext
) -> Outcome[None]:
    """End a round that waits for no consumer."""
    if group.design is None:
        return Outcome(None)
    draft = Draft(group.design, context)
    complete_if_all_joined(draft)
    return draft.outcome()


def topics_changed(design: DesignGroup | None, context: RequestContext) -> Outcome[None]:
    """Begin a rebalance of a steady group whose topics have grown, or are new or gone."""
    if (
        design is None
        or design.state is not CoordinatorState.STEADY
        or not design.is_outdated(context.topics)
    ):
        return Outcome(None)
    draft = Draft(design, context)
    begin(draft)
    return draft.outcome()


def loaded(group: ConsumerGroup, _profile: Profile, context: RequestContext) -> Outcome[None]:
    """Start failure detection for all consumers of a loaded group; changed topics rebalance it."""
    if group.design is None:
        return Outcome(None)
    draft = Draft(group.design, context)
    draft.move(CoordinatorState.READY)
    for member in draft.group.members.values():
        draft.start_session(member)
    if draft.group.is_outdated(context.topics):
        begin(draft)
    elif draft.group.written.consumers:
        draft.move(CoordinatorState.STEADY)
    return draft.outcome()


FIRED: Final = {
    TimerKind.DESIGN_SESSION: session_expired,
    TimerKind.DESIGN_ROUND: round_begun,
}
"""What happens when a timer of a group of the design fires."""
