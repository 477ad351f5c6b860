"""Whether more is to come: the member's target beside what it has, as ConsumerGroupDescribe tells.

Kafka's heartbeat names only what may be used now. So after each change the client asks for the
group's description; pending partitions are the target without the assigned ones.
"""

from __future__ import annotations

from typing import Final

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.protocol.messages import DescribeGroupResponse
from spark_groups.types import NO_PARTITIONS, Assignment, TopicIdPartition

DESCRIBE_AGAIN_S: Final = 5.0
DESCRIBE_SPACING_S: Final = 0.25
NOTHING_AGAIN_S: Final = 0.5
NOTHING_BELIEVED_S: Final = 3.0
"""How long a member has to be meant to have nothing until that is taken for all it gets."""
REFUSED_AGAIN_S: Final = 30.0
"""Rights are granted by people: who may not describe the group need not ask often."""


class TargetWatch:
    """Decides when to ask for the group's description, and what it means for this member."""

    def __init__(self) -> None:
        self.pending = NO_PARTITIONS
        """In the target, not released by their owners yet; fresh as of the last description."""
        self.untold = NO_PARTITIONS
        """Given to the member as of the last description, but it was never told or has forgotten:
        the answer that told it got lost, and only a full heartbeat repeats it."""
        self.holders: dict[TopicIdPartition, str] = {}
        """Who has what is pending, as far as the last description tells."""
        self.planned_topics: frozenset[str] = frozenset()
        """Topics of which any member is meant to have partitions, as of then."""
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.group_state = ""
        self.refusal = int(ErrorCode.NONE)
        """The error code by which descriptions are refused for good, 0 while they are not."""
        self._due_at: float | None = None
        self._asked_at: float | None = None
        self._settled_epoch: int | None = None
        self._nothing_since: float | None = None

    def changed(self, now: float) -> None:
        """Note that the epoch or the assignment changed: ask soon."""
        self._settled_epoch = None
        earliest = now if self._asked_at is None else self._asked_at + DESCRIBE_SPACING_S
        self._ask_at(max(now, earliest))

    @property
    def is_refused(self) -> bool:
        """True while nobody will tell what is still to come."""
        return self.refusal != ErrorCode.NONE

    def due_at(self) -> float | None:
        """Return when to ask, None if nothing is expected."""
        return self._due_at

    def asked(self, now: float) -> None:
        """Note that the question is under way."""
        self._asked_at = now
        self._due_at = None

    def unanswered(self, now: float) -> None:
        """Note that it failed: ask again later."""
        self._ask_at(now + DESCRIBE_AGAIN_S)

    def handle_response(
        self,
        response: DescribeGroupResponse,
        *,
        member_id: str,
        member_epoch: int,
        owned: Assignment,
        now: float,
    ) -> bool | None:
        """Take a description.

        Returns:
            True while this member's target or epoch is ahead of what it has, None if the answer
            does not tell.
        """
        member = next((each for each in response.members if each.member_id == member_id), None)
        if rule_for(response.error_code).lookup is Reaction.FAIL:
            self.refusal = response.error_code
            self._ask_at(now + REFUSED_AGAIN_S)
            return None
        if response.error_code == ErrorCode.NONE:
            self.refusal = int(ErrorCode.NONE)
        if response.error_code != ErrorCode.NONE or member is None:
            self.unanswered(now)
            return None
        self.group_epoch = response.group_epoch
        self.assignment_epoch = response.assignment_epoch
        self.group_state = response.group_state
        self.pending = member.target_assignment - owned
        self.untold = member.assignment - owned
        others = [each for each in response.members if each.member_id != member_id]
        self.holders = {
            key: f"{each.member_id} (client {each.client_id}, host {each.client_host.lstrip('/')})"
            for each in others
            for key in each.assignment
            if key in self.pending
        }
        topic_ids = {key.topic_id for each in response.members for key in each.target_assignment}
        self.planned_topics = frozenset(response.topic_names.get(each, "") for each in topic_ids)
        # An answer from before the last heartbeat's says nothing about what is settled now.
        is_current = member.member_epoch == member_epoch
        epochs_ahead = max(self.group_epoch, self.assignment_epoch) > member_epoch
        more = bool(self.pending) or epochs_ahead or not is_current
        is_doubtful = not more and self._doubts(member.target_assignment, now)
        self._settled_epoch = None if more or is_doubtful else member_epoch
        if more or is_doubtful:
            self._ask_at(now + (DESCRIBE_AGAIN_S if more else NOTHING_AGAIN_S))
        return more or is_doubtful

    def settled(self, member_epoch: int) -> bool:
        """Tell whether the member has all it is meant to have, as of the last description."""
        return self._settled_epoch == member_epoch

    def _doubts(self, target: Assignment, now: float) -> bool:
        """Tell whether having nothing is not to be believed yet.

        A coordinator lets a member in before it has looked for the topics of its pattern, or heard
        of a topic that was just created: it is meant to have nothing then, for a moment.
        """
        if target:
            self._nothing_since = None
            return False
        if self._nothing_since is None:
            self._nothing_since = now
        return now - self._nothing_since < NOTHING_BELIEVED_S

    def _ask_at(self, due_at: float) -> None:
        self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)
