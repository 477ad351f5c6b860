"""Planted bugs of a member: of its client, its ledger and its readers.

Each replaces functions of the package in this process, so the package itself knows nothing of it.
They are planted in the processes of a chaos run and in simulated groups.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakKeyDictionary

from spark_groups.group.client import GroupClient
from spark_groups.group.ledger.commits import PendingCommit
from spark_groups.group.ledger.ledger import FinishedBatch, Ledger, OwnedPartition, Phase
from spark_groups.types import (
    Assignment,
    BatchPlan,
    OffsetRange,
    TopicIdPartition,
)
from spark_groups.wire.fetch.fetch_messages import FetchCursor, FetchSettings
from spark_groups.wire.fetch.fetcher import Fetched, Fetcher
from workshop.chaos.plants import Plant
from workshop.parts.member_bugs import (
    Patch,
    acknowledges_before_its_batch_is_committed,
    commits_when_it_plans,
    commits_with_the_epoch_of_the_moment,
    keeps_its_partitions_when_it_is_fenced,
    lets_go_of_what_a_replayed_batch_reads,
    looks_up_no_uncertain_commit,
    takes_a_value_for_evidence,
)

_FAST: Final = "spark_groups.spark.reading.fast_reader"
_LIBRDKAFKA: Final = "spark_groups.spark.reading.librdkafka_reader"
CUT_BYTES: Final = 1024
"""With `Plant.CUT_FETCH`: how many bytes of a partition a response of the fast reader has."""


class Lasting:
    """Replaces attributes until the process ends."""

    def setattr(self, target: object, name: str, value: object, /) -> None:
        """Set an attribute."""
        setattr(target, name, value)


# The client.


# The ledger.


def continues_where_it_left_off(patch: Patch) -> None:
    """Let a partition that returns to a member start at the position that it had there."""
    assign, drop = Ledger.assign, Ledger.drop
    left: WeakKeyDictionary[Ledger, dict[TopicIdPartition, OwnedPartition]] = WeakKeyDictionary()

    def dropped(self: Ledger, partitions: Iterable[TopicIdPartition]) -> None:
        keys = list(partitions)
        ready = {key: self.owned[key] for key in keys if key in self.owned}
        left.setdefault(self, {}).update(
            {key: owned for key, owned in ready.items() if owned.phase is Phase.READY}
        )
        drop(self, keys)

    def assigned(self: Ledger, partitions: Assignment, member_epoch: int) -> None:
        assign(self, partitions, member_epoch)
        for key in partitions:
            old, new = left.get(self, {}).get(key), self.owned[key]
            if old is not None:
                self.owned[key] = replace(old, tenure=new.tenure, assigned_epoch=member_epoch)

    patch.setattr(Ledger, "drop", dropped)
    patch.setattr(Ledger, "assign", assigned)


def commits_what_it_has_lost(patch: Patch) -> None:
    """Let a member commit all ranges of a finished batch, also those of other owners by now."""
    finish = Ledger.finish

    def finished(self: Ledger, plan: BatchPlan) -> FinishedBatch:
        found = finish(self, plan)
        counts = {topic.topic_id: topic.known_count or 0 for topic in plan.topics}
        epoch = plan.member_epoch
        # The tenure of the moment, even none, makes the queue take the commit for a valid one.
        lost = tuple(
            PendingCommit(
                each.key,
                self.tenure(each.key),  # type: ignore[arg-type]
                epoch,
                each.until_offset,
                counts.get(each.key.topic_id, 0),
            )
            for each in found.lost
        )
        return FinishedBatch((*found.commits, *lost))

    patch.setattr(Ledger, "finish", finished)


def takes_a_replayed_batch_for_finished(patch: Patch) -> None:
    """Let a member commit a batch when Spark begins to run it again."""
    replay = GroupClient.replay

    def replayed(self: GroupClient, plan: BatchPlan, now: float) -> None:
        replay(self, plan, now)
        self.finish(plan, now)

    patch.setattr(GroupClient, "replay", replayed)


# The readers. Only members import them, after the fast one is compiled.


def drops_the_last_record(patch: Patch) -> None:
    """Let both readers end a range one record too early."""
    _shift_ends(patch, -1)
    librdkafka = import_module(_LIBRDKAFKA)
    begin = librdkafka.Cursor.of

    def shortened(wanted: OffsetRange) -> Any:
        cursor = begin(wanted)
        cursor.until_offset -= 1
        return cursor

    patch.setattr(librdkafka.Cursor, "of", shortened)


def reads_one_record_more(patch: Patch) -> None:
    """Let both readers return the record at the end of a range, if it came with the others."""
    _shift_ends(patch, 1)
    patch.setattr(import_module(_LIBRDKAFKA), "bisect_left", bisect_right)


def reads_batches_from_their_start(patch: Patch) -> None:
    """Let the fast reader return records of a batch that precede the range."""
    fast = import_module(_FAST)
    cursor = fast.RangeCursor
    patch.setattr(fast, "RangeCursor", lambda at, _, until: cursor(at, 0, until))


def takes_the_first_response_for_all(patch: Patch) -> None:
    """Let the fast reader end a range with its first response, which is cut at a few bytes."""
    arrived = Fetcher._arrived

    def ended(self: Fetcher, cursor: FetchCursor, answer: Any) -> Fetched:
        found = arrived(self, cursor, answer)
        self._wanted.pop(cursor.key, None)
        return found

    def cut(**settings: Any) -> FetchSettings:
        return FetchSettings(**{**settings, "partition_max_bytes": CUT_BYTES})

    patch.setattr(Fetcher, "_arrived", ended)
    patch.setattr(import_module(_FAST), "FetchSettings", cut)


def _shift_ends(patch: Patch, by: int) -> None:
    fast = import_module(_FAST)
    cursor = fast.RangeCursor
    patch.setattr(fast, "RangeCursor", lambda at, first, until: cursor(at, first, until + by))


IN_MEMBERS: Final[Mapping[Plant, Callable[[Patch], None]]] = MappingProxyType(
    {
        Plant.EARLY_RELEASE: acknowledges_before_its_batch_is_committed,
        Plant.NEWEST_EPOCH: commits_with_the_epoch_of_the_moment,
        Plant.KEEPS_FENCED: keeps_its_partitions_when_it_is_fenced,
        Plant.TRUSTS_REPEATED: looks_up_no_uncertain_commit,
        Plant.COMMITS_PLANNED: commits_when_it_plans,
        Plant.COMMITS_LOST: commits_what_it_has_lost,
        Plant.KEEPS_POSITION: continues_where_it_left_off,
        Plant.VALUE_AS_EVIDENCE: takes_a_value_for_evidence,
        Plant.REPLAY_UNNOTED: lets_go_of_what_a_replayed_batch_reads,
        Plant.REPLAY_FINISHED: takes_a_replayed_batch_for_finished,
        Plant.LAST_RECORD: drops_the_last_record,
        Plant.BEYOND_RANGE: reads_one_record_more,
        Plant.BATCH_START: reads_batches_from_their_start,
        Plant.CUT_FETCH: takes_the_first_response_for_all,
    }
)
"""The bugs that replace functions of the package; the others are wrappers of tables."""


def plant_in_member(plant: Plant | None, patch: Patch | None = None) -> None:
    """Plant a bug of a member in this process, if it is one.

    Args:
        plant: The bug; None: there is none.
        patch: Replaces the functions; None: until the process ends.
    """
    if plant is not None and plant in IN_MEMBERS:
        IN_MEMBERS[plant](patch or Lasting())
