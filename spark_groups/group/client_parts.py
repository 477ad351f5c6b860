"""The parts of a client, built in the order of their dependencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_groups.group.batches.available_now import AvailableNowEnd
from spark_groups.group.batches.liveness import Liveness, QueryActivity
from spark_groups.group.batches.next_batch import NextBatch
from spark_groups.group.batches.planner import BatchPlanner
from spark_groups.group.batches.revocation import Revocation
from spark_groups.group.batches.warm_up import WarmUp
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.ledger.commits import CommitQueue
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import Ledger
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.ledger.resolution import PositionResolver
from spark_groups.group.ledger.truncation import PositionValidator
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.events import Event
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_states import ACTIVE, MemberState
from spark_groups.group.metrics import Metrics
from spark_groups.group.requests.channels import Asked, Channel, Channels, InTurn, in_order
from spark_groups.group.requests.describe import (
    Descriptions,
    PendingFetch,
    PendingOffsets,
    TargetAssignment,
)
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.group.requests.heartbeat import Heartbeats, Releases
from spark_groups.group.requests.list_offsets import DoubtedEnds, LeaderEpochs, StartOffsets
from spark_groups.group.requests.log_ends import LogEnds
from spark_groups.group.requests.metadata import AbsentTopics, DeletedTopics, TopicNames
from spark_groups.group.requests.offset_commit import OffsetCommits
from spark_groups.group.requests.offset_fetch import OffsetFetches
from spark_groups.group.requests.open_requests import OpenRequests
from spark_groups.group.requests.record_samples import RecordSamples
from spark_groups.group.requests.settings import GroupSettings, SessionTimeout
from spark_groups.types import BatchPlan

_LOOKING_UP: Final = (MemberState.WARMING_UP, *ACTIVE)


class ClientParts:
    """A member, its ledger, its requests and its batches; each part needs only those above it.

    Args:
        new_member_id: Returns a new member id (a UUID) with each call.
        checkpointed: The last plan in Spark's checkpoint; if it is of this group, the member that
            it names is released first.
        warm_up_tasks: How many tasks warm this run up before it joins, if other members read
            meanwhile; 0: it joins at once.

    Attributes:
        events: The events that were not polled yet.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        new_member_id: Callable[[], str],
        checkpointed: BatchPlan | None = None,
        warm_up_tasks: int = 0,
    ) -> None:
        self.config, self.metrics = config, Metrics()
        self.open_requests = OpenRequests(config.request_timeout_s)
        self.events: list[Event] = []
        emit = self.events.append
        # The member and its ledger.
        self.member = Member(config.member, new_member_id)
        self.ledger, self.commits = Ledger(run_id=self.member.member_id), CommitQueue()
        self.topics = TopicDirectory()
        self.resolver = PositionResolver(
            self.ledger,
            self.topics,
            config.starting_offsets,
            group_id=config.member.group_id,
            read_committed=config.read_committed,
            fail_on_data_loss=config.fail_on_data_loss,
            command_options=config.command_options,
        )
        self.validator = PositionValidator(self.ledger, self.topics, config.fail_on_data_loss)
        self.positions = Positions(
            self.member, self.ledger, self.commits, self.topics, self.resolver, self.validator, emit
        )
        # Requests that several others, or batches, need.
        self.search = Coordinator(self.member, emit)
        self.releases = Releases(self.member, self.search)
        self.session = SessionTimeout(config.member.session_timeout_ms)
        self.target, self.pending_offsets = TargetAssignment(), PendingOffsets()
        self.absent, self.deleted = AbsentTopics(), DeletedTopics(self.ledger, self.topics)
        self.cluster_pause, self.offsets_pause = Backoff(), Backoff()
        self.names = TopicNames(
            self.positions, self.target, self.absent, self.deleted, self.search, self.cluster_pause
        )
        self.log_ends = LogEnds(
            self.positions, self.pending_offsets, read_committed=config.read_committed
        )
        self.samples = RecordSamples(self.positions, read_committed=config.read_committed)
        # Batches.
        self.warm_up = WarmUp(
            self.member, self.search, self.releases, self.names, emit, warm_up_tasks, checkpointed
        )
        self.planner = BatchPlanner(self.positions, self.warm_up)
        self.revocation = Revocation(self.positions)
        self.next_batch = NextBatch(
            self.positions,
            self.planner,
            self.log_ends,
            self.target,
            self.pending_offsets,
            self.session,
            self.revocation.budget,
        )
        self.liveness = Liveness(self.member, self.ledger, QueryActivity(config.liveness), emit)
        self.available_now = AvailableNowEnd(
            config.available_now_wait, self.next_batch, self.absent
        )
        self.channels = _channels(self)


def _channels(parts: ClientParts) -> Channels:
    """Return the five channels: which requests each sends, and in which order."""
    member, positions, search = parts.member, parts.positions, parts.search
    own = Heartbeats(member, search, parts.releases, parts.session)
    return Channels(
        {
            Channel.SEARCH: in_order(search),
            Channel.CLUSTER: _cluster_requests(parts),
            Channel.HEARTBEAT: in_order(parts.releases, own),
            Channel.OFFSETS: in_order(
                OffsetCommits(positions, search, parts.offsets_pause),
                OffsetFetches(positions, search, parts.offsets_pause),
                Descriptions(
                    positions,
                    parts.target,
                    parts.pending_offsets,
                    search,
                    parts.names.end_initial_topics,
                ),
                PendingFetch(positions, parts.pending_offsets),
                parts.warm_up,
            ),
            Channel.TRIGGER: in_order(parts.log_ends, parts.samples),
        },
        parts.open_requests,
    )


def _cluster_requests(parts: ClientParts) -> Callable[[float], Asked | None]:
    """Return a function that picks the next request to any broker; they share one backoff."""
    member, positions, search = parts.member, parts.positions, parts.search
    names, pause = parts.names, parts.cluster_pause
    starts = StartOffsets(positions, search, pause)
    epochs = LeaderEpochs(positions, search, pause)
    doubted = DoubtedEnds(positions, search, pause)
    in_turn = InTurn(
        (names, parts.absent.next_request),
        (names, names.next_request),
        (starts, starts.next_request),
        (epochs, epochs.next_request),
        (doubted, doubted.next_request),
        (names, parts.deleted.next_request),
    )
    last = in_order(GroupSettings(member, parts.session, search, positions.emit))
    before_leave = in_order(epochs, doubted)

    def next_request(now: float) -> Asked | None:
        if now < pause.not_before:
            return None
        if member.state is MemberState.PREPARE_LEAVING and positions.is_deciding:
            return before_leave(now)
        if member.state not in _LOOKING_UP:
            return None
        baseline = names.ask_baseline(now)
        if baseline is not None:
            return names, baseline
        if member.state is MemberState.WARMING_UP:
            return None
        asked = None if positions.must_fail else in_turn.next(now)
        return asked or last(now)

    return next_request
