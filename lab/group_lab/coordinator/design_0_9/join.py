"""JoinGroup of the 0.9 design: it is parked until its round is complete, or refused at once.

Source: Kafka 0.9 Consumer Rewrite Design, "Consumer id assignment", "Configs", "Slow consumers".
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from group_lab.coordinator import records as r
from group_lab.coordinator.design_0_9.draft import Draft
from group_lab.coordinator.design_0_9.group import CoordinatorState, DesignGroup
from group_lab.coordinator.design_0_9.messages import (
    DesignErrorCode,
    DesignJoinGroupRequest,
    DesignJoinGroupResponse,
)
from group_lab.coordinator.design_0_9.rebalance import begin, complete_if_all_joined
from group_lab.coordinator.effects import Outcome, RequestContext, refused
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.profile import Profile


def join(
    group: ConsumerGroup,
    request: DesignJoinGroupRequest,
    _profile: Profile,
    context: RequestContext,
) -> Outcome[Any]:
    """Handle a JoinGroup request."""
    design = group.design or DesignGroup(group_id=group.group_id)
    if error := _error(design, request, context):
        return refused(request, error)
    draft = Draft(design, context)
    consumer = r.DesignConsumer(
        consumer_id=request.consumer_id or context.new_classic_id(request.group_id),
        client_host=context.client_host,
        session_timeout_ms=request.session_timeout_ms,
        topics=request.topics,
        strategy=request.partition_assignment_strategy,
    )
    if not _is_decided(design, consumer):
        draft.add(consumer)
    if design.state in (CoordinatorState.READY, CoordinatorState.STEADY):
        begin(draft)
    complete_if_all_joined(draft)
    draft.appended = draft.appended or partial(_lost, consumer_id=consumer.consumer_id)
    return draft.outcome(parks=draft.parked(consumer.consumer_id))


def _error(design: DesignGroup, request: DesignJoinGroupRequest, context: RequestContext) -> int:
    strategy, consumer_id = request.partition_assignment_strategy, request.consumer_id
    if strategy not in context.settings.broker.assignment_strategies:
        return DesignErrorCode.UNKNOWN_PARTITIONING_STRATEGY
    max_session_timeout_s = context.settings.broker.classic_max_session_timeout_s
    if request.session_timeout_ms > max_session_timeout_s * 1000:
        return DesignErrorCode.SESSION_TIMEOUT_TOO_HIGH
    if consumer_id and not design.knows(consumer_id):
        return DesignErrorCode.UNKNOWN_CONSUMER
    others = (each for key, each in design.present.items() if key != consumer_id)
    if any(other.strategy != strategy for other in others):
        return DesignErrorCode.INCONSISTENT_PARTITIONING_STRATEGY
    return DesignErrorCode.NONE


def _is_decided(design: DesignGroup, consumer: r.DesignConsumer) -> bool:
    """Return whether a consumer sends its JoinGroup again, and its generation is being written."""
    decided = design.decided_consumers.get(consumer.consumer_id)
    if decided is None or consumer.consumer_id in design.joins:
        return False
    return replace(decided, partitions=frozenset()) == consumer


def _lost(
    group: DesignGroup, error_code: int, context: RequestContext, *, consumer_id: str
) -> Outcome[None]:
    """Refuse a parked join whose response would have come after records that are lost."""
    if not error_code or consumer_id not in group.joins:
        return Outcome(None)
    draft = Draft(group, context)
    draft.drop(consumer_id)
    draft.answer(consumer_id, DesignJoinGroupResponse(error_code=error_code))
    if consumer_id in group.members:
        draft.start_session(group.members[consumer_id])
    return draft.outcome()
