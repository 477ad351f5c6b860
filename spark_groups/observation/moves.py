"""Events that belong together: from a change of a settled group until it is settled again.

A member that joins causes a dozen events. Together they are one move of the group, which a line
sums up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_groups.observation.group_events import EventKind, GroupEvent
from spark_groups.observation.plain_values import View
from spark_groups.observation.views import GroupView

_SETTLING_STATES: Final = frozenset(
    {"Assigning", "Reconciling", "PreparingRebalance", "CompletingRebalance"}
)
_KINDS: Final = frozenset(
    {
        EventKind.GROUP_STATE,
        EventKind.GROUP_EPOCH,
        EventKind.ASSIGNMENT_EPOCH,
        EventKind.MEMBER_EPOCH,
        EventKind.MEMBER_JOINED,
        EventKind.MEMBER_GONE,
        EventKind.REVOCATION_BEGAN,
        EventKind.REVOCATION_ENDED,
        EventKind.PARTITIONS_RELEASED,
        EventKind.PARTITIONS_MOVED,
    }
)
"""What a move consists of; other events stand alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove(View):
    """A move of a group, with all its events as one line.

    Args:
        number: The `move` of its events.
        from_s: The time of its first event, in seconds since 1970.
        is_under_way: Whether the group has not settled yet.
        event_count: How many of its events are kept.
        text: Who came and went, and which partitions moved; without a full stop.
    """

    number: int
    from_s: float
    is_under_way: bool
    event_count: int
    text: str


def is_settled(view: GroupView) -> bool:
    """Return whether no partition of a group is about to move."""
    return view.group_state not in _SETTLING_STATES and not view.totals.moving_partitions


class Moves:
    """The moves of one group, counted from 1."""

    def __init__(self) -> None:
        self._number = 0
        self._is_under_way = False

    def look(self, view: GroupView, changes: Sequence[GroupEvent]) -> list[GroupEvent]:
        """Return the events of a poll, with the number of the move that they belong to."""
        settled = is_settled(view)
        changing = any(each.kind in _KINDS for each in changes)
        if not self._is_under_way and (changing or not settled):
            self._number += 1
        self._is_under_way = not settled
        return [replace(e, move=self._number) if e.kind in _KINDS else e for e in changes]

    def of(self, events: Iterable[GroupEvent]) -> tuple[GroupMove, ...]:
        """Return the moves of events, in their order."""
        found: dict[int, list[GroupEvent]] = {}
        for each in events:
            if each.move is not None:
                found.setdefault(each.move, []).append(each)
        return tuple(
            GroupMove(
                number=number,
                from_s=own[0].at_s,
                is_under_way=self._is_under_way and number == self._number,
                event_count=len(own),
                text=_summary(own),
            )
            for number, own in found.items()
        )


def folded(
    events: Iterable[GroupEvent], moves: Iterable[GroupMove]
) -> list[GroupEvent | GroupMove]:
    """Return events with each move that is over in place of its first event.

    The events of the move under way stay, for they are what one looks for; so does a single event.
    """
    over = {e.number: e for e in moves if not e.is_under_way and e.event_count > 1}
    shown: dict[object, GroupEvent | GroupMove] = {}
    for index, each in enumerate(events):
        move = None if each.move is None else over.get(each.move)
        if move is None:
            shown[index, "event"] = each
        else:
            shown.setdefault(move.number, move)
    return list(shown.values())


def _summary(events: Sequence[GroupEvent]) -> str:
    parts = [
        *_one_or_count(_of(events, EventKind.MEMBER_JOINED), "members joined"),
        *_one_or_count(_of(events, EventKind.MEMBER_GONE), "members left or were removed"),
        *_moved(_of(events, EventKind.PARTITIONS_MOVED)),
    ]
    return "; ".join(parts) or events[-1].text


def _of(events: Iterable[GroupEvent], kind: EventKind) -> list[GroupEvent]:
    return [each for each in events if each.kind is kind]


def _one_or_count(events: Sequence[GroupEvent], what: str) -> list[str]:
    return [f"{len(events):,} {what}"] if len(events) > 1 else [each.text for each in events]


def _moved(events: Sequence[GroupEvent]) -> list[str]:
    if len(events) < 2:
        return [each.text for each in events]
    partitions = {each for event in events for each in event.partitions}
    took_s = max((e.took_s for e in events if e.took_s is not None), default=None)
    text = f"{len(partitions):,} partitions have another owner"
    return [text if took_s is None else f"{text}, in up to {took_s:.1f} s"]
