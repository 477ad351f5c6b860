"""Asks leaders for the first record at or after one offset of each partition.

A leader returns at least one batch of the first partition in a request, however small the limits
are, and none of a later one whose first batch does not fit. Partitions without an answer are
requested again, first in line, so each request answers at least one.

Source: KIP-74; Kafka's ReplicaManager.readFromLog.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.group.member.messages import RecordSample
from spark_groups.types import TopicIdPartition
from spark_groups.wire.connection import RequestError
from spark_groups.wire.fetch.fetch_messages import AskedPartition, fetch_from_wire, fetch_to_wire
from spark_groups.wire.fetch.first_unread import (
    FirstRecord,
    Passed,
    Search,
    find_missed,
    find_record,
    sample_size,
)
from spark_groups.wire.leader_requests import LeaderCache, ask_each
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.wire_messages import FETCH

PARTITION_BYTES: Final = 20 * 1024
"""A little more than a producer's batch (`batch.size`, by default 16 KiB)."""
SEARCH_BYTES: Final = 256 * 1024
"""The same for a partition whose first batches had no record to read."""
RESPONSE_BYTES: Final = 1024 * 1024
PARTITIONS_AT_ONCE: Final = RESPONSE_BYTES // PARTITION_BYTES


@dataclass(frozen=True, slots=True)
class FirstRecords:
    """The first records at or after the requested offsets.

    Args:
        found: By partition; None: there is no record to read yet.
        unknown: The reason, of partitions that no leader answered for.
        reached: How far the search has come in those, and where the samples of others begin: there
            is no record from the requested offset up to here.
        samples: By partition, the size of the first records, if only that was wanted; 0 bytes:
            there is no record to read yet.
    """

    found: Mapping[TopicIdPartition, FirstRecord | None] = field(default_factory=dict)
    unknown: Mapping[TopicIdPartition, str] = field(default_factory=dict)
    reached: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    samples: Mapping[TopicIdPartition, RecordSample] = field(default_factory=dict)


@dataclass(slots=True)
class _Place:
    """How far the search in a partition has come."""

    offset: int
    bytes_max: int = PARTITION_BYTES


