"""The starting position of each assigned partition.

The rules of `starting_rules` decide; here are the facts about a partition and what follows from its
rule. The starting position is committed before the partition is planned or released, with the
topic's partition count as metadata, so that a partition added later starts at its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.group.ledger.checkpoint_refusals import not_read_by_group
from spark_groups.group.ledger.commit_metadata import committed_topics, known_counts, mark_of
from spark_groups.group.ledger.commits import PendingCommit
from spark_groups.group.ledger.data_loss import LossPolicy
from spark_groups.group.ledger.events import (
    CheckpointOfAnotherGroup,
    ExistingRowsSkipped,
    PartitionsStarted,
    PositionFound,
)
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import (
    AT_BEGINNING,
    Boundary,
    Ledger,
    OwnedPartition,
    Phase,
    StartLookup,
)
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.ledger.start_lookup import StartListing
from spark_groups.group.ledger.starting import Option, StartingOffsets, reset_command
from spark_groups.group.ledger.starting_rules import (
    Committed,
    Facts,
    GroupRead,
    QueryRead,
    Skipping,
    Start,
    starting_rule,
)
from spark_groups.group.member.messages import (
    NO_OFFSET,
    UNANSWERED,
    OffsetAndMetadata,
    OffsetFetchResponse,
    PartitionError,
    found_and_failed,
)
from spark_groups.types import LATEST_TIMESTAMP, TopicId, TopicIdPartition, TopicPartition


class PositionResolver:
    """Moves owned partitions from FETCHING to READY."""

    def __init__(
        self,
        ledger: Ledger,
        topics: TopicDirectory,
        starting: StartingOffsets,
        *,
        group_id: str,
        read_committed: bool,
        fail_on_data_loss: bool,
        command_options: str = "",
    ) -> None:
        self._ledger = ledger
        self._topics = topics
        self._starting = starting
        self._group_id = group_id
        self._command_options = command_options
        self._losses = LossPolicy(fail_on_data_loss)
        self.listing = StartListing(ledger, topics, starting, self._losses, read_committed)
        self._asked: dict[TopicIdPartition, int] = {}
        """The tenure of each partition when it was asked for: older answers are ignored."""
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
    def commits_start_first(self) -> bool:
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
        if self.commits_start_first and not self._topics.has_checkpoint and not self._read_before:
            # Whether the group has read other topics decides about a warning.
            whole_topics |= self._topics.known_ids()
        return frozenset(fetching) | {
            TopicIdPartition(topic_id, each)
            for topic_id in whole_topics
            for each in range(self._topics.partition_count(topic_id))
        }

    def _needs_whole_topic(self, topic_id: TopicId) -> bool:
        return self.commits_start_first or self._topics.known_count(topic_id) is None

    def handle_fetch(self, response: OffsetFetchResponse, *, now: float) -> Resolved:
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
        read_topics = self._read_by_group(found)
        self._read_before |= committed_topics(found)
        unsure = {key.topic_id: code for key, code in failed.items()}
        unread = {key.topic_id for key in found} - read_topics - unsure.keys()
        former = self._compare_with_former(read_topics, unread, unsure, resolved, now)
        if starting_rule(Facts(former)).start in (Start.REFUSED, Start.NOT_YET):
            resolved.failed = dict.fromkeys(waiting, resolved.error) if resolved.error else {}
            return resolved
        for topic_id, count in known_counts(found).items():
            self._topics.note_count(topic_id, count)
        for key, owned in waiting.items():
            answer = response.answers.get(key, UNANSWERED)
            facts = self._facts(key, answer, read_topics, unsure)
            rule = starting_rule(facts)
            owned.warning = rule.warning
            if rule.start is Start.NOT_YET:
                self._ask_again(key, owned, answer, unsure, resolved)
                continue
            owned.topic_gone = False
            # Of a committed one, a failed partition may still have the count: 0 skips nothing.
            owned.known_count = self._topics.note_count(key.topic_id, self._count(key, read_topics))
            if isinstance(answer, OffsetAndMetadata) and rule.start is Start.COMMITTED:
                owned.stand_at(answer.committed_offset, answer.leader_epoch, mark_of(answer))
                owned.committed_offset = answer.committed_offset
                self._found(key, owned, resolved, now, committed=True)
            elif not (rule.is_loss and self._lose(key, rule.start, resolved, now)):
                self._start(key, owned, rule.start)
        return resolved

    def _facts(
        self,
        key: TopicIdPartition,
        answer: OffsetAndMetadata | PartitionError,
        read_topics: Collection[TopicId],
        unsure: Collection[TopicId],
    ) -> Facts:
        """Return what decides where a partition starts.

        Args:
            read_topics: Topics of which the group has committed offsets.
            unsure: Topics of which some committed offsets could not be fetched.
        """
        topics, topic_id = self._topics, key.topic_id
        if isinstance(answer, PartitionError):
            return Facts(committed=Committed.UNKNOWN)
        if answer.committed_offset != NO_OFFSET:
            return Facts(committed=Committed.OFFSET)
        is_read = topic_id in read_topics
        if topic_id in unsure and self._is_uncertain(topic_id, is_read=is_read):
            return Facts(committed=Committed.UNKNOWN)
        others_read = any(each != topic_id for each in self._read_before)
        unread = GroupRead.OTHERS if others_read else GroupRead.NOTHING
        read = QueryRead.TOPIC if topics.has_read(topic_id) else QueryRead.NOTHING
        option = self._starting.option(self._partition(key))
        if topic_id in topics.created_again and option is not Option.EARLIEST:
            option = Option.OF_EARLIER_TOPIC
        return Facts(
            group_read=GroupRead.TOPIC if is_read else unread,
            query_read=QueryRead.PARTITION if self._ledger.checkpointed(key) else read,
            checkpoint=topics.in_checkpoint(topic_id),
            added=topics.added(key, self._count(key, read_topics)),
            option=option,
            skipping=Skipping.POSSIBLE if self._starting.may_skip else Skipping.IMPOSSIBLE,
        )

    def _ask_again(
        self,
        key: TopicIdPartition,
        owned: OwnedPartition,
        answer: OffsetAndMetadata | PartitionError,
        unsure: Mapping[TopicId, int],
        resolved: Resolved,
    ) -> None:
        if isinstance(answer, PartitionError):
            code, reaction = answer.error_code, rule_for(answer.error_code).offsets
        else:
            code, reaction = unsure[key.topic_id], Reaction.RETRY
        # Right after a topic is created, not every broker knows its id.
        owned.topic_gone = reaction is Reaction.DROP_TOPIC
        resolved.failed[key] = code
        resolved.react(Reaction.RETRY if owned.topic_gone else reaction, code)

    def _lose(self, key: TopicIdPartition, start: Start, resolved: Resolved, now: float) -> bool:
        """Report that offsets are gone; return whether the query must fail because of it."""
        partition = self._partition(key)
        of, named = f"any partition of {partition.topic}", partition.topic
        read, then = "it", "it is read from its beginning"
        if start is Start.CHECKPOINTED:
            read_until = self._checkpointed(key).offset
            of, named = str(partition), f"{partition.topic}:{key.partition}"
            read, then = f"it up to {read_until}", f"it continues at {read_until}"
        message = (
            f"the group has no committed offset for {of}, but this query has read {read}: the"
            " group's offsets expired or were deleted. To choose where to continue, stop all"
            f" members of the group and run `{self._reset_command(named, '--to-earliest')}`, or the"
            " same with --to-latest. To start from startingOffsets, give the query a new"
            f" checkpointLocation. With failOnDataLoss=false {then}"
        )
        return self._losses.lose(message, resolved, now)

    def _start(self, key: TopicIdPartition, owned: OwnedPartition, start: Start) -> None:
        owned.phase = Phase.LISTING
        if start is Start.CHECKPOINTED:
            # The same commit again: a batch that stands on it, and runs again, is not read twice.
            owned.lookup = StartLookup(LATEST_TIMESTAMP, *self._checkpointed(key))
            return
        if start is Start.BEGINNING_OF_ALL:
            owned.known_count = self._topics.note_count(key.topic_id, 0)
        is_named = start is Start.OPTION
        owned.lookup = self.listing.by_option(self._partition(key)) if is_named else AT_BEGINNING

    def _checkpointed(self, key: TopicIdPartition) -> Boundary:
        checkpointed = self._ledger.checkpointed(key)
        assert checkpointed is not None
        return checkpointed

    def _partition(self, key: TopicIdPartition) -> TopicPartition:
        return TopicPartition(self._topics.name(key.topic_id) or "", key.partition)

    def _count(self, key: TopicIdPartition, read_topics: Collection[TopicId]) -> int:
        """Return the known count of a topic; 0 if it is unknown but the group has read it."""
        known = self._topics.known_count(key.topic_id)
        if known is not None:
            return known
        return 0 if key.topic_id in read_topics else self._topics.first_count(key.topic_id)

    def _is_uncertain(self, topic_id: TopicId, *, is_read: bool) -> bool:
        """Return whether a failed partition may hold the metadata that a topic needs."""
        if not self._needs_whole_topic(topic_id):
            return False
        return not is_read or self._topics.known_count(topic_id) is None

    def _compare_with_former(
        self,
        read_topics: Collection[TopicId],
        unread_topics: Collection[TopicId],
        unsure: Mapping[TopicId, int],
        resolved: Resolved,
        now: float,
    ) -> Committed:
        """Refuse another group's checkpoint if this group has not read its topics.

        Returns:
            UNKNOWN while a committed offset of its topics is unknown; NONE: they are checked.
        """
        unread, found = set(), set()
        for topic_id in self._topics.ids_of(self._former_topics):
            name = self._topics.name(topic_id) or ""
            code = unsure.get(topic_id, int(ErrorCode.NONE))
            if topic_id in read_topics:
                found.add(name)
            elif topic_id in unread_topics:
                unread.add(name)
            elif rule_for(code).offsets is not Reaction.DROP_TOPIC:
                # Its name may have become known after the request was made.
                resolved.react(rule_for(code).offsets if code else Reaction.RETRY, code)
        if unread:
            resolved.refusal = not_read_by_group(
                self._group_id, self._former_group_id, unread, self._command_options
            )
            return Committed.OF_FORMER_GROUP
        if found:
            self._former_topics -= found
            names = tuple(sorted(found))
            resolved.events.append(
                CheckpointOfAnotherGroup(now, self._former_group_id, self._group_id, names)
            )
        is_checked = resolved.reaction is Reaction.ACCEPT
        return Committed.NONE if is_checked else Committed.UNKNOWN

    def _read_by_group(self, found: Mapping[TopicIdPartition, OffsetAndMetadata]) -> set[TopicId]:
        """Return topics with any committed offset."""
        # The only partitions with an offset may be ones that were added later, which this request
        # did not name.
        return committed_topics(found) | {
            key.topic_id
            for key, owned in self._ledger.owned.items()
            if owned.committed_offset != NO_OFFSET
        }

    def committed(self, commits: Iterable[PendingCommit], now: float) -> Resolved:
        """Process accepted commits."""
        resolved = Resolved()
        started = []
        for commit in commits:
            owned = self._ledger.owned.get(commit.key)
            if owned is None or owned.tenure != commit.tenure:
                continue
            owned.committed_offset = commit.committed_offset
            self._ledger.committed(commit)
            if owned.phase is Phase.COMMITTING_START:
                self._found(commit.key, owned, resolved, now, committed=False)
                started.append(commit.key)
            elif owned.phase is Phase.TRUNCATED:
                owned.phase = Phase.READY
        resolved.events += self._warnings(started, now)
        return resolved

    def dropped(self, commit: PendingCommit) -> None:
        """Fetch again: a commit was dropped because its topic is unknown."""
        owned = self._ledger.owned.get(commit.key)
        if owned is not None and owned.tenure == commit.tenure:
            # The coordinator may only lag behind: keep the partition and fetch its offset again.
            owned.topic_gone = True
            owned.phase = Phase.FETCHING
            self._ledger.release_run(commit.key)

    def _warnings(self, started: Iterable[TopicIdPartition], now: float) -> list[PartitionsStarted]:
        """Return the warnings about partitions whose starting offsets are committed now."""
        due: dict[tuple[type[PartitionsStarted], TopicId], list[TopicIdPartition]] = {}
        for key in sorted(started):
            owned = self._ledger.owned[key]
            kind, owned.warning = owned.warning, None
            skips_nothing = owned.position == 0
            if kind is not None and not (issubclass(kind, ExistingRowsSkipped) and skips_nothing):
                due.setdefault((kind, key.topic_id), []).append(key)
        events = []
        for (kind, topic_id), keys in due.items():
            topic = self._topics.name(topic_id) or ""
            indexes = ",".join(str(each.partition) for each in keys)
            is_skipped = issubclass(kind, ExistingRowsSkipped)
            where = "--to-earliest" if is_skipped else "--to-latest"
            command = self._reset_command(f"{topic}:{indexes}", where)
            rows = sum(self._ledger.owned[each].position for each in keys)
            events.append(kind(now, topic, tuple(keys), rows, command))
        return events

    def _reset_command(self, partitions: str, where: str) -> str:
        words = ("--topic", partitions, where)
        return reset_command(self._group_id, self._command_options, *words)

    def _found(
        self,
        key: TopicIdPartition,
        owned: OwnedPartition,
        resolved: Resolved,
        now: float,
        *,
        committed: bool,
    ) -> None:
        owned.phase = Phase.READY
        topic = self._topics.name(key.topic_id) or ""
        resolved.events.append(PositionFound(now, key, topic, owned.position, committed))
