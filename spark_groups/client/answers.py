"""What each answer means to the parts of a client."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_groups.client.parts import Parts
from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.offsets.events import (
    CommitRefused,
    CoordinatorFound,
    CoordinatorMissing,
    DescriptionRefused,
    OffsetsCommitted,
    TopicGone,
    TopicRecreated,
    TopicsMissing,
)
from spark_groups.offsets.resolution import Resolved
from spark_groups.protocol.events import (
    Event,
    SessionTimeoutKnown,
    SessionTooShort,
    SettingsUnknown,
)
from spark_groups.protocol.membership import MemberState
from spark_groups.protocol.messages import (
    DescribeGroupRequest,
    DescribeGroupResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GroupSettingsRequest,
    GroupSettingsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    Request,
    Response,
)
from spark_groups.protocol.rights import remedy_of
from spark_groups.types import TopicIdPartition


class Answers:
    """Takes answers; the reactions are those of the one error table.

    Args:
        parts: What the client is made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def handle(self, request: Request, response: Response, now: float) -> None:
        """Take the answer to a request.

        Args:
            request: What was asked.
            response: The answer; of the request's kind.
            now: Seconds.
        """
        pending = self._parts.pending
        match request, response:
            case OffsetFetchRequest(), OffsetFetchResponse() if pending.asked_for(request):
                self._parts.events.extend(pending.handle_fetch(response, now))
            case ListOffsetsRequest(), ListOffsetsResponse() if pending.asked_for(request):
                self._parts.events.extend(pending.handle_list(response, now))
            case HeartbeatRequest(), HeartbeatResponse():
                self._heartbeat_answered(request, response, now)
            case OffsetCommitRequest(), OffsetCommitResponse():
                self._commit_answered(request, response, now)
            case OffsetFetchRequest(), OffsetFetchResponse():
                self._fetch_answered(request, response, now)
            case DescribeGroupRequest(), DescribeGroupResponse():
                self._described(response, now)
            case FindCoordinatorRequest(), FindCoordinatorResponse():
                self._coordinator_found(response, now)
            case GroupSettingsRequest(), GroupSettingsResponse():
                self._settings_read(request, response, now)
            case MetadataRequest(), MetadataResponse():
                self._metadata_answered(request, response, now)
            case ListOffsetsRequest(), ListOffsetsResponse():
                self._offsets_listed(request, response, now)
            case OffsetForLeaderEpochRequest(), OffsetForLeaderEpochResponse():
                resolved = self._parts.validator.handle_ends(request, response, now)
                self._leaders_answered(resolved, "OffsetForLeaderEpoch", now)
            case _:
                raise TypeError(f"{type(response).__name__} is no answer to {request}")

    def _heartbeat_answered(
        self, request: HeartbeatRequest, response: HeartbeatResponse, now: float
    ) -> None:
        if self._parts.releases.is_one(request):
            if self._parts.releases.answered(request, response) is not Reaction.ACCEPT:
                self._parts.lookup_backoff.failed(now)
                self._parts.coordinator = None
            return
        reaction = rule_for(response.error_code).heartbeat
        self._parts.member.handle_response(response, now)
        if reaction is Reaction.ACCEPT:
            self._parts.settings.follow(self._parts.member.pace.interval_s, now)
        if reaction is Reaction.REDISCOVER:
            self._parts.coordinator = None

    def _commit_answered(
        self, request: OffsetCommitRequest, response: OffsetCommitResponse, now: float
    ) -> None:
        parts = self._parts
        outcome = parts.commits.handle_response(response, now)
        parts.take(parts.resolver.settled(outcome.accepted, now))
        if outcome.accepted:
            self._emit(OffsetsCommitted(now, request.member_epoch, len(outcome.accepted)))
        if outcome.gone:
            for each in outcome.gone:
                parts.resolver.unsettled(each)
            parts.fetch_backoff.failed(now)
            self._emit(TopicGone(now, tuple(each.key for each in outcome.gone)))
        if outcome.refused:
            refusal = ErrorCode.name_of(outcome.refusal)
            self._emit(CommitRefused(now, refusal, outcome.refused))
            parts.member.pace.at_once(now)
        if request.member_id == parts.member.member_id:
            denied = self._denied(response.errors)
            self._react(outcome.reaction, int(outcome.error), "OffsetCommit", now, denied)

    def _fetch_answered(
        self, request: OffsetFetchRequest, response: OffsetFetchResponse, now: float
    ) -> None:
        parts = self._parts
        if request.member_id != parts.member.member_id:
            return
        if response.error_code == ErrorCode.NONE:
            unverified = self._verify(request, response, now)
            resolved = parts.resolver.handle_fetch(
                response, member_epoch=request.member_epoch, now=now
            )
            resolved.react(unverified.reaction, unverified.error)
        else:
            reaction = rule_for(response.error_code).offsets
            resolved = Resolved(reaction=reaction, error=response.error_code)
        self._parts.take(resolved)
        if resolved.reaction is Reaction.ACCEPT:
            self._parts.fetch_backoff.succeeded()
        else:
            self._parts.fetch_backoff.failed(now)
        if resolved.reaction is Reaction.REFRESH_EPOCH:
            self._parts.fetch_after_heartbeat = now
            parts.member.pace.at_once(now)
        denied = self._denied(response.errors)
        self._react(resolved.reaction, resolved.error, "OffsetFetch", now, denied)

    def _verify(
        self, request: OffsetFetchRequest, response: OffsetFetchResponse, now: float
    ) -> Resolved:
        """Take what is shown for commits whose answers were lost."""
        commits, resolved = self._parts.commits, Resolved()
        for key in commits.unverified() & request.partitions:
            if key in response.offsets:
                stands = commits.verified(key, response.offsets[key].committed_offset)
                if stands is not None:
                    self._parts.take(self._parts.resolver.settled([stands], now))
                continue
            code = response.errors.get(key, int(ErrorCode.UNKNOWN_SERVER_ERROR))
            reaction = rule_for(code).offsets
            if reaction is Reaction.DROP_TOPIC:
                commits.drop([key])
                self._emit(TopicGone(now, (key,)))
            else:
                resolved.react(reaction, code)
        return resolved

    def _described(self, response: DescribeGroupResponse, now: float) -> None:
        parts, member = self._parts, self._parts.member
        refusal = parts.target.refusal
        more = parts.target.handle_response(
            response,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            owned=member.owned,
            now=now,
        )
        if parts.target.refusal not in (refusal, ErrorCode.NONE):
            self._emit(DescriptionRefused(now, ErrorCode.name_of(parts.target.refusal)))
        if more is not None:
            pending = parts.target.pending - member.owned
            names = {
                each.topic_id: parts.topics.name(each.topic_id)
                or response.topic_names.get(each.topic_id, str(each.topic_id))
                for each in pending
            }
            parts.pending.refresh(pending, names, now)
        if more and parts.target.untold:
            member.report_in_full(now)
        if more is not None and member.state is not MemberState.JOINING:
            member.pace.expect(now, more=more)
        self._end_first_sight()
        if response.error_code == ErrorCode.NOT_COORDINATOR:
            self._parts.coordinator = None

    def _end_first_sight(self) -> None:
        """What is subscribed at the beginning is known once all that was assigned has a name.

        Where nobody may say that this is all, the first assignment is taken for it: to begin what
        comes later at its beginning loses nothing.
        """
        parts = self._parts
        owned_topics = parts.ledger.topic_ids()
        has_all = parts.target.settled(parts.member.member_epoch)
        if (
            (has_all or (parts.target.is_refused and owned_topics))
            and not parts.baseline_wanted
            and not parts.topics.unknown(owned_topics)
        ):
            parts.topics.end_first_sight()

    def _coordinator_found(self, response: FindCoordinatorResponse, now: float) -> None:
        if response.coordinator is not None and response.error_code == ErrorCode.NONE:
            self._parts.coordinator = response.coordinator
            self._parts.lookup_backoff.succeeded()
            self._parts.lookup_error = int(ErrorCode.NONE)
            self._emit(CoordinatorFound(now, str(response.coordinator)))
            return
        self._parts.lookup_backoff.failed(now)
        if response.error_code != self._parts.lookup_error:
            self._parts.lookup_error = response.error_code
            self._emit(CoordinatorMissing(now, ErrorCode.name_of(response.error_code)))
        self._react(
            rule_for(response.error_code).lookup, response.error_code, "FindCoordinator", now
        )

    def _settings_read(
        self, request: GroupSettingsRequest, response: GroupSettingsResponse, now: float
    ) -> None:
        settings, member = self._parts.settings, self._parts.member
        if not settings.handle_response(response, now):
            return
        who = (now, member.member_id, member.member_epoch)
        if settings.session_timeout_ms is None:
            self._emit(SettingsUnknown(*who, settings.reason))
            return
        member.session_timeout_ms = settings.session_timeout_ms
        self._emit(SessionTimeoutKnown(*who, settings.session_timeout_ms))
        command = settings.command_for_restart(
            request.group_id, member.config.restart_s if member.config.instance_id else None
        )
        if command is not None and member.config.restart_s is not None:
            restart_s = member.config.restart_s
            self._emit(SessionTooShort(*who, settings.session_timeout_ms, restart_s, command))

    def _metadata_answered(
        self, request: MetadataRequest, response: MetadataResponse, now: float
    ) -> None:
        topics = self._parts.topics
        for topic in response.topics:
            old_id = topics.learn(topic)
            if old_id is not None:
                left = self._parts.unread_left
                old = [key for key in left if key.topic_id == old_id]
                unread = sum(left.pop(key) for key in old)
                self._emit(TopicRecreated(now, topic.name, old_id, topic.topic_id, unread))
        for name, code in response.errors.items():
            reaction = rule_for(code).lookup
            if reaction is Reaction.FAIL:
                self._react(reaction, code, "Metadata", now, [name])
                return
        if (
            self._parts.baseline_wanted
            and not response.errors
            and request.topic_names == frozenset(self._parts.member.config.subscription.topic_names)
        ):
            self._parts.baseline_wanted = False
            missing = request.topic_names - {topic.name for topic in response.topics}
            topics.saw_absent(missing)
            if missing:
                self._emit(TopicsMissing(now, tuple(sorted(missing))))
        self._end_first_sight()
        unknown = topics.unknown(request.topic_ids)
        there = {topic.topic_id for topic in response.topics}
        self._parts.ledger.note_topics(there=there, gone=unknown)
        if response.errors or unknown:
            self._parts.cluster_backoff.failed(now)
        else:
            self._parts.cluster_backoff.succeeded()

    def _offsets_listed(
        self, request: ListOffsetsRequest, response: ListOffsetsResponse, now: float
    ) -> None:
        member_epoch = self._parts.member.member_epoch
        if self._parts.validator.asked_for(request):
            resolved = self._parts.validator.handle_list(response)
        else:
            resolved = self._parts.resolver.handle_list(
                request, response, member_epoch=member_epoch, now=now
            )
        self._leaders_answered(resolved, "ListOffsets", now)

    def _leaders_answered(self, resolved: Resolved, request: str, now: float) -> None:
        self._parts.take(resolved)
        if resolved.reaction is Reaction.ACCEPT:
            self._parts.cluster_backoff.succeeded()
        else:
            self._parts.cluster_backoff.failed(now)
        self._react(resolved.reaction, resolved.error, request, now)

    def _denied(self, errors: Mapping[TopicIdPartition, int]) -> set[str]:
        """Return the topics that nobody gave us a right on."""
        return {
            self._parts.topics.name(key.topic_id) or str(key.topic_id)
            for key, code in errors.items()
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        }

    def _react(
        self,
        reaction: Reaction,
        code: int,
        request: str,
        now: float,
        denied: Collection[str] = (),
    ) -> None:
        """Do what an error asks for; `denied` are topics that it is known to be about."""
        name = ErrorCode.name_of(code)
        if denied:
            request = f"{request} of topic {', '.join(sorted(denied))}"
        if reaction is Reaction.REDISCOVER:
            self._parts.coordinator = None
        elif reaction in (Reaction.REJOIN_SAME_ID, Reaction.REJOIN_NEW_ID):
            self._parts.member.lose(
                f"{name} (answer to {request})",
                now,
                new_id=reaction is Reaction.REJOIN_NEW_ID,
            )
        elif reaction is Reaction.FAIL:
            config = self._parts.member.config
            remedy = remedy_of(
                code,
                config.identity,
                group_id=config.group_id,
                topics=denied or config.subscription.topic_names,
            )
            self._parts.member.fail(f"{name} (answer to {request}): {remedy}", now)

    def _emit(self, event: Event) -> None:
        self._parts.events.append(event)
