"""Who had which partition when, and how long moves took."""

from __future__ import annotations

import pytest

from spark_groups.observation.group_events import EventKind
from spark_groups.observation.ownership import (
    PARTITION_SPANS_MAX,
    PARTITION_SPANS_MIN,
    Ownership,
    OwnershipSpan,
)
from spark_groups.observation.views import GroupView, view_group
from spark_groups.types import topic_id_text
from tests.observation.groups import FLIGHTS, ONE, TWO, member, read

APP_1, APP_2 = "app-1 11111111", "app-2 22222222"


def key(partition: int) -> tuple[str, int]:
    return topic_id_text(FLIGHTS), partition


def group(*members: object) -> GroupView:
    return view_group(read(*members))  # type: ignore[arg-type]


ALONE = group(member(ONE, [0, 1]))
ON_THE_WAY = group(member(ONE, [0, 1], [0]), member(TWO, [], [1], member_epoch=8))
SHARED = group(member(ONE, [0], member_epoch=8), member(TWO, [1], member_epoch=8))


def test_the_first_look_begins_spans_and_moves_nothing() -> None:
    ownership = Ownership()
    assert ownership.look(ALONE, 1.0) == []
    assert ownership.spans(key(0)) == (OwnershipSpan(**span(ONE, 7, 1.0)),)


def span(member_id: str, epoch: int, from_s: float) -> dict:
    return {
        "member_id": member_id,
        "client_id": f"app-{member_id[0]}",
        "first_member_epoch": epoch,
        "last_member_epoch": epoch,
        "is_revoking": False,
        "from_s": from_s,
        "until_s": None,
    }


def test_a_move_has_a_beginning_and_an_end() -> None:
    ownership = Ownership()
    ownership.look(ALONE, 1.0)
    assert ownership.look(ON_THE_WAY, 2.0) == []
    assert ownership.unsettled_since(key(1)) == 2.0
    assert ownership.unsettled_since(key(0)) is None
    (moved,) = ownership.look(SHARED, 4.5)
    assert (moved.kind, moved.took_s) == (EventKind.PARTITIONS_MOVED, 2.5)
    assert (moved.from_member_id, moved.member_id) == (ONE, TWO)
    assert moved.text == f"flights 1 moved from {APP_1} to {APP_2} in 2.5 s"
    assert ownership.unsettled_since(key(1)) is None
    kept, faint, new = ownership.spans(key(1))
    assert (kept.until_s, faint.from_s, faint.is_revoking, faint.until_s) == (2.0, 2.0, True, 4.5)
    assert new == OwnershipSpan(**span(TWO, 8, 4.5))
    (own,) = ownership.spans(key(0))
    assert (own.first_member_epoch, own.last_member_epoch, own.until_s) == (7, 8, None)


def test_a_move_between_two_observations_has_no_known_duration() -> None:
    ownership = Ownership()
    ownership.look(ALONE, 1.0)
    (moved,) = ownership.look(SHARED, 2.0)
    assert (moved.took_s, moved.text) == (None, f"flights 1 moved from {APP_1} to {APP_2}")


def test_a_partition_that_is_released_first_is_reported_without_an_owner() -> None:
    ownership = Ownership()
    ownership.look(ALONE, 1.0)
    released = group(member(ONE, [0], [0]), member(TWO, [], [1]))
    (event,) = ownership.look(released, 2.0)
    assert (event.kind, event.from_member_id) == (EventKind.PARTITIONS_RELEASED, ONE)
    assert event.text == f"flights 1 without an owner, last {APP_1}"
    assert ownership.look(released, 3.0) == []
    (moved,) = ownership.look(SHARED, 4.0)
    assert moved.text == f"flights 1 moved from {APP_1} to {APP_2} in 2.0 s"


def test_all_partitions_of_a_member_that_is_gone_are_one_event() -> None:
    ownership = Ownership()
    ownership.look(ALONE, 1.0)
    (event,) = ownership.look(group(member(TWO, [0, 1])), 2.0)
    assert event.text == f"flights 0-1 moved from {APP_1} to {APP_2}"


def test_a_partition_without_an_owner_is_assigned() -> None:
    ownership = Ownership()
    ownership.look(group(member(ONE, [0])), 1.0)
    (event,) = ownership.look(group(member(ONE, [0, 1])), 2.0)
    assert (event.from_member_id, event.text) == (None, f"flights 1 assigned to {APP_1}")


def test_a_partition_that_comes_back_has_not_moved() -> None:
    ownership = Ownership()
    ownership.look(ALONE, 1.0)
    ownership.look(group(member(ONE, [0])), 2.0)
    assert ownership.look(ALONE, 3.0) == []
    first, second = ownership.spans(key(1))
    assert (first.until_s, second.from_s) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("partitions", "limit"), [(2, PARTITION_SPANS_MAX), (2_000, PARTITION_SPANS_MIN)]
)
def test_kept_spans_have_a_limit(partitions: int, limit: int) -> None:
    ownership = Ownership()
    views = [view_group(read(member(each, [0, 1]), partitions=partitions)) for each in (ONE, TWO)]
    for look in range(PARTITION_SPANS_MAX + 5):
        ownership.look(views[look % 2], float(look))
    assert len(ownership.spans(key(0))) == limit


def test_partitions_that_are_gone_are_forgotten() -> None:
    ownership = Ownership()
    ownership.look(ALONE, 1.0)
    ownership.look(view_group(read(partitions=0)), 2.0)
    assert ownership.spans(key(0)) == ()
    assert ownership.unsettled_since(key(0)) is None
