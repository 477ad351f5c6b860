"""Reading records from brokers that move, throttle, refuse, hang up, or say what makes no sense."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from spark_groups.errors import BrokerUnreachableError, SparkGroupsError
from spark_groups.kafka.addresses import Address
from spark_groups.kafka.cluster import Cluster
from spark_groups.kafka.codec import Values, decode, decode_start
from spark_groups.kafka.fetch_messages import FetchCursor, FetchSettings
from spark_groups.kafka.fetch_schemas import FETCH
from spark_groups.kafka.fetcher import Fetched, Fetcher
from spark_groups.kafka.frame_buffer import FrameBuffer
from spark_groups.kafka.pool import ConnectionPool
from spark_groups.kafka.schemas import REQUEST_HEADER_V2, Message
from spark_groups.kafka.security import Security
from spark_groups.kafka.topic_schemas import LIST_OFFSETS, METADATA
from spark_groups.types import OffsetRange
from tests.kafka.listener import greet, listening, read_frame, response

TOPIC_ID = uuid.UUID(int=5)
SETTINGS = FetchSettings(
    read_committed=False,
    rack="",
    min_bytes=1,
    max_wait_ms=5,
    max_bytes=1_000_000,
    partition_max_bytes=100_000,
    request_timeout_s=1.0,
    poll_timeout_s=3.0,
)
APIS = tuple({"api_key": key, "min_version": 0, "max_version": 20} for key in (1, 2, 3))
NO_ERROR, OUT_OF_RANGE, NOT_LEADER, TOPIC_AUTHORIZATION = 0, 1, 6, 29

Answer = Callable[[int, int], Values | None]
"""From a partition and the offset that is asked for: what a broker says of it."""


def answered(**changes: object) -> Values:
    values = {
        "error_code": NO_ERROR,
        "high_watermark": 100,
        "last_stable_offset": 100,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"",
    }
    return {**values, **changes}


def ten_more(index: int, offset: int) -> Values:
    """Answer with ten offsets; what finds the next offset here reads one from the records."""
    return answered(records=b"%d" % (offset + 10))


def next_offset(records: memoryview, asked: int) -> int:
    return int(bytes(records))


class Broker:
    """A broker of one topic, as far as one who reads records sees it.

    Args:
        node_id: Its id.
        answer: What it says of a partition.
    """

    def __init__(self, node_id: int, answer: Answer = ten_more) -> None:
        self.node_id = node_id
        self.port = 0
        self.answer = answer
        self.cluster: list[Broker] = [self]
        self.leaders = {0: (node_id, 1), 1: (node_id, 1)}
        """Leader and leader epoch of each partition, as this broker knows them."""
        self.topic_id = TOPIC_ID
        self.offsets = {-2: 0, -1: 100}
        self.throttle_time_ms = 0
        self.asked: list[tuple[int, int]] = []
        """Partitions and offsets that were asked for."""
        self.hang_up_next = False

    def __call__(self, peer: socket.socket) -> None:
        greet(peer, APIS)
        while frame := read_frame(peer):
            header, place = decode_start(REQUEST_HEADER_V2, frame)
            message, values = self._reply(header["request_api_key"], frame, place)
            if self.hang_up_next and message is FETCH:
                self.hang_up_next = False
                return
            peer.sendall(response(message, header["correlation_id"], values))

    def _reply(self, api_key: int, frame: bytes, place: int) -> tuple[Message, Values]:
        if api_key == METADATA.api_key:
            return METADATA, self._metadata()
        if api_key == LIST_OFFSETS.api_key:
            asked = decode(LIST_OFFSETS.request, frame, place)
            return LIST_OFFSETS, self._list_offsets(asked)
        if api_key != FETCH.api_key:
            raise ConnectionError("a broker without SASL hangs up on who asks for it")
        return FETCH, self._fetch(decode(FETCH.request, frame, place))

    def _metadata(self) -> Values:
        partitions = [
            {
                "error_code": 0,
                "partition_index": index,
                "leader_id": leader_id,
                "leader_epoch": epoch,
                "replica_nodes": (),
                "isr_nodes": (),
                "offline_replicas": (),
            }
            for index, (leader_id, epoch) in self.leaders.items()
        ]
        topic = {
            "error_code": 0,
            "name": "t",
            "topic_id": self.topic_id,
            "is_internal": False,
            "partitions": partitions,
            "topic_authorized_operations": 0,
        }
        brokers = [
            {"node_id": each.node_id, "host": "127.0.0.1", "port": each.port, "rack": None}
            for each in self.cluster
        ]
        return {
            "throttle_time_ms": 0,
            "brokers": brokers,
            "cluster_id": None,
            "controller_id": 1,
            "topics": (topic,),
        }

    def _list_offsets(self, asked: Values) -> Values:
        (topic,) = asked["topics"]
        partitions = [
            {
                "partition_index": each["partition_index"],
                "error_code": 0,
                "timestamp": -1,
                "offset": self.offsets[each["timestamp"]],
                "leader_epoch": 1,
            }
            for each in topic["partitions"]
        ]
        return {"throttle_time_ms": 0, "topics": ({"name": "t", "partitions": partitions},)}

    def _fetch(self, asked: Values) -> Values:
        partitions = []
        for topic in asked["topics"]:
            for each in topic["partitions"]:
                self.asked.append((each["partition"], each["fetch_offset"]))
                answer = self.answer(each["partition"], each["fetch_offset"])
                if answer is not None:
                    partitions.append({"partition_index": each["partition"], **answer})
        throttle_time_ms, self.throttle_time_ms = self.throttle_time_ms, 0
        if throttle_time_ms:
            partitions = []
        return {
            "throttle_time_ms": throttle_time_ms,
            "error_code": 0,
            "session_id": 0,
            "responses": ({"topic_id": TOPIC_ID, "partitions": partitions},),
        }


@contextmanager
def reading(
    *brokers: Broker, settings: FetchSettings = SETTINGS, lost: list[str] | None = None
) -> Iterator[Fetcher]:
    """Run brokers as one cluster, and a fetcher that begins at the first of them."""
    with ExitStack() as stack:
        for each in brokers:
            each.port = stack.enter_context(listening(each, at_once=True))
            each.cluster = list(brokers)
        first = Address("127.0.0.1", brokers[0].port)
        cluster = stack.enter_context(Cluster(str(first), request_timeout_s=1.0))
        pool = ConnectionPool([first], client_id="t", security=Security(), connect_timeout_s=1.0)
        stack.callback(pool.close)

        def lose(what: str) -> None:
            if lost is None:
                raise AssertionError(what)
            lost.append(what)

        yield Fetcher(
            cluster, pool, FrameBuffer(10_000), settings, next_offset=next_offset, lose=lose
        )


def piece(index: int, first: int, until: int) -> FetchCursor:
    return FetchCursor.of(OffsetRange(TOPIC_ID, "t", index, first, until))


def spans(fetched: list[Fetched]) -> list[tuple[int, int, int]]:
    return [(e.topic_partition.partition, e.from_offset, e.next_offset) for e in fetched]


def read_all(fetcher: Fetcher, *cursors: FetchCursor) -> list[tuple[int, int, int]]:
    return spans([each._replace(records=memoryview(b"")) for each in fetcher.fetch(cursors)])


def test_ranges_are_read_to_their_ends_and_no_further() -> None:
    broker = Broker(1)
    with reading(broker) as fetcher:
        found = read_all(fetcher, piece(0, 0, 25), piece(1, 40, 45), piece(0, 7, 7))
    assert sorted(found) == [(0, 0, 10), (0, 10, 20), (0, 20, 30), (1, 40, 50)]
    assert sorted(broker.asked) == [(0, 0), (0, 10), (0, 20), (1, 40)]


def test_the_next_request_is_under_way_while_records_are_decoded() -> None:
    broker = Broker(1)
    with reading(broker) as fetcher:
        batches = fetcher.fetch([piece(0, 0, 30)])
        next(batches)
        deadline = time.monotonic() + 5
        while (0, 10) not in broker.asked and time.monotonic() < deadline:
            time.sleep(0.01)
        assert broker.asked == [(0, 0), (0, 10)]
        batches.close()


def test_what_got_nothing_is_asked_for_first() -> None:
    order: list[int] = []

    def one_at_a_time(index: int, offset: int) -> Values:
        order.append(index)
        return ten_more(index, offset) if len(order) % 2 else answered()

    broker = Broker(1, one_at_a_time)
    with reading(broker) as fetcher:
        read_all(fetcher, piece(0, 0, 20), piece(1, 0, 20))
    assert order[:6] == [0, 1, 1, 0, 0, 1]


def test_records_of_a_leader_that_moved_are_read_from_the_new_one() -> None:
    old, new = Broker(1), Broker(2)

    def moved(index: int, offset: int) -> Values:
        if offset < 20:
            return ten_more(index, offset)
        old.leaders = new.leaders
        return answered(error_code=NOT_LEADER)

    old.answer, new.leaders = moved, {0: (2, 2)}
    with reading(old, new) as fetcher:
        assert read_all(fetcher, piece(0, 0, 40)) == [(0, n, n + 10) for n in (0, 10, 20, 30)]
    assert new.asked == [(0, 20), (0, 30)]


def test_a_broker_that_hangs_up_is_asked_again_from_where_it_was() -> None:
    broker = Broker(1)
    broker.hang_up_next = True
    with reading(broker) as fetcher:
        assert read_all(fetcher, piece(0, 0, 20)) == [(0, 0, 10), (0, 10, 20)]
    assert broker.asked == [(0, 0), (0, 0), (0, 10)]


def test_a_broker_that_throttles_is_waited_for() -> None:
    broker = Broker(1)
    broker.throttle_time_ms = 100
    with reading(broker) as fetcher:
        assert read_all(fetcher, piece(0, 0, 10)) == [(0, 0, 10)]
    assert broker.asked == [(0, 0), (0, 0)]


def test_a_replica_nearby_is_read_until_it_has_not_what_the_leader_has() -> None:
    leader, follower = Broker(1), Broker(2)
    leader.answer = lambda index, offset: (
        ten_more(index, offset) if offset == 20 else answered(preferred_read_replica=2)
    )
    follower.answer = lambda index, offset: (
        ten_more(index, offset) if offset < 20 else answered(error_code=OUT_OF_RANGE)
    )
    with reading(leader, follower) as fetcher:
        assert read_all(fetcher, piece(0, 0, 30)) == [(0, n, n + 10) for n in (0, 10, 20)]
    assert leader.asked == [(0, 0), (0, 20)]
    assert follower.asked == [(0, 0), (0, 10), (0, 20)]


@pytest.mark.parametrize(
    ("first", "begins", "rest"), [(5, 8, [(0, 8, 18)]), (5, 30, []), (200, 8, [])]
)
def test_offsets_that_are_gone_are_told(
    first: int, begins: int, rest: list[tuple[int, int, int]]
) -> None:
    broker = Broker(1)
    broker.offsets[-2] = begins
    broker.answer = lambda index, offset: (
        ten_more(index, offset) if begins <= offset < 100 else answered(error_code=OUT_OF_RANGE)
    )
    lost: list[str] = []
    with reading(broker, lost=lost) as fetcher:
        assert read_all(fetcher, piece(0, first, first + 10)) == rest
    assert lost == [
        f"t-0 from offset {first} until {first + 10} cannot be read: the broker has offsets from"
        f" {begins} until 100"
    ]


def test_offsets_that_are_there_after_all_are_read() -> None:
    broker = Broker(1)
    answers = [answered(error_code=OUT_OF_RANGE)]
    broker.answer = lambda index, offset: answers.pop() if answers else ten_more(index, offset)
    with reading(broker) as fetcher:
        assert read_all(fetcher, piece(0, 0, 10)) == [(0, 0, 10)]


def test_a_topic_that_is_another_one_now_is_lost() -> None:
    broker = Broker(1)
    broker.topic_id = uuid.uuid4()
    lost: list[str] = []
    with reading(broker, lost=lost) as fetcher:
        assert read_all(fetcher, piece(0, 0, 10), piece(1, 0, 5)) == []
    (text,) = lost
    assert "the topic t (" in text
    assert "was deleted and created again: 15 offsets cannot be read" in text


def test_a_refusal_for_good_names_its_remedy() -> None:
    broker = Broker(1, lambda index, offset: answered(error_code=TOPIC_AUTHORIZATION))
    with reading(broker) as fetcher, pytest.raises(SparkGroupsError, match="needs READ") as caught:
        read_all(fetcher, piece(0, 0, 10))
    assert str(caught.value).startswith("t-0 cannot be read: TOPIC_AUTHORIZATION_FAILED")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda index, offset: answered(), "t-0 from offset 5 until 9"),
        (lambda index, offset: None, "t-0 from offset 5 until 9"),
        (lambda index, offset: answered(error_code=NOT_LEADER), "NOT_LEADER_OR_FOLLOWER"),
        (lambda index, offset: answered(preferred_read_replica=77), "broker 77 is not there"),
        (lambda index, offset: answered(records=b"5"), "records without a whole batch"),
    ],
)
def test_what_never_comes_is_named_in_time(answer: Answer, says: str) -> None:
    began_at = time.monotonic()
    settings = replace(SETTINGS, poll_timeout_s=0.7)
    broker = Broker(1, answer)
    with (
        reading(broker, settings=settings) as fetcher,
        pytest.raises(BrokerUnreachableError, match=says) as caught,
    ):
        read_all(fetcher, piece(0, 5, 9))
    assert "for 0.7 s (kafkaConsumer.pollTimeoutMs)" in str(caught.value)
    assert f"127.0.0.1:{broker.port}" in str(caught.value)
    assert time.monotonic() - began_at < 5
    # Whoever is refused asks again, but not without a pause.
    assert says.startswith("t-0") or len(broker.asked) < 20


def test_a_broker_that_falls_silent_is_asked_anew() -> None:
    broker = Broker(1)
    slow = [1.6]

    def sleepy(index: int, offset: int) -> Values:
        if slow:
            time.sleep(slow.pop())
        return ten_more(index, offset)

    broker.answer = sleepy
    with reading(broker, settings=replace(SETTINGS, poll_timeout_s=10.0)) as fetcher:
        assert read_all(fetcher, piece(0, 0, 10)) == [(0, 0, 10)]
    assert broker.asked == [(0, 0), (0, 0)]


def test_who_stops_early_leaves_nothing_under_way() -> None:
    broker = Broker(1)
    with reading(broker) as fetcher:
        batches = fetcher.fetch([piece(0, 0, 100)])
        next(batches)
        batches.close()
        assert not fetcher._asked
        assert read_all(fetcher, piece(0, 0, 10)) == [(0, 0, 10)]


def test_an_answer_about_what_was_given_up_meanwhile_is_left() -> None:
    with reading(Broker(1)) as fetcher:
        given_up = piece(1, 0, 20)
        batches = fetcher.fetch([piece(0, 0, 20), given_up])
        first = [next(batches), next(batches)]
        assert spans(first) == [(0, 0, 10), (1, 0, 10)]
        del fetcher._wanted[given_up.key]
        assert spans([*batches]) == [(0, 10, 20)]


def test_a_partition_without_a_leader_is_waited_for_at_rest(monkeypatch) -> None:
    broker = Broker(1)
    broker.leaders = {0: (-1, 1)}
    settings = replace(SETTINGS, request_timeout_s=0.2, poll_timeout_s=1.5)
    waits: list[float] = []
    with reading(broker, settings=settings) as fetcher:
        wait = fetcher._await_response
        monkeypatch.setattr(
            fetcher, "_await_response", lambda: (waits.append(time.monotonic()), wait())[1]
        )
        with pytest.raises(BrokerUnreachableError, match="at last: t-0 has no leader"):
            read_all(fetcher, piece(0, 0, 10))
    assert 5 < len(waits) < 50
