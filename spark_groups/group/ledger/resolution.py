"""The starting position of each assigned partition.

An error never counts as "no committed offset". The starting position is committed before the
partition is planned or released, with the topic's partition count as metadata, so that a partition
added later starts at its beginning. If a group has committed offsets of a topic but that count is
unknown, every partition without an offset starts at its beginning: rows may be read twice, none is
skipped. Topics named in the checkpoint are treated alike, because their offsets may have been
deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_groups.errors import (
    CheckpointError,
    ErrorCode,
    OptionsError,
    Reaction,
    SparkGroupsError,
    is_graver,
    rule_for,
)
from spark_groups.group.ledger.commits import CommitQueue, PendingCommit
from spark_groups.group.ledger.events import (
    CheckpointOfAnotherGroup,
    DataLost,
    ExistingRowsSkipped,
    NewTopicRead,
    PartitionsReadFromBeginning,
    PartitionsStarted,
    PositionFound,
    RowsSinceSkipped,
)
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import Ledger, OwnedPartition, Phase
from spark_groups.group.ledger.marks import NO_MARK
from spark_groups.group.ledger.starting import (
    StartingOffsets,
    committed_topics,
    known_counts,
    mark_of,
    no_record,
    reset_command,
)
from spark_groups.group.member.events import Event
from spark_groups.group.member.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    UNANSWERED,
    Fetched,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetAndMetadata,
    OffsetFetchResponse,
    PartitionError,
    found_and_failed,
)
from spark_groups.types import TopicId, TopicIdPartition, TopicPartition


@dataclass(slots=True)
class Resolved:
    """What follows from an answer.

    Args:
        reaction: The gravest reaction, or ACCEPT.
        error: The Kafka error code behind that reaction.
        data_loss: Why the query must fail because offsets are lost, if it must.
        refusal: Why the query must fail because of its checkpoint or options, if it must.
        failed: Partitions that still wait, each with the error code that made it wait.
        to_commit: Partitions whose position must be committed.
    """

    reaction: Reaction = Reaction.ACCEPT
    error: int = int(ErrorCode.NONE)
    events: list[Event] = field(default_factory=list)
    data_loss: str | None = None
    refusal: SparkGroupsError | None = None
    failed: dict[TopicIdPartition, int] = field(default_factory=dict)
    to_commit: list[TopicIdPartition] = field(default_factory=list)

    def react(self, reaction: Reaction, error: int) -> None:
        """Keep the gravest reaction and its error code."""
        if is_graver(reaction, self.reaction):
            self.reaction, self.error = reaction, error


class PositionResolver:
    """Moves owned partitions from FETCHING to READY."""

    def __init__(
        self,
        ledger: Ledger,
        commits: CommitQueue,
        topics: TopicDirectory,
        starting: StartingOffsets,
        *,
        group_id: str,
        read_committed: bool,
        fail_on_data_loss: bool,
        command_options: str = "",
    ) -> None:
        self._ledger = ledger
        self._commits = commits
        self._topics = topics
        self._starting = starting
        self._group_id = group_id
        self._command_options = command_options
        self._read_committed = read_committed
        self._fail_on_data_loss = fail_on_data_loss
        self._asked: dict[TopicIdPartition, int] = {}
        """The tenure of each partition when it was asked for: older answers are ignored."""
        self._listed_last: tuple[int, bool] | None = None
        self._unusual_starts: dict[TopicIdPartition, type[PartitionsStarted]] = {}
        """The warning that is due once a partition has started, by partition."""
        self._read_before: set[TopicId] = set()
        """Topics whose committed offsets were fetched: the group has read them before."""
        self._former_group_id = ""
        self._former_topics: set[str] = set()
        """Topics that the checkpoint's group has read, and this group is not known to have read."""

    def came_from(self, former_group_id: str, topics: Iterable[str]) -> None:
        """Note that the checkpoint was written in another group, which read these topics."""
        self._former_group_id = former_group_id
        self._former_topics = set(topics)

    @property
    def has_unchecked_topics(self) -> bool:
        """True until the group is known to have read all topics of another group's checkpoint."""
        return bool(self._former_topics)

    @property
    def settle_first(self) -> bool:
        """True if a partition must not be released before its starting position is committed."""
        return self._starting.may_skip

    def to_fetch(self) -> frozenset[TopicIdPartition]:
        """Return the partitions for OffsetFetch, empty if none is due.

        If "latest" or a timestamp may apply, or the known count is missing, all partitions of a
        topic are fetched: the metadata of any committed offset has it. If the checkpoint is another
        group's, all partitions of its topics are fetched before anything is read. A query without a
        checkpoint also fetches those of all topics that it knows, until it finds an offset.
        """
        fetching = [
            key
            for key in self._ledger.in_phase(Phase.FETCHING)
            if self._topics.name(key.topic_id) is not None
        ]
        if not fetching:
            self._asked = {}
            return frozenset()
        self._asked = {key: self._ledger.owned[key].tenure for key in fetching}
        whole_topics = {key.topic_id for key in fetching if self._needs_whole_topic(key.topic_id)}
        whole_topics |= self._topics.ids_of(self._former_topics)
        if self.settle_first and not self._topics.has_checkpoint and not self._read_before:
            # Whether the group has read other topics decides about a warning.
            whole_topics |= self._topics.known_ids()
        return frozenset(fetching) | {
            TopicIdPartition(topic_id, each)
            for topic_id in whole_topics
            for each in range(self._topics.partition_count(topic_id))
        }

    def _needs_whole_topic(self, topic_id: TopicId) -> bool:
        return self.settle_first or self._topics.known_count(topic_id) is None

    def handle_fetch(
        self, response: OffsetFetchResponse, *, member_epoch: int, now: float
    ) -> Resolved:
        """Process the committed offsets."""
        resolved = Resolved()
        waiting = {
            key: owned
            for key, tenure in self._asked.items()
            if (owned := self._ledger.owned.get(key))
            and owned.tenure == tenure
            and owned.phase is Phase.FETCHING
        }
        self._asked = {}
        found, failed = found_and_failed(response.answers)
        read_by_group = self._read_by_group(found)
        self._read_before |= committed_topics(found)
        if not self._compare_with_former(read_by_group, response.answers, resolved, now):
            resolved.failed = dict.fromkeys(waiting, resolved.error) if resolved.error else {}
            return resolved
        for topic_id, count in known_counts(found).items():
            self._topics.note_count(topic_id, count)
        forgotten = self._forgotten(read_by_group)
        unsure = {key.topic_id: code for key, code in failed.items()}
        for key, owned in waiting.items():
            committed = response.answers.get(key, UNANSWERED)
            if isinstance(committed, PartitionError):
                code = resolved.failed[key] = committed.error_code
                # Right after a topic is created, not every broker knows its id.
                reaction = rule_for(code).offsets
                owned.topic_gone = reaction is Reaction.DROP_TOPIC
                resolved.react(Reaction.RETRY if owned.topic_gone else reaction, code)
                continue
            owned.topic_gone = False
            is_committed = committed.committed_offset != NO_OFFSET
            is_unsure = key.topic_id in unsure and self._is_uncertain(key.topic_id, read_by_group)
            if is_unsure and not is_committed:
                resolved.failed[key] = unsure[key.topic_id]
                resolved.react(Reaction.RETRY, unsure[key.topic_id])
                continue
            # Of a committed one, a failed partition may still have the count: 0 skips nothing.
            owned.known_count = self._count(key.topic_id, read_by_group)
            if is_committed:
                place = (committed.committed_offset, committed.leader_epoch)
                owned.stand_at(*place, mark_of(committed))
                owned.committed_offset = committed.committed_offset
                owned.phase = Phase.READY
                self._found(key, owned, resolved, now, committed=True)
            elif key.topic_id in forgotten and self._ledger.checkpointed(key) is None:
                self._start_forgotten(key, owned, resolved, now)
            else:
                self._start(key, owned, resolved, member_epoch, now)
        self._note_unusual_starts(
            # For forgotten topics the loss is reported instead.
            {key: owned for key, owned in waiting.items() if key.topic_id not in forgotten},
            read_by_group,
        )
        return resolved

    def _count(self, topic_id: TopicId, read_by_group: set[TopicId]) -> int:
        """Return the known count of a topic; 0 if it is unknown but the group has read it."""
        known = self._topics.known_count(topic_id)
        if known is None:
            known = 0 if topic_id in read_by_group else self._topics.first_count(topic_id)
            self._topics.note_count(topic_id, known)
        return known

    def _is_uncertain(self, topic_id: TopicId, read_by_group: set[TopicId]) -> bool:
        """Return whether a failed partition may hold the metadata that a topic needs."""
        if not self._needs_whole_topic(topic_id):
            return False
        return topic_id not in read_by_group or self._topics.known_count(topic_id) is None

    def _compare_with_former(
        self,
        read_by_group: set[TopicId],
        answers: Fetched,
        resolved: Resolved,
        now: float,
    ) -> bool:
        """Refuse another group's checkpoint if this group has not read its topics.

        Returns:
            Whether partitions may start: not before all these topics are checked.
        """
        unread, found = set(), set()
        fetched, failed = found_and_failed(answers)
        answered = {key.topic_id for key in fetched}
        unsure = {key.topic_id: code for key, code in failed.items()}
        for topic_id in self._topics.ids_of(self._former_topics):
            name = self._topics.name(topic_id) or ""
            code = unsure.get(topic_id, int(ErrorCode.NONE))
            if topic_id in read_by_group:
                found.add(name)
            elif topic_id in answered and topic_id not in unsure:
                unread.add(name)
            elif rule_for(code).offsets is not Reaction.DROP_TOPIC:
                # Its name may have become known after the request was made.
                resolved.react(rule_for(code).offsets if code else Reaction.RETRY, code)
        if unread:
            named = (word for name in sorted(unread) for word in ("--topic", name))
            command = self._reset_command("--from-group", self._former_group_id, *named)
            resolved.refusal = CheckpointError(
                f"the checkpoint was written in the group {self._former_group_id!r}, but this query"
                f" reads in the group {self._group_id!r}, which has committed nothing for"
                f" {', '.join(sorted(unread))}: startingOffsets would skip rows, or read them all"
                " again. To start over, give the query a new checkpointLocation. To continue from"
                f" the offsets of {self._former_group_id!r}, stop all members of"
                f" {self._group_id!r} and run: {command}"
            )
            return False
        if found:
            self._former_topics -= found
            names = tuple(sorted(found))
            resolved.events.append(
                CheckpointOfAnotherGroup(now, self._former_group_id, self._group_id, names)
            )
        return resolved.reaction is Reaction.ACCEPT

    def _note_unusual_starts(
        self, waiting: Mapping[TopicIdPartition, OwnedPartition], read_by_group: set[TopicId]
    ) -> None:
        due = {key: each for key, each in self._unusual_starts.items() if key in self._ledger.owned}
        for key, owned in waiting.items():
            due.pop(key, None)
            is_starting = owned.phase is Phase.LISTING
            kind = self._unusual_start(key, owned, read_by_group) if is_starting else None
            if kind is not None:
                due[key] = kind
        self._unusual_starts = due

    def _unusual_start(
        self, key: TopicIdPartition, owned: OwnedPartition, read_by_group: set[TopicId]
    ) -> type[PartitionsStarted] | None:
        """Return the warning that is due once a partition has started, if any."""
        topic_id = key.topic_id
        partition = TopicPartition(self._topics.name(topic_id) or "", key.partition)
        if self._starting.names_start(partition):
            return None
        if topic_id in self._topics.appeared_unseen and owned.known_count == 0:
            return None if self._starting.is_all else NewTopicRead
        is_read = topic_id in read_by_group
        if self._may_be_old(key, owned, is_read=is_read):
            return PartitionsReadFromBeginning
        if is_read or owned.starting_timestamp == EARLIEST_TIMESTAMP:
            return None
        if self._topics.has_checkpoint:
            return RowsSinceSkipped if topic_id in self._topics.left_unread else None
        return ExistingRowsSkipped if self._read_before - {topic_id} else None

    def _started_events(
        self, started: Iterable[TopicIdPartition], now: float
    ) -> list[PartitionsStarted]:
        """Return the warnings about partitions whose starting offsets are committed now."""
        by_kind: dict[tuple[type[PartitionsStarted], TopicId], list[TopicIdPartition]] = {}
        for key in sorted(started):
            kind = self._unusual_starts.pop(key, None)
            skips_nothing = self._ledger.owned[key].position == 0
            if kind is not None and not (issubclass(kind, ExistingRowsSkipped) and skips_nothing):
                by_kind.setdefault((kind, key.topic_id), []).append(key)
        events = []
        for (kind, topic_id), keys in by_kind.items():
            topic = self._topics.name(topic_id) or ""
            indexes = ",".join(str(each.partition) for each in keys)
            is_skipped = issubclass(kind, ExistingRowsSkipped)
            where = "--to-earliest" if is_skipped else "--to-latest"
            command = self._reset_command("--topic", f"{topic}:{indexes}", where)
            rows = sum(self._ledger.owned[each].position for each in keys)
            events.append(kind(now, topic, tuple(keys), rows, command))
        return events

    def _may_be_old(self, key: TopicIdPartition, owned: OwnedPartition, *, is_read: bool) -> bool:
        """Return whether a partition without an offset may have existed when the group began."""
        if not self._topics.was_checkpointed(key.topic_id):
            # There the beginning is expected anyway.
            if not is_read or self._starting.is_all:
                return False
            # A known count of 0 means unknown, unless the topic was created after the group began.
            return owned.known_count == 0 and self._topics.first_count(key.topic_id) > 0
        if owned.known_count == 0:
            return self._topics.first_count(key.topic_id) > 0
        return key.partition < owned.known_count

    def _reset_command(self, *words: str) -> str:
        return reset_command(self._group_id, self._command_options, *words)

    def to_list(self) -> ListOffsetsRequest | None:
        """Return the ListOffsets request for starting positions, None if none is due."""
        listing = self._ledger.in_phase(Phase.LISTING)
        if not listing:
            return None
        questions = {key: self._question(self._ledger.owned[key]) for key in listing}
        # Different questions take turns, so that one without an answer does not block the others.
        others = (each for each in questions.values() if each != self._listed_last)
        chosen = next(others, questions[listing[0]])
        return ListOffsetsRequest(
            partitions=frozenset(key for key in listing if questions[key] == chosen),
            timestamp_ms=chosen[0],
            read_committed=chosen[1],
        )

    def handle_list(
        self,
        request: ListOffsetsRequest,
        response: ListOffsetsResponse,
        *,
        member_epoch: int,
        now: float,
    ) -> Resolved:
        """Process starting positions; they are queued to be committed."""
        resolved = Resolved()
        self._listed_last = (request.timestamp_ms, request.read_committed)
        for key in request.partitions:
            owned = self._ledger.owned.get(key)
            if owned is None or owned.phase is not Phase.LISTING:
                continue
            if self._question(owned) != self._listed_last:
                continue
            listed = response.answers.get(key, UNANSWERED)
            if isinstance(listed, PartitionError):
                code = resolved.failed[key] = listed.error_code
                resolved.react(rule_for(code).lookup, code)
                continue
            if owned.then_timestamp is not None:
                # The end first: records that arrive between both answers are not skipped.
                self._list(owned, owned.then_timestamp, else_at=listed)
                continue
            if listed[0] == NO_OFFSET:
                start = self._without_record(key, owned, resolved)
            else:
                start = self._start_within(key, owned, listed, resolved, now)
            if start is not None:
                self._settle(key, *start, member_epoch)
        return resolved

    def _question(self, owned: OwnedPartition) -> tuple[int, bool]:
        """Return the timestamp, and whether the log ends at the last stable offset.

        An offset named in `startingOffsets` may lie above that: it is compared with the log end.
        """
        stable = self._read_committed and owned.wanted_offset is None
        return owned.starting_timestamp, stable

    def _start_within(
        self,
        key: TopicIdPartition,
        owned: OwnedPartition,
        listed: tuple[int, int],
        resolved: Resolved,
        now: float,
    ) -> tuple[int, int] | None:
        """Return the starting position and its leader epoch; None if the query must fail.

        It fails if `startingOffsets` is beyond the log end and `failOnDataLoss` is true; if that is
        false, the log end is returned.
        """
        wanted, (end, leader_epoch) = owned.wanted_offset, listed
        if wanted is None:
            return listed
        if wanted <= end:
            return wanted, leader_epoch
        message = (
            f"startingOffsets of {self._topics.name(key.topic_id)}-{key.partition} is {wanted},"
            f" but its log ends at {end}: name an offset that exists, or set"
            f" failOnDataLoss=false to start at {end}"
        )
        resolved.events.append(DataLost(now, message))
        if self._fail_on_data_loss:
            resolved.data_loss = message
            return None
        return listed

    def _without_record(
        self, key: TopicIdPartition, owned: OwnedPartition, resolved: Resolved
    ) -> tuple[int, int] | None:
        """Return where a partition starts whose records are all older than its timestamp.

        None, if the query must fail, as Spark's does.
        """
        if owned.else_at is None and self._starting.timestamps is not None:
            partition = f"{self._topics.name(key.topic_id)}-{key.partition}"
            named = f"{self._starting.timestamps.option} of {partition} is"
            resolved.refusal = OptionsError(no_record(named, owned.starting_timestamp))
        return owned.else_at

    def settled(self, commits: Iterable[PendingCommit], now: float) -> Resolved:
        """Process accepted commits."""
        resolved = Resolved()
        started = []
        for commit in commits:
            owned = self._ledger.owned.get(commit.key)
            if owned is None or owned.tenure != commit.tenure:
                continue
            owned.committed_offset = commit.committed_offset
            self._ledger.settled(commit)
            if owned.phase is Phase.SETTLING:
                owned.phase = Phase.READY
                self._found(commit.key, owned, resolved, now, committed=False)
                started.append(commit.key)
            elif owned.phase is Phase.TRUNCATED:
                owned.phase = Phase.READY
        resolved.events += self._started_events(started, now)
        return resolved

    def unsettled(self, commit: PendingCommit) -> None:
        """Fetch again: a commit was dropped because its topic is unknown."""
        owned = self._ledger.owned.get(commit.key)
        if owned is not None and owned.tenure == commit.tenure:
            # The coordinator may only lag behind: keep the partition and fetch its offset again.
            owned.topic_gone = True
            owned.phase = Phase.FETCHING
            self._ledger.release_run(commit.key)

    def _read_by_group(self, found: Mapping[TopicIdPartition, OffsetAndMetadata]) -> set[TopicId]:
        """Return topics with any committed offset."""
        # The only partitions with an offset may be ones that were added later, which this request
        # did not name.
        return committed_topics(found) | {
            key.topic_id
            for key, owned in self._ledger.owned.items()
            if owned.committed_offset != NO_OFFSET
        }

    def _forgotten(self, read_by_group: set[TopicId]) -> set[TopicId]:
        """Return topics that this query has read but whose offsets the group has lost.

        Only if "latest" may apply: otherwise the group starts at the beginning, which loses
        nothing.
        """
        if not self.settle_first:
            return set()
        return {each.topic_id for each in self._topics.read()} - read_by_group

    def _start_forgotten(
        self, key: TopicIdPartition, owned: OwnedPartition, resolved: Resolved, now: float
    ) -> None:
        topic = self._topics.name(key.topic_id) or ""
        message = (
            f"the group has no committed offset for any partition of {topic}, but this query has"
            f" read it: the group's offsets expired or were deleted. {self._what_to_do(topic)}."
            " With failOnDataLoss=false it is read from its beginning"
        )
        resolved.events.append(DataLost(now, message))
        if self._fail_on_data_loss:
            resolved.data_loss = message
            return
        # Its other partitions will start at their beginning too.
        owned.known_count = self._topics.note_count(key.topic_id, 0)
        self._list(owned, EARLIEST_TIMESTAMP)

    def _what_to_do(self, topic_or_partition: str) -> str:
        command = self._reset_command("--topic", topic_or_partition, "--to-earliest")
        return (
            f"To choose where to continue, stop all members of the group and run `{command}`, or"
            " the same with --to-latest. To start from startingOffsets, give the query a new"
            " checkpointLocation"
        )

    def _start(
        self,
        key: TopicIdPartition,
        owned: OwnedPartition,
        resolved: Resolved,
        member_epoch: int,
        now: float,
    ) -> None:
        topic = self._topics.name(key.topic_id) or ""
        partition = TopicPartition(topic, key.partition)
        checkpointed = self._ledger.checkpointed(key)
        if checkpointed is not None:
            message = (
                f"the group has no committed offset for {partition}, but this query has read it up"
                f" to {checkpointed.offset}: the group's offsets expired or were deleted."
                f" {self._what_to_do(f'{topic}:{key.partition}')}. With failOnDataLoss=false it"
                f" continues at {checkpointed.offset}"
            )
            resolved.events.append(DataLost(now, message))
            if self._fail_on_data_loss:
                resolved.data_loss = message
                return
            # The same commit again: a batch that stands on it, and runs again, is not read twice.
            position, mark = checkpointed
            self._settle(key, position, NO_LEADER_EPOCH, member_epoch, mark=mark)
            return
        if key.topic_id in self._topics.created_again:
            # An offset named in `startingOffsets` belonged to the earlier topic of this name.
            self._list(owned, EARLIEST_TIMESTAMP)
            return
        # Its offset may have been deleted, or never copied to this group: "latest" would skip
        # records.
        has_read = self._topics.was_checkpointed(key.topic_id)
        known_count = 0 if has_read else owned.known_count
        timestamp_ms = self._starting.timestamp_ms(partition, known_count=known_count)
        start = self._starting.of(partition, known_count=known_count)
        if timestamp_ms is not None and self._starting.else_latest:
            self._list(owned, LATEST_TIMESTAMP, then_timestamp=timestamp_ms)
        elif timestamp_ms is not None:
            self._list(owned, timestamp_ms)
        elif start >= 0:
            self._list(owned, LATEST_TIMESTAMP, start)
        else:
            self._list(owned, start)

    def _list(
        self,
        owned: OwnedPartition,
        timestamp_ms: int,
        wanted_offset: int | None = None,
        *,
        then_timestamp: int | None = None,
        else_at: tuple[int, int] | None = None,
    ) -> None:
        owned.phase = Phase.LISTING
        owned.starting_timestamp, owned.wanted_offset = timestamp_ms, wanted_offset
        owned.then_timestamp, owned.else_at = then_timestamp, else_at

    def _settle(
        self,
        key: TopicIdPartition,
        position: int,
        leader_epoch: int,
        member_epoch: int,
        *,
        mark: str = NO_MARK,
    ) -> None:
        self._ledger.start_at(key, position, leader_epoch, Phase.SETTLING, mark)
        self._commits.add([self._ledger.commit_of_position(key, member_epoch)])

    def _found(
        self,
        key: TopicIdPartition,
        owned: OwnedPartition,
        resolved: Resolved,
        now: float,
        *,
        committed: bool,
    ) -> None:
        topic = self._topics.name(key.topic_id) or ""
        resolved.events.append(PositionFound(now, key, topic, owned.position, committed))
