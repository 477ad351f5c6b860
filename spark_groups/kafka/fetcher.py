"""Reads records of any number of ranges from the leaders of their partitions.

Each broker has one request under way: the next one is sent as soon as a response is there, before
anybody decodes it. Responses are received one at a time, into one buffer; those of other brokers
wait in the system's buffers, which bound themselves.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from spark_groups.errors import (
    BrokerUnreachableError,
    ErrorCode,
    Reaction,
    SparkGroupsError,
    rule_for,
)
from spark_groups.kafka.cluster import Cluster
from spark_groups.kafka.codec import Values
from spark_groups.kafka.connection import Connection, RequestError
from spark_groups.kafka.fetch_messages import (
    NO_REPLICA,
    FetchCursor,
    FetchSettings,
    fetch_from_wire,
    fetch_to_wire,
)
from spark_groups.kafka.fetch_schemas import FETCH
from spark_groups.kafka.frame_buffer import FrameBuffer
from spark_groups.kafka.pool import ConnectionPool
from spark_groups.kafka.topics import NO_LEADER, Leader
from spark_groups.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsRequest,
    Node,
)
from spark_groups.types import TopicIdPartition, TopicPartition, topic_id_text

_RETRY_S: Final = 0.1
"""How long it takes until leaders are looked up again."""
_TOPICS_S: Final = 5.0
"""How long a broker that has not caught up may name other topics than those that were planned."""

NextOffset = Callable[[memoryview, int], int]
"""From records and the offset that was asked for: the offset behind the records."""
Lose = Callable[[str], None]
"""Takes what is lost, in words; raises an error, or returns to go on with what there is."""


class Fetched(NamedTuple):
    """Records of one partition, until the next ones are asked for.

    Args:
        topic_partition: Whose records they are.
        from_offset: The offset that was asked for.
        next_offset: The offset behind the last whole batch.
        until_offset: The first offset that is not wanted.
        records: Whole batches, perhaps more than is wanted, perhaps followed by a part of one.
        aborted: Producer id and first offset of aborted transactions, under read_committed.
    """

    topic_partition: TopicPartition
    from_offset: int
    next_offset: int
    until_offset: int
    records: memoryview
    aborted: tuple[tuple[int, int], ...]


class Fetcher:
    """One reading of ranges; used by one thread.

    Args:
        cluster: For metadata and lists of offsets, with connections of its own.
        pool: The connections that records come by.
        buffer: Where responses are received.
        settings: How records are read.
        next_offset: What finds the offset behind records.
        lose: What is told of offsets that are gone.
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
        self._wanted: dict[TopicIdPartition, FetchCursor] = {}
        """What has not arrived; who waited longest comes first."""
        self._leaders: dict[TopicIdPartition, Leader] = {}
        self._nodes: dict[int, Node] = {}
        self._outdated: set[TopicIdPartition] = set()
        """Partitions whose leaders must be looked up."""
        self._refresh_at = 0.0
        self._deadline = 0.0
        self._heard_at = 0.0
        self._asked: dict[Connection, list[FetchCursor]] = {}
        """What is under way."""
        self._last_error = ""

    def fetch(self, cursors: Iterable[FetchCursor]) -> Iterator[Fetched]:
        """Read to the end of all ranges.

        Args:
            cursors: What is read, at most one for each partition; they are moved.

        Raises:
            BrokerUnreachableError: No record came for `poll_timeout_s`.
            SparkGroupsError: A broker refuses for good; a remedy is named.
            AccessError: Who we are, or what we trust, was refused.
            ProtocolError: A response cannot be read.
        """
        self._wanted = {each.key: each for each in cursors if not each.is_fetched}
        self._outdated = set(self._wanted)
        self._wait_anew()
        try:
            while self._wanted:
                self._refresh()
                self._send()
                connection = self._await_response()
                if connection is None:
                    continue
                arrived = self._receive(connection)
                # The next response is on its way while these are decoded.
                self._send()
                yield from arrived
                if any(each.next_offset > each.from_offset for each in arrived):
                    # What is done with records takes no time from the brokers.
                    self._wait_anew()
                # Nothing may hold a frame of its own size while the next one comes.
                arrived = []
        finally:
            # A response that nobody waits for would be taken for the next one's.
            self._drop_asked()

    def _wait_anew(self) -> None:
        self._heard_at = time.monotonic()
        self._deadline = self._heard_at + self._settings.poll_timeout_s

    def _note(self, problem: str, keys: Iterable[TopicIdPartition]) -> None:
        """Take note of what went wrong with partitions, whose leaders are looked up again."""
        self._last_error = problem
        self._outdated.update(keys)
        self._refresh_at = max(self._refresh_at, time.monotonic() + _RETRY_S)

    # Leaders

    def _refresh(self) -> None:
        """Look up who leads the partitions that nobody is known to lead any more."""
        self._outdated &= self._wanted.keys()
        if not self._outdated or time.monotonic() < self._refresh_at:
            return
        keys, self._outdated = self._outdated, set()
        try:
            known = self._cluster.topics(
                {self._wanted[each].topic_partition.topic for each in keys}
            )
        except BrokerUnreachableError as error:
            if not self._leaders:
                raise
            self._note(str(error), keys)
            return
        self._nodes = dict(known.nodes)
        if not self._asked:
            self._pool.learn(self._nodes.values())
        for name, code in known.errors.items():
            self._fail_if_final(name, code)
        ids = {each.topic.name: each.topic.topic_id for each in known.topics.values()}
        gone = set()
        for key in keys:
            topic = known.topics.get(key.topic_id)
            leader = topic.leaders.get(key.partition) if topic is not None else None
            if leader is not None and leader.node_id != NO_LEADER:
                self._leaders[key] = leader
                continue
            name = self._wanted[key].topic_partition.topic
            if topic is None and name not in known.errors:
                gone.add((key.topic_id, name))
            self._note(f"{self._wanted[key].topic_partition} has no leader", [key])
        patience_s = min(_TOPICS_S, self._settings.request_timeout_s)
        if gone and time.monotonic() - self._heard_at >= patience_s:
            for topic_id, name in sorted(gone):
                self._lose_topic(topic_id, name, is_recreated=name in ids)

    def _lose_topic(self, topic_id: Any, name: str, *, is_recreated: bool) -> None:
        lost = [each for each in self._wanted.values() if each.key.topic_id == topic_id]
        offsets = sum(each.until_offset - each.next_offset for each in lost)
        happened = "was deleted and created again" if is_recreated else "is gone"
        self._lose(
            f"the topic {name} ({topic_id_text(topic_id)}) {happened}:"
            f" {offsets} offsets cannot be read"
        )
        for each in lost:
            del self._wanted[each.key]

    # Requests

    def _send(self) -> None:
        """Ask every broker that is not busy for all that is wanted from it."""
        busy = {each.key for asked in self._asked.values() for each in asked}
        by_node: dict[int, list[FetchCursor]] = {}
        for key, cursor in self._wanted.items():
            if key not in busy and key not in self._outdated:
                node_id = cursor.replica_id
                if node_id not in self._nodes:
                    node_id = self._leaders[key].node_id
                by_node.setdefault(node_id, []).append(cursor)
        addresses = {(each.address.host, each.address.port) for each in self._asked}
        for node_id, cursors in by_node.items():
            node = self._nodes.get(node_id)
            keys = [each.key for each in cursors]
            if node is None:
                self._note(f"broker {node_id} is not there", keys)
            elif (node.host, node.port) not in addresses:
                self._send_to(node, cursors, keys)

    def _send_to(
        self, node: Node, cursors: list[FetchCursor], keys: list[TopicIdPartition]
    ) -> None:
        epochs = {each: self._leaders[each].leader_epoch for each in keys}
        try:
            connection = self._pool.to(node, self._deadline)
            connection.send(
                FETCH,
                fetch_to_wire(self._settings, cursors, epochs),
                self._settings.request_timeout_s,
            )
        except RequestError as error:
            self._note(str(error), keys)
            for each in cursors:
                each.replica_id = NO_REPLICA
        else:
            self._asked[connection] = cursors

    def _await_response(self) -> Connection | None:
        """Return a connection that has something to read, None if there is something else to do.

        Raises:
            BrokerUnreachableError: No record came in time.
        """
        patience_s = self._settings.request_timeout_s + self._settings.max_wait_ms / 1000
        silent_at = self._heard_at + patience_s
        wake_at = min(self._deadline, silent_at)
        if self._outdated:
            wake_at = min(wake_at, self._refresh_at)
        with selectors.DefaultSelector() as selector:
            for each in self._asked:
                selector.register(each, selectors.EVENT_READ, each)
            ready = selector.select(max(0.0, wake_at - time.monotonic()))
        if ready:
            connection: Connection = ready[0][0].data
            return connection
        now = time.monotonic()
        if now >= self._deadline:
            raise self._timed_out()
        if now >= silent_at and self._asked:
            self._note(f"nothing came for {patience_s:g} s", self._drop_asked())
            self._heard_at = now
        return None

    def _drop_asked(self) -> list[TopicIdPartition]:
        """Hang up on all that is under way, and return whose records it was."""
        asked, self._asked = self._asked, {}
        for connection in asked:
            connection.close()
        return [each.key for cursors in asked.values() for each in cursors]

    # Responses

    def _receive(self, connection: Connection) -> list[Fetched]:
        """Return the records of a response, and act on the errors in it."""
        cursors = self._asked.pop(connection)
        try:
            values = connection.receive_into(self._buffer, self._settings.request_timeout_s)
        except RequestError as error:
            self._note(str(error), [each.key for each in cursors])
            for each in cursors:
                each.replica_id = NO_REPLICA
            return []
        # A broker that throttles is silent for as long as it says.
        self._heard_at = time.monotonic() + values["throttle_time_ms"] / 1000
        if values["error_code"]:
            self._fail_if_final(str(connection.address), values["error_code"])
            name = ErrorCode.name_of(values["error_code"])
            self._note(f"{connection.address} answered {name}", [each.key for each in cursors])
        for each in values["node_endpoints"]:
            node_id = each["node_id"]
            self._nodes[node_id] = Node(node_id, each["host"], each["port"])
        answers = fetch_from_wire(values)
        arrived = [self._take(each, answers[each.key]) for each in cursors if each.key in answers]
        return [each for each in arrived if each is not None]

    def _take(self, cursor: FetchCursor, answer: Values) -> Fetched | None:
        code = answer["error_code"]
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and cursor.replica_id == NO_REPLICA:
            self._skip_lost(cursor)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower may be behind: its leader knows.
            cursor.replica_id = NO_REPLICA
        elif code:
            self._note_refusal(cursor, code, answer["current_leader"])
        elif answer["preferred_read_replica"] != NO_REPLICA:
            cursor.replica_id = answer["preferred_read_replica"]
            if cursor.replica_id not in self._nodes:
                self._note(f"broker {cursor.replica_id} is not there", [cursor.key])
        elif answer["records"]:
            return self._arrived(cursor, answer)
        return None

    def _arrived(self, cursor: FetchCursor, answer: Values) -> Fetched:
        records, from_offset = answer["records"], cursor.next_offset
        next_offset = self._next_offset(records, from_offset)
        if next_offset > from_offset:
            cursor.move(next_offset, len(records))
        else:
            self._note(f"{cursor.topic_partition}: records without a whole batch", [cursor.key])
        del self._wanted[cursor.key]
        if not cursor.is_fetched:
            # Behind those that wait: a response is full before everybody had a share of it.
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

    def _note_refusal(self, cursor: FetchCursor, code: int, told: Mapping[str, int]) -> None:
        name = str(cursor.topic_partition)
        self._fail_if_final(name, code)
        cursor.replica_id = NO_REPLICA
        leader = Leader(told["leader_id"], told["leader_epoch"])
        known = self._leaders[cursor.key]
        if leader.leader_epoch > known.leader_epoch and leader.node_id in self._nodes:
            self._leaders[cursor.key] = leader
        else:
            self._note(f"{name}: {ErrorCode.name_of(code)}", [cursor.key])

    def _fail_if_final(self, name: str, code: int) -> None:
        rule = rule_for(code)
        if rule.lookup is Reaction.FAIL:
            raise SparkGroupsError(
                f"{name} cannot be read: {ErrorCode.name_of(code)}; {rule.remedy}"
            )

    def _skip_lost(self, cursor: FetchCursor) -> None:
        """Go on after offsets that the broker no longer has, or has not."""
        earliest = self._listed(cursor, EARLIEST_TIMESTAMP)
        end = self._listed(cursor, LATEST_TIMESTAMP)
        if earliest is None or end is None or earliest <= cursor.next_offset < end:
            # Nothing is lost if it has them now: a new leader may have been behind for a moment.
            self._note(f"{cursor.topic_partition}: OFFSET_OUT_OF_RANGE", [cursor.key])
            return
        self._lose(f"{cursor} cannot be read: the broker has offsets from {earliest} until {end}")
        if cursor.next_offset < earliest < cursor.until_offset:
            cursor.next_offset = earliest
        else:
            del self._wanted[cursor.key]

    def _listed(self, cursor: FetchCursor, timestamp_ms: int) -> int | None:
        asked = ListOffsetsRequest(partitions=frozenset({cursor.key}), timestamp_ms=timestamp_ms)
        try:
            return self._cluster.list_offsets(asked).offsets.get(cursor.key)
        except BrokerUnreachableError:
            return None

    def _timed_out(self) -> BrokerUnreachableError:
        waiting = sorted(self._wanted.values(), key=lambda each: each.topic_partition)
        more = f" and {len(waiting) - 1} more ranges" if len(waiting) > 1 else ""
        brokers = ",".join(sorted(f"{each.host}:{each.port}" for each in self._nodes.values()))
        happened = f"; at last: {self._last_error}" if self._last_error else ""
        return BrokerUnreachableError(
            f"no answer when reading {waiting[0]}{more} for {self._settings.poll_timeout_s:g} s"
            f" (kafkaConsumer.pollTimeoutMs), from brokers of {brokers}{happened}"
        )
