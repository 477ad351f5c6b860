"""One step of a member: the names are those of Kafka's CurrentAssignmentBuilderTest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations, product

import pytest

from group_lab.coordinator.effects import RefusedError
from group_lab.coordinator.member import GroupMember, ReconciliationState
from group_lab.coordinator.profile import KAFKA_4_0, KAFKA_4_2, KAFKA_4_3, KIP_848, Profile
from group_lab.coordinator.reconciliation import Reconciliation
from lab.tests.coordinator.driving import BAR, FOO, bar, foo, given_at
from spark_groups.errors import ErrorCode
from spark_groups.types import NO_PARTITIONS, Assignment, TopicIdPartition

STABLE = ReconciliationState.STABLE
UNREVOKED = ReconciliationState.UNREVOKED_PARTITIONS
UNRELEASED = ReconciliationState.UNRELEASED_PARTITIONS
BOTH = pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_3], ids=lambda each: each.name)


def member(
    state: ReconciliationState,
    assigned: Assignment,
    *,
    pending: Assignment = NO_PARTITIONS,
    epoch: int = 10,
) -> GroupMember:
    return GroupMember(
        member_id="m",
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        state=state,
        assigned=given_at({assigned: 10}),
        pending_revocation=given_at({pending: 10}),
    )


def step(
    before: GroupMember,
    target: Assignment,
    *,
    profile: Profile = KAFKA_4_3,
    epoch: int = 11,
    owned: Assignment | None = None,
    held: Assignment = NO_PARTITIONS,
    subscribed: frozenset[object] = frozenset((FOO, BAR)),
    absent: bool = False,
    changed: bool = False,
) -> GroupMember:
    own = Assignment(frozenset((*before.assigned, *before.pending_revocation)))
    return Reconciliation(
        assignment_epoch=epoch,
        target=target,
        subscribed=subscribed,
        names_no_topic=not subscribed and not absent,
        has_subscription_changed=changed,
        owned=owned,
        held=lambda: held | own,
        profile=profile,
    ).of(before)


def at(
    before: GroupMember,
    state: ReconciliationState,
    *,
    epoch: int,
    assigned: dict[Assignment, int],
    pending: Assignment = NO_PARTITIONS,
) -> GroupMember:
    """Return the member after a step; its previous epoch is always the one it had."""
    return replace(
        before,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=before.member_epoch,
        assigned=given_at(assigned),
        pending_revocation=given_at({pending: 10}),
    )


@BOTH
def test_stable_to_stable(profile: Profile) -> None:
    before = member(STABLE, foo(1, 2) | bar(3))
    after = step(before, foo(1, 2) | bar(3), profile=profile)
    assert after == at(before, STABLE, epoch=11, assigned={foo(1, 2) | bar(3): 10})


@BOTH
def test_stable_stays_at_the_epoch_of_the_target(profile: Profile) -> None:
    before = member(STABLE, foo(1))
    assert step(before, foo(1), profile=profile, epoch=10) is before


@BOTH
def test_stable_to_stable_with_new_partitions(profile: Profile) -> None:
    before = member(STABLE, foo(1))
    after = step(before, foo(1, 2), profile=profile)
    assert after == at(before, STABLE, epoch=11, assigned={foo(1): 10, foo(2): 11})


@BOTH
def test_stable_to_unrevoked_partitions(profile: Profile) -> None:
    before = member(STABLE, foo(1, 2) | bar(3))
    after = step(before, foo(2, 4) | bar(3), profile=profile)
    kept = foo(2) | bar(3)
    assert after == at(before, UNREVOKED, epoch=10, assigned={kept: 10}, pending=foo(1))


@BOTH
def test_stable_to_unreleased_partitions(profile: Profile) -> None:
    before = member(STABLE, foo(1))
    after = step(before, foo(1, 2), profile=profile, held=foo(2))
    assert after == at(before, UNRELEASED, epoch=11, assigned={foo(1): 10})


@BOTH
def test_stable_to_unreleased_partitions_takes_the_free_ones(profile: Profile) -> None:
    before = member(STABLE, foo(1))
    after = step(before, foo(1, 2, 3), profile=profile, held=foo(2))
    assert after == at(before, UNRELEASED, epoch=11, assigned={foo(1): 10, foo(3): 11})


@BOTH
def test_stable_to_unreleased_partitions_with_owned_partitions_not_having_revoked_partitions(
    profile: Profile,
) -> None:
    """What the member does not own any more needs no step of its own."""
    before = member(STABLE, foo(1, 2))
    after = step(before, foo(1, 3), profile=profile, owned=foo(1), held=foo(3))
    assert after == at(before, UNRELEASED, epoch=11, assigned={foo(1): 10})


@BOTH
@pytest.mark.parametrize("owned", [None, foo(1, 2), foo(1)], ids=["silent", "all", "a part"])
def test_remains_in_unrevoked_partitions(profile: Profile, owned: Assignment | None) -> None:
    before = member(UNREVOKED, foo(3), pending=foo(1))
    assert step(before, foo(3), profile=profile, owned=owned) is before


@BOTH
def test_unrevoked_partitions_to_stable(profile: Profile) -> None:
    before = member(UNREVOKED, foo(2), pending=foo(1))
    after = step(before, foo(2, 3), profile=profile, owned=foo(2))
    assert after == at(before, STABLE, epoch=11, assigned={foo(2): 10, foo(3): 11})


@BOTH
def test_unrevoked_partitions_to_unreleased_partitions(profile: Profile) -> None:
    before = member(UNREVOKED, foo(2), pending=foo(1))
    after = step(before, foo(2, 3), profile=profile, owned=foo(2), held=foo(3))
    assert after == at(before, UNRELEASED, epoch=11, assigned={foo(2): 10})


@pytest.mark.parametrize(("profile", "epoch"), [(KAFKA_4_0, 11), (KAFKA_4_2, 10), (KAFKA_4_3, 10)])
def test_unrevoked_partitions_to_unrevoked_partitions(profile: Profile, epoch: int) -> None:
    """An owner that has more to give up moved on by one epoch until 4.1 (KAFKA-19974)."""
    before = member(UNREVOKED, foo(2, 3), pending=foo(1))
    after = step(before, foo(3), profile=profile, epoch=12, owned=foo(2, 3))
    assert after == at(before, UNREVOKED, epoch=epoch, assigned={foo(3): 10}, pending=foo(2))


@pytest.mark.parametrize(
    ("profile", "state", "assigned"),
    [
        (KAFKA_4_0, UNRELEASED, {foo(2): 10}),
        (KAFKA_4_2, STABLE, {foo(2): 10, foo(1): 12}),
        (KAFKA_4_3, STABLE, {foo(2): 10, foo(1): 12}),
    ],
)
def test_unrevoked_partitions_get_back_what_they_revoked(
    profile: Profile, state: ReconciliationState, assigned: dict[Assignment, int]
) -> None:
    """Only from 4.2 on a member does not wait for itself (KAFKA-19449)."""
    before = member(UNREVOKED, foo(2), pending=foo(1))
    after = step(before, foo(1, 2), profile=profile, epoch=12, owned=foo(2))
    assert after == at(before, state, epoch=12, assigned=assigned)


@BOTH
def test_unreleased_partitions_to_stable(profile: Profile) -> None:
    before = member(UNRELEASED, foo(1), epoch=11)
    after = step(before, foo(1, 2), profile=profile)
    assert after == at(before, STABLE, epoch=11, assigned={foo(1): 10, foo(2): 11})


@BOTH
def test_unreleased_partitions_to_stable_with_new_partitions(profile: Profile) -> None:
    before = member(UNRELEASED, foo(1), epoch=11)
    after = step(before, foo(1, 2), profile=profile, epoch=12)
    assert after == at(before, STABLE, epoch=12, assigned={foo(1): 10, foo(2): 12})


@BOTH
def test_unreleased_partitions_to_unreleased_partitions(profile: Profile) -> None:
    """The first such step overwrites the previous epoch; the second finds nothing to do."""
    before = member(UNRELEASED, foo(1), epoch=11)
    after = step(before, foo(1, 2), profile=profile, held=foo(2))
    assert after == at(before, UNRELEASED, epoch=11, assigned={foo(1): 10})
    assert after.previous_member_epoch == 11
    assert step(after, foo(1, 2), profile=profile, held=foo(2)) == after


@BOTH
def test_unreleased_partitions_to_unrevoked_partitions(profile: Profile) -> None:
    before = member(UNRELEASED, foo(1, 2), epoch=11)
    after = step(before, foo(2), profile=profile, epoch=12)
    assert after == at(before, UNREVOKED, epoch=11, assigned={foo(2): 10}, pending=foo(1))


@BOTH
@pytest.mark.parametrize("owned", [None, foo(1)])
def test_unknown_state(profile: Profile, owned: Assignment | None) -> None:
    before = member(ReconciliationState.UNKNOWN, foo(1))
    with pytest.raises(RefusedError, match="unknown state") as refused:
        step(before, foo(1), profile=profile, owned=owned)
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    after = step(before, foo(2), profile=profile, owned=NO_PARTITIONS)
    assert after == at(before, STABLE, epoch=11, assigned={foo(2): 11})


def test_stable_to_stable_with_assignment_topics_no_longer_in_subscription() -> None:
    before = member(STABLE, foo(1) | bar(2))
    after = step(before, foo(1) | bar(2), subscribed=frozenset((FOO,)), changed=True, owned=foo(1))
    assert after == at(before, STABLE, epoch=11, assigned={foo(1): 10})


@pytest.mark.parametrize("epoch", [10, 11], ids=["same target", "newer target"])
def test_stable_to_unrevoked_partitions_with_assignment_topics_no_longer_in_subscription(
    epoch: int,
) -> None:
    before = member(STABLE, foo(1) | bar(2))
    after = step(before, foo(1) | bar(2), epoch=epoch, subscribed=frozenset((FOO,)), changed=True)
    assert after == at(before, UNREVOKED, epoch=10, assigned={foo(1): 10}, pending=bar(2))


def test_remains_in_unrevoked_partitions_with_assignment_topics_no_longer_in_subscription() -> None:
    before = member(UNREVOKED, foo(1) | bar(2), pending=foo(3))
    after = step(before, foo(1) | bar(2), subscribed=frozenset((FOO,)), changed=True)
    assert after == at(before, UNREVOKED, epoch=10, assigned={foo(1): 10}, pending=foo(3) | bar(2))


def test_partitions_revoked_before_they_were_unsubscribed_are_removed() -> None:
    before = member(STABLE, foo(1) | bar(2))
    after = step(before, foo(1), epoch=10, subscribed=frozenset((FOO,)), changed=True, owned=foo(1))
    assert after == at(before, STABLE, epoch=10, assigned={foo(1): 10})


@pytest.mark.parametrize(("profile", "previous"), [(KAFKA_4_2, 9), (KAFKA_4_3, 10)])
def test_only_from_4_3_on_unsubscribing_closes_the_window_of_a_lost_answer(
    profile: Profile, previous: int
) -> None:
    before = member(STABLE, foo(1) | bar(2))
    after = step(
        before, foo(1), profile=profile, epoch=10, subscribed=frozenset((FOO,)), changed=True
    )
    assert (after.state, after.previous_member_epoch) == (UNREVOKED, previous)


EMPTY = frozenset[object]()


@pytest.mark.parametrize(("profile", "previous"), [(KAFKA_4_2, 9), (KAFKA_4_3, 10), (KIP_848, 9)])
def test_only_from_4_3_on_dropping_the_last_topic_is_a_step_of_a_member_that_holds_nothing(
    profile: Profile, previous: int
) -> None:
    before = member(STABLE, NO_PARTITIONS)
    after = step(
        before, foo(1), profile=profile, epoch=10, subscribed=EMPTY, changed=True, owned=None
    )
    assert after == replace(before, previous_member_epoch=previous)


def test_dropping_the_last_topic_is_no_step_with_the_name_of_an_absent_one() -> None:
    before = member(STABLE, NO_PARTITIONS)
    assert step(before, foo(1), epoch=10, subscribed=EMPTY, absent=True, changed=True) is before


def test_dropping_the_last_topic_is_no_step_while_partitions_are_revoked() -> None:
    before = member(UNREVOKED, NO_PARTITIONS, pending=foo(1))
    assert step(before, NO_PARTITIONS, epoch=10, subscribed=EMPTY, changed=True) is before


def test_an_empty_subscription_that_stays_the_same_is_no_step() -> None:
    before = member(STABLE, NO_PARTITIONS)
    assert step(before, NO_PARTITIONS, epoch=10, subscribed=EMPTY) is before


def test_before_4_2_a_subscription_alone_revokes_nothing() -> None:
    before = member(STABLE, foo(1) | bar(2))
    only_foo = frozenset((FOO,))
    same = step(
        before, foo(1) | bar(2), profile=KAFKA_4_0, epoch=10, subscribed=only_foo, changed=True
    )
    assert same is before
    newer = step(before, foo(1) | bar(2), profile=KAFKA_4_0, subscribed=only_foo, changed=True)
    assert newer == at(before, STABLE, epoch=11, assigned={foo(1) | bar(2): 10})


def parts(whole: Assignment) -> Iterator[Assignment]:
    every = tuple(whole)
    chosen = chain.from_iterable(combinations(every, size) for size in range(len(every) + 1))
    return (Assignment(frozenset(each)) for each in chosen)


WORLD = foo(0) | bar(0, 1)


def situations() -> Iterator[tuple[GroupMember, Assignment, Assignment | None, Assignment]]:
    """Yield every member, target, report and possession of others over three partitions."""
    for state, assigned, target in product((STABLE, UNREVOKED, UNRELEASED), *[[*parts(WORLD)]] * 2):
        rest = WORLD - assigned
        for pending in parts(rest) if state is UNREVOKED else (NO_PARTITIONS,):
            if state is UNREVOKED and not pending:
                continue
            for held in parts(rest - pending):
                for owned in (None, *parts(WORLD - held)):
                    yield member(state, assigned, pending=pending), target, owned, held


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_2, KAFKA_4_3], ids=lambda each: each.name)
def test_every_step_is_safe_and_leads_somewhere(profile: Profile) -> None:
    seen = 0
    for before, target, owned, held in situations():
        after = step(before, target, profile=profile, owned=owned, held=held)
        has = frozenset(after.assigned)
        seen += 1
        # What it may use is its own or free, and on its way to the target.
        assert not has & held.partitions
        if after is not before:
            assert has <= target.partitions
            assert has >= target.partitions & before.assigned.keys()
            assert after.previous_member_epoch == before.member_epoch
        # Partitions are pending only while they are not revoked, and only in that state.
        pending = frozenset(after.pending_revocation)
        assert bool(pending) == (after.state is UNREVOKED)
        revoked = before.assigned.keys() - has - pending
        assert owned is not None or not revoked
        assert not revoked & (owned.partitions if owned else frozenset())
        # Nothing is given to a member that still has something to give up.
        if pending:
            assert has <= before.assigned.keys()
            assert after.member_epoch < 11 or profile is KAFKA_4_0
        else:
            assert after.member_epoch == 11
        if after.state is STABLE:
            assert has == target.partitions
    assert seen > 1000


def test_kept_partitions_keep_their_epochs() -> None:
    before = replace(member(STABLE, foo(1)), assigned={TopicIdPartition(FOO, 1): 4})
    assert step(before, foo(1, 2)).assigned == given_at({foo(1): 4, foo(2): 11})
