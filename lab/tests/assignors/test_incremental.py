"""The policies of incremental cooperative rebalancing in the proposal's own examples.

The examples are its own text: `A(T,assigned:T1)` is a subscription, `A(assigned:,revoked:T4,t1)` an
assignment with a timeout, where `-` is none. It repeats assignments in some examples only, so that
assignments are compared by what members have afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import pytest

from group_lab.assignors.embedded import ProposedAssignment
from group_lab.assignors.incremental import Decision, LeaderConfig, LeaderMemory, decide
from lab.tests.assignors.groups import Partitions
from lab.tests.assignors.incremental_setup import (
    DELAY_S,
    DELAYING,
    EACH,
    IMMEDIATE,
    INCREMENTAL,
    NEW_LEADER,
    NONE,
)
from spark_groups.group.member.embedded import Subscription
from spark_groups.types import TopicPartition

T1_TO_T4 = {"T": range(1, 5)}


def read(names: str) -> Partitions:
    """Read resources: T1,T4."""
    found = re.findall(r"(\w)(\d)", names)
    return frozenset(TopicPartition(topic, int(number)) for topic, number in found)


def joining(text: str) -> dict[str, Subscription]:
    """Read subscriptions."""
    found = re.findall(r"(\w'?)\((\w),assigned:([\w,]*)\)", text)
    return {
        member_id: Subscription(topics=(topic,), owned_partitions=read(names), version=1)
        for member_id, topic, names in found
    }


def check(decision: Decision, members: Mapping[str, Subscription], text: str) -> None:
    """Check assignments by their effect."""
    found = re.findall(r"(\w'?)\(assigned:([\w,]*?),? ?revoked:([T\d,]*?)(?:,(-|t\d))?\)", text)
    expected, actual = {}, {}
    for member_id, assigned, revoked, timeout in found:
        owned = members[member_id].owned_partitions
        said = ProposedAssignment(assigned=read(assigned), revoked=read(revoked))
        expected[member_id] = said.applied_to(owned), said.revoked, timeout.startswith("t")
    for member_id, sent in decision.assignments.items():
        owned = members[member_id].owned_partitions
        timeout = sent.scheduled_rebalance_timeout_ms
        actual[member_id] = sent.applied_to(owned), sent.revoked, timeout > 0
    assert actual == expected


@dataclass
class Play:
    """Generations of one leader, in the words of the proposal."""

    config: LeaderConfig
    resources: Mapping[str, Collection[int]] = field(default_factory=lambda: T1_TO_T4)
    memory: LeaderMemory = NEW_LEADER
    now: float = 1000.0

    def round(self, joined: str, expected: str) -> Decision:
        members = joining(joined)
        decision = decide(self.config, members, self.resources, self.memory, self.now)
        self.memory = decision.memory
        check(decision, members, expected)
        return decision


def led(config: LeaderConfig, joined: str) -> Play:
    """Return a play whose leader led a generation in which nothing changed."""
    play = Play(config)
    play.round(joined, re.sub(r"\(\w,assigned:[\w,]*\)", "(assigned:,revoked:)", joined))
    return play


ALL = "A(T,assigned:T1), B(T,assigned:T2), C(T,assigned:T3), D(T,assigned:T4)"
WITHOUT_D = "A(T,assigned:T1), B(T,assigned:T2), C(T,assigned:T3)"
WAIT = "A(assigned:,revoked:,t1), B(assigned:,revoked:,t1), C(assigned:,revoked:,t1)"


@EACH
def test_another_member_joins(config: LeaderConfig) -> None:
    """Design I, Events, Member joins; Design II: deferring only applies to lost partitions."""
    before = "A(T,assigned:T1,T4), B(T,assigned:T2), C(T,assigned:T3)"
    play = led(config, before)
    first = play.round(
        before + ", D(T,assigned:)",
        "A(assigned:,revoked:T4), B(assigned:,revoked:), C(assigned:,revoked:),"
        " D(assigned:,revoked:)",
    )
    assert first.target == {each: read(f"T{1 + i}") for i, each in enumerate("ABCD")}
    second = play.round(
        WITHOUT_D + ", D(T,assigned:)",
        "A(assigned:,revoked:), B(assigned:,revoked:), C(assigned:,revoked:),"
        " D(assigned:T4,revoked:)",
    )
    assert [each.assigned for each in second.assignments.values()] == [NONE] * 3 + [read("T4")]


def test_a_member_leaves_and_its_resources_move_at_once() -> None:
    """Design I, Events, Member leaves."""
    led(IMMEDIATE, ALL).round(
        WITHOUT_D,
        "A(assigned:T1,T4,revoked:), B(assigned:T2,revoked:), C(assigned:T3,revoked:)",
    )


def test_a_member_bounces_and_its_resources_move_twice() -> None:
    """Design I, Events, Member bounces: one rebalance when it leaves, and two when it is back."""
    play = led(IMMEDIATE, ALL)
    play.round(
        WITHOUT_D, "A(assigned:T1,T4,revoked:), B(assigned:,revoked:), C(assigned:,revoked:)"
    )
    rest = "B(assigned:,revoked:), C(assigned:,revoked:)"
    back = "B(T,assigned:T2), C(T,assigned:T3), D'(T,assigned:)"
    play.round(
        "A(T,assigned:T1,T4), " + back, f"A(assigned:,revoked:T4), {rest}, D'(assigned:,revoked:)"
    )
    play.round(
        "A(T,assigned:T1), " + back, f"A(assigned:,revoked:), {rest}, D'(assigned:T4,revoked:)"
    )


@DELAYING
def test_a_member_leaves_and_its_resources_wait(config: LeaderConfig) -> None:
    """Design II, Events, Member leaves."""
    play = led(config, ALL)
    first = play.round(WITHOUT_D, WAIT)
    assert first.waiting == read("T4")
    timeouts = {each.scheduled_rebalance_timeout_ms for each in first.assignments.values()}
    assert timeouts == {300_000}
    play.now += 100
    again = play.round(WITHOUT_D, WAIT)
    assert again.assignments["A"].scheduled_rebalance_timeout_ms == 200_000
    play.now += 199.9999
    soon = play.round(WITHOUT_D, WAIT)
    assert soon.assignments["A"].scheduled_rebalance_timeout_ms == 1
    play.now = 1300
    play.round(
        WITHOUT_D,
        "A(assigned:T1,T4,revoked:,-), B(assigned:,revoked:,-), C(assigned:,revoked:,-)",
    )


@DELAYING
def test_a_member_bounces_and_gets_its_resources_back(config: LeaderConfig) -> None:
    """Design II, Events, Member bounces."""
    play = led(config, ALL)
    play.round(WITHOUT_D, WAIT)
    play.now += 20
    play.round(
        WITHOUT_D + ", D'(T,assigned:)",
        "A(assigned:,revoked:,-), B(assigned:,revoked:,-), C(assigned:,revoked:,-),"
        " D'(assigned:T4,revoked:,-)",
    )


@DELAYING
def test_a_member_bounces_within_one_rebalance(config: LeaderConfig) -> None:
    """Design II: "if the process manages to get restarted within the time of the rebalance"."""
    led(config, ALL).round(
        WITHOUT_D + ", D'(T,assigned:)",
        "A(assigned:,revoked:,-), B(assigned:,revoked:,-), C(assigned:,revoked:,-),"
        " D'(assigned:T4,revoked:,-)",
    )


@EACH
def test_a_new_subscription_is_resolved_at_once(config: LeaderConfig) -> None:
    play = led(config, ALL)
    play.resources = {**T1_TO_T4, "U": range(1, 3)}
    members = {each: replace(known, topics=("T", "U")) for each, known in joining(ALL).items()}
    decision = decide(config, members, play.resources, play.memory, play.now)
    gained = [
        sent.assigned - known.owned_partitions
        for sent, known in zip(decision.assignments.values(), members.values(), strict=True)
    ]
    assert NONE.union(*gained) == read("U1,U2")
    assert not decision.waiting


@DELAYING
def test_the_only_resource_of_a_topic_is_no_new_subscription(config: LeaderConfig) -> None:
    """To a leader that led the last generation; to others a topic without owners is new."""
    none = Subscription(topics=("T", "U"), version=1)
    resources = {"T": [1], "U": [1]}
    first = decide(config, {"A": none, "B": none}, resources, NEW_LEADER, 0.0)
    assert first.target == {"A": read("T1"), "B": read("U1")}
    rest = {"A": replace(none, owned_partitions=read("T1"))}
    waits = decide(config, rest, resources, first.memory, 0.0)
    assert waits.waiting == read("U1")
    assert decide(config, rest, resources, waits.memory, 0.0).waiting == read("U1")
    for new in (NEW_LEADER, LeaderMemory.of_follower(None)):
        assert decide(config, rest, resources, new, 0.0).assignments["A"].assigned == read("T1,U1")


@DELAYING
def test_a_new_member_that_does_not_subscribe_ends_no_delay(config: LeaderConfig) -> None:
    play = led(config, ALL)
    play.resources = {**T1_TO_T4, "U": range(1, 3)}
    decision = play.round(f"{WITHOUT_D}, E(U,assigned:)", f"{WAIT}, E(assigned:U1,U2,revoked:,t1)")
    assert decision.waiting == read("T4")


@DELAYING
def test_a_leader_that_misses_no_member_does_not_wait(config: LeaderConfig) -> None:
    """D did not receive its assignment, or T has grown."""
    rest = "A(assigned:,revoked:,-), B(assigned:,revoked:,-), C(assigned:,revoked:,-)"
    led(config, ALL).round(WITHOUT_D + ", D(T,assigned:)", rest + ", D(assigned:T4,revoked:,-)")


# Leaders that change.


@DELAYING
def test_a_follower_that_becomes_leader_keeps_the_delay(config: LeaderConfig) -> None:
    """Design II: "they can just use the timeout they should already know about"."""
    first = led(config, ALL).round(WITHOUT_D, WAIT)
    known_ms = first.assignments["B"].scheduled_rebalance_timeout_ms
    follower = LeaderMemory.of_follower(1000 + known_ms / 1000)
    play = Play(config, memory=follower, now=1250)
    rest = "B(T,assigned:T2), C(T,assigned:T3)"
    waits = play.round(rest, "B(assigned:,revoked:,t1), C(assigned:,revoked:,t1)")
    assert waits.waiting == read("T1,T4")
    assert waits.assignments["B"].scheduled_rebalance_timeout_ms == 50_000
    play.now = 1300
    over = play.round(rest, "B(assigned:T2,T1,revoked:,-), C(assigned:T3,T4,revoked:,-)")
    assert over.memory.rebalance_at is None


@DELAYING
def test_a_follower_that_becomes_leader_waits_for_the_last_one(config: LeaderConfig) -> None:
    """Design II: the exit of a leader "is treated as loss of member"."""
    play = Play(config, memory=LeaderMemory.of_follower(None))
    rest = "B(T,assigned:T2), C(T,assigned:T3), D(T,assigned:T4)"
    waits = "B(assigned:,revoked:,t1), C(assigned:,revoked:,t1), D(assigned:,revoked:,t1)"
    assert play.round(rest, waits).waiting == read("T1")
    play.round(
        rest + ", A'(T,assigned:)",
        "B(assigned:,revoked:,-), C(assigned:,revoked:,-), D(assigned:,revoked:,-),"
        " A'(assigned:T1,revoked:,-)",
    )


@DELAYING
def test_a_new_leader_takes_a_member_without_resources_for_new(config: LeaderConfig) -> None:
    """Be it the leader itself, which bounced."""
    Play(config).round(
        "A'(T,assigned:), B(T,assigned:T2), C(T,assigned:T3), D(T,assigned:T4)",
        "A'(assigned:T1,revoked:,-), B(assigned:,revoked:,-), C(assigned:,revoked:,-),"
        " D(assigned:,revoked:,-)",
    )


def test_a_follower_that_becomes_leader_moves_nothing_before_the_interval_ends() -> None:
    members = joining("A(T,assigned:T1,T2,T3,T4), B(T,assigned:)")
    memory = LeaderMemory.of_follower(1010)
    waits = decide(INCREMENTAL, members, T1_TO_T4, memory, 1000)
    sent = ProposedAssignment(scheduled_rebalance_timeout_ms=10_000)
    assert waits.assignments == dict.fromkeys("AB", sent)
    moves = decide(INCREMENTAL, members, T1_TO_T4, waits.memory, 1010)
    assert len(moves.assignments["A"].revoked) == 1


@DELAYING
def test_the_delay_is_endless_if_leaders_bounce(config: LeaderConfig) -> None:
    """Design II, Discussion: each leader is new to the group, and begins another delay.

    There are more members than resources, so that a member without any need not be new.
    """
    members = joining("A(T,assigned:T1), B(T,assigned:), C(T,assigned:), D(T,assigned:)")
    resources = {"T": range(1, 4)}
    now = 0.0
    for bounce in range(20):
        leader = {f"L{bounce}": Subscription(topics=("T",), version=1)}
        decision = decide(config, members | leader, resources, NEW_LEADER, now)
        assert decision.waiting == read("T2,T3")
        assert decision.assignments["A"].scheduled_rebalance_timeout_ms == 300_000
        now += DELAY_S - 1
    assert now > 19 * DELAY_S - 20
    stays = decide(config, members | leader, resources, decision.memory, now + 1)
    assert not stays.waiting


# The first generation.


@pytest.mark.parametrize("is_new_leader", [False, True])
@DELAYING
def test_the_first_member_waits_for_others(config: LeaderConfig, *, is_new_leader: bool) -> None:
    """Design II, First member: "use the deferment process to allow other members to join"."""
    play = Play(replace(config, first_delay_s=3.0))
    first = play.round("A(T,assigned:)", "A(assigned:,revoked:,t1)")
    assert first.assignments["A"].scheduled_rebalance_timeout_ms == 3000
    play.now += 2
    if is_new_leader:
        play.memory = LeaderMemory.of_follower(play.memory.rebalance_at)
    both = "A(T,assigned:), B(T,assigned:)"
    second = play.round(both, "A(assigned:,revoked:,t1), B(assigned:,revoked:,t1)")
    assert second.assignments["B"].scheduled_rebalance_timeout_ms == 1000
    play.now += 1
    play.round(both, "A(assigned:T1,T3,revoked:,-), B(assigned:T2,T4,revoked:,-)")


@EACH
def test_the_first_member_gets_everything_at_once(config: LeaderConfig) -> None:
    Play(config).round("A(T,assigned:)", "A(assigned:T1,T2,T3,T4,revoked:,-)")


def test_design_1_has_no_delay_for_the_first_member() -> None:
    config = replace(IMMEDIATE, first_delay_s=3.0)
    Play(config).round("A(T,assigned:)", "A(assigned:T1,T2,T3,T4,revoked:,-)")


# Claims that cannot be kept.


@EACH
def test_a_resource_of_two_members_is_revoked_from_both(config: LeaderConfig) -> None:
    play = led(config, "A(T,assigned:T1,T2), B(T,assigned:T3,T4)")
    play.round(
        "A(T,assigned:T1,T2), B(T,assigned:T2,T3,T4)",
        "A(assigned:,revoked:T2), B(assigned:,revoked:T2)",
    )
    play.round(
        "A(T,assigned:T1), B(T,assigned:T3,T4)",
        "A(assigned:T1,T2,revoked:,-), B(assigned:,revoked:,-)",
    )


@EACH
def test_an_owner_that_does_not_subscribe_any_more_gives_up(config: LeaderConfig) -> None:
    play = led(config, "A(T,assigned:T1,T2), B(T,assigned:T3,T4)")
    play.round(
        "A(U,assigned:T1,T2), B(T,assigned:T3,T4)",
        "A(assigned:,revoked:T1,T2), B(assigned:,revoked:)",
    )
    play.round(
        "A(U,assigned:), B(T,assigned:T3,T4)",
        "A(assigned:,revoked:,-), B(assigned:T1,T2,T3,T4,revoked:,-)",
    )
