"""A warm join: a run that is cold lets other members read until its Python workers have started.

Spark's first batch is slow: it starts Python workers, imports the reader and opens connections. If
other members could read meanwhile, the run first returns a *warm-up plan*, whose tasks do that and
read nothing, and its member joins once that batch has finished.

The warm-up plan replaces the checkpoint's last plan. So before it is returned, the member of that
plan is released, and its ranges are known to be committed: a run that is killed while it warms up
loses nothing that the next run needs. A right that is missing, or a group of another type, is
reported as early as without a warm-up, because the member then joins at once. So does a static
member whose partitions wait for it; one that returns after its session has expired warms up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.group.ledger.events import WarmUpBegan, WarmUpEnded
from spark_groups.group.member.events import Event
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    DescribeGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    RequestFailed,
    found_and_failed,
)
from spark_groups.group.requests.describe import DESCRIBE_AGAIN_S
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.group.requests.heartbeat import Releases
from spark_groups.group.requests.metadata import TopicNames
from spark_groups.types import BatchPlan

ASK_S: Final = 5.0
"""How long the answers may take, before the member joins without a warm-up."""
WARM_UP_S: Final = 30.0
"""How long the warm-up may take, before the member joins anyway."""
UNKNOWN: Final = "it is unknown whether other members read meanwhile"
READ_BIT: Final = 1 << 3
"""AclOperation.READ in authorized operations: a heartbeat needs it."""


class Phase(Enum):
    """The steps of a warm join."""

    OVER = "the member joins as soon as it may, or has joined"
    ASKING = "asks whether other members read, and whether the last batch is committed"
    WARMING = "the next plan is the warm-up plan, or its batch runs"


@dataclass(slots=True)
class WarmUp:
    """Decides whether a run warms up before its member joins, and when the member joins.

    Args:
        tasks: How many tasks warm it up; 0: the member joins at once.
        checkpointed: The last plan in Spark's checkpoint.
    """

    first_wait_s: ClassVar = ASK_S

    member: Member
    coordinator: Coordinator
    releases: Releases
    names: TopicNames
    emit: Callable[[Event], None]
    tasks: int
    checkpointed: BatchPlan | None
    phase: Phase = field(default=Phase.OVER, init=False)
    _until: float = field(default=0.0, init=False)
    """When the phase ends by itself."""
    _describe_at: float = field(default=0.0, init=False)
    _is_described: bool = field(default=False, init=False)
    _is_committed: bool = field(default=False, init=False)

    @property
    def is_warming(self) -> bool:
        """True while the next plan is the warm-up plan, or its batch runs before the join."""
        return self.phase is Phase.WARMING

    def start(self, now: float) -> None:
        """Join the group, or ask whether to warm up first."""
        if not self.tasks:
            self.member.join(now)
            return
        self.member.warm_up()
        self.phase, self._until, self._describe_at = Phase.ASKING, now + ASK_S, now
        plan, config = self.checkpointed, self.member.config
        self._is_committed = plan is None or not plan.ranges
        if plan is not None and plan.group_id != config.group_id:
            self.end("the checkpoint was written by another group", now)

    def look(self, now: float) -> None:
        """Begin the warm-up once all answers are there, and end it when its time is over."""
        if self.phase is Phase.OVER:
            return
        if self.member.state is not MemberState.WARMING_UP:
            # The member has left or failed.
            self.phase = Phase.OVER
        elif now >= self._until:
            is_asking = self.phase is Phase.ASKING
            asked = f"{UNKNOWN}: no answer within {ASK_S:g} s"
            self.end(asked if is_asking else f"the warm-up takes {WARM_UP_S:g} s", now)
        elif self.phase is Phase.ASKING and self._has_all_answers:
            self.phase, self._until = Phase.WARMING, now + WARM_UP_S
            # A refused release counts as a failure until a heartbeat is accepted.
            self.coordinator.reached()
            self.emit(WarmUpBegan(now, self.tasks))

    def end(self, reason: str, now: float) -> None:
        """Join the group, unless the member has joined, left or failed."""
        is_waiting = self.member.state is MemberState.WARMING_UP
        self.phase = Phase.OVER
        if is_waiting:
            self.emit(WarmUpEnded(now, reason))
            self.member.join(now)

    def next_wakeup(self) -> float | None:
        """Return when to look again without input."""
        if self.phase is Phase.OVER:
            return None
        return min(self._until, self._describe_at) if self._is_described else self._until

    def next_request(self, now: float) -> DescribeGroupRequest | OffsetFetchRequest | None:
        """Describe the group, and fetch the offsets of the checkpoint's last batch.

        They are fetched once its member is released: nothing can commit them any more.
        """
        if self.phase is Phase.OVER:
            return None
        group_id = self.member.config.group_id
        if now >= self._describe_at:
            self._describe_at = now + DESCRIBE_AGAIN_S
            return DescribeGroupRequest(group_id=group_id, include_authorized_operations=True)
        if self._is_committed or self.checkpointed is None or not self.releases.are_done:
            return None
        return OffsetFetchRequest(group_id=group_id, partitions=self.checkpointed.partitions())

    def answered(
        self,
        _request: DescribeGroupRequest | OffsetFetchRequest,
        response: DescribeGroupResponse | OffsetFetchResponse,
        now: float,
    ) -> None:
        """Join at once if the answer forbids the warm-up, or ends it."""
        if rule_for(response.error_code).lookup is Reaction.REDISCOVER:
            self.coordinator.lost()
        is_refused = response.error_code != ErrorCode.NONE
        if self.phase is Phase.OVER or (is_refused and self.phase is Phase.WARMING):
            return
        if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            self.end("the group has no members of the consumer protocol", now)
        elif is_refused:
            self.end(f"{UNKNOWN}: {ErrorCode.name_of(response.error_code)}", now)
        elif isinstance(response, OffsetFetchResponse):
            self._is_committed = self._is_all_committed(response)
            if not self._is_committed:
                self.end("the checkpoint's last batch is not committed", now)
        else:
            self._is_described = True
            obstacle = self._obstacle(response)
            if obstacle is not None:
                self.end(obstacle, now)

    def failed(
        self,
        _request: DescribeGroupRequest | OffsetFetchRequest,
        failure: RequestFailed,
        now: float,
    ) -> None:
        """Join at once, unless the warm-up has begun."""
        if self.phase is Phase.ASKING:
            self.end(f"{UNKNOWN}: {failure.reason}", now)

    @property
    def _has_all_answers(self) -> bool:
        is_allowed = self._is_described and self._is_committed
        return is_allowed and self.releases.are_done and self.names.has_baseline

    def _obstacle(self, group: DescribeGroupResponse) -> str | None:
        """Return why to join at once, None if other members read and this one may join."""
        gone_id = None if self.checkpointed is None else self.checkpointed.member_id
        instance_id = self.member.config.instance_id
        if instance_id and any(each.instance_id == instance_id for each in group.members):
            # If its session has expired, it is not there: others read meanwhile.
            return "a static member keeps its partitions while it is away"
        # Another static member that left for a while has a negative epoch.
        if not any(
            member.member_id != gone_id and member.member_epoch >= 0 for member in group.members
        ):
            return "no other member reads"
        if not group.authorized_operations & READ_BIT:
            return "this principal may not be allowed to join"
        return None

    def _is_all_committed(self, response: OffsetFetchResponse) -> bool:
        if self.checkpointed is None:
            return True
        found, _ = found_and_failed(response.answers)
        return all(
            offset_range.key in found
            and found[offset_range.key].committed_offset >= offset_range.until_offset
            for offset_range in self.checkpointed.ranges
        )
