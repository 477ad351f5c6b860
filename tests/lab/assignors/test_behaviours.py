"""What every assignor promises, for groups of any shape, and which assignors there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groups.lab.assignors.assignor import Assignor, AssignorError, GroupSpec, MemberSpec
from spark_groups.lab.assignors.range_assignor import RangeAssignor, contiguous, sticky
from spark_groups.lab.assignors.registry import assignors
from spark_groups.lab.assignors.uniform import UniformAssignor
from spark_groups.types import NO_PARTITIONS, Assignment, TopicIdPartition
from tests.lab.assignors.groups import group, has, member, topic_id

KAFKA_4_0 = assignors(stable_extras=False, range_is_sticky=False)
KAFKA_4 = assignors(stable_extras=True, range_is_sticky=False)
KIP = assignors(stable_extras=True, range_is_sticky=True)
ALL = {
    "uniform 4.0": KAFKA_4_0["uniform"],
    "uniform": KAFKA_4["uniform"],
    "range": KAFKA_4["range"],
    "sticky range": KIP["range"],
}
STICKY = {name: each for name, each in ALL.items() if name != "range"}
UNIFORM = {name: each for name, each in ALL.items() if name.startswith("uniform")}
RANGE = {name: each for name, each in ALL.items() if name.endswith("range")}
EACH = pytest.mark.parametrize("assignor", ALL.values(), ids=ALL)
EACH_STICKY = pytest.mark.parametrize("assignor", STICKY.values(), ids=STICKY)
EACH_UNIFORM = pytest.mark.parametrize("assignor", UNIFORM.values(), ids=UNIFORM)
EACH_RANGE = pytest.mark.parametrize("assignor", RANGE.values(), ids=RANGE)

TOPICS = ("t", "u", "v")
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


@EACH
@given(history=histories())
def test_every_subscribed_partition_has_one_subscriber(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec]
) -> None:
    before, after = history
    first = assignor.assign(before)
    check_legal(before, first)
    if after.members:
        again = kept(after, first)
        check_legal(again, assignor.assign(again))


@EACH
@given(history=histories())
def test_nothing_moves_where_nothing_changed(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec]
) -> None:
    before, after = history
    spec = kept(after, assignor.assign(before))
    targets = assignor.assign(spec)
    assert assignor.assign(kept(spec, targets)) == targets


@EACH_UNIFORM
@given(history=histories(homogeneous=True))
def test_uniform_differs_by_one_over_all_topics(
    assignor: Assignor, history: tuple[GroupSpec, GroupSpec]
) -> None:
    before, after = history
    targets = assignor.assign(kept(after, assignor.assign(before)))
    sizes = [len(each) for each in targets.values()]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@EACH_RANGE
@given(history=histories())
def test_range_differs_by_one_in_each_topic(
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


@EACH_RANGE
@given(spec=groups())
def test_ranges_are_contiguous_at_first(assignor: Assignor, spec: GroupSpec) -> None:
    for target in assignor.assign(spec).values():
        for partitions in target.by_topic().values():
            assert all(after == each + 1 for each, after in pairwise(partitions))


@EACH_STICKY
@given(spec=groups(homogeneous=True), leaving=st.randoms(use_true_random=False))
def test_remaining_members_keep_everything_when_another_one_leaves(
    assignor: Assignor, spec: GroupSpec, leaving: Random
) -> None:
    first = assignor.assign(spec)
    gone = leaving.choice(sorted(spec.members))
    rest = {each: known for each, known in spec.members.items() if each != gone}
    if rest:
        after = assignor.assign(kept(replace(spec, members=rest), first))
        assert all(first[each] <= target for each, target in after.items())


@EACH_STICKY
@given(spec=groups(homogeneous=True))
def test_members_gain_nothing_when_another_one_joins(assignor: Assignor, spec: GroupSpec) -> None:
    first = assignor.assign(spec)
    wanted = next(iter(spec.members.values())).subscribed
    more = {**spec.members, "z": MemberSpec(wanted)}
    after = assignor.assign(kept(replace(spec, members=more), first))
    assert all(after[each] <= target for each, target in first.items())


@EACH
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
