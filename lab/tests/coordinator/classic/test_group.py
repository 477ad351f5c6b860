"""A classic group as a value: its states, its protocol, its leader, its record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from group_lab.coordinator.classic.group import (
    PREDECESSORS,
    ClassicGroup,
    ClassicMember,
    ClassicState,
    loaded_group,
    metadata_record,
)
from group_lab.coordinator.classic.messages import ClassicProtocol
from group_lab.coordinator.records import ClassicGroupMetadataValue
from lab.tests.coordinator.classic.driving import METADATA, RANGE, STICKY

EMPTY, DEAD = ClassicState.EMPTY, ClassicState.DEAD
PREPARING, COMPLETING = ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE
STABLE = ClassicState.STABLE
TRANSITIONS = {
    EMPTY: {PREPARING, DEAD},
    PREPARING: {COMPLETING, EMPTY, DEAD},
    COMPLETING: {STABLE, PREPARING, DEAD},
    STABLE: {PREPARING, DEAD},
    DEAD: {DEAD},
}
"""The arrows of Kafka's documentation of the states, from each state."""


def member(member_id: str, *protocols: ClassicProtocol) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocols=protocols or (RANGE,),
    )


def group_of(*members: ClassicMember) -> ClassicGroup:
    group = ClassicGroup(group_id="g")
    for each in members:
        group = group.with_member(each)
    return group


@pytest.mark.parametrize("before", ClassicState)
@pytest.mark.parametrize("after", ClassicState)
def test_a_group_enters_a_state_from_its_predecessors_only(
    before: ClassicState, after: ClassicState
) -> None:
    group = ClassicGroup(group_id="g", state=before)
    assert (before in PREDECESSORS[after]) == (after in TRANSITIONS[before])
    if after in TRANSITIONS[before]:
        moved = group.moved(after, 7.0)
        assert (moved.state, moved.previous_state, moved.state_since_s) == (after, before, 7.0)
    else:
        with pytest.raises(ValueError, match="may not follow"):
            group.moved(after, 7.0)


def test_most_votes_select_a_protocol_that_all_members_support() -> None:
    best = ClassicProtocol("best")
    group = group_of(
        member("a", best, RANGE, STICKY), member("b", STICKY, RANGE), member("c", STICKY, RANGE)
    )
    assert group.selected_protocol() == "sticky"
    assert group.supports("consumer", (RANGE,)) is True
    joining = replace(group, state=STABLE)
    assert joining.supports("consumer", (best,)) is False
    assert joining.supports("connect", (RANGE,)) is False


def test_a_protocol_that_a_member_names_twice_counts_once() -> None:
    twice = member("a", RANGE, RANGE, STICKY)
    assert group_of(twice).selected_protocol() == "range"
    group = replace(group_of(twice, member("b", STICKY)), state=STABLE)
    assert group.selected_protocol() == "sticky"
    assert group.supports("consumer", (RANGE,)) is False


def test_members_without_a_common_protocol_select_none() -> None:
    assert group_of(member("a", RANGE), member("b", STICKY)).selected_protocol() == ""


def test_the_first_of_a_java_map_leads_after_the_leader() -> None:
    # Buckets of a HashMap of 16: "b" is in 2, "a" in 1, "q" (113) in 1 as well.
    group = group_of(member("b"), member("q"), member("a"))
    assert group.leader_id == "b"
    assert [each.member_id for each in group.ordered] == ["q", "a", "b"]
    assert group.without("b").leader_id == "q"
    assert group.without("q").without("b").leader_id == "a"
    assert group.without("a").without("q").without("b").leader_id is None


def test_a_record_keeps_what_a_loaded_group_needs() -> None:
    stable = replace(
        group_of(member("a"), member("b")),
        state=STABLE,
        protocol_name="range",
        generation_id=3,
        state_since_s=5.0,
    ).with_topics()
    value = metadata_record(stable, {"a": b"1"}).value
    assert isinstance(value, ClassicGroupMetadataValue)
    loaded = loaded_group("g", value)
    assert loaded == replace(
        stable,
        members={
            "a": replace(stable.members["a"], assignment=b"1"),
            "b": stable.members["b"],
        },
    )
    assert loaded.subscribed_topics == {"foo"}


@pytest.mark.parametrize(
    ("metadata", "topics", "is_subscribed"),
    [(METADATA, frozenset({"foo"}), False), (b"no subscription", None, True)],
)
def test_a_group_with_unreadable_metadata_may_need_every_topic(
    metadata: bytes, topics: frozenset[str] | None, is_subscribed: bool
) -> None:
    group = group_of(member("a", ClassicProtocol("range", metadata)))
    group = replace(group, protocol_name="range").with_topics()
    assert group.subscribed_topics == topics
    assert group.is_subscribed_to("bar") is is_subscribed


def stepped(group: ClassicGroup, step: list[str]) -> ClassicGroup:
    """Return a group after a step of the script."""
    protocols = tuple(ClassicProtocol(each) for each in step[-1].split(","))
    match step:
        case ["add", member_id, instance_id, _]:
            joined = member(member_id, *protocols)
            if instance_id != "-":
                joined = replace(joined, instance_id=instance_id)
            return group.with_member(joined)
        case ["update", member_id, _]:
            return group.with_member(replace(group.members[member_id], protocols=protocols))
        case ["remove", member_id]:
            return group.without(member_id)
        case ["replace", _, former_id, member_id]:
            return group.with_place_given(former_id, member_id)
    raise AssertionError(step)


def test_leader_protocol_and_order_are_those_of_kafka() -> None:
    text = (Path(__file__).parent / "kafka_groups.txt").read_text()
    lines = [each for each in text.splitlines() if not each.startswith("#")]
    group = group_of()
    for line in lines:
        if line == "new":
            group = group_of()
            continue
        step, _, seen = line.partition(" -> ")
        group = stepped(group, step.split())
        protocol = group.selected_protocol() if group.members else "-"
        members = ",".join(each.member_id for each in group.ordered)
        assert f"{group.leader_id or 'null'} {protocol} {members}".strip() == seen, line
    assert len(lines) == 150
