"""Other members and their faults are drawn from the seed, and change nothing else."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from random import Random
from typing import Any

import pytest

from spark_groups.cli.table_names import TableKind
from workshop.chaos.faults.schedule import PLAIN_POINTS, Fault, FaultClass, FaultKind, Point
from workshop.chaos.members.kinds import (
    FAULTS_OF_APPLICATIONS,
    FAULTS_OF_CONSUMERS,
    MemberKind,
    Others,
    add_arguments,
    check_counts,
    draw_faults_of_others,
    draw_others,
    draw_usual_faults,
)
from workshop.chaos.systems.record import Values

ALL = ("--plain-consumers", "2", "--classic", "1", "--applications", "2")


def chosen(*given: str, seed: int = 7, queries: int = 5) -> Namespace:
    parser = ArgumentParser()
    add_arguments(parser)
    usual = Namespace(seed=seed, queries=queries, faults=[], values=Values.TEXT)
    return parser.parse_args(given, usual)


def others(*given: str, seed: int = 7) -> Others:
    return draw_others(chosen(*given, seed=seed), fast=True, is_slow=False)


def faults(seed: int) -> tuple[Fault, ...]:
    drawn = others(*ALL, seed=seed)
    return draw_faults_of_others(seed, drawn, duration_s=720.0, session_s=10.0)


def test_without_options_there_is_one_plain_consumer_and_no_fault_more() -> None:
    assert others() == Others(plain=("c1",))
    assert draw_faults_of_others(7, others(), duration_s=720.0, session_s=10.0) == ()


def test_each_member_is_of_its_kind() -> None:
    drawn = others(*ALL)
    assert drawn.names == ("c1", "c2", "classic1", "a1", "a2")
    assert drawn.kinds(["q1"]) == {
        "q1": MemberKind.QUERY,
        "c1": MemberKind.PLAIN,
        "c2": MemberKind.PLAIN,
        "classic1": MemberKind.CLASSIC,
        "a1": MemberKind.APPLICATION,
        "a2": MemberKind.APPLICATION,
    }


def test_same_seed_draws_the_same_members_and_faults_in_order() -> None:
    assert others(*ALL) == others(*ALL) != others(*ALL, seed=8)
    assert faults(7) == faults(7) != faults(8)
    assert [each.at_s for each in faults(7)] == sorted(each.at_s for each in faults(7))


def test_each_member_has_every_fault_that_it_can_have_and_no_other() -> None:
    drawn = [fault for seed in range(30) for fault in faults(seed)]
    kinds = Counter((each.target, each.kind) for each in drawn)
    consumers, applications = ("c2", "classic1"), ("a1", "a2")
    assert set(kinds) == {
        *((name, kind) for name in consumers for kind in FAULTS_OF_CONSUMERS),
        *((name, kind) for name in applications for kind in FAULTS_OF_APPLICATIONS),
    }
    for names, points in ((consumers, PLAIN_POINTS), (applications, Point)):
        assert {each.point for each in drawn if each.target in names} == {None, *points}


@pytest.mark.parametrize(
    ("given", "queries", "is_right"),
    [
        ((), 5, True),
        (ALL, 7, True),
        (ALL, 8, False),
        (("--plain-consumers", "0"), 5, False),
        (("--classic", "-1"), 5, False),
    ],
)
def test_number_of_members_is_checked(given: tuple[str, ...], queries: int, is_right: bool) -> None:
    assert (check_counts(chosen(*given, queries=queries)) is None) == is_right


def test_applications_and_retention_are_refused_together() -> None:
    given = chosen("--applications", "1")
    given.faults.append(FaultClass.RETENTION)
    assert "--faults retention" in (check_counts(given) or "")


def decoding(**other: Any) -> Namespace:
    given = chosen("--plain-consumers", "0", "--applications", "3", queries=0)
    given.values, given.sinks = Values.AVRO, [TableKind.DELTA]
    vars(given).update(other)
    return given


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"queries": 1}, "1 to 12 applications"),
        ({"plain_consumers": 1}, "1 to 12 applications"),
        ({"applications": 0}, "1 to 12 applications"),
        ({"sinks": [TableKind.SQLITE, TableKind.DELTA]}, "--sinks delta"),
        ({"faults": [FaultClass.NETWORK, FaultClass.DISK]}, "--faults but network"),
    ],
)
def test_only_applications_decode_into_a_delta_table(wrong: dict[str, Any], named: str) -> None:
    assert check_counts(decoding(faults=[FaultClass.NETWORK])) is None
    assert named in (check_counts(decoding(**wrong)) or "")


def test_applications_that_decode_are_of_both_planes() -> None:
    def emits(given: Namespace) -> list[str]:
        drawn = draw_others(given, fast=True, is_slow=True)
        return [each.emit for each in drawn.applications]

    assert emits(decoding()) == ["ranges", "records", "ranges"]
    assert emits(decoding(values=Values.TEXT)) == ["records"] * 3


def test_topics_grow_where_no_member_is_a_usual_one() -> None:
    alone = draw_others(decoding(), fast=True, is_slow=True)
    times = {"duration_s": 600.0, "session_s": 10.0}
    drawn = draw_usual_faults(Random(7), alone, (), ("ants",), **times)
    assert {each.kind for each in drawn} == {FaultKind.GROW}
    assert 3 <= len(drawn) <= 30, "one in a minute"
    usual = draw_usual_faults(Random(7), others(), ("q1",), ("ants",), **times)
    assert {each.target for each in usual} == {"ants", "c1", "q1"}
