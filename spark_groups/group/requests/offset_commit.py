"""OffsetCommit: offsets of finished batches, with the member epoch of their plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from spark_groups.errors import ErrorCode
from spark_groups.group.ledger.commits import commit_request
from spark_groups.group.ledger.events import CommitRefused, OffsetsCommitted, TopicGone
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    RequestFailed,
)
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.types import TopicIdPartition


@dataclass(slots=True)
class OffsetCommits:
    """Sends pending commits while the member is in the group."""

    first_wait_s: ClassVar = inf

    positions: Positions
    coordinator: Coordinator
    fetch_pause: Backoff

    def next_request(self, now: float) -> OffsetCommitRequest | None:
        """Commit pending offsets of one member epoch."""
        positions, member = self.positions, self.positions.member
        if not member.may_commit:
            return None
        chosen = positions.commits.poll(
            now,
            member_epoch=member.member_epoch,
            proven_at=member.last_accepted_sent_at,
            tenure=positions.ledger.tenure,
        )
        if not chosen:
            return None
        return commit_request(
            chosen,
            group_id=member.config.group_id,
            member_id=member.member_id,
            instance_id=member.config.instance_id,
        )

    def answered(
        self, request: OffsetCommitRequest, response: OffsetCommitResponse, now: float
    ) -> None:
        """Note accepted offsets; refused ones wait for a heartbeat."""
        positions = self.positions
        outcome = positions.commits.handle_response(response, now)
        positions.take(positions.resolver.committed(outcome.accepted, now))
        if outcome.accepted:
            positions.emit(OffsetsCommitted(now, request.member_epoch, len(outcome.accepted)))
        if outcome.gone:
            for each in outcome.gone:
                positions.resolver.dropped(each)
            self.fetch_pause.failed(now)
            positions.emit(TopicGone(now, tuple(each.key for each in outcome.gone)))
        if outcome.refused:
            refusal = ErrorCode.name_of(outcome.refusal)
            positions.emit(CommitRefused(now, refusal, outcome.refused))
            positions.member.pace.at_once(now)
        refused = {key: code for key, code in response.errors.items() if code != ErrorCode.NONE}
        positions.failed("OffsetCommit", refused, now)
        if request.member_id == positions.member.member_id:
            denied = denied_topics(response.errors, positions.topics)
            self.coordinator.react(
                outcome.reaction, int(outcome.error), "OffsetCommit", now, denied
            )

    def failed(self, _request: OffsetCommitRequest, failure: RequestFailed, now: float) -> None:
        """Send it again, and verify the offsets if the request may have arrived."""
        self.positions.member.pace.at_once(now)
        self.positions.commits.handle_failure(now, may_have_arrived=failure.may_have_arrived)


def denied_topics(errors: Mapping[TopicIdPartition, int], topics: TopicDirectory) -> set[str]:
    """Return the names of topics that this principal has no right on."""
    return {
        topics.name(key.topic_id) or str(key.topic_id)
        for key, code in errors.items()
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }
