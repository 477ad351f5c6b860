"""Messages between a driver and the runners of its queries, as values and as lines of JSON.

A driver's listener reports the batches that Spark has finished, and passes rebalances to the
user's code; a runner is the group member. Through Spark Connect, a function of `foreachBatch` in a
process of its own is the driver: it asks for its batch, and reports what it has written. Each line
is a JSON object with the message's name and fields; any other line is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, get_args, get_origin, get_type_hints

Names = tuple[tuple[str, int], ...]
"""Partitions by topic name."""

Counts = tuple[tuple[str, int], ...]
"""Numbers by name."""


class Change(Enum):
    """A change of a member's partitions."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Base class of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening(Message):
    """A driver listens; its first message, except `QueryRefused`.

    Args:
        reported_groups: The groups of the queries whose finished batches the driver reports.
        holds_revocations: Whether the driver's code runs before a revocation completes.
        spark_ui: URL of the Spark UI; empty if unknown.
        default_parallelism: Spark's default number of tasks; 0 if unknown.
        application_name: Spark's name of the application; empty if unknown.
    """

    reported_groups: tuple[str, ...]
    holds_revocations: bool
    spark_ui: str = ""
    default_parallelism: int = 0
    application_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRefused(Message):
    """A starting query must not run; sent before `Listening`.

    Args:
        group_id: The consumer group that the query's runners join.
        reason: The reason and the remedy, for the user.
    """

    group_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReported(Message):
    """Spark has finished a batch: its rows are in the sink.

    Args:
        plan: The batch's end offset, exactly as in Spark's checkpoint.
        is_stateful: Whether the query keeps state in Spark.
        trigger_interval_s: Seconds between batch starts; 0 if not fixed.
    """

    plan: str
    query_id: str
    is_stateful: bool
    trigger_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAsked(Message):
    """A function that Spark has called with a batch asks which batch that is.

    Args:
        number: Identifies the question.
        key: What the stream's `load()` has drawn: only its runner answers.
    """

    number: int
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWritten(Message):
    """The function that Spark has called with a batch is done: the table has its rows.

    Args:
        plan: The batch's end offset, exactly as in Spark's checkpoint.
        trigger_interval_s: Seconds between batch starts; 0 if not fixed or unknown.
    """

    plan: str
    trigger_interval_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsCounted(Message):
    """The driver's code has processed records.

    Args:
        plan: The end offset of the current batch, exactly as in Spark's checkpoint.
        counts: The increases of counters, by the names of `Count`.
    """

    plan: str
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingMoreReported(Message):
    """A query has ended, so no batch of it will be reported.

    Args:
        query_id: Spark's query ID; empty means all queries.
        had_reports: Whether any batch of the query was reported.
    """

    query_id: str
    had_reports: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(Message):
    """The driver will stop its queries: plan no more batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Message):
    """The driver's code has handled a revocation.

    Args:
        number: The number of the `PartitionsChanged` message.
    """

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduced(Message):
    """A runner introduces itself."""

    pid: int
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRunning(Message):
    """The batch that Spark runs, for the function that has asked.

    Args:
        number: That of the question.
        run_id: A name that no other run of a query has.
        start: The end offset of the previous batch.
        end: The batch's own, exactly as in Spark's checkpoint.
        options: The stream's checked options, pickled, in base64; with secrets. The last field,
            because the log may show how a line begins that is no message.
    """

    number: int
    run_id: str
    start: str
    end: str
    options: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining(Message):
    """A runner plans no more batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsChanged(Message):
    """A member's partitions were assigned, revoked or lost.

    Args:
        change: The value of a `Change`.
        number: Identifies the revocation to release; 0 if nothing waits.
        deadline_s: Seconds that the revocation waits.
    """

    change: str
    number: int = 0
    group_id: str
    member_id: str
    member_epoch: int
    partitions: Names = ()
    deadline_s: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Message):
    """A member has left its group; Spark has closed the runner's stderr by then.

    Args:
        query_id: Spark's query ID; empty if unknown.
        line: What the runner would log.
    """

    group_id: str
    query_id: str
    line: str


_KINDS: Final[Mapping[str, type[Message]]] = {
    kind.__name__: kind
    for kind in (
        Listening,
        QueryRefused,
        BatchReported,
        BatchAsked,
        BatchWritten,
        RecordsCounted,
        NothingMoreReported,
        Drain,
        Released,
        Introduced,
        BatchRunning,
        Draining,
        PartitionsChanged,
        RunEnded,
    )
}


def _read(kind: Any, value: object) -> Any:
    """Return a JSON value as a field's type has it; raise a TypeError for one of another type."""
    if get_origin(kind) is not tuple:
        if type(value) is not kind:
            raise TypeError
        return value
    if not isinstance(value, list):
        raise TypeError
    first, *others = get_args(kind)
    kinds = [first] * len(value) if others == [...] else [first, *others]
    return tuple(_read(each, part) for each, part in zip(kinds, value, strict=True))


def _message(values: dict[str, object]) -> Message:
    kind = _KINDS[_read(str, values.pop("message"))]
    wanted = get_type_hints(kind)
    if values.keys() != wanted.keys():
        raise KeyError(kind.__name__)
    return kind(**{name: _read(of, values[name]) for name, of in wanted.items()})


def as_line(message: Message) -> bytes:
    """Return a message as a line of JSON."""
    kind = type(message)
    values = {field_.name: getattr(message, field_.name) for field_ in fields(kind)}
    return json.dumps({"message": kind.__name__, **values}).encode("utf-8") + b"\n"


def from_line(line: bytes) -> Message:
    """Parse a message; raise a ValueError if it is not one of this version."""
    try:
        return _message(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a message: {line[:80]!r}") from error
