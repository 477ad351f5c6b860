"""The policies of incremental cooperative rebalancing: the proposal's examples, and any history.

The examples are its own text: `A(T,assigned:T1)` is a subscription, `A(assigned:,revoked:T4,t1)` an
assignment with a timeout, where `-` is none. It repeats assignments in some examples only, so that
assignments are compared by what members have afterwards.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groups.lab.assignors.incremental import (
    Decision,
    LeaderConfig,
    LeaderMemory,
    Policy,
    decide,
)
from spark_groups.protocol.embedded import ProposedAssignment, Subscription
from spark_groups.types import TopicPartition
from tests.lab.assignors.groups import Partitions, partitions

DELAY_S, INTERVAL_S = 300.0, 30.0
IMMEDIATE = LeaderConfig(policy=Policy.IMMEDIATE)
DELAYED = LeaderConfig(policy=Policy.DELAYED, scheduled_rebalance_delay_s=DELAY_S)
INCREMENTAL = LeaderConfig(
    policy=Policy.INCREMENTAL, scheduled_rebalance_delay_s=DELAY_S, move_interval_s=INTERVAL_S
)
CONFIGS = {each.policy.value: each for each in (IMMEDIATE, DELAYED, INCREMENTAL)}
EACH = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
DELAYING = pytest.mark.parametrize("config", [DELAYED, INCREMENTAL], ids=lambda c: c.policy.value)
T1_TO_T4 = {"T": range(1, 5)}
NONE: Partitions = frozenset()
NEW_LEADER = LeaderMemory()


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
    play.now += 200
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
    members = {
        "A": Subscription(topics=("T", "U"), owned_partitions=read("T1"), version=1),
        "B": Subscription(topics=("T", "U"), owned_partitions=read("U1"), version=1),
    }
    resources = {"T": [1], "U": [1]}
    memory = decide(config, members, resources, NEW_LEADER, 0.0).memory
    rest = {"A": members["A"]}
    waits = decide(config, rest, resources, memory, 0.0)
    assert waits.waiting == read("U1")
    assert decide(config, rest, resources, waits.memory, 0.0).waiting == read("U1")
    for new in (NEW_LEADER, LeaderMemory.of_follower(None)):
        assert decide(config, rest, resources, new, 0.0).assignments["A"].assigned == read("T1,U1")


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


# Any history.


class GroupOfMembers:
    """Members that follow their assignments; answers can be lost, and the leader can change."""

    def __init__(self, config: LeaderConfig, resources: Mapping[str, Collection[int]]) -> None:
        self.config = config
        self.resources = resources
        self.now = 0.0
        self.owned: dict[str, Partitions] = {}
        self.memories: dict[str, LeaderMemory] = {}
        self.topics: dict[str, tuple[str, ...]] = {}
        self.joined = 0
        self.leader = ""
        self.decision: Decision | None = None

    @property
    def existing(self) -> Partitions:
        """Resources of all topics that a member subscribes to."""
        subscribed = frozenset[str]().union(*(self.topics[each] for each in self.owned))
        return partitions(**{each: list(self.resources.get(each, ())) for each in subscribed})

    def join(self, *topics: str) -> str:
        member_id = f"m{self.joined}"
        self.joined += 1
        self.owned[member_id] = NONE
        self.memories[member_id] = NEW_LEADER
        self.topics[member_id] = topics or tuple(self.resources)
        self.leader = self.leader or member_id
        return member_id

    def leave(self, member_id: str, random: Random) -> None:
        del self.owned[member_id]
        if member_id == self.leader:
            self.lead(random.choice(sorted(self.owned)) if self.owned else "")

    def lead(self, member_id: str) -> None:
        """Change the leader: another one knows only the end of its last timeout."""
        if member_id != self.leader:
            former = self.memories.get(self.leader)
            if former is not None:
                follower = LeaderMemory.of_follower(former.rebalance_at)
                self.memories[self.leader] = follower
            self.leader = member_id

    def rebalance(self, deaf: Collection[str] = ()) -> Decision:
        """Play a rebalance; check the promises of its assignments.

        Args:
            deaf: Members that do not receive their assignments.
        """
        members = {
            each: Subscription(topics=self.topics[each], owned_partitions=own, version=1)
            for each, own in self.owned.items()
        }
        memory = self.memories[self.leader]
        decision = decide(self.config, members, self.resources, memory, self.now)
        self.check(decision)
        for member_id, sent in decision.assignments.items():
            timeout_ms = sent.scheduled_rebalance_timeout_ms
            if member_id not in deaf:
                self.owned[member_id] = sent.applied_to(self.owned[member_id])
                self.memories[member_id] = LeaderMemory.of_follower(
                    self.now + timeout_ms / 1000 if timeout_ms else None
                )
        self.memories[self.leader] = decision.memory
        owners = Counter(key for own in self.owned.values() for key in own)
        assert not [key for key, count in owners.items() if count > 1]
        self.decision = decision
        return decision

    def check(self, decision: Decision) -> None:
        existing = self.existing
        claims = Counter(key for own in self.owned.values() for key in own)
        assert decision.assignments.keys() == self.owned.keys() == decision.target.keys()
        for member_id, sent in decision.assignments.items():
            own = self.owned[member_id]
            assert sent.revoked <= own
            assert sent.assigned <= existing
            assert not sent.assigned & sent.revoked
            assert not (sent.revoked and sent.scheduled_rebalance_timeout_ms)
            if decision.waiting:
                # A live member gives up nothing because another one left.
                assert not [key for key in sent.revoked & existing if claims[key] == 1]
        if self.config.policy is Policy.IMMEDIATE:
            assert not decision.waiting
            assert not any(
                each.scheduled_rebalance_timeout_ms for each in decision.assignments.values()
            )
        if self.config.policy is Policy.INCREMENTAL:
            revoked = NONE.union(*(each.revoked for each in decision.assignments.values()))
            moves = [key for key in revoked & existing if claims[key] == 1]
            assert len(moves) <= self.config.moves_max

    def settle(self) -> int:
        """Play until no member has to join again; return the number of rebalances."""
        for rebalances in range(1, 200):
            sent = self.rebalance().assignments.values()
            if any(each.revoked for each in sent):
                continue
            timeout_ms = max((each.scheduled_rebalance_timeout_ms for each in sent), default=0)
            if not timeout_ms:
                return rebalances
            self.now += timeout_ms / 1000
        raise AssertionError("members still join after 200 rebalances")

    def check_balanced(self) -> None:
        loads = [len(own) for own in self.owned.values()]
        assert NONE.union(*self.owned.values()) == self.existing
        assert max(loads) - min(loads) <= 1


def settled(config: LeaderConfig, members: int, **counts: int) -> GroupOfMembers:
    """Return a group that has its assignment."""
    group = GroupOfMembers(config, {topic: range(count) for topic, count in counts.items()})
    for _ in range(members):
        group.join()
    group.settle()
    group.check_balanced()
    return group


configs = st.sampled_from(
    [
        IMMEDIATE,
        DELAYED,
        INCREMENTAL,
        replace(DELAYED, first_delay_s=3.0),
        replace(INCREMENTAL, moves_max=3, first_delay_s=3.0),
    ]
)
STEPS = ("join", "leave", "bounce", "lost answer", "leader", "wait", "resources")
randoms = st.randoms(use_true_random=False)


def step(group: GroupOfMembers, name: str, random: Random) -> None:
    """Change something, then rebalance once; others may follow before the group has settled."""
    members = sorted(group.owned)
    one = random.choice(members)
    deaf: Iterable[str] = ()
    match name:
        case "join":
            group.join(*group.topics[members[0]])
        case "leave" if len(members) > 1:
            group.leave(one, random)
        case "bounce":
            group.join(*group.topics[one])
            group.leave(one, random)
        case "lost answer":
            deaf = random.sample(members, random.randint(1, len(members)))
        case "leader":
            group.lead(one)
        case "wait":
            group.now += random.choice([1.0, 29.9, 30.0, 299.0, 300.0, 1000.0])
        case "resources":
            topic = random.choice(sorted(group.resources))
            group.resources = {**group.resources, topic: range(random.randint(0, 7))}
    group.rebalance(tuple(deaf))


@given(
    config=configs,
    members=st.integers(1, 5),
    counts=st.tuples(st.integers(0, 9), st.integers(0, 3)),
    steps=st.lists(st.sampled_from(STEPS), max_size=12),
    random=randoms,
)
def test_every_history_ends_in_balance(
    config: LeaderConfig, members: int, counts: tuple[int, int], steps: list[str], random: Random
) -> None:
    group = GroupOfMembers(config, {"t": range(counts[0]), "u": range(counts[1])})
    for _ in range(members):
        group.join()
    for name in steps:
        step(group, name, random)
    began = group.now
    moves = len(group.existing)
    rebalances = group.settle()
    group.check_balanced()
    if config.policy is not Policy.INCREMENTAL:
        assert rebalances <= 5
        assert group.now - began <= 2 * DELAY_S
    else:
        assert rebalances <= 5 + 3 * moves
        assert group.now - began <= 2 * DELAY_S + moves * INTERVAL_S


@given(
    config=configs,
    subscriptions=st.lists(
        st.sets(st.sampled_from("tuv"), min_size=1).map(sorted), min_size=1, max_size=5
    ),
    counts=st.tuples(*[st.integers(0, 6)] * 3),
    steps=st.lists(st.sampled_from(STEPS), max_size=8),
    random=randoms,
)
def test_members_may_subscribe_to_different_topics(
    config: LeaderConfig,
    subscriptions: list[list[str]],
    counts: tuple[int, int, int],
    steps: list[str],
    random: Random,
) -> None:
    group = GroupOfMembers(config, dict(zip("tuv", map(range, counts), strict=True)))
    for topics in subscriptions:
        group.join(*topics)
    for name in steps:
        step(group, name, random)
    group.settle()
    assert group.decision is not None
    assert group.owned == group.decision.target
    assert NONE.union(*group.owned.values()) == group.existing
    for member_id, own in group.owned.items():
        assert {key.topic for key in own} <= set(group.topics[member_id])


@DELAYING
@given(
    members=st.integers(2, 6),
    count=st.integers(6, 20),
    away_s=st.sampled_from([0.0, 1.0, 299.0, 299.999]),
    is_leader=st.booleans(),
    random=randoms,
)
def test_a_member_that_returns_within_the_delay_gets_the_same_again(
    config: LeaderConfig,
    members: int,
    count: int,
    away_s: float,
    *,
    is_leader: bool,
    random: Random,
) -> None:
    group = settled(config, members, t=count)
    before = dict(group.owned)
    gone = group.leader if is_leader else random.choice(sorted(before))
    group.leave(gone, random)
    if away_s:
        group.rebalance()
        group.now += away_s
    back = group.join()
    group.settle()
    assert group.owned == {back if each == gone else each: own for each, own in before.items()}


@EACH
@given(members=st.integers(2, 6), count=st.integers(0, 20), random=randoms)
def test_remaining_members_keep_everything(
    config: LeaderConfig, members: int, count: int, random: Random
) -> None:
    group = settled(config, members, t=count)
    before = dict(group.owned)
    group.leave(random.choice(sorted(before)), random)
    group.settle()
    group.check_balanced()
    assert all(before[each] <= own for each, own in group.owned.items())


@EACH
@given(members=st.integers(1, 6), count=st.integers(0, 20))
def test_only_a_new_member_gains(config: LeaderConfig, members: int, count: int) -> None:
    group = settled(config, members, t=count)
    before = dict(group.owned)
    group.join()
    group.settle()
    group.check_balanced()
    assert all(group.owned[each] <= own for each, own in before.items())


@EACH
@given(claims=st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=5))
def test_each_resource_has_one_owner_finally(config: LeaderConfig, claims: list[set[int]]) -> None:
    """Even if members claimed the same ones."""
    group = GroupOfMembers(config, {"t": range(8)})
    for numbers in claims:
        group.owned[group.join()] = partitions(t=sorted(numbers))
    group.settle()
    group.check_balanced()


# Design III, and resources that are no partitions.


def test_a_scale_up_moves_one_resource_in_each_interval() -> None:
    group = settled(INCREMENTAL, 2, t=6)
    new = group.join()
    loads = []
    for _ in range(2):
        first = group.rebalance()
        assert sum(len(each.revoked) for each in first.assignments.values()) == 1
        second = group.rebalance()
        timeouts = {each.scheduled_rebalance_timeout_ms for each in second.assignments.values()}
        loads.append((len(group.owned[new]), timeouts))
        group.now += INTERVAL_S
    assert loads == [(1, {30_000}), (2, {0})]
    group.check_balanced()


def test_a_rebalance_for_another_reason_moves_nothing_before_the_interval_ends() -> None:
    group = settled(INCREMENTAL, 2, t=6)
    group.join()
    group.rebalance()
    group.rebalance()
    group.now += 10
    again = group.rebalance()
    assert not any(each.revoked for each in again.assignments.values())
    assert again.assignments["m0"].scheduled_rebalance_timeout_ms == 20_000


def test_connectors_lose_tasks_and_the_rest_moves_one_by_one() -> None:
    """Design III: "where you might scale down # of tasks for a connector"."""
    resources = {"jdbc-sink": [-1, *range(7)], "s3-sink": [-1, *range(3)]}
    group = GroupOfMembers(INCREMENTAL, resources)
    heavy, light = group.join(), group.join()
    group.rebalance()
    group.check_balanced()
    group.owned = {heavy: partitions(**{"jdbc-sink": [-1, 0, 1, 2, 3, 4]}), light: NONE}
    group.owned[light] = group.existing - group.owned[heavy]
    group.rebalance()

    group.resources = {**resources, "jdbc-sink": [-1, *range(5)], "s3-sink": [-1]}
    fewer = group.rebalance()
    removed = partitions(**{"jdbc-sink": [5, 6], "s3-sink": [0, 1, 2]})
    moved = fewer.assignments[heavy].revoked
    assert fewer.assignments[light].revoked == removed
    assert len(moved) == 1
    assert group.settle() == 3
    group.check_balanced()
    assert group.existing == partitions(**{"jdbc-sink": [-1, *range(5)], "s3-sink": [-1]})


def test_several_resources_may_move_at_a_time() -> None:
    group = settled(replace(INCREMENTAL, moves_max=5), 1, t=8)
    group.join()
    first = group.rebalance()
    assert len(first.assignments["m0"].revoked) == 4


def test_a_departure_interrupts_the_moves() -> None:
    group = settled(INCREMENTAL, 3, t=12)
    group.join()
    group.rebalance()
    group.leave("m2", Random(0))
    waits = group.rebalance()
    assert len(waits.waiting) == 4
    group.now += INTERVAL_S
    assert not any(each.revoked for each in group.rebalance().assignments.values())
    group.settle()
    group.check_balanced()
