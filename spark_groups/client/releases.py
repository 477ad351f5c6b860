"""Member ids of earlier incarnations are released, so that nobody waits for their sessions to end.

A query that was killed is still a member until its session is over. Whoever starts again from its
checkpoint leaves in its name: a static member for a return (-2), so that its partitions stay where
they are, a dynamic one for good (-1). A query may have changed its `group.instance.id` between two
runs: where the coordinator does not know the old member by it, it is released as a dynamic one,
which works for static ones too (measured).
"""

from __future__ import annotations

from collections import deque

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.protocol.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
    HeartbeatResponse,
)


class Releases:
    """The good-byes that are still to be said, in order.

    Args:
        group_id: The group.
        instance_id: What the query is called now, None for a dynamic member.
    """

    def __init__(self, group_id: str, instance_id: str | None) -> None:
        self._group_id = group_id
        self._instance_id = instance_id
        self._waiting: deque[HeartbeatRequest] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, member_id: str) -> None:
        """Release a member id."""
        if self._instance_id is None:
            self._waiting.append(self._for_good(member_id))
            return
        self._waiting.append(
            HeartbeatRequest(
                group_id=self._group_id,
                member_id=member_id,
                member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
                instance_id=self._instance_id,
            )
        )

    def next_request(self) -> HeartbeatRequest:
        """Return the good-bye to send now.

        Raises:
            IndexError: There is none.
        """
        return self._waiting[0]

    def is_one(self, request: object) -> bool:
        """Tell whether a request is one of these, and not the member's own heartbeat."""
        return bool(self._waiting) and request == self._waiting[0]

    def answered(self, request: HeartbeatRequest, response: HeartbeatResponse) -> Reaction:
        """Take the answer to one of these.

        Returns:
            What to do about it: ACCEPT if there is nothing more to be said about it.
        """
        reaction = rule_for(response.error_code).heartbeat
        if reaction in (Reaction.RETRY, Reaction.REDISCOVER):
            return reaction
        self._waiting.remove(request)
        unknown = response.error_code != ErrorCode.NONE
        if unknown and request.instance_id is not None:
            self._waiting.appendleft(self._for_good(request.member_id))
        return Reaction.ACCEPT

    def _for_good(self, member_id: str) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
        )