class FirstRecordSearch:
    """One search in any number of partitions; for one thread.

    Args:
        offsets: By partition, where the search begins.
        read_committed: Whether to skip records of aborted and of unfinished transactions.
        passed: By partition, what a reader has passed: to find only a record that it has missed,
            in one partition for each search.
        is_sampling: Whether to measure the records at the offsets, instead of finding the first.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        leaders: LeaderCache,
        offsets: Mapping[TopicIdPartition, int],
        *,
        read_committed: bool,
        passed: Mapping[TopicIdPartition, Passed] = MappingProxyType({}),
        is_sampling: bool = False,
    ) -> None:
        self._pool = pool
        self._leaders = leaders
        self._read_committed = read_committed
        self._passed = passed
        self._is_sampling = is_sampling
        self._samples: dict[TopicIdPartition, RecordSample] = {}
        self._places = {key: _Place(offset) for key, offset in offsets.items()}
        self._found: dict[TopicIdPartition, FirstRecord | None] = {}
        self._unknown: dict[TopicIdPartition, str] = {}
        self._reached: dict[TopicIdPartition, int] = {}

    def run(self, deadline: float) -> FirstRecords:
        """Search until every partition has an answer, or the deadline (of `time.monotonic`)."""
        by_leader, errors = self._leaders.route(self._places)
        for key, code in errors.items():
            self._refuse(key, ErrorCode.name_of(code))
        while by_leader and time.monotonic() < deadline:
            self._ask_each(by_leader, deadline)
            waiting = {
                node_id: [each for each in keys if each in self._places]
                for node_id, keys in by_leader.items()
            }
            by_leader = {node_id: keys for node_id, keys in waiting.items() if keys}
        for key in list(self._places):
            self._refuse(key, "its leader did not answer in time")
        return FirstRecords(self._found, self._unknown, self._reached, self._samples)

    def _ask_each(self, by_leader: Mapping[int, list[TopicIdPartition]], deadline: float) -> None:
        """Ask every leader once; one that cannot be reached is not asked for the rest either."""
        asked = {node_id: keys[:PARTITIONS_AT_ONCE] for node_id, keys in by_leader.items()}
        requests = {node_id: self._request(keys) for node_id, keys in asked.items()}
        for node_id, answer in ask_each(self._pool, self._leaders, FETCH, requests, deadline):
            if isinstance(answer, Exception):
                is_sent = not isinstance(answer, RequestError) or answer.may_have_arrived
                self._refuse_all((asked if is_sent else by_leader)[node_id], str(answer))
            else:
                self._take(answer, asked[node_id], deadline)

    def _request(self, asked: Iterable[TopicIdPartition]) -> Values:
        topics, places = self._leaders.topics, self._places
        return fetch_to_wire(
            (
                AskedPartition(
                    key,
                    topics[key.topic_id].leaders[key.partition].leader_epoch,
                    places[key].offset,
                    places[key].bytes_max,
                )
                for key in asked
            ),
            read_committed=self._read_committed,
            max_bytes=RESPONSE_BYTES,
        )

    def _take(self, values: Values, asked: list[TopicIdPartition], deadline: float) -> None:
        """Store the answers of one leader."""
        if values["error_code"]:
            self._refuse_all(asked, ErrorCode.name_of(values["error_code"]))
            return
        answers = fetch_from_wire(values)
        had = len(self._places), sum(place.offset for place in self._places.values())
        for key in asked:
            answer = answers.get(key)
            if answer is None:
                self._refuse(key, "the response of its leader lacks it")
            elif answer["error_code"]:
                self._refuse(key, ErrorCode.name_of(answer["error_code"]))
            elif self._is_sampling:
                self._sample(key, answer, deadline, is_first=key == asked[0])
            else:
                self._search(key, answer, deadline)
        if had == (len(self._places), sum(place.offset for place in self._places.values())):
            # Otherwise the same request would be sent again until the deadline.
            self._refuse(asked[0], "its leader returned no batch")

    def _end(self, answer: Values) -> int:
        """Return the offset up to which records may be read."""
        end: int = answer["last_stable_offset" if self._read_committed else "high_watermark"]
        return end

    def _search(self, key: TopicIdPartition, answer: Values, deadline: float) -> None:
        place, end = self._places[key], self._end(answer)
        passed = self._passed.get(key)
        if passed is not None:
            end = min(end, passed.offsets.stop)
        try:
            search = self._find(answer, place.offset, passed, lambda: time.monotonic() >= deadline)
        except (ProtocolError, TimeoutError) as error:
            self._refuse(key, str(error))
            return
        if search.record is not None or search.next_offset >= end:
            self._found[key] = search.record
            del self._places[key]
        elif search.next_offset > place.offset:
            self._places[key] = _Place(search.next_offset, SEARCH_BYTES)

    def _sample(
        self, key: TopicIdPartition, answer: Values, deadline: float, *, is_first: bool
    ) -> None:
        """Measure the records of an answer, or search on behind batches without any.

        Those of a later partition may not have fitted.
        """
        place, end, records = self._places[key], self._end(answer), answer["records"] or b""
        try:
            sample = sample_size(
                records,
                place.offset,
                self._aborted(answer),
                lambda: time.monotonic() >= deadline,
            )
        except (ProtocolError, TimeoutError) as error:
            self._refuse(key, str(error))
            return
        sample = sample or RecordSample(0, 0)
        begin = place.offset + sample.skipped_offsets
        next_offset = begin + sample.offsets
        # Compaction may have removed all that followed.
        is_over = next_offset >= end or (is_first and not records)
        if sample.size_bytes or is_over:
            self._samples[key] = sample
            self._reached[key] = begin if sample.size_bytes else max(end, next_offset)
            del self._places[key]
        elif next_offset > place.offset:
            self._places[key] = _Place(next_offset, SEARCH_BYTES)

    def _aborted(self, answer: Values) -> tuple[tuple[int, int], ...]:
        listed = (answer["aborted_transactions"] or ()) if self._read_committed else ()
        return tuple((each["producer_id"], each["first_offset"]) for each in listed)

    def _find(
        self, answer: Values, offset: int, passed: Passed | None, is_late: Callable[[], bool]
    ) -> Search:
        aborted, records = self._aborted(answer), answer["records"] or b""
        if passed is None:
            return find_record(records, offset, aborted, is_late)
        if not records:
            # Compaction may have removed all that followed.
            return Search(None, passed.offsets.stop)
        return find_missed(records, offset, passed, aborted, is_late)

    def _refuse_all(self, keys: Iterable[TopicIdPartition], reason: str) -> None:
        for key in keys:
            self._refuse(key, reason)

    def _refuse(self, key: TopicIdPartition, reason: str) -> None:
        self._unknown[key] = reason
        place = self._places.pop(key, None)
        if place is not None:
            self._reached[key] = place.offset
