"""What a client asks next on each lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_groups.client.answers import Answers
from spark_groups.client.deletions import DeletionWatch
from spark_groups.client.lanes import Lane, Outgoing
from spark_groups.client.parts import Parts
from spark_groups.errors import ErrorCode
from spark_groups.offsets.commits import commit_request
from spark_groups.offsets.events import RequestUnanswered
from spark_groups.protocol.membership import MemberState
from spark_groups.protocol.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    DescribeGroupRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GroupSettingsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    Request,
    RequestFailed,
    Response,
)
from spark_groups.types import TopicIdPartition

_MAY_COMMIT: Final = (
    MemberState.STABLE,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
    MemberState.PREPARE_LEAVING,
)
_SILENT: Final = (MemberState.UNSUBSCRIBED, MemberState.FATAL)
_LOOKS_AROUND: Final = (
    MemberState.JOINING,
    MemberState.STABLE,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
    MemberState.FENCED,
)


class Exchange:
    """Keeps at most one request on each lane under way.

    Args:
        parts: What the client is made of.
    """

    def __init__(self, parts: Parts) -> None:
        self.failing_since: float | None = None
        """Since when the group cannot be reached, None while heartbeats are accepted."""
        self.last_failure = ""
        self._parts = parts
        self._answers = Answers(parts)
        self._deletions = DeletionWatch(parts.ledger, parts.topics, parts.unread_left)
        self._under_way: dict[Lane, float] = {}
        """Since when a request is under way on a lane."""
        self._turn = 0
        self._questions: tuple[Callable[[float], Request | None], ...] = (
            parts.absent.to_ask,
            lambda _: self._ask_for_topics(),
            lambda _: parts.resolver.to_list(),
            lambda _: parts.validator.to_ask(),
            lambda _: parts.validator.to_list(),
            lambda _: self._deletions.to_ask(),
        )
        self._lanes = tuple(
            (lane, lane.leads_to_coordinator, next_request)
            for lane, next_request in (
                (Lane.SEARCH, self._next_search),
                (Lane.CLUSTER, self._next_of_cluster),
                (Lane.HEARTBEAT, self._next_heartbeat),
                (Lane.OFFSETS, self._next_of_offsets),
            )
        )

    def poll(self, now: float) -> list[Outgoing]:
        """Return the requests to send now, at most one for each lane that is free."""
        parts = self._parts
        parts.tally.follow(parts.member.state, now, has_uncommitted=parts.commits.is_pending)
        self._deletions.look()
        outgoing = []
        for lane, leads_to_coordinator, next_request in self._lanes:
            if lane in self._under_way or (leads_to_coordinator and parts.coordinator is None):
                continue
            request = next_request(now)
            if request is None:
                continue
            node = parts.coordinator if leads_to_coordinator else None
            self._under_way[lane] = now
            outgoing.append(Outgoing(lane, request, node))
        return outgoing

    def handle_response(self, outgoing: Outgoing, response: Response, now: float) -> None:
        """Take the answer to a request of `poll`."""
        sent_at = self._under_way.pop(outgoing.lane, None)
        if sent_at is None:
            return
        self._parts.tally.answered(outgoing.request, response, now - sent_at, now)
        self._note_way_to_the_group(outgoing.request, response, now)
        if isinstance(outgoing.request, MetadataRequest) and isinstance(response, MetadataResponse):
            self._parts.absent.handle_metadata(outgoing.request, response, now)
            deleted = self._deletions.handle_metadata(outgoing.request, response, now)
            self._parts.events.extend(deleted)
        self._answers.handle(outgoing.request, response, now)

    def handle_failure(self, outgoing: Outgoing, failed: RequestFailed, now: float) -> None:
        """Take it that a request of `poll` got no answer."""
        if self._under_way.pop(outgoing.lane, None) is None:
            return
        self._parts.tally.unanswered(outgoing.request)
        if self.failing_since is None:
            self.failing_since = now
        self.last_failure = failed.reason
        name = type(outgoing.request).__name__
        self._parts.events.append(RequestUnanswered(now, name, failed.reason))
        if outgoing.lane is Lane.HEARTBEAT:
            self._count_the_wait_anew()
        if outgoing.lane is Lane.HEARTBEAT and outgoing.node == self._parts.coordinator:
            self._parts.coordinator = None
        elif outgoing.lane is Lane.OFFSETS:
            # One connection may hang alone: a heartbeat tells at once whether the coordinator is
            # there, and need not wait until it was looked for.
            self._parts.member.pace.at_once(now)
        self._ask_again_later(outgoing.request, failed, now)

    def _ask_again_later(self, request: Request, failed: RequestFailed, now: float) -> None:
        match request:
            case _ if self._parts.pending.asked_for(request):
                self._parts.pending.unanswered(request)
            case HeartbeatRequest() if self._parts.releases.is_one(request):
                self._parts.lookup_backoff.failed(now)
            case HeartbeatRequest():
                self._parts.member.handle_failure(now)
                is_join = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
                if is_join and request.instance_id is not None and failed.may_have_arrived:
                    # The coordinator may keep the instance id for it, and then for nobody else:
                    # it refuses the same join until that is released, or its session is over.
                    self._parts.releases.add(request.member_id)
            case OffsetCommitRequest():
                self._parts.commits.handle_failure(now, may_have_arrived=failed.may_have_arrived)
            case OffsetFetchRequest():
                self._parts.fetch_backoff.failed(now)
            case DescribeGroupRequest():
                self._parts.target.unanswered(now)
            case FindCoordinatorRequest():
                self._parts.lookup_backoff.failed(now)
            case GroupSettingsRequest():
                self._parts.settings.unanswered(now)
            case MetadataRequest() | ListOffsetsRequest() | OffsetForLeaderEpochRequest():
                self._parts.cluster_backoff.failed(now)

    def _note_way_to_the_group(self, request: Request, response: Response, now: float) -> None:
        """Only an accepted heartbeat proves the way; other brokers may answer all the while."""
        if not isinstance(response, HeartbeatResponse | FindCoordinatorResponse):
            return
        if response.error_code != ErrorCode.NONE:
            if self.failing_since is None:
                self.failing_since = now
            if response.error_code != ErrorCode.UNRELEASED_INSTANCE_ID:
                self._count_the_wait_anew()
            name = ErrorCode.name_of(response.error_code)
            self.last_failure = f"{type(request).__name__} was answered {name}"
        elif isinstance(response, HeartbeatResponse):
            self.failing_since = None

    def is_news_near(self, since: float) -> bool:
        """Tell whether a plan made now would be outdated in a moment.

        Args:
            since: What began before is not waited for, in seconds.
        """
        sent_at = self._parts.member.pace.last_sent_at
        if Lane.HEARTBEAT in self._under_way and sent_at is not None and sent_at >= since:
            return True
        return self._parts.assigned_at >= since and bool(self._parts.ledger.unready())

    def _count_the_wait_anew(self) -> None:
        """A coordinator that failed over gives whoever holds an instance id a whole session again.

        Only refusals without a break say that the holder lives (KIP-848, "Fail Over").
        """
        self._parts.member.instance_wait.ended()

    def next_wakeup(self, now: float) -> float | None:
        """Return when to poll again although no answer came."""
        parts = self._parts
        next_at: float | None = None
        for due_at in (
            parts.member.next_wakeup(),
            parts.commits.next_wakeup(),
            parts.target.due_at(),
            parts.settings.due_at(),
            parts.lookup_backoff.not_before,
            parts.cluster_backoff.not_before,
            parts.absent.due_at(),
            parts.fetch_backoff.not_before,
        ):
            if due_at is not None and due_at > now and (next_at is None or due_at < next_at):
                next_at = due_at
        return next_at

    def _next_search(self, now: float) -> Request | None:
        parts = self._parts
        if parts.coordinator is not None or parts.member.state in _SILENT:
            return None
        if now < parts.lookup_backoff.not_before:
            return None
        return FindCoordinatorRequest(group_id=parts.member.config.group_id)

    def _next_of_cluster(self, now: float) -> Request | None:
        parts = self._parts
        if parts.member.state not in _LOOKS_AROUND or now < parts.cluster_backoff.not_before:
            return None
        if parts.baseline_wanted:
            names = parts.member.config.subscription.topic_names
            return MetadataRequest(topic_names=frozenset(names))
        request = None if parts.must_fail else self._next_question(now)
        return request or self._settings_question(now) or parts.pending.to_list()

    def _next_question(self, now: float) -> Request | None:
        # What cannot be answered must not keep the rest from being asked: they take turns.
        first = self._turn % len(self._questions)
        for question in (*self._questions[first:], *self._questions[:first]):
            request = question(now)
            if request is not None:
                self._turn = self._questions.index(question) + 1
                return request
        return None

    def _ask_for_topics(self) -> Request | None:
        unknown = self._parts.topics.unknown(self._parts.ledger.topic_ids())
        return MetadataRequest(topic_ids=unknown) if unknown else None

    def _settings_question(self, now: float) -> Request | None:
        """Nobody waits for the settings: they are asked for when there is nothing else to ask."""
        due_at = self._parts.settings.due_at()
        if due_at is None or due_at > now or self._parts.coordinator is None:
            return None
        self._parts.settings.asked()
        return GroupSettingsRequest(group_id=self._parts.member.config.group_id)

    def _next_heartbeat(self, now: float) -> Request | None:
        member, releases = self._parts.member, self._parts.releases
        for abandoned_id in member.abandoned_ids:
            releases.add(abandoned_id)
        member.abandoned_ids.clear()
        if not releases or member.state in _SILENT:
            return member.poll_heartbeat(now)
        return releases.next_request()

    def _next_of_offsets(self, now: float) -> Request | None:
        parts, member = self._parts, self._parts.member
        if member.state in _MAY_COMMIT and member.member_epoch > 0:
            chosen = parts.commits.poll(
                now,
                member_epoch=member.member_epoch,
                proven_at=member.last_accepted_sent_at,
                tenure=parts.ledger.tenure,
            )
            if chosen:
                return commit_request(
                    chosen,
                    group_id=member.config.group_id,
                    member_id=member.member_id,
                    instance_id=member.config.instance_id,
                )
            wanted = self._to_fetch(now)
            if wanted:
                return OffsetFetchRequest(
                    group_id=member.config.group_id,
                    member_id=member.member_id,
                    member_epoch=member.member_epoch,
                    partitions=wanted,
                )
        due_at = parts.target.due_at()
        if member.state in _LOOKS_AROUND and due_at is not None and due_at <= now:
            parts.target.asked(now)
            return DescribeGroupRequest(group_id=member.config.group_id)
        # What is only shown comes last.
        if member.state not in _MAY_COMMIT or member.member_epoch <= 0:
            return None
        return parts.pending.to_fetch(
            group_id=member.config.group_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
        )

    def _to_fetch(self, now: float) -> frozenset[TopicIdPartition]:
        if now < self._parts.fetch_backoff.not_before:
            return frozenset()
        if self._parts.fetch_after_heartbeat is not None:
            proven_at = self._parts.member.last_accepted_sent_at
            if proven_at is None or proven_at < self._parts.fetch_after_heartbeat:
                return frozenset()
            self._parts.fetch_after_heartbeat = None
        unverified = self._parts.commits.unverified()
        if self._parts.must_fail:
            return unverified
        return self._parts.resolver.to_fetch() | unverified
