"""Reading records from brokers that move, throttle, refuse, hang up, or say what makes no sense."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace

import pytest

from spark_groups.errors import BrokerUnreachableError, SparkGroupsError
from spark_groups.types import OffsetRange
from spark_groups.wire.fetch.fetch_messages import FetchCursor
from spark_groups.wire.fetch.fetcher import Fetched, Fetcher
from spark_groups.wire.schemas.codec import Values
from tests.wire.fetch.broker import (
    NOT_LEADER,
    OUT_OF_RANGE,
    SETTINGS,
    TOPIC_AUTHORIZATION,
    TOPIC_ID,
    Answer,
    Broker,
    answered,
    reading,
    ten_more,
)
from workshop.parts.waiting import SOON_S, wait_until

POLL_S = 2.0
"""After which a reader gives up; the answers that its error names came long before."""


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
        wait_until(lambda: (0, 10) in broker.asked, what="the next request")
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


def test_leaders_are_kept_for_the_next_read_until_they_move() -> None:
    old, new = Broker(1), Broker(2)
    with reading(old, new) as fetcher:
        read_all(fetcher, piece(0, 0, 10))
        read_all(fetcher, piece(0, 10, 20))
        assert old.looked_up + new.looked_up == 1
        old.answer = lambda *_: answered(error_code=NOT_LEADER)
        old.leaders = new.leaders = {0: (2, 2)}
        assert read_all(fetcher, piece(0, 20, 30)) == [(0, 20, 30)]
    assert old.looked_up + new.looked_up == 2


def test_who_finds_no_room_in_a_request_has_a_turn(monkeypatch) -> None:
    monkeypatch.setattr("spark_groups.wire.fetch.leaders._ASKED_AT_ONCE", 1)

    def nothing_of_the_first(index: int, offset: int) -> Values:
        return ten_more(index, offset) if index or len(broker.asked) > 3 else answered()

    broker = Broker(1, nothing_of_the_first)
    with reading(broker) as fetcher:
        assert read_all(fetcher, piece(0, 0, 10), piece(1, 0, 20)) == [
            (1, 0, 10),
            (1, 10, 20),
            (0, 0, 10),
        ]
    assert broker.asked == [(0, 0), (1, 0), (0, 0), (1, 10), (0, 0)]


def test_a_broker_that_hangs_up_is_asked_again_from_where_it_was() -> None:
    broker = Broker(1)
    broker.hang_up_next = True
    with reading(broker) as fetcher:
        assert read_all(fetcher, piece(0, 0, 20)) == [(0, 0, 10), (0, 10, 20)]
    assert broker.asked == [(0, 0), (0, 0), (0, 10)]


def test_a_broker_that_throttles_is_waited_for() -> None:
    broker, broker_pause_s = Broker(1), 0.1
    broker.throttle_time_ms = round(broker_pause_s * 1000)
    asked_at: list[float] = []

    def noted(index: int, offset: int) -> Values:
        asked_at.append(time.monotonic())
        return ten_more(index, offset)

    broker.answer = noted
    with reading(broker) as fetcher:
        assert read_all(fetcher, piece(0, 0, 10)) == [(0, 0, 10)]
    assert broker.asked == [(0, 0), (0, 0)]
    assert asked_at[1] - asked_at[0] >= broker_pause_s


def test_a_broker_that_throttles_for_ever_is_given_up() -> None:
    broker = Broker(1)
    broker.throttle_time_ms = 2**31 - 1
    settings = replace(SETTINGS, poll_timeout_s=POLL_S)
    with (
        reading(broker, settings=settings) as fetcher,
        pytest.raises(BrokerUnreachableError, match="throttles"),
    ):
        read_all(fetcher, piece(0, 0, 10))


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


def test_a_replica_nearby_that_stays_behind_is_left() -> None:
    leader, follower = Broker(1), Broker(2)
    in_sync = [True]
    leader.answer = lambda index, offset: (
        answered(preferred_read_replica=2) if in_sync else ten_more(index, offset)
    )

    def stuck(index: int, offset: int) -> Values:
        if offset < 10:
            return ten_more(index, offset)
        in_sync.clear()
        return answered(high_watermark=10)

    follower.answer = stuck
    with reading(leader, follower) as fetcher:
        assert read_all(fetcher, piece(0, 0, 30)) == [(0, n, n + 10) for n in (0, 10, 20)]
    assert leader.asked == [(0, 0), (0, 10), (0, 20)]
    assert follower.asked == [(0, 0), (0, 10)]


def test_brokers_at_one_address_are_asked_in_turn() -> None:
    broker = Broker(1)
    namesake = Broker(2)
    broker.leaders = {0: (1, 1), 1: (2, 1)}
    with reading(broker) as fetcher:
        namesake.port = broker.port
        broker.cluster.append(namesake)
        found = read_all(fetcher, piece(0, 0, 20), piece(1, 0, 20))
    assert sorted(found) == [(0, 0, 10), (0, 10, 20), (1, 0, 10), (1, 10, 20)]


@pytest.mark.parametrize(
    ("first", "begins", "rest"), [(5, 8, [(0, 8, 18)]), (5, 30, []), (200, 8, [])]
)
def test_deleted_offsets_are_reported(
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


def test_a_log_truncated_within_a_range_is_reported_after_a_silence() -> None:
    broker = Broker(1)
    broker.offsets[-1] = 20
    broker.answer = lambda index, offset: (
        ten_more(index, offset) if offset < 20 or index else answered()
    )
    lost: list[str] = []
    settings = replace(SETTINGS, poll_timeout_s=POLL_S)
    with reading(broker, settings=settings, lost=lost) as fetcher:
        found = read_all(fetcher, piece(0, 5, 40), piece(1, 0, 20))
    assert sorted(found) == [(0, 5, 15), (0, 15, 25), (1, 0, 10), (1, 10, 20)]
    assert lost == [
        "t-0 from offset 25 until 40 cannot be read: the broker has offsets from 0 until 20"
    ]


def test_a_topic_that_is_another_one_now_is_lost() -> None:
    broker = Broker(1)
    broker.topic_id = uuid.uuid4()
    lost: list[str] = []
    settings = replace(SETTINGS, request_timeout_s=1.0)
    with reading(broker, settings=settings, lost=lost) as fetcher:
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
        (lambda index, offset: answered(preferred_read_replica=77), "broker 77 is not alive"),
        (lambda index, offset: answered(records=b"5"), "records without a whole batch"),
    ],
)
def test_what_never_comes_is_named_in_time(answer: Answer, says: str) -> None:
    began_at = time.monotonic()
    settings = replace(SETTINGS, poll_timeout_s=POLL_S)
    broker = Broker(1, answer)
    with (
        reading(broker, settings=settings) as fetcher,
        pytest.raises(BrokerUnreachableError, match=says) as caught,
    ):
        read_all(fetcher, piece(0, 5, 9))
    assert f"for {POLL_S:g} s (kafkaConsumer.pollTimeoutMs)" in str(caught.value)
    assert f"127.0.0.1:{broker.port}" in str(caught.value)
    assert time.monotonic() - began_at < SOON_S
    # After a refusal or an empty answer it asks again, but not without a pause.
    assert len(broker.asked) < 20


def test_a_broker_that_falls_silent_is_asked_again() -> None:
    broker = Broker(1)
    first, asked_again = [True], threading.Event()

    def sleepy(index: int, offset: int) -> Values:
        if first:
            first.clear()
            asked_again.wait(SOON_S)
        asked_again.set()
        return ten_more(index, offset)

    broker.answer = sleepy
    with reading(broker, settings=replace(SETTINGS, request_timeout_s=1.0)) as fetcher:
        assert read_all(fetcher, piece(0, 0, 10)) == [(0, 0, 10)]
    # On a busy machine it may fall silent more than once.
    assert broker.asked[:2] == [(0, 0), (0, 0)]


def test_who_stops_early_leaves_nothing_under_way() -> None:
    broker = Broker(1)
    with reading(broker) as fetcher:
        batches = fetcher.fetch([piece(0, 0, 100)])
        next(batches)
        batches.close()
        assert not fetcher._asked
        assert read_all(fetcher, piece(0, 0, 10)) == [(0, 0, 10)]


def test_an_answer_about_a_range_given_up_meanwhile_is_left() -> None:
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
    settings = replace(SETTINGS, request_timeout_s=0.2, poll_timeout_s=POLL_S)
    waits: list[int] = []
    with reading(broker, settings=settings) as fetcher:
        wait = fetcher._await_response
        monkeypatch.setattr(fetcher, "_await_response", lambda: (waits.append(1), wait())[1])
        with pytest.raises(BrokerUnreachableError, match="last error: t-0 has no leader"):
            read_all(fetcher, piece(0, 0, 10))
    assert 0 < len(waits) < 50
