"""What happened between two looks, as sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.observation.group_events import EventKind, group_changes, member_label
from spark_groups.observation.local_members import LocalMember
from spark_groups.observation.views import GroupView, view_group
from tests.observation.groups import ONE, TWO, member, read

ALONE = view_group(read(member(ONE, [0, 1])))
APP_1, APP_2 = "app-1 11111111", "app-2 22222222"


def event_texts(before: GroupView, after: GroupView) -> list[tuple[EventKind, str]]:
    return [(each.kind, each.text) for each in group_changes(before, after, 3.0)]


def test_nothing_happens_where_nothing_changes() -> None:
    assert event_texts(ALONE, ALONE) == []


def test_epochs_and_states_change() -> None:
    later = replace(ALONE, group_epoch=8, assignment_epoch=8, group_state="Reconciling")
    assert event_texts(ALONE, later) == [
        (EventKind.GROUP_EPOCH, "group epoch 7 → 8"),
        (EventKind.ASSIGNMENT_EPOCH, "assignment epoch 6 → 8"),
        (EventKind.GROUP_STATE, "group Stable → Reconciling"),
    ]


def test_a_group_that_becomes_classic_has_no_epochs_any_more() -> None:
    classic = replace(ALONE, group_epoch=None)
    assert event_texts(ALONE, classic) == [(EventKind.GROUP_EPOCH, "group epoch 7 → —")]


def test_members_come_and_go() -> None:
    both = view_group(read(member(ONE, [0]), member(TWO, [1], instance_id="gate-1")))
    assert event_texts(ALONE, both) == [
        (EventKind.MEMBER_JOINED, f"{APP_2} joined as gate-1 from 127.0.0.1")
    ]
    (gone,) = group_changes(both, ALONE, 3.0)
    assert (gone.kind, gone.text) == (EventKind.MEMBER_GONE, f"{APP_2} left or was removed")
    assert (gone.member_id, gone.at_s) == (TWO, 3.0)


@pytest.mark.parametrize(
    ("epoch", "kind", "text"),
    [
        (8, EventKind.MEMBER_EPOCH, f"{APP_1} epoch 7 → 8"),
        (-2, EventKind.MEMBER_GONE, f"{APP_1} left and may return"),
    ],
)
def test_a_member_has_another_epoch(epoch: int, kind: EventKind, text: str) -> None:
    assert event_texts(ALONE, view_group(read(member(ONE, [0, 1], member_epoch=epoch)))) == [
        (kind, text)
    ]


def test_refused_commits_are_counted_from_look_to_look() -> None:
    def refused(commits: int) -> GroupView:
        local = LocalMember(state="STABLE", commits_refused=commits)
        return replace(ALONE, members=(replace(ALONE.members[0], local=local),))

    assert event_texts(refused(2), refused(5)) == [
        (EventKind.COMMITS_REFUSED, f"{APP_1}: offset commits refused: 3")
    ]
    assert event_texts(ALONE, refused(5)) == []


@pytest.mark.parametrize(
    ("client_id", "member_id", "label"),
    [
        ("app", "0123456789", "app 01234567"),
        # Java's classic consumers put their client id in front of their member id.
        ("consumer-g-1", "consumer-g-1-89abcdef-0000", "consumer-g-1 89abcdef"),
        ("", "0123456789", "01234567"),
    ],
)
def test_members_are_called_by_client_and_the_begin_of_their_id(
    client_id: str, member_id: str, label: str
) -> None:
    assert member_label(client_id, member_id) == label
