"""A run counts only if it tried what it was asked to try."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

import pytest

from workshop.chaos.faults.network_schedule import NetworkFaultKind
from workshop.chaos.faults.schedule import (
    BrokerFaultKind,
    FaultClass,
    MachineFaultKind,
    ResetFaultKind,
    RetentionFaultKind,
)
from workshop.chaos.results.account import Evidence
from workshop.chaos.results.facts import Facts
from workshop.chaos.results.trial import shortfalls
from workshop.tests.chaos.stories import TOPIC, Story

DONE = {
    BrokerFaultKind.KILL.value: 1,
    NetworkFaultKind.CUT.value: 1,
    MachineFaultKind.JUMP.value: 2,
    MachineFaultKind.TABLES_FULL.value: 1,
    RetentionFaultKind.OVERTAKE.value: 3,
    ResetFaultKind.COPIED.value: 1,
    NetworkFaultKind.ELSEWHERE.value: 1,
}


def two_members() -> Evidence:
    story = Story()
    story.whole_batch("q1.1", 0, range(5))
    story.whole_batch("q2.1", 0, range(5, 10))
    ends = {(TOPIC, 0): 10, (TOPIC, 1): 0, (TOPIC, 2): 0}
    return replace(story.evidence(), ends=ends)


def found(evidence: Evidence, *members: str, without: str = "", brokers: int = 3) -> list[str]:
    return shortfalls(
        evidence,
        members=members,
        asked=tuple(FaultClass),
        brokers=brokers,
        done={kind: 0 if kind == without else count for kind, count in DONE.items()},
    )


def test_run_in_which_everything_was_tried_counts() -> None:
    assert found(two_members(), "q1", "q2") == []
    assert shortfalls(two_members(), members=("q1",), asked=(), brokers=1, done={}) == []


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        (BrokerFaultKind.KILL, "--brokers 3"),
        (NetworkFaultKind.CUT, "--faults network"),
        (MachineFaultKind.JUMP, "--faults clock"),
        (MachineFaultKind.TABLES_FULL, "--faults disk"),
        (RetentionFaultKind.OVERTAKE, "--faults retention"),
        (ResetFaultKind.COPIED, "--faults resets"),
        (NetworkFaultKind.ELSEWHERE, "--faults cluster"),
    ],
)
def test_class_of_which_no_fault_took_effect_was_not_tried(kind: Enum, option: str) -> None:
    expected = [f"no fault took effect that {option} asked for"]
    assert found(two_members(), "q1", "q2", without=kind.value) == expected


def test_member_without_a_batch_was_not_tried() -> None:
    assert found(two_members(), "q1", "q2", "c1") == ["c1 wrote nothing: it had no batch"]
    more_than_partitions = ("q1", "q2", "c1", "c2")
    assert found(two_members(), *more_than_partitions) == []


def test_run_without_records_does_not_count() -> None:
    nothing = replace(two_members(), ends={(TOPIC, 0): 0}, facts=Facts())
    assert found(nothing, "q1") == ["no record was produced", "q1 wrote nothing: it had no batch"]
