"""Heartbeat of the 0.9 design; there is no LeaveGroup: a consumer that stops is marked dead.

Source: Kafka 0.9 Consumer Rewrite Design, "Failure detection protocol", "Heartbeats during
rebalance", "Slow consumers".
"""

from __future__ import annotations

from group_lab.coordinator.design_0_9.draft import Draft
from group_lab.coordinator.design_0_9.group import CoordinatorState
from group_lab.coordinator.design_0_9.messages import (
    DesignErrorCode,
    DesignHeartbeatRequest,
    DesignHeartbeatResponse,
)
from group_lab.coordinator.design_0_9.rebalance import cancel
from group_lab.coordinator.effects import Outcome, RequestContext, refused
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.profile import Profile


def heartbeat(
    group: ConsumerGroup,
    request: DesignHeartbeatRequest,
    _profile: Profile,
    context: RequestContext,
) -> Outcome[DesignHeartbeatResponse]:
    """Start the session of a consumer again, or let it know of a rebalance."""
    design, consumer_id = group.design, request.consumer_id
    if design is None or not design.knows(consumer_id):
        return refused(request, DesignErrorCode.UNKNOWN_CONSUMER)
    is_current = request.group_generation_id == design.generation_id
    is_steady = design.state is CoordinatorState.STEADY
    if is_steady and not is_current:
        return refused(request, DesignErrorCode.ILLEGAL_GENERATION)
    draft = Draft(design, context)
    if is_steady:
        draft.start_session(design.consumers[consumer_id])
    elif is_current and design.can_cancel(consumer_id, context.topics):
        cancel(draft)
    else:
        draft.change(informed=design.informed | {consumer_id})
        response = DesignHeartbeatResponse(error_code=DesignErrorCode.ILLEGAL_GENERATION)
        return draft.outcome(response)
    return draft.outcome(DesignHeartbeatResponse())
