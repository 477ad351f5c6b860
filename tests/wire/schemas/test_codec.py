"""The codec: round trips, kio as the oracle, and bytes that no peer should send."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import struct
import tracemalloc
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_groups.errors import ProtocolError
from spark_groups.wire.schemas.codec import decode, encode
from spark_groups.wire.schemas.wire_messages import (
    API_VERSIONS_V3,
    CONSUMER_GROUP_HEARTBEAT,
    FETCH,
    FIND_COORDINATOR,
    INT32,
    LIST_GROUPS,
    METADATA,
    OFFSET_FETCH_V10,
    REQUEST_HEADER_V1,
    REQUEST_HEADER_V2,
    STRING,
    Field,
    Struct,
)
from workshop.parts.wire_values import MESSAGES, kio_bytes, kio_entity_type, to_kio, values_of

PARTS = [(message, part) for message in MESSAGES for part in ("request", "response")]
SCHEMAS = [getattr(message, part) for message, part in PARTS]
SCHEMAS += [REQUEST_HEADER_V1, REQUEST_HEADER_V2]
each_schema = pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
relaxed = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
"""For each of some fifty schemas; the target `codec` of the fuzzer feeds thousands of inputs."""


def without_tagged(schema: Struct, values: dict) -> dict:
    return {e.name: untagged(e, values[e.name]) for e in schema.fields if e.tag is None}


def untagged(spec: Field, value: object) -> object:
    if not isinstance(spec.kind, Struct) or value is None:
        return value
    if spec.array:
        return tuple(without_tagged(spec.kind, each) for each in value)
    return without_tagged(spec.kind, value)


@each_schema
def test_reads_back_what_it_wrote(schema: Struct) -> None:
    @relaxed
    @given(values_of(schema))
    def check(values: dict) -> None:
        assert without_tagged(schema, decode(schema, encode(schema, values))) == values

    check()


@pytest.mark.parametrize(("message", "part"), PARTS, ids=str)
def test_is_byte_identical_to_kio_both_ways(message, part) -> None:
    pytest.importorskip("kio")
    from kio.serial import entity_reader

    schema, entity_type = getattr(message, part), kio_entity_type(message, part)
    read = entity_reader(entity_type)

    @relaxed
    @given(values_of(schema))
    def check(values: dict) -> None:
        entity = to_kio(entity_type, values, schema)
        theirs = kio_bytes(entity)
        ours = encode(schema, values)
        assert ours == theirs
        assert without_tagged(schema, decode(schema, theirs)) == values
        assert read(ours, 0)[0] == entity

    check()


@pytest.mark.parametrize(("version", "schema"), [(1, REQUEST_HEADER_V1), (2, REQUEST_HEADER_V2)])
def test_headers_are_byte_identical_to_kio(version: int, schema: Struct) -> None:
    pytest.importorskip("kio")
    header = importlib.import_module(f"kio.schema.request_header.v{version}.header").RequestHeader

    @relaxed
    @given(values_of(schema))
    def check(values: dict) -> None:
        assert encode(schema, values) == kio_bytes(header(**values))

    check()


def test_reads_tagged_features_that_kio_wrote() -> None:
    pytest.importorskip("kio")
    from kio.schema.api_versions.v3 import response as theirs

    entity = theirs.ApiVersionsResponse(
        error_code=theirs.ErrorCode(0),
        api_keys=(),
        throttle_time=datetime.timedelta(0),
        supported_features=(
            theirs.SupportedFeatureKey(name="metadata.version", min_version=7, max_version=30),
        ),
        finalized_features_epoch=12,
        finalized_features=(
            theirs.FinalizedFeatureKey(
                name="group.version", max_version_level=1, min_version_level=1
            ),
        ),
    )
    values = decode(API_VERSIONS_V3.response, kio_bytes(entity))
    assert values["supported_features"] == (
        {"name": "metadata.version", "min_version": 7, "max_version": 30},
    )
    assert values["finalized_features_epoch"] == 12
    assert values["finalized_features"][0]["max_version_level"] == 1
    assert values["zk_migration_ready"] is False


@each_schema
def test_every_truncation_is_a_protocol_error(schema: Struct) -> None:
    @settings(relaxed, max_examples=10)
    @given(values_of(schema))
    def check(values: dict) -> None:
        whole = encode(schema, values)
        for end in range(len(whole)):
            with pytest.raises(ProtocolError, match=r"cannot be read|follow"):
                decode(schema, whole[:end])

    check()


@each_schema
def test_corrupted_bytes_never_raise_anything_else(schema: Struct) -> None:
    @settings(relaxed, max_examples=40)
    @given(values_of(schema), st.data())
    def check(values: dict, draw: st.DataObject) -> None:
        damaged = bytearray(encode(schema, values))
        if not damaged:
            return
        for _ in range(draw.draw(st.integers(1, 4))):
            place = draw.draw(st.integers(0, len(damaged) - 1))
            damaged[place] = draw.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xC0, 0xFF]))
        with contextlib.suppress(ProtocolError):
            decode(schema, bytes(damaged))

    check()


@each_schema
def test_noise_never_raises_anything_else(schema: Struct) -> None:
    @settings(relaxed, max_examples=40)
    @given(st.binary(max_size=200))
    def check(noise: bytes) -> None:
        with contextlib.suppress(ProtocolError):
            decode(schema, noise)

    check()


def test_trailing_bytes_are_refused() -> None:
    whole = encode(FIND_COORDINATOR.request, {"key_type": 0, "coordinator_keys": ("g",)})
    with pytest.raises(ProtocolError, match="1 bytes follow the end of FindCoordinatorRequest"):
        decode(FIND_COORDINATOR.request, whole + b"\0")


THROTTLE_AND_ERROR = struct.pack(">ih", 0, 0)


@pytest.mark.parametrize(
    ("schema", "frame", "says"),
    [
        (LIST_GROUPS.response, THROTTLE_AND_ERROR + b"\xff\xff\xff\xff\x0f", "groups of 42949672"),
        (LIST_GROUPS.response, THROTTLE_AND_ERROR + b"\xff\xff\xff\xff\x7f", "32 bits"),
        (LIST_GROUPS.response, THROTTLE_AND_ERROR + b"\xff" * 8, "32 bits"),
        (LIST_GROUPS.response, THROTTLE_AND_ERROR + b"\x00\x00", "groups of -1"),
        (LIST_GROUPS.response, THROTTLE_AND_ERROR + b"\x02\xf0\x01abc", "a string of 239 bytes"),
        (LIST_GROUPS.response, THROTTLE_AND_ERROR + b"\x02\x02\xff\x01\x01\x01\0\0", "utf-8"),
        (LIST_GROUPS.response, THROTTLE_AND_ERROR + b"\x01\x01\x00\x7fxx", "tagged field of 127"),
        (LIST_GROUPS.response, THROTTLE_AND_ERROR + b"\x02\x00\x01\x01\x01\0\0", "length -1"),
        (REQUEST_HEADER_V1, struct.pack(">hhih", 1, 1, 1, -2), "length -2"),
        (METADATA.response, b"", "cannot be read"),
    ],
)
def test_hostile_lengths_are_refused_with_the_reason(
    schema: Struct, frame: bytes, says: str
) -> None:
    with pytest.raises(ProtocolError, match=says):
        decode(schema, frame)


def test_a_huge_count_allocates_nothing() -> None:
    frame = THROTTLE_AND_ERROR + b"\xff\xff\xff\xff\x07" + b"\0" * 1000
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        decode(LIST_GROUPS.response, frame)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(FIND_COORDINATOR.request, {"key_type": 0, "coordinator_keys": ("g",)})
    tagged = plain[:-1] + b"\x02\x05\x03abc\x90\x4e\x00"
    assert decode(FIND_COORDINATOR.request, tagged) == decode(FIND_COORDINATOR.request, plain)


def test_null_assignment_differs_from_an_empty_one() -> None:
    values = {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "member_id": "m",
        "member_epoch": 1,
        "heartbeat_interval_ms": 5000,
    }
    schema = CONSUMER_GROUP_HEARTBEAT.response
    for assignment in (None, {"topic_partitions": ()}):
        whole = encode(schema, {**values, "assignment": assignment})
        assert decode(schema, whole)["assignment"] == assignment


@pytest.mark.parametrize(
    "values",
    [
        {"group_id": "g"},
        {"groups": ({"group_id": None},), "require_stable": True},
        {"groups": None, "require_stable": True},
        {"groups": (), "require_stable": "?" * 3, "more": 1} | {"groups": 7},
    ],
)
def test_values_that_do_not_fit_the_table_are_refused(values: dict) -> None:
    with pytest.raises(ProtocolError, match="OffsetFetchRequest v10 cannot be written"):
        encode(OFFSET_FETCH_V10.request, values)


@pytest.mark.parametrize("text", ["x" * 32768, "\ud800"])
def test_strings_no_broker_takes_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="cannot be written"):
        encode(FIND_COORDINATOR.request, {"key_type": 0, "coordinator_keys": (text,)})


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ProtocolError, match="cannot be written"):
        encode(FIND_COORDINATOR.request, {"key_type": 128, "coordinator_keys": ()})


def test_a_topic_id_must_be_a_uuid() -> None:
    request = {"topic_id": str(uuid.uuid4()), "partitions": ()}
    values = {"topic_partitions": (request,)}
    schema = Struct("Owned", (CONSUMER_GROUP_HEARTBEAT.request.fields[-1],))
    with pytest.raises(ProtocolError, match="Owned cannot be written"):
        encode(schema, values)


def test_tagged_field_of_a_wrong_size_is_refused() -> None:
    schema = Struct("Tagged", (Field("level", INT32, tag=0, default=3), Field("name", STRING)))
    assert decode(schema, b"\x02a\x00") == {"name": "a", "level": 3}
    assert decode(schema, b"\x02a\x01\x00\x04\x00\x00\x00\x07") == {"name": "a", "level": 7}
    with pytest.raises(ProtocolError, match="level is 4 bytes long, not 5"):
        decode(schema, b"\x02a\x01\x00\x05\x00\x00\x00\x07\x00")


def fetched(records: bytes | None) -> bytes:
    partition = {
        "partition_index": 3,
        "error_code": 0,
        "high_watermark": 9,
        "last_stable_offset": 9,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": records,
    }
    topic = {"topic_id": uuid.UUID(int=1), "partitions": (partition,)}
    values = {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": (topic,)}
    return encode(FETCH.response, values)


def test_records_are_a_part_of_the_frame_and_no_copy() -> None:
    buffer = bytearray(fetched(b"abcd"))
    (topic,) = decode(FETCH.response, memoryview(buffer))["responses"]
    (partition,) = topic["partitions"]
    buffer[buffer.index(b"abcd")] = ord("x")
    assert bytes(partition["records"]) == b"xbcd"
    assert topic["topic_id"] == uuid.UUID(int=1)
    assert partition["current_leader"] == {"leader_id": -1, "leader_epoch": -1}


def test_records_that_do_not_fit_the_frame_are_refused() -> None:
    frame = bytearray(fetched(b"abcd"))
    frame[frame.index(b"abcd") - 1] = 0x7F
    with pytest.raises(ProtocolError, match="records of 126 bytes"):
        decode(FETCH.response, memoryview(frame))


def test_reads_tagged_leaders_that_kio_wrote() -> None:
    pytest.importorskip("kio")
    from kio.schema.fetch.v16 import response as theirs

    leader = theirs.LeaderIdAndEpoch(leader_id=2, leader_epoch=7)
    partition = theirs.PartitionData(
        partition_index=0,
        error_code=theirs.ErrorCode(6),
        high_watermark=-1,
        diverging_epoch=theirs.EpochEndOffset(epoch=3, end_offset=44),
        current_leader=leader,
        aborted_transactions=(theirs.AbortedTransaction(producer_id=5, first_offset=1),),
        records=None,
    )
    entity = theirs.FetchResponse(
        throttle_time=datetime.timedelta(0),
        error_code=theirs.ErrorCode(0),
        responses=(theirs.FetchableTopicResponse(topic_id=None, partitions=(partition,)),),
        node_endpoints=(theirs.NodeEndpoint(node_id=2, host="h", port=1, rack=None),),
    )
    values = decode(FETCH.response, memoryview(kio_bytes(entity)))
    ((read,),) = (topic["partitions"] for topic in values["responses"])
    assert read["current_leader"] == {"leader_id": 2, "leader_epoch": 7}
    assert read["diverging_epoch"] == {"epoch": 3, "end_offset": 44}
    assert read["aborted_transactions"] == ({"producer_id": 5, "first_offset": 1},)
    assert read["records"] is None
    assert values["node_endpoints"][0]["host"] == "h"


def test_a_brokers_words_cannot_move_the_cursor_of_a_terminal() -> None:
    values = {
        "throttle_time_ms": 0,
        "error_code": 42,
        "error_message": "\x1b[2Jall is well\r\n2026-01-01 INFO \u202enothing",
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval_ms": 1,
        "assignment": None,
    }
    schema = CONSUMER_GROUP_HEARTBEAT.response
    read = decode(schema, encode(schema, values))
    assert read["error_message"] == "?[2Jall is well??2026-01-01 INFO ?nothing"
