"""The events of one move, summed up in one line."""

from __future__ import annotations

from spark_groups.observation.frames import Frame, GroupHistory
from spark_groups.observation.group_events import EventKind
from spark_groups.observation.moves import GroupMove, folded, is_settled
from spark_groups.observation.views import GroupView, view_group
from tests.observation.groups import ONE, TWO, member, read

THREE = "33333333-3333-4333-8333-333333333333"


def view(*members, state: str = "Stable", lag: int = 0) -> GroupView:
    known = dict.fromkeys(range(4), 100)
    ends = dict.fromkeys(range(4), 100 + lag)
    return view_group(read(*members, partitions=4, committed=known, ends=ends, state=state))


ALONE = view(member(ONE, range(4)))
JOINED = view(member(ONE, range(4), [0, 1]), member(TWO, [], [2, 3]), state="Reconciling")
HALF = view(member(ONE, [0, 1]), member(TWO, [2], [2, 3]), state="Reconciling")
SHARED = view(member(ONE, [0, 1]), member(TWO, [2, 3]))


def frame_of(*views: GroupView) -> Frame:
    history = GroupHistory("flight-readers")
    for at_s, each in enumerate(views):
        frame = history.seen(each, float(at_s))
    return frame


def test_a_group_is_settled_when_nothing_is_about_to_move() -> None:
    assert [is_settled(each) for each in (ALONE, JOINED, HALF, SHARED)] == [
        True,
        False,
        False,
        True,
    ]


def test_events_from_the_first_change_until_the_group_is_settled_are_one_move() -> None:
    frame = frame_of(ALONE, JOINED, HALF, SHARED)
    assert {each.move for each in frame.events} == {1}
    (move,) = frame.moves
    assert (move.from_s, move.is_under_way) == (1.0, False)
    assert move.event_count == len(frame.events)
    assert move.text == (
        "app-2 22222222 joined from 127.0.0.1; 2 partitions have another owner, in up to 2.0 s"
    )
    again = frame_of(ALONE, JOINED, HALF, SHARED, ALONE)
    assert [each.number for each in again.moves] == [1, 2]
    assert again.moves[1].text == (
        "app-2 22222222 left or was removed; flights 2-3 moved from app-2 22222222 to app-1"
        " 11111111"
    )


def test_a_move_under_way_keeps_its_lines_and_one_that_is_over_is_a_line() -> None:
    under_way = frame_of(ALONE, JOINED)
    assert under_way.moves[0].is_under_way
    assert folded(under_way.events, under_way.moves) == list(under_way.events)
    over = frame_of(ALONE, JOINED, HALF, SHARED)
    assert folded(over.events, over.moves) == list(over.moves)


def test_a_single_event_stays_as_it_is() -> None:
    dead = view(member(ONE, range(4)), state="Dead")
    frame = frame_of(ALONE, dead)
    assert folded(frame.events, frame.moves) == list(frame.events)
    assert [each.text for each in frame.events] == ["group Stable → Dead"]


def test_what_moves_nothing_stands_alone() -> None:
    history = GroupHistory("flight-readers")
    history.seen(ALONE, 0.0)
    history.seen(JOINED, 1.0)
    history.failed("b:9092: refused", 2.0)
    frame = history.seen(SHARED, 3.0)
    alone = [each.kind for each in frame.events if each.move is None]
    assert alone == [EventKind.NOT_READABLE, EventKind.READABLE]
    shown = folded(frame.events, frame.moves)
    assert [isinstance(each, GroupMove) for each in shown] == [True, False, False]


def test_many_members_are_counted() -> None:
    ids = [member(each, [at]) for at, each in enumerate((TWO, THREE))]
    frame = frame_of(ALONE, view(member(ONE, [2, 3]), *ids))
    assert frame.moves[0].text == "2 members joined; 2 partitions have another owner"


def test_a_group_that_moves_when_it_is_first_seen_is_in_its_first_move() -> None:
    frame = frame_of(JOINED, HALF, SHARED)
    assert {each.move for each in frame.events} == {1}
    assert not frame.moves[0].is_under_way
