"""Samples of records behind offsets without any: markers, aborted records, deleted records."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_groups.group.member.messages import RecordSample
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.fetch.first_records import FirstRecords
from spark_groups.wire.fetch.first_unread import sample_size
from spark_groups.wire.schemas.codec import Values
from tests.wire.fetch.broker import OUT_OF_RANGE, TOPIC_ID, Answer, Broker, answered
from tests.wire.fetch.test_first_unread import ten
from tests.wire.listener import listening
from workshop.parts.encoding import marker

KEYS = [TopicIdPartition(TOPIC_ID, index) for index in (0, 1)]
ABORTED = {"producer_id": 7, "first_offset": 0}
TEN = ten(0).encode()


def sampled(
    answer: Answer, offsets: Mapping[int, int], *, read_committed: bool = True, log_start: int = 0
) -> tuple[FirstRecords, Broker]:
    broker = Broker(1, answer)
    broker.offsets[-2] = log_start
    wanted = {KEYS[index]: offset for index, offset in offsets.items()}
    with (
        listening(broker, at_once=True) as broker.port,
        Cluster(f"127.0.0.1:{broker.port}") as cluster,
    ):
        found = cluster.sample_records(wanted, read_committed=read_committed, timeout_s=30.0)
    return found, broker


def size_of(records: bytes, offset: int) -> RecordSample:
    sample = sample_size(records, offset)
    assert sample is not None
    return sample


def log(end: int, *batches: tuple[int, bytes], **more: object) -> Answer:
    """A broker that answers with one batch each time, by its last offset."""

    def answer(index: int, offset: int) -> Values:
        records = next((each for last, each in batches if last >= offset), b"")
        return answered(high_watermark=end, last_stable_offset=end, records=records, **more)

    return answer


@pytest.mark.parametrize("read_committed", [True, False])
def test_records_behind_a_marker_and_an_aborted_transaction_are_sampled(
    *, read_committed: bool
) -> None:
    aborted = ten(1, is_transactional=True, producer_id=7).encode()
    batches = (
        (0, marker(0, 3, is_abort=False).encode()),
        (10, aborted),
        (11, marker(11, 7, is_abort=True).encode()),
        (21, ten(12).encode()),
    )
    listed = [ABORTED] if read_committed else None
    answer = log(22, *batches, aborted_transactions=listed)
    found, broker = sampled(answer, {0: 0}, read_committed=read_committed)
    begin = 12 if read_committed else 1
    sample = size_of(ten(12).encode(), 12) if read_committed else size_of(aborted, 1)
    assert (found.samples, found.reached) == ({KEYS[0]: sample}, {KEYS[0]: begin})
    assert sample.offsets == 10
    assert not found.unknown
    assert [offset for _, offset in broker.asked] == ([0, 1, 11, 12] if read_committed else [0, 1])


@pytest.mark.parametrize("batch", [b"", marker(20, 7, is_abort=True).encode()])
def test_a_log_that_ends_without_a_record_is_sampled_as_none(batch: bytes) -> None:
    found, broker = sampled(log(21, (20, batch)), {0: 20})
    assert (found.samples[KEYS[0]].size_bytes, found.reached) == (0, {KEYS[0]: 21})
    assert len(broker.asked) == 1


def test_the_search_ends_at_the_last_stable_offset() -> None:
    def answer(index: int, offset: int) -> Values:
        records = marker(20, 7, is_abort=True).encode() if offset == 20 else b""
        return answered(high_watermark=90, last_stable_offset=21, records=records)

    found, broker = sampled(answer, {0: 20})
    assert found.reached == {KEYS[0]: 21}
    assert len(broker.asked) == 1


def test_where_retention_has_deleted_the_offset_the_log_is_sampled_from_its_beginning() -> None:
    def answer(index: int, offset: int) -> Values:
        if index == 0 and offset < 1_000:
            # Kafka names no log_start_offset beside this error.
            return answered(error_code=OUT_OF_RANGE, high_watermark=-1, log_start_offset=-1)
        records = ten(1_000).encode() if index == 0 else TEN
        return answered(high_watermark=2_000, last_stable_offset=2_000, records=records)

    found, broker = sampled(answer, {0: 5, 1: 0}, log_start=1_000)
    sample = size_of(TEN, 0)
    assert found.samples == {KEYS[0]: sample, KEYS[1]: sample}
    assert found.reached == {KEYS[0]: 1_000, KEYS[1]: 0}
    assert not found.unknown
    assert broker.asked[-1] == (0, 1_000)


def test_an_offset_beyond_the_log_remains_unknown() -> None:
    def answer(index: int, offset: int) -> Values:
        return answered(error_code=OUT_OF_RANGE, high_watermark=-1, log_start_offset=-1)

    found, _ = sampled(answer, {0: 50}, log_start=10)
    assert not found.samples
    assert found.unknown == {KEYS[0]: "OFFSET_OUT_OF_RANGE"}
