"""Partitions that are meant for this member and not released by their owners: what waits in them.

They are resolved ahead so that people see it, and for nothing else: what is planned is fetched
afresh once a partition is assigned. So these questions come last on their lanes, are asked after a
change and then with the descriptions that show the partitions still pending, and are not repeated
when they fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_groups.offsets.events import RangesWithheld, WithheldRange
from spark_groups.protocol.messages import (
    LATEST_TIMESTAMP,
    NO_OFFSET,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    Request,
)
from spark_groups.types import Assignment, TopicId, TopicIdPartition

MAX_RESOLVED: Final = 1_000
"""How many pending partitions are resolved; the rest is counted."""
RESOLVE_AGAIN_S: Final = 5.0


class PendingWatch:
    """Committed offsets and log ends of pending partitions, as last heard."""

    def __init__(self) -> None:
        self._keys: tuple[TopicIdPartition, ...] = ()
        self._unresolved = 0
        self._names: Mapping[TopicId, str] = {}
        self._committed: dict[TopicIdPartition, int] = {}
        self._ends: dict[TopicIdPartition, int] = {}
        self._asked_at: float | None = None
        self._due: set[type[Request]] = set()
        self._under_way: dict[type[Request], Request] = {}
        self._said: tuple[TopicIdPartition, ...] = ()

    def refresh(self, pending: Assignment, names: Mapping[TopicId, str], now: float) -> None:
        """Take what is pending as of a description of the group.

        Args:
            pending: Target without what is owned.
            names: Names of its topics.
            now: Seconds.
        """
        keys = tuple(pending)
        changed = keys[:MAX_RESOLVED] != self._keys
        self._keys, self._unresolved = keys[:MAX_RESOLVED], len(keys[MAX_RESOLVED:])
        self._names = names
        wanted = frozenset(self._keys)
        self._committed = {key: at for key, at in self._committed.items() if key in wanted}
        self._ends = {key: at for key, at in self._ends.items() if key in wanted}
        if not self._keys:
            self._said = ()
            self._due.clear()
        elif changed or self._asked_at is None or now - self._asked_at >= RESOLVE_AGAIN_S:
            self._asked_at = now
            self._due = {OffsetFetchRequest, ListOffsetsRequest}

    def to_fetch(
        self, *, group_id: str, member_id: str, member_epoch: int
    ) -> OffsetFetchRequest | None:
        """Return the request for what is committed of them, None if none is due."""
        if OffsetFetchRequest not in self._due:
            return None
        self._due.discard(OffsetFetchRequest)
        request = OffsetFetchRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            partitions=frozenset(self._keys),
        )
        self._under_way[OffsetFetchRequest] = request
        return request

    def to_list(self) -> ListOffsetsRequest | None:
        """Return the request for their log ends, None if none is due."""
        if ListOffsetsRequest not in self._due:
            return None
        self._due.discard(ListOffsetsRequest)
        request = ListOffsetsRequest(
            partitions=frozenset(self._keys), timestamp_ms=LATEST_TIMESTAMP
        )
        self._under_way[ListOffsetsRequest] = request
        return request

    def asked_for(self, request: Request) -> bool:
        """Tell whether a request is one of these."""
        return self._under_way.get(type(request)) is request

    def handle_fetch(self, response: OffsetFetchResponse, now: float) -> list[RangesWithheld]:
        """Take what is committed; return what is to be said."""
        self._under_way.pop(OffsetFetchRequest, None)
        for key in self._keys:
            if key in response.offsets:
                self._committed[key] = response.offsets[key].committed_offset
        return self._news(now)

    def handle_list(self, response: ListOffsetsResponse, now: float) -> list[RangesWithheld]:
        """Take log ends; return what is to be said."""
        self._under_way.pop(ListOffsetsRequest, None)
        self._ends.update({key: at for key, at in response.offsets.items() if key in self._keys})
        return self._news(now)

    def unanswered(self, request: Request) -> None:
        """Take it that one of these requests failed: the next description asks again."""
        self._under_way.pop(type(request), None)

    def withheld(self, pending: Assignment) -> tuple[WithheldRange, ...]:
        """Return what waits in the partitions that are still pending.

        Args:
            pending: Target without what is owned by now.
        """
        return tuple(
            WithheldRange(
                self._names.get(key.topic_id, str(key.topic_id)),
                key.partition,
                None if self._committed.get(key, NO_OFFSET) == NO_OFFSET else self._committed[key],
                self._ends.get(key),
            )
            for key in self._keys
            if key in pending
        )

    def _news(self, now: float) -> list[RangesWithheld]:
        """Return what changed, once both questions are answered; else nothing."""
        if self._due or self._under_way or self._said == self._keys:
            return []
        self._said = self._keys
        withheld = self.withheld(Assignment(frozenset(self._keys)))
        return [RangesWithheld(now, withheld, self._unresolved)]
