"""Reads records of any number of ranges from the leaders of their partitions.

Each broker has one request in flight; the next one is sent as soon as a response has arrived,
before it is decoded. Responses are received one at a time, into one buffer; those of other brokers
wait in the bounded buffers of their sockets.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from spark_groups.errors import BrokerUnreachableError, ErrorCode
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.messages import ListOffsetsRequest, Node, found_and_failed
from spark_groups.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    TopicIdPartition,
    TopicPartition,
    topic_id_text,
)
from spark_groups.wire.addresses import Address
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import Connection, RequestError
from spark_groups.wire.fetch.fetch_messages import (
    NO_REPLICA,
    FetchCursor,
    FetchSettings,
    fetch_from_wire,
    fetch_to_wire,
)
from spark_groups.wire.fetch.leaders import FetchLeaders, LostTopic, fail_if_final
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.wire_messages import FETCH
from spark_groups.wire.transport import FrameBuffer

_TOPICS_S: Final = 5.0
"""How long a broker with old metadata may lack a planned topic before the topic counts as lost."""

NextOffset = Callable[[memoryview, int], int]
"""Maps records and the requested offset to the offset after the records."""
Lose = Callable[[str], None]
"""Takes a description of lost offsets; raises an error, or returns to continue without them."""


class Fetched(NamedTuple):
    """Records of one partition, valid until the next ones are requested.

    Args:
        from_offset: The requested offset.
        next_offset: The offset after the last whole batch.
        until_offset: The end of the range, exclusive.
        records: Whole batches, possibly beyond the range, possibly followed by a partial one.
        aborted: Producer id and first offset of aborted transactions, under read_committed.
    """

    topic_partition: TopicPartition
    from_offset: int
    next_offset: int
    until_offset: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...]


class Fetcher:
    """Reads ranges, and keeps leaders for the next ones; used by one thread.

    Args:
        cluster: For metadata and offsets, with connections of its own.
        pool: The connections for Fetch requests.
        buffer: Receives responses.
        next_offset: Finds the offset after records.
        lose: Called for lost offsets.
    """

    def __init__(
        self,
        cluster: Cluster,
        pool: ConnectionPool,
        buffer: FrameBuffer,
        settings: FetchSettings,
        *,
        next_offset: NextOffset,
        lose: Lose,
    ) -> None:
        self._cluster = cluster
        self._pool = pool
        self._buffer = buffer
        self._settings = settings
        self._next_offset = next_offset
        self._lose = lose
        self._leaders = FetchLeaders(cluster, settings.identity)
        self._wanted: dict[TopicIdPartition, FetchCursor] = {}
        """Ranges that have not arrived; the one that waited longest is first."""
        self._asked: dict[Connection, list[FetchCursor]] = {}
        """Requests in flight."""
        self._backoffs: dict[Address, Backoff] = {}
        """When each broker may be asked again."""
        self._deadline = 0.0
        self._received_at = 0.0

    def fetch(self, cursors: Iterable[FetchCursor]) -> Iterator[Fetched]:
        """Read to the end of all ranges.

        Args:
            cursors: At most one for each partition; they are moved.

        Raises:
            BrokerUnreachableError: No record arrived for `poll_timeout_s`.
            SparkGroupsError: A broker refuses, not retried; names a remedy.
            AccessError: TLS or authentication failed; not retried.
            ProtocolError: A response cannot be read.
        """
        self._wanted = {cursor.key: cursor for cursor in cursors if not cursor.has_arrived}
        self._leaders.begin(self._wanted)
        self._backoffs.clear()
        self._restart_timeout()
        try:
            while self._wanted:
                self._refresh()
                self._send()
                connection = self._await_response()
                if connection is None:
                    continue
                arrived = self._receive(connection)
                # The next response travels while these records are decoded.
                self._send()
                yield from arrived
                if any(each.next_offset > each.from_offset for each in arrived):
                    # The time to process records does not count.
                    self._restart_timeout()
                # Nothing may hold a frame of its own size while the next one comes.
                arrived = []
        finally:
            # A late response could be taken for the next one.
            self._drop_asked()

    def _restart_timeout(self) -> None:
        self._received_at = time.monotonic()
        self._deadline = self._received_at + self._settings.poll_timeout_s

    def _refresh(self) -> None:
        """Look up leaders if it is time to; topics that stay unknown are lost."""
        lost = self._leaders.refresh(self._wanted)
        if not self._asked:
            self._pool.learn(self._leaders.nodes.values())
        patience_s = min(_TOPICS_S, self._settings.request_timeout_s)
        if lost and time.monotonic() - self._received_at >= patience_s:
            for each in lost:
                self._lose_topic(each)

    def _lose_topic(self, topic: LostTopic) -> None:
        lost = [each for each in self._wanted.values() if each.key.topic_id == topic.topic_id]
        offsets = sum(each.until_offset - each.next_offset for each in lost)
        happened = "was deleted and created again" if topic.is_recreated else "was deleted"
        self._lose(
            f"the topic {topic.name} ({topic_id_text(topic.topic_id)}) {happened}:"
            f" {offsets} offsets cannot be read"
        )
        for each in lost:
            del self._wanted[each.key]

    # Requests

    def _send(self) -> None:
        """Send a request to every broker without one in flight."""
        addresses = {each.address for each in self._asked}
        nodes = self._leaders.nodes.values()
        if addresses and all(Address(each.host, each.port) in addresses for each in nodes):
            return
        busy = {each.key for asked in self._asked.values() for each in asked}
        free = [each for key, each in self._wanted.items() if key not in busy]
        for node_id, cursors in self._leaders.route(free).items():
            node = self._leaders.nodes[node_id]
            address = Address(node.host, node.port)
            backoff = self._backoffs.get(address)
            if backoff is not None and time.monotonic() < backoff.not_before:
                continue
            if address not in addresses:
                addresses.add(address)
                self._send_to(node, cursors)

    def _send_to(self, node: Node, cursors: list[FetchCursor]) -> None:
        epochs, settings = self._leaders.leader_epochs(cursors), self._settings
        values = fetch_to_wire(
            (cursor.asked(epochs[cursor.key], settings.partition_max_bytes) for cursor in cursors),
            read_committed=settings.read_committed,
            max_bytes=settings.max_bytes,
            min_bytes=settings.min_bytes,
            max_wait_ms=settings.max_wait_ms,
            rack=settings.rack,
        )
        try:
            connection = self._pool.to(node, self._deadline, self._pool.timeouts.first_wait_s)
            timeout_s = settings.request_timeout_s + settings.max_wait_ms / 1000
            connection.send(FETCH, values, timeout_s)
        except RequestError as error:
            backoff = self._backoffs.setdefault(Address(node.host, node.port), Backoff())
            backoff.failed(time.monotonic())
            self._leaders.note(str(error), cursors)
        else:
            if not self._asked:
                # Until now no request was in flight.
                self._received_at = max(self._received_at, time.monotonic())
            self._asked[connection] = cursors

    def _await_response(self) -> Connection | None:
        """Return a connection with bytes to read; None if something else is due.

        Raises:
            BrokerUnreachableError: No record arrived in time.
        """
        if time.monotonic() >= self._deadline:
            self._end_cut()
            return None
        silent_at = min((each.deadline for each in self._asked), default=math.inf)
        now = time.monotonic()
        paused = (
            backoff.not_before for backoff in self._backoffs.values() if backoff.not_before > now
        )
        wake_at = min(self._deadline, silent_at, self._leaders.wake_at, *paused)
        with selectors.DefaultSelector() as selector:
            for each in self._asked:
                selector.register(each, selectors.EVENT_READ, each)
            ready = selector.select(max(0.0, wake_at - time.monotonic()))
        if ready:
            connection: Connection = ready[0][0].data
            return connection
        if time.monotonic() >= silent_at:
            self._drop_silent()
        return None

    def _drop_silent(self) -> None:
        """Close the connections on which no answer came in time, and ask for their records again.

        One that came while other records were read or processed waits in the socket, and is not
        among these.
        """
        now = time.monotonic()
        for connection in [each for each in self._asked if each.deadline <= now]:
            cursors = self._asked.pop(connection)
            connection.close()
            self._leaders.note(f"{connection.address} did not answer in time", cursors)

    def _drop_asked(self) -> list[FetchCursor]:
        """Close all connections with a request in flight, and return its cursors."""
        asked, self._asked = self._asked, {}
        for connection in asked:
            connection.close()
        return [cursor for cursors in asked.values() for cursor in cursors]

    # Responses

    def _receive(self, connection: Connection) -> list[Fetched]:
        """Return the records of a response, and handle its errors."""
        cursors = self._asked.pop(connection)
        try:
            idle_s = min(self._settings.request_timeout_s, self._settings.poll_timeout_s)
            values = connection.receive_into(self._buffer, idle_s)
        except RequestError as error:
            self._leaders.note(str(error), cursors)
            return []
        self._received_at = time.monotonic()
        if values["error_code"]:
            fail_if_final(str(connection.address), values["error_code"])
            name = ErrorCode.name_of(values["error_code"])
            self._leaders.note(f"{connection.address} answered {name}", cursors)
        self._leaders.learn_nodes(values["node_endpoints"])
        answers = fetch_from_wire(values)
        arrived = [
            self._take(cursor, answers[cursor.key])
            for cursor in cursors
            # A topic may be lost by now.
            if cursor.key in answers and cursor.key in self._wanted
        ]
        found = [each for each in arrived if each is not None]
        self._pace(connection.address, values["throttle_time_ms"], found)
        if not found:
            # A request may not have room for all partitions: move these to the end.
            for cursor in cursors:
                if cursor.key in self._wanted:
                    self._wanted[cursor.key] = self._wanted.pop(cursor.key)
        return found

    def _pace(self, address: Address, throttle_time_ms: int, found: list[Fetched]) -> None:
        """Note when a broker may be asked again: at once only after an answer with records.

        A broker that throttles states how long it will not answer (KIP-219).
        """
        backoff = self._backoffs.setdefault(address, Backoff())
        now = time.monotonic()
        if any(each.next_offset > each.from_offset for each in found):
            backoff.succeeded()
        else:
            backoff.failed(now)
        if throttle_time_ms > 0:
            backoff.not_before = max(backoff.not_before, now + throttle_time_ms / 1000)
            self._leaders.last_error = f"{address} throttles this client for {throttle_time_ms} ms"

    def _take(self, cursor: FetchCursor, answer: Values) -> Fetched | None:
        code = answer["error_code"]
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and cursor.reads_from_leader:
            self._skip_lost(cursor)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower may be behind: ask its leader.
            cursor.read_from_leader()
        elif code:
            self._leaders.note_refusal(cursor, code, answer["current_leader"])
        elif answer["preferred_read_replica"] != NO_REPLICA:
            cursor.replica_id = answer["preferred_read_replica"]
        elif answer["records"]:
            return self._arrived(cursor, answer)
        elif answer["high_watermark"] <= cursor.next_offset:
            # A follower may stay behind: its leader names a replica that has the records.
            cursor.read_from_leader()
        return None

    def _arrived(self, cursor: FetchCursor, answer: Values) -> Fetched:
        records, from_offset = answer["records"], cursor.next_offset
        next_offset = self._next_offset(records, from_offset)
        if next_offset > from_offset:
            cursor.move(next_offset, len(records))
        else:
            self._leaders.note(f"{cursor.topic_partition}: records without a whole batch", [cursor])
        del self._wanted[cursor.key]
        if not cursor.has_arrived:
            # Moved to the end: a response may be full before each partition had its share.
            self._wanted[cursor.key] = cursor
        aborted = answer["aborted_transactions"] or ()
        return Fetched(
            cursor.topic_partition,
            from_offset,
            next_offset,
            cursor.until_offset,
            records,
            tuple((each["producer_id"], each["first_offset"]) for each in aborted),
        )

    def _skip_lost(self, cursor: FetchCursor) -> None:
        """Continue after offsets that the broker does not have."""
        there = self._offsets_there([cursor]).get(cursor.key)
        if there is None or there.start <= cursor.next_offset < there.stop:
            # Nothing is lost if it has them now: a new leader may have been briefly behind.
            self._leaders.note(f"{cursor.topic_partition}: OFFSET_OUT_OF_RANGE", [cursor])
            return
        self._lose_offsets(cursor, there)
        if cursor.next_offset < there.start < cursor.until_offset:
            cursor.next_offset = there.start
        else:
            del self._wanted[cursor.key]

    def _end_cut(self) -> None:
        """End ranges beyond the end of their partition, where a log was truncated.

        At the very end of a log a broker answers without records, as if more were to come. A
        leader that may have more than it shows does not list its end (KIP-207).

        Raises:
            BrokerUnreachableError: There is no such range: no record arrived in time.
        """
        there = self._offsets_there(self._wanted.values())
        cut = [each for each in there if self._wanted[each].next_offset >= there[each].stop]
        if not cut:
            raise self._timed_out()
        for each in cut:
            self._lose_offsets(self._wanted.pop(each), there[each])
        self._restart_timeout()

    def _lose_offsets(self, cursor: FetchCursor, there: range) -> None:
        self._lose(
            f"{cursor} cannot be read: the broker has offsets from {there.start} until {there.stop}"
        )

    def _offsets_there(self, cursors: Iterable[FetchCursor]) -> dict[TopicIdPartition, range]:
        """Return the existing offsets of partitions whose leaders answer."""
        keys = frozenset(cursor.key for cursor in cursors)
        try:
            (starts, _), (ends, _) = (
                found_and_failed(
                    self._cluster.list_offsets(
                        ListOffsetsRequest(partitions=keys, timestamp_ms=timestamp_ms)
                    ).answers
                )
                for timestamp_ms in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
            )
        except BrokerUnreachableError:
            return {}
        return {
            each: range(starts[each].offset, ends[each].offset)
            for each in starts.keys() & ends.keys()
        }

    def _timed_out(self) -> BrokerUnreachableError:
        waiting = sorted(self._wanted.values(), key=lambda each: each.topic_partition)
        more = f" and {len(waiting) - 1} more ranges" if len(waiting) > 1 else ""
        nodes = self._leaders.nodes.values()
        brokers = ",".join(sorted(f"{node.host}:{node.port}" for node in nodes))
        last_error = f"; last error: {self._leaders.last_error}" if self._leaders.last_error else ""
        return BrokerUnreachableError(
            f"no answer when reading {waiting[0]}{more} for {self._settings.poll_timeout_s:g} s"
            f" (kafkaConsumer.pollTimeoutMs), from brokers of {brokers}{last_error}"
        )
