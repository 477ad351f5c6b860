"""Every event has a severity and a sentence of its own."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from spark_groups.group.ledger import events as offset
from spark_groups.group.ledger.events import AvailableNowUnsettled, PartitionsGivenUp, WithheldRange
from spark_groups.group.member import events as member
from spark_groups.group.member.events import SHOWN, Event, MemberEvent, PartitionsAssigned, Severity
from spark_groups.types import Assignment, BatchPlan, OffsetRange
from tests.group.harness import TOPIC, key, parts

RANGE = OffsetRange(TOPIC, "orders", 0, 5, 9)
SAMPLES: dict[str, object] = {
    "at": 10.0,
    "offsets": 90,
    "unread_offsets": 1_800,
    "size_mib": 1.5,
    "max_offsets": 20_000,
    "problem": "LEADER_NOT_AVAILABLE",
    "member_id": "m1",
    "member_epoch": 3,
    "previous": 2,
    "partitions": parts(0, 1),
    "deadline": 40.0,
    "release_by": 19.0,
    "number": 1,
    "reason": "why it happened",
    "instance_id": "i1",
    "error": "STALE_MEMBER_EPOCH",
    "message": "what the broker said",
    "key": key(0),
    "topic": "orders",
    "topic_id": TOPIC,
    "topics": ("orders", "bills"),
    "near": {"orders": "order"},
    "group_id": "g",
    "former_group_id": "f",
    "position": 7,
    "committed": True,
    "plan": BatchPlan("g", "m1", 3, (RANGE,)),
    "ranges": (RANGE,),
    "withheld": (WithheldRange("orders", 3, 120, 400),),
    "unresolved": 0,
    "waited_s": 10.0,
    "holders": ("m2 (client c, host 10.0.0.9)",),
    "unready": (key(0),),
    "is_target_known": True,
    "has_waited": False,
    "pattern": "orders.*",
    "names": ("orders", "bills"),
    "name": "orders",
    "old_id": TOPIC,
    "new_id": TOPIC,
    "unread": 12,
    "rows": 30,
    "percent": 80,
    "waiting_for": (key(0),),
    "fitting_offsets": 1_000,
    "rebalance_timeout_ms": 60_000,
    "node": "broker:9092 (id 1)",
    "session_timeout_ms": 45_000,
    "restart_s": 61.0,
    "command": "what raises it",
    "batch_age_s": 600.0,
    "idle_s": 700.0,
    "limit_s": 600.0,
    "request": "OffsetCommitRequest",
    "to": "broker 1 at kafka:9092",
    "cure": " (what to do)",
    "waits_for": ("OffsetFetch answers UNSTABLE_OFFSET_COMMIT",),
    "tasks": 4,
}
COUNTED = (offset.OffsetsCommitted, offset.CommitRefused, offset.RecordsNotSampled)
# Not by __subclasses__: a slotted dataclass leaves a twin of itself there.
KINDS = [
    each
    for module in (member, offset)
    for each in vars(module).values()
    if isinstance(each, type)
    and each.__module__ == module.__name__
    and issubclass(each, Event)
    and each not in (Event, MemberEvent, offset.BatchEvent, offset.PartitionsStarted)
]


def sample(kind: type[Event]) -> Event:
    values = {each.name: SAMPLES[each.name] for each in fields(kind)}
    if kind in COUNTED:
        values["partitions"] = 4
    return kind(**values)  # type: ignore[arg-type]


def name_of(topic_id: object) -> str:
    return "orders"


def test_all_events_are_here() -> None:
    assert len(KINDS) >= 26


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_event_has_a_sentence_and_no_repr(kind: type[Event]) -> None:
    text = sample(kind).text(name_of)
    assert isinstance(sample(kind).severity, Severity)
    assert not re.search(r"[A-Za-z]+\(\w+=|UUID|frozenset|object at|<", text), text
    assert kind.__name__ not in text


def test_no_two_kinds_say_the_same() -> None:
    texts = [sample(kind).text(name_of) for kind in KINDS]
    assert len(set(texts)) == len(texts)


def test_names_come_from_the_topic_and_long_lists_are_counted() -> None:
    many = Assignment(frozenset(key(each) for each in range(SHOWN + 3)))
    text = PartitionsAssigned(1.0, "m1", 3, many).text(name_of)
    assert text.startswith("member m1 at epoch 3: assigned orders-0, orders-1, ")
    assert text.endswith(" and 3 more")


def test_topic_without_a_known_name_is_shown_by_id() -> None:
    text = PartitionsGivenUp(1.0, (key(0),)).text(lambda _: None)
    assert "-0" in text


@pytest.mark.parametrize(
    ("kind", "severity"),
    [
        (member.MemberFailed, Severity.ERROR),
        (member.PartitionsLost, Severity.WARNING),
        (offset.PartitionsGivenUp, Severity.ERROR),
        (offset.DataLost, Severity.ERROR),
        (offset.RangesLost, Severity.WARNING),
        (offset.BatchPlanned, Severity.DEBUG),
    ],
)
def test_severity(kind: type[Event], severity: Severity) -> None:
    assert sample(kind).severity is severity


@pytest.mark.parametrize(
    ("error", "severity"),
    [
        ("COORDINATOR_NOT_AVAILABLE", Severity.INFO),
        ("COORDINATOR_LOAD_IN_PROGRESS", Severity.INFO),
        ("GROUP_AUTHORIZATION_FAILED", Severity.WARNING),
    ],
)
def test_coordinator_of_a_cluster_without_groups_is_no_reason_to_warn(
    error: str, severity: Severity
) -> None:
    event = offset.CoordinatorMissing(1.0, error)
    assert event.severity is severity
    assert error in event.text(name_of)


@pytest.mark.parametrize(
    ("committed_offset", "log_end_offset", "rows"),
    [(3, 10, 7), (10, 10, 0), (12, 10, 0), (None, 10, None), (3, None, None)],
)
def test_rows_that_wait_are_known_with_both_ends(
    committed_offset: int | None, log_end_offset: int | None, rows: int | None
) -> None:
    assert WithheldRange("orders", 1, committed_offset, log_end_offset).rows == rows


@pytest.mark.parametrize(
    ("waiting", "unresolved", "is_target_known", "is_harmless"),
    [
        ((10,), 0, True, True),
        ((10, 11), 0, True, False),
        ((10, None), 0, True, False),
        ((10,), 1, True, False),
        ((10,), 0, False, False),
        ((), 0, True, False),
    ],
)
def test_only_partitions_known_to_be_empty_are_harmless(
    waiting: tuple[int | None, ...], unresolved: int, is_target_known: bool, is_harmless: bool
) -> None:
    event = AvailableNowUnsettled(
        1.0,
        waited_s=10.0,
        withheld=tuple(WithheldRange("orders", 0, 10, end) for end in waiting),
        unresolved=unresolved,
        holders=(),
        unready=(),
        is_target_known=is_target_known,
    )
    assert event.is_harmless is is_harmless
