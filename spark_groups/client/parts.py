"""What a client is made of, shared by those who decide about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_groups.client.absent import AbsentTopics
from spark_groups.client.pending import PendingWatch
from spark_groups.client.releases import Releases
from spark_groups.client.settings import SettingsWatch
from spark_groups.client.tally import Tally
from spark_groups.client.target import TargetWatch
from spark_groups.offsets.commits import CommitQueue
from spark_groups.offsets.known_topics import TopicDirectory
from spark_groups.offsets.ledger import Ledger
from spark_groups.offsets.resolution import PositionResolver, Resolved
from spark_groups.offsets.validation import PositionValidator
from spark_groups.protocol.backoff import Backoff
from spark_groups.protocol.events import Event
from spark_groups.protocol.member import Member
from spark_groups.protocol.messages import Node
from spark_groups.types import TopicIdPartition


@dataclass(slots=True)
class Parts:
    """The state of one client.

    Args:
        member: The heartbeat state machine.
        ledger: Ownership, positions and batches.
        commits: Pending offset commits.
        topics: Names and partition counts.
        resolver: Moves assigned partitions to where they may be planned.
        validator: Finds out whether logs still have what was read of them.
        target: Whether more is to come.
        releases: Member ids of earlier incarnations to be released before the member joins.
        settings: The group's settings.
        pending: What waits in partitions that are not released yet.
        absent: Topics that are subscribed and do not exist.
        tally: What was done so far, counted.
        coordinator: The group's coordinator, None while it is looked for.
        baseline_wanted: True until it is known which subscribed topics exist at the beginning.
        fetch_after_heartbeat: OffsetFetch waits for a heartbeat sent after this instant.
        lookup_backoff: Pause before the coordinator is looked for again.
        cluster_backoff: Pause before metadata or log offsets are asked for again.
        fetch_backoff: Pause before committed offsets are asked for again.
        assigned_at: When partitions came last.
        events: What happened and was not polled yet.
        unread_left: Rows left unread in partitions when they were dropped.
        lookup_error: What the last search for the coordinator was answered with.
        data_loss: Why the query must fail because of lost offsets, if it must.
        refusal: Why the query must fail because of its checkpoint, if it must.
    """

    member: Member
    ledger: Ledger
    commits: CommitQueue
    topics: TopicDirectory
    resolver: PositionResolver
    validator: PositionValidator
    target: TargetWatch
    releases: Releases
    settings: SettingsWatch
    pending: PendingWatch = field(default_factory=PendingWatch)
    absent: AbsentTopics = field(default_factory=AbsentTopics)
    tally: Tally = field(default_factory=Tally)
    coordinator: Node | None = None
    baseline_wanted: bool = True
    fetch_after_heartbeat: float | None = None
    lookup_backoff: Backoff = field(default_factory=Backoff)
    cluster_backoff: Backoff = field(default_factory=Backoff)
    fetch_backoff: Backoff = field(default_factory=Backoff)
    assigned_at: float = float("-inf")
    events: list[Event] = field(default_factory=list)
    unread_left: dict[TopicIdPartition, int] = field(default_factory=dict)
    lookup_error: int = 0
    data_loss: str | None = None
    refusal: str | None = None

    @property
    def must_fail(self) -> bool:
        """Whether the query is about to fail: asking for the same again tells nothing new."""
        return self.data_loss is not None or self.refusal is not None

    def poll_events(self) -> list[Event]:
        """Count and return what happened since the last call, and forget it."""
        events, self.events = self.events, []
        for each in events:
            self.tally.happened(each)
        return events

    def take(self, resolved: Resolved) -> None:
        """Take what an answer decided about positions.

        A position that moved back is committed at once: the offset that stands has lost its
        meaning, and whoever comes next could no longer tell.
        """
        self.events.extend(resolved.events)
        if resolved.data_loss is not None:
            self.data_loss = resolved.data_loss
        if resolved.refusal is not None:
            self.refusal = resolved.refusal
        self.commits.add(
            self.ledger.commit_of_position(key, self.member.member_epoch)
            for key in resolved.to_commit
        )
