"""The schemas of Kafka Streams in KIP-848: fields in the KIP's order, and bytes that are none."""

from __future__ import annotations

from uuid import UUID

import pytest

from group_lab.assignors.streams_metadata import (
    AssignmentMetadata,
    MemberMetadata,
    TaskId,
    decode_assignment_metadata,
    decode_member,
    encode_assignment_metadata,
    encode_member,
)
from spark_groups.errors import ProtocolError
from spark_groups.types import Assignment

PROCESS, HASH, TOPIC = UUID(int=1), UUID(int=2), UUID(int=3)
MEMBER = MemberMetadata(
    process_id=PROCESS,
    user_end_point=b"host:80",
    client_tags={"zone": "größe", "rack": "1"},
    topology_hash=HASH,
    task_lag={TaskId(1, 0): 2**40, TaskId(0, 3): 0},
)
INPUTS = Assignment.of({TOPIC: [0, 2]})
ASSIGNED = AssignmentMetadata(
    active_tasks=(TaskId(0, 0), TaskId(0, 2)),
    standby_tasks={TaskId(0, 1): INPUTS},
    warmup_tasks={TaskId(1, 0): Assignment.of({TOPIC: [0], UUID(int=4): [0]})},
    partitions_by_host={b"host:80": INPUTS, b"": Assignment()},
)


@pytest.mark.parametrize(
    "metadata", [MEMBER, MemberMetadata(process_id=PROCESS, topology_hash=HASH)]
)
def test_the_metadata_of_a_member_is_read_as_it_was_written(metadata: MemberMetadata) -> None:
    assert decode_member(encode_member(metadata)) == metadata


@pytest.mark.parametrize("metadata", [ASSIGNED, AssignmentMetadata()])
def test_assignment_metadata_is_read_as_it_was_written(metadata: AssignmentMetadata) -> None:
    assert decode_assignment_metadata(encode_assignment_metadata(metadata)) == metadata


def test_the_fields_of_a_member_are_in_the_order_of_the_kip() -> None:
    metadata = MemberMetadata(
        process_id=PROCESS,
        user_end_point=b"h",
        client_tags={"k": "v"},
        topology_hash=HASH,
        task_lag={TaskId(1, 2): 3},
    )
    fields = (
        PROCESS.hex,
        "00000001" + b"h".hex(),
        "00000001" + "0001" + b"k".hex() + "0001" + b"v".hex(),
        HASH.hex,
        "00000001" + "00000001" + "00000002" + "0000000000000003",
    )
    assert encode_member(metadata).hex() == "".join(fields)


def test_the_fields_of_an_assignment_are_in_the_order_of_the_kip() -> None:
    one = Assignment.of({TOPIC: [5]})
    metadata = AssignmentMetadata(
        active_tasks=(TaskId(0, 1),),
        standby_tasks={TaskId(0, 2): one},
        warmup_tasks={TaskId(0, 3): one},
        partitions_by_host={b"h": one},
    )
    partitions = "00000001" + TOPIC.hex + "00000001" + "00000005"
    fields = (
        "00000001" + "00000000" + "00000001",
        "00000001" + "00000000" + "00000002" + partitions,
        "00000001" + "00000000" + "00000003" + partitions,
        "00000001" + "00000001" + b"h".hex() + partitions,
    )
    assert encode_assignment_metadata(metadata).hex() == "".join(fields)


def test_bytes_that_end_early_or_continue_are_refused() -> None:
    whole = encode_member(MEMBER)
    for broken in (*(whole[:end] for end in range(len(whole))), whole + b"\0"):
        with pytest.raises(ProtocolError):
            decode_member(broken)
    whole = encode_assignment_metadata(ASSIGNED)
    for broken in (*(whole[:end] for end in range(len(whole))), whole + b"\0"):
        with pytest.raises(ProtocolError):
            decode_assignment_metadata(broken)


@pytest.mark.parametrize("lags", [{TaskId(0, 0): -1}, {TaskId(0, -1): 0}, {TaskId(-1, 0): 0}])
def test_what_cannot_be_a_task_or_a_lag_is_refused(lags: dict[TaskId, int]) -> None:
    metadata = MemberMetadata(process_id=PROCESS, topology_hash=HASH, task_lag=lags)
    with pytest.raises(ProtocolError, match="for a task, partition or lag"):
        decode_member(encode_member(metadata))


def test_a_task_that_is_listed_twice_is_refused() -> None:
    metadata = MemberMetadata(process_id=PROCESS, topology_hash=HASH, task_lag={TaskId(0, 0): 7})
    once = encode_member(metadata)
    head, entry = once[:-20], once[-16:]
    with pytest.raises(ProtocolError, match="0_0 twice"):
        decode_member(head + b"\0\0\0\2" + entry + entry)


def test_a_null_host_is_refused() -> None:
    whole = encode_assignment_metadata(AssignmentMetadata(partitions_by_host={b"": Assignment()}))
    with pytest.raises(ProtocolError, match="null host"):
        decode_assignment_metadata(whole[:-8] + b"\xff\xff\xff\xff" + whole[-4:])
