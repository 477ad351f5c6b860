"""Groups whose leader follows a policy of incremental cooperative rebalancing, in any history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from group_lab.assignors.incremental import Decision, LeaderConfig, LeaderMemory, Policy, decide
from lab.tests.assignors.groups import Partitions, partitions
from lab.tests.assignors.incremental_setup import (
    DELAY_S,
    DELAYED,
    DELAYING,
    EACH,
    IMMEDIATE,
    INCREMENTAL,
    INTERVAL_S,
    NEW_LEADER,
    NONE,
)
from spark_groups.group.member.embedded import Subscription


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
            # Its assignment has no field for a timeout.
            for sent in decision.assignments.values():
                assert (sent.version, sent.scheduled_rebalance_timeout_ms) == (0, 0)
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


def test_resources_do_not_move_in_a_circle() -> None:
    """They would if the leader computed another target after each move."""
    group = GroupOfMembers(INCREMENTAL, {"t": range(5), "u": range(3), "v": range(1)})
    group.owned = {
        group.join("t"): partitions(t=[4]),
        group.join("u"): NONE,
        group.join("t", "u"): partitions(t=[0, 2], u=[2]),
        group.join("u"): NONE,
        group.join("t", "u", "v"): partitions(t=[1, 3], u=[0, 1], v=[0]),
    }
    first = group.rebalance().target
    group.settle()
    assert group.owned == first


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
