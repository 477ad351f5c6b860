"""ListGroups: which groups there are, by state and by type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.messages import ListedGroup, ListGroupsRequest, ListGroupsResponse

TYPE_NAMES: Final = {
    "consumer": "consumer",
    "classic": "classic",
    "generic": "classic",
    "share": "share",
    "streams": "streams",
}
"""What a types filter may say, in any case; `generic` is the KIP's word for classic."""


def list_groups(groups: Iterable[ConsumerGroup], request: ListGroupsRequest) -> ListGroupsResponse:
    """List groups.

    A filter that names only what does not exist lets nothing through
    (GroupMetadataManager.listGroups).

    Args:
        groups: All groups that have records, as far as they are replicated.
        request: The filters.
    """
    states = {each.lower().strip() for each in request.states_filter}
    types = {TYPE_NAMES.get(each.lower()) for each in request.types_filter}
    listed = (_listed(group) for group in groups)
    return ListGroupsResponse(
        groups=tuple(
            each
            for each in listed
            if (not states or each.group_state.lower() in states)
            and (not types or each.group_type in types)
        )
    )


def _listed(group: ConsumerGroup) -> ListedGroup:
    """Describe a group; one that only has offsets is a simple classic group to Kafka."""
    if not group.is_consumer_group:
        return ListedGroup(
            group_id=group.group_id, protocol_type="", group_state="Empty", group_type="classic"
        )
    return ListedGroup(group_id=group.group_id, group_state=group.state.value)
