"""A group coordinator for tests of the client: epochs, revocation, fencing, offsets; no network.

It follows Kafka's own order of steps (GroupMetadataManager.consumerGroupHeartbeat and
CurrentAssignmentBuilder) for what a `GroupClient` can see: dynamic members, one subscription for
all, a sticky and balanced assignor. Static members, patterns, racks and classic members are left
out. `Profile` names what differs between versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from spark_groups.errors import ErrorCode
from spark_groups.protocol import messages as m
from spark_groups.types import Assignment, TopicId, TopicIdPartition

Key = TopicIdPartition


@dataclass(frozen=True)
class Profile:
    """What a version of Kafka does.

    Args:
        first_epoch: The group epoch after the first join.
        bump_when_revoked: An acknowledged revocation moves the member's epoch by one.
        rejoin_known: A join of a member that is still known is taken, not fenced.
        relaxed_commit: An older epoch may commit what was kept all along (KIP-1251).
        assignment_interval_s: The least time between two runs of the assignor.
    """

    first_epoch: int
    bump_when_revoked: bool
    rejoin_known: bool
    relaxed_commit: bool
    assignment_interval_s: float


PROFILES = {
    "4.0": Profile(1, True, False, False, 0.0),
    "4.2": Profile(1, False, True, False, 0.0),
    "4.3": Profile(2, False, True, True, 1.0),
}


@dataclass
class KnownMember:
    """A member as the coordinator has it; partitions with the epoch at which they were given."""

    member_id: str
    member_epoch: int = 0
    previous_epoch: int = -1
    state: str = "UNKNOWN"
    assigned: dict[Key, int] = field(default_factory=dict)
    revoking: dict[Key, int] = field(default_factory=dict)
    rebalance_timeout_s: float = 0.0
    expires_at: float = 0.0
    revoke_by: float | None = None

    def held(self) -> set[Key]:
        return {*self.assigned, *self.revoking}


class ScriptedCoordinator:
    """One group.

    Args:
        profile: Which Kafka it behaves like.
        topics: The subscribed topics; tests add to it.
        session_timeout_s: After which silence a member is removed.
        heartbeat_interval_s: What members are told.
    """

    def __init__(
        self,
        profile: Profile,
        topics: dict[TopicId, m.TopicMetadata],
        *,
        session_timeout_s: float = 12.0,
        heartbeat_interval_s: float = 2.0,
    ) -> None:
        self.profile = profile
        self.topics = topics
        self.members: dict[str, KnownMember] = {}
        self.group_epoch = self.assignment_epoch = 0
        self.target: dict[str, set[Key]] = {}
        self.committed: dict[Key, m.OffsetAndMetadata] = {}
        self.removed: dict[str, str] = {}
        """Why each member that is no longer one was removed."""
        self.on_commit: Callable[[str, Key, int], None] = lambda *_: None
        self._session_timeout_s = session_timeout_s
        self._interval_ms = int(heartbeat_interval_s * 1000)
        self._assigned_at = float("-inf")
        self._counts: dict[TopicId, int] = {}

    def partitions(self) -> list[Key]:
        return [
            Key(each.topic_id, index)
            for each in self.topics.values()
            for index in range(each.partition_count)
        ]

    def holder(self, key: Key) -> str | None:
        """Return the member that has a partition, or has not released it yet."""
        return next((each.member_id for each in self.members.values() if key in each.held()), None)

    def expire(self, now: float) -> None:
        """Remove whom the session or the rebalance time-out has run out for."""
        for each in list(self.members.values()):
            if now >= each.expires_at:
                self._remove(each.member_id, "session")
            elif each.revoke_by is not None and now >= each.revoke_by:
                self._remove(each.member_id, "rebalance")

    def loaded(self, now: float) -> None:
        """Another broker took over: all time-outs begin anew."""
        for each in self.members.values():
            each.expires_at = now + self._session_timeout_s
            if each.revoke_by is not None:
                each.revoke_by = now + each.rebalance_timeout_s

    def answer(self, request: m.Request, code: int, now: float) -> m.Response:
        """Answer a request, with an error for the whole of it if there is one."""
        match request:
            case m.HeartbeatRequest():
                if code:
                    return m.HeartbeatResponse(error_code=code)
                return self.heartbeat(request, now)
            case m.OffsetCommitRequest():
                if code:
                    return m.OffsetCommitResponse(errors=dict.fromkeys(request.offsets, code))
                return self.commit(request, now)
            case m.OffsetFetchRequest():
                return m.OffsetFetchResponse(error_code=code) if code else self.fetch(request, now)
            case _:
                return m.DescribeGroupResponse(error_code=code) if code else self.describe(now)

    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(
            each.state == "STABLE" and each.member_epoch == self.assignment_epoch
            for each in self.members.values()
        )
        return "Stable" if settled else "Reconciling"

    def heartbeat(self, request: m.HeartbeatRequest, now: float) -> m.HeartbeatResponse:
        self.expire(now)
        known = self.members.get(request.member_id)
        owned = request.topic_partitions
        if request.member_epoch == m.LEAVE_GROUP_MEMBER_EPOCH:
            if known is None:
                return m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            self._remove(request.member_id, "left")
            return m.HeartbeatResponse(member_id=request.member_id, member_epoch=-1)
        if request.member_epoch == 0:
            assert owned is not None, "a join carries an owned list"
            assert not owned, "the owned list of a join is empty"
            assert request.rebalance_timeout_ms > 0
            assert request.subscribed_topic_names is not None
            if known is not None and not self.profile.rejoin_known and known.previous_epoch != 0:
                return m.HeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
            if known is None:
                known = self.members[request.member_id] = KnownMember(request.member_id)
                self._bump()
        elif known is None:
            return m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        elif request.member_epoch != known.member_epoch:
            lost_answer = request.member_epoch == known.previous_epoch and owned is not None
            if not lost_answer or not owned.partitions <= set(known.assigned):
                return m.HeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        return self._accepted(known, request, now)

    def _accepted(
        self, known: KnownMember, request: m.HeartbeatRequest, now: float
    ) -> m.HeartbeatResponse:
        if request.rebalance_timeout_ms > 0:
            known.rebalance_timeout_s = request.rebalance_timeout_ms / 1000
        counts = {each.topic_id: each.partition_count for each in self.topics.values()}
        if counts != self._counts:
            self._counts = counts
            self._bump()
        if (
            self.assignment_epoch < self.group_epoch
            and now >= self._assigned_at + self.profile.assignment_interval_s
        ):
            self._assign(now)
        before = set(known.assigned)
        self._reconcile(known, request.topic_partitions, now)
        known.expires_at = now + self._session_timeout_s
        full = request.rebalance_timeout_ms > 0 and request.topic_partitions is not None
        told = full or request.member_epoch == 0 or set(known.assigned) != before
        return m.HeartbeatResponse(
            member_id=known.member_id,
            member_epoch=known.member_epoch,
            heartbeat_interval_ms=self._interval_ms,
            assignment=Assignment(frozenset(known.assigned)) if told else None,
        )

    def _reconcile(self, known: KnownMember, owned: Assignment | None, now: float) -> None:
        reported = None if owned is None else owned.partitions
        move_epoch = known.state == "UNREVOKED" and self.profile.bump_when_revoked
        if known.state == "UNREVOKED":
            if reported is None or reported & set(known.revoking):
                return
        elif known.state == "STABLE" and known.member_epoch == self.assignment_epoch:
            return
        target = self.target.get(known.member_id, set())
        keep = {key: epoch for key, epoch in known.assigned.items() if key in target}
        revoke = {key: epoch for key, epoch in known.assigned.items() if key not in target}
        wanted = target - set(keep)
        free = {
            key
            for key in wanted
            if self.holder(key) is None
            or (self.holder(key) == known.member_id and key in known.revoking)
        }
        known.previous_epoch = known.member_epoch
        if revoke and (reported is None or reported & set(revoke)):
            if move_epoch:
                known.member_epoch = min(known.member_epoch + 1, self.assignment_epoch)
            known.state, known.assigned, known.revoking = "UNREVOKED", keep, revoke
            known.revoke_by = now + known.rebalance_timeout_s
            return
        known.member_epoch = self.assignment_epoch
        known.assigned = {**keep, **dict.fromkeys(free, self.assignment_epoch)}
        known.revoking, known.revoke_by = {}, None
        known.state = "STABLE" if free == wanted else "UNRELEASED"

    def commit(self, request: m.OffsetCommitRequest, now: float) -> m.OffsetCommitResponse:
        self.expire(now)
        code = self._fence(request.member_id, request.member_epoch, set(request.offsets))
        errors: dict[Key, int] = {}
        for key, each in request.offsets.items():
            errors[key] = code
            if key.topic_id not in self.topics:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_ID
            elif code == ErrorCode.NONE:
                self.on_commit(request.member_id, key, each.committed_offset)
                self.committed[key] = each
        return m.OffsetCommitResponse(errors=errors)

    def _fence(self, member_id: str, member_epoch: int, keys: set[Key]) -> int:
        known = self.members.get(member_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == known.member_epoch:
            return ErrorCode.NONE
        given = {**known.revoking, **known.assigned}
        if member_epoch > known.member_epoch or not self.profile.relaxed_commit:
            return ErrorCode.STALE_MEMBER_EPOCH
        kept = all(key in given and given[key] <= member_epoch for key in keys)
        return ErrorCode.NONE if kept else ErrorCode.STALE_MEMBER_EPOCH

    def fetch(self, request: m.OffsetFetchRequest, now: float) -> m.OffsetFetchResponse:
        self.expire(now)
        known = self.members.get(request.member_id or "")
        if known is None:
            return m.OffsetFetchResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if known.member_epoch != request.member_epoch:
            return m.OffsetFetchResponse(error_code=ErrorCode.STALE_MEMBER_EPOCH)
        none = m.OffsetAndMetadata(-1)
        gone = {key for key in request.partitions if key.topic_id not in self.topics}
        return m.OffsetFetchResponse(
            offsets={key: self.committed.get(key, none) for key in request.partitions - gone},
            errors=dict.fromkeys(gone, int(ErrorCode.UNKNOWN_TOPIC_ID)),
        )

    def describe(self, now: float) -> m.DescribeGroupResponse:
        self.expire(now)
        return m.DescribeGroupResponse(
            group_state=self.state(),
            group_epoch=self.group_epoch,
            assignment_epoch=self.assignment_epoch,
            members=tuple(
                m.DescribedMember(
                    member_id=each.member_id,
                    member_epoch=each.member_epoch,
                    assignment=Assignment(frozenset(each.assigned)),
                    target_assignment=Assignment(frozenset(self.target.get(each.member_id, set()))),
                )
                for each in self.members.values()
            ),
        )

    def _bump(self) -> None:
        self.group_epoch += 1 if self.group_epoch else self.profile.first_epoch

    def _remove(self, member_id: str, reason: str) -> None:
        del self.members[member_id]
        self.target.pop(member_id, None)
        self.removed[member_id] = reason
        self._bump()

    def _assign(self, now: float) -> None:
        """Sticky and balanced: nobody has two partitions more than another."""
        keys = self.partitions()
        ids = list(self.members)
        kept: dict[str, list[Key]] = {
            each: sorted(self.target.get(each, set()) & set(keys)) for each in ids
        }
        quota = dict.fromkeys(ids, len(keys) // len(ids))
        for each in sorted(ids, key=lambda each: -len(kept[each]))[: len(keys) % len(ids)]:
            quota[each] += 1
        target = {each: set(kept[each][: quota[each]]) for each in ids}
        free: Iterable[Key] = (key for key in keys if not any(key in t for t in target.values()))
        for key in list(free):
            target[next(each for each in ids if len(target[each]) < quota[each])].add(key)
        self.target = target
        self.assignment_epoch = self.group_epoch
        self._assigned_at = now
