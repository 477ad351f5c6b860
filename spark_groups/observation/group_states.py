"""What coordinators call the states of groups, and what that means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STATE_MEANINGS: Final[Mapping[str, str]] = {
    "Empty": "It has no members; its committed offsets are kept.",
    "Assigning": "The coordinator is about to compute a new target assignment; until then members"
    " keep what they have.",
    "Reconciling": "Members are moving from what they have to the target assignment.",
    "Stable": "Every member has exactly what the target assignment gives it.",
    "Dead": "It has neither members nor committed offsets, and is being removed.",
    "PreparingRebalance": "All members are joining again; nobody is told yet what to read.",
    "CompletingRebalance": "All members have joined, and wait for what one of them assigns.",
}
"""By the coordinator's word for a group's state, of the consumer protocol or the classic one
(org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup.ConsumerGroupState and
org.apache.kafka.coordinator.group.classic.ClassicGroupState)."""

UNKNOWN_STATE_MEANING: Final = "This version does not know what the coordinator means by that."
