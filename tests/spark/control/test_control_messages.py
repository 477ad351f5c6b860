"""Messages between driver and runner, as lines."""

from __future__ import annotations

import json

import pytest

from spark_groups.spark.control.control_messages import (
    BatchAsked,
    BatchReported,
    BatchRunning,
    BatchWritten,
    Change,
    Drain,
    Draining,
    Introduced,
    Listening,
    Message,
    NothingMoreReported,
    PartitionsChanged,
    QueryRefused,
    Released,
    RunEnded,
    as_line,
    from_line,
)

MESSAGES = (
    Listening(reported_groups=("g", "h"), holds_revocations=False, default_parallelism=8),
    RunEnded(group_id="g", query_id="7f-1", line="committed, left the group"),
    QueryRefused(group_id="flights", reason="it has two streams"),
    BatchReported(
        plan='{"é": "\\n"}',
        query_id="q",
        is_stateful=True,
        trigger_interval_s=0.5,
    ),
    NothingMoreReported(query_id="q", had_reports=True),
    BatchAsked(number=1, key="7f"),
    BatchWritten(plan="{}"),
    BatchRunning(number=1, run_id="r", start="", end="{}", options="gASV"),
    Drain(),
    Released(number=7),
    Introduced(pid=4711, group_id="flights"),
    Draining(),
    PartitionsChanged(
        change=Change.REVOKED.value,
        number=3,
        group_id="flights",
        member_id="m1",
        member_epoch=5,
        partitions=(("departures", 0), ("departures", 3)),
        deadline_s=12.5,
        reason="",
    ),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_one_line_and_comes_back(message: Message) -> None:
    line = as_line(message)
    assert line.count(b"\n") == 1
    assert from_line(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"message": "Stop"}',
        b'{"message": ["Drain"]}',
        b'{"message": "Drain", "more": 1}',
        b'{"message": "Released"}',
        b'{"message": "Released", "number": true}',
        b'{"message": "Released", "number": "1"}',
        b"[" * 100_000,
    ],
    ids=lambda line: repr(line[:40]),
)
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        from_line(line)


@pytest.mark.parametrize("partitions", [None, ["departures"], [["departures", "0"]], [[1, 0]]])
def test_partitions_are_names_and_numbers(partitions: object) -> None:
    values = {**json.loads(as_line(MESSAGES[-1])), "partitions": partitions}
    with pytest.raises(ValueError, match="not a message"):
        from_line(json.dumps(values).encode())
