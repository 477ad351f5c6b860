"""What every assignor promises, for groups of any shape, and which assignors there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass, replace
from enum import Enum
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from group_lab.assignors.assignor import Assignor, AssignorError, GroupSpec, MemberSpec
from group_lab.assignors.classic import ClassicAssignor, ClassicRangeAssignor, RoundRobinAssignor
from group_lab.assignors.range_assignor import RangeAssignor, contiguous, sticky
from group_lab.assignors.registry import assignors
from group_lab.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from group_lab.assignors.uniform import UniformAssignor
from lab.tests.assignors.groups import assigned, claiming, group, has, member, partitions, topic_id
from spark_groups.group.member.embedded import NO_GENERATION
from spark_groups.types import NO_PARTITIONS, Assignment, TopicIdPartition, TopicPartition

Test = Callable[..., None]

TOPICS = ("t", "u", "v")
NAMES = {topic_id(each): each for each in (*TOPICS, "gone")}


@dataclass(frozen=True)
class Leader:
    """The leader of a classic group as an assignor of groups: members claim their targets.

    Args:
        rebalances: After how many rebalances an assignment changes no more; where members subscribe
            to different topics, cooperative-sticky needs up to three and one that changes nothing.
    """

    assignor: ClassicAssignor
    rebalances: int = 1

    @property
    def name(self) -> str:
        return self.assignor.name

    def assign(self, spec: GroupSpec) -> dict[str, Assignment]:
        targets = {each: known.target for each, known in spec.members.items()}
        for generation_id in range(1, 1 + self.rebalances):
            before, targets = targets, self.rebalanced(spec, targets, generation_id)
            if targets == before:
                break
        return targets

    def rebalanced(
        self, spec: GroupSpec, targets: Mapping[str, Assignment], generation_id: int
    ) -> dict[str, Assignment]:
        members = {}
        for member_id, known in spec.members.items():
            had = frozenset(
                TopicPartition(NAMES[key.topic_id], key.partition) for key in targets[member_id]
            )
            members[member_id] = claiming(
                self.assignor,
                *sorted(NAMES[each] for each in known.subscribed),
                had=had or None,
                generation_id=generation_id if had else NO_GENERATION,
                instance_id=known.instance_id,
            )
        counts = {NAMES[each]: count for each, count in spec.partition_counts.items()}
        found = self.assignor.assign(members, counts)
        return {
            member_id: Assignment(
                frozenset(
                    TopicIdPartition(topic_id(key.topic), key.partition) for key in each.partitions
                )
            )
            for member_id, each in found.items()
        }


class Balance(Enum):
    """Where loads differ by at most one, if all members subscribe alike."""

    OVER_ALL_TOPICS = "over all topics"
    IN_EACH_TOPIC = "in each topic"


@dataclass(frozen=True)
class Promises:
    """What an assignor promises; docs/explanation/assignors.md shows this table.

    Args:
        is_sticky: Members keep theirs up to their share.
        no_move_helps: However members subscribe, no partition can move to a member that has two
            less.
        any_order: The order of members does not matter; Java's client changes it only for ids that
            fall into one bucket of a HashMap, which these groups do not have.
    """

    assignor: Assignor
    balance: Balance
    is_sticky: bool = False
    no_move_helps: bool = False
    any_order: bool = True


KAFKA_4_0 = assignors(stable_extras=False, range_is_sticky=False)
KAFKA_4 = assignors(stable_extras=True, range_is_sticky=False)
KIP = assignors(stable_extras=True, range_is_sticky=True)
ALL_TOPICS, EACH_TOPIC = Balance
COOPERATIVE = CooperativeStickyAssignor()
TABLE = {
    "uniform 4.0": Promises(KAFKA_4_0["uniform"], ALL_TOPICS, is_sticky=True, any_order=False),
    "uniform": Promises(KAFKA_4["uniform"], ALL_TOPICS, is_sticky=True, any_order=False),
    "range": Promises(KAFKA_4["range"], EACH_TOPIC),
    "sticky range": Promises(KIP["range"], EACH_TOPIC, is_sticky=True),
    "classic range": Promises(Leader(ClassicRangeAssignor()), EACH_TOPIC),
    "roundrobin": Promises(Leader(RoundRobinAssignor()), ALL_TOPICS),
    "sticky": Promises(Leader(StickyAssignor()), ALL_TOPICS, is_sticky=True, no_move_helps=True),
    "cooperative-sticky": Promises(
        Leader(COOPERATIVE, rebalances=4), ALL_TOPICS, is_sticky=True, no_move_helps=True
    ),
}


def those(promise: Callable[[Promises], bool]) -> pytest.MarkDecorator:
    """Return a mark: the test runs with every assignor that makes a promise."""
    found = {name: each.assignor for name, each in TABLE.items() if promise(each)}
    return pytest.mark.parametrize("assignor", found.values(), ids=found)


def for_those(promise: Callable[[Promises], bool]) -> Callable[[Test], Test]:
    """Return what makes a test of one drawn group of a test for each assignor with a promise.

    All get the same groups: to draw one takes ten times as long as to assign its partitions.
    """
    found = {name: each.assignor for name, each in TABLE.items() if promise(each)}

    def for_each(test: Test) -> Test:
        def check(**drawn: Any) -> None:
            for name, assignor in found.items():
                note(f"assignor: {name}")
                test(assignor, **drawn)

        check.__name__, check.__qualname__ = test.__name__, test.__qualname__
        return check

    return for_each


EACH = those(lambda _: True)
EACH_OF_A_COORDINATOR = those(lambda each: not isinstance(each.assignor, Leader))
EACH_OF_A_LEADER = those(lambda each: isinstance(each.assignor, Leader))

member_ids = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool = False) -> GroupSpec:
    """A group whose members have nothing yet."""
    counts = draw(st.fixed_dictionaries({each: st.integers(0, 12) for each in TOPICS}))
    subscriptions = st.sets(st.sampled_from(TOPICS))
    ids = draw(member_ids)
    common = draw(subscriptions)
    wanted = {each: common if homogeneous else draw(subscriptions) for each in ids}
    static = draw(st.sets(st.sampled_from(ids)))
    members = {
        each: member(*topics, instance_id=f"i-{each}" if each in static else None)
        for each, topics in wanted.items()
    }
    return group(members, **counts)


@st.composite
def histories(draw: st.DrawFn, *, homogeneous: bool = False) -> tuple[GroupSpec, GroupSpec]:
    """A group, and the same one after members came, went, or changed, and topics grew."""
    before = draw(groups(homogeneous=homogeneous))
    change = draw(groups(homogeneous=homogeneous))
    left = draw(st.sets(st.sampled_from(sorted(before.members))))
    members = {each: spec for each, spec in before.members.items() if each not in left}
    members |= {
        each: spec for each, spec in change.members.items() if homogeneous or each in members
    }
    if homogeneous:
        wanted = next(iter(change.members.values())).subscribed
        members = {each: replace(spec, subscribed=wanted) for each, spec in members.items()}
    counts = {
        name: count + draw(st.integers(0, 3)) for name, count in before.partition_counts.items()
    }
    subscriptions = {spec.subscribed for spec in members.values()}
    return before, GroupSpec(members, len(subscriptions) <= 1, counts)


def kept(spec: GroupSpec, targets: Mapping[str, Assignment]) -> GroupSpec:
    """Return the group with these targets; new members have none."""
    members = {
        each: replace(known, target=targets.get(each, NO_PARTITIONS))
        for each, known in spec.members.items()
    }
    return replace(spec, members=members)


def subscribed_partitions(spec: GroupSpec) -> list[TopicIdPartition]:
    wanted = frozenset[object]().union(*(each.subscribed for each in spec.members.values()))
    return sorted(
        TopicIdPartition(topic, partition)
        for topic, count in spec.partition_counts.items()
        if topic in wanted
        for partition in range(count)
    )


def check_legal(spec: GroupSpec, targets: Mapping[str, Assignment]) -> None:
    """Every subscribed partition has one owner, which subscribes to it."""
    assert targets.keys() == spec.members.keys()
    given_out = sorted(key for target in targets.values() for key in target.partitions)
    assert given_out == subscribed_partitions(spec)
    for member_id, target in targets.items():
        assert {key.topic_id for key in target.partitions} <= spec.members[member_id].subscribed


@given(history=histories())
@for_those(lambda _: True)
def test_every_subscribed_partition_has_one_subscriber(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec]
) -> None:
    before, after = history
    first = assignor.assign(before)
    check_legal(before, first)
    if after.members:
        again = kept(after, first)
        check_legal(again, assignor.assign(again))


@given(history=histories())
@for_those(lambda _: True)
def test_nothing_moves_where_nothing_changed(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec]
) -> None:
    before, after = history
    spec = kept(after, assignor.assign(before))
    targets = assignor.assign(spec)
    assert assignor.assign(kept(spec, targets)) == targets


@given(history=histories(homogeneous=True))
@for_those(lambda each: each.balance is Balance.OVER_ALL_TOPICS)
def test_loads_differ_by_one_over_all_topics(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec]
) -> None:
    before, after = history
    targets = assignor.assign(kept(after, assignor.assign(before)))
    sizes = [len(each) for each in targets.values()]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(history=histories())
@for_those(lambda each: each.balance is Balance.IN_EACH_TOPIC)
def test_loads_differ_by_one_in_each_topic(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec]
) -> None:
    before, after = history
    targets = assignor.assign(kept(after, assignor.assign(before)))
    for topic in after.partition_counts:
        sizes = [
            len(targets[each].by_topic().get(topic, ()))
            for each, spec in after.members.items()
            if topic in spec.subscribed
        ]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(spec=groups())
@for_those(lambda each: each.balance is Balance.IN_EACH_TOPIC)
def test_ranges_are_contiguous_at_first(assignor: Assignor, spec: GroupSpec) -> None:
    for target in assignor.assign(spec).values():
        for numbers in target.by_topic().values():
            assert all(after == each + 1 for each, after in pairwise(numbers))


@given(spec=groups(homogeneous=True), leaving=st.randoms(use_true_random=False))
@for_those(lambda each: each.is_sticky)
def test_remaining_members_keep_everything_when_another_one_leaves(
    assignor: Assignor, spec: GroupSpec, leaving: Random
) -> None:
    first = assignor.assign(spec)
    gone = leaving.choice(sorted(spec.members))
    rest = {each: known for each, known in spec.members.items() if each != gone}
    if rest:
        after = assignor.assign(kept(replace(spec, members=rest), first))
        assert all(first[each] <= target for each, target in after.items())


@given(spec=groups(homogeneous=True))
@for_those(lambda each: each.is_sticky)
def test_members_gain_nothing_when_another_one_joins(assignor: Assignor, spec: GroupSpec) -> None:
    first = assignor.assign(spec)
    wanted = next(iter(spec.members.values())).subscribed
    more = {**spec.members, "z": MemberSpec(wanted)}
    after = assignor.assign(kept(replace(spec, members=more), first))
    assert all(after[each] <= target for each, target in first.items())


@given(history=histories())
@for_those(lambda each: each.no_move_helps)
def test_no_partition_can_move_to_a_member_that_has_two_less(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec]
) -> None:
    before, after = history
    targets = assignor.assign(kept(after, assignor.assign(before)))
    for target in targets.values():
        for key in target:
            for member_id, spec in after.members.items():
                could = key.topic_id in spec.subscribed
                assert not could or len(target) <= len(targets[member_id]) + 1


@given(history=histories(), order=st.randoms(use_true_random=False))
@for_those(lambda each: each.any_order)
def test_the_order_of_members_does_not_matter(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec], order: Random
) -> None:
    before, after = history
    spec = kept(after, assignor.assign(before))
    shuffled = list(spec.members.items())
    order.shuffle(shuffled)
    assert assignor.assign(replace(spec, members=dict(shuffled))) == assignor.assign(spec)


@given(history=histories())
@for_those(lambda _: True)
def test_the_order_in_which_sets_were_built_does_not_matter(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec]
) -> None:
    """Python iterates over equal sets in an order that depends on it."""
    before, after = history
    spec = kept(after, assignor.assign(before))
    rebuilt = {
        each: replace(
            known,
            subscribed=frozenset(sorted(known.subscribed, reverse=True)),
            target=Assignment(frozenset(sorted(known.target.partitions, reverse=True))),
        )
        for each, known in spec.members.items()
    }
    assert assignor.assign(replace(spec, members=rebuilt)) == assignor.assign(spec)


@pytest.mark.parametrize("assignor", [StickyAssignor(), COOPERATIVE], ids=lambda each: each.name)
def test_a_sticky_leader_prefers_the_first_of_two_ids_in_one_bucket(
    assignor: ClassicAssignor,
) -> None:
    """The hashes of a and q are 97 and 113: 1 modulo 16. One of them keeps both partitions."""
    members = {
        "a": claiming(assignor, "t", had=partitions(t=[0, 1]), generation_id=1),
        "q": claiming(assignor, "t", had=partitions(t=[2, 3]), generation_id=1),
        "c": claiming(assignor, "t", had=None),
    }
    for first, second in (("a", "q"), ("q", "a")):
        joined = {each: members[each] for each in (first, second, "c")}
        found = assigned(assignor, joined, t=4)
        assert (len(found[first]), len(found[second])) == (2, 1)


@given(history=histories())
def test_cooperative_sticky_gives_nothing_away_that_another_member_still_has(
    history: tuple[GroupSpec, GroupSpec],
) -> None:
    before, after = history
    leader = Leader(COOPERATIVE, rebalances=4)
    spec = kept(after, leader.assign(before))
    once = Leader(COOPERATIVE).assign(spec)
    owned = {key: each for each, known in spec.members.items() for key in known.target}
    for member_id, target in once.items():
        for key in target:
            assert owned.get(key, member_id) == member_id


@EACH_OF_A_LEADER
def test_a_leader_leaves_out_unknown_topics(assignor: Assignor) -> None:
    spec = group({"a": member("gone"), "b": member("t")}, t=3)
    assert assignor.assign(spec) == {"a": NO_PARTITIONS, "b": has(t=[0, 1, 2])}


@EACH_OF_A_COORDINATOR
def test_an_unknown_topic_is_an_error(assignor: Assignor) -> None:
    for spec in (
        group({"a": member("gone")}, t=3),
        group({"a": member("gone"), "b": member("t")}, t=3),
    ):
        with pytest.raises(AssignorError):
            assignor.assign(spec)


@EACH
def test_a_group_without_members_has_no_targets(assignor: Assignor) -> None:
    assert assignor.assign(group({}, t=3)) == {}


@EACH
def test_a_member_without_subscriptions_gets_nothing(assignor: Assignor) -> None:
    had = Assignment.of({topic_id("t"): (0,)})
    spec = group({"a": member(target=had), "b": member()}, t=3)
    assert assignor.assign(spec) == {"a": NO_PARTITIONS, "b": NO_PARTITIONS}


def test_groups_are_equal_if_what_an_assignor_sees_is() -> None:
    spec = group({"a": member("t", target=has(t=[0]))}, t=1)
    assert spec == group({"a": member("t", target=has(t=[0]))}, t=1)
    assert spec != group({"a": member("t")}, t=1)
    assert spec != replace(spec, is_homogeneous=False)


def test_assigning_does_not_change_the_input() -> None:
    with pytest.raises(FrozenInstanceError):
        member("t").target = has(t=[0])  # type: ignore[misc]


@pytest.mark.parametrize("stable_extras", [False, True])
@pytest.mark.parametrize(
    ("range_is_sticky", "by_range"),
    [(False, RangeAssignor(contiguous)), (True, RangeAssignor(sticky))],
)
def test_every_name_has_its_assignor(
    stable_extras: bool, range_is_sticky: bool, by_range: Assignor
) -> None:
    known = assignors(stable_extras=stable_extras, range_is_sticky=range_is_sticky)
    assert known == {"uniform": UniformAssignor(stable_extras), "range": by_range}
