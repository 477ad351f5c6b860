"""Words, numbers and tables that all views are written with.

"—" is what is not known. Ids and names come from strangers, so what cannot be printed is replaced.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from rich.table import Table

from spark_groups.errors import printable
from spark_groups.observation.views import MemberView

UNKNOWN: Final = "—"
WIDE_COLUMNS: Final = 150
NARROW_COLUMNS: Final = 100
MOVING_STYLE, ALARM_STYLE, QUIET_STYLE = "yellow", "red", "dim"
_SHORT_ID_LENGTH: Final = 8


def number(value: int | None) -> str:
    """Write a number with thousands separators; what is not known as "—"."""
    return UNKNOWN if value is None else f"{value:,}"


def plain(value: int | None) -> str:
    """Write a number without separators, as ids and epochs are; what is not known as "—"."""
    return UNKNOWN if value is None else str(value)


class MemberNames:
    """What members are called: by full id where there is room, else by what tells them apart.

    Args:
        members: All members of the group.
        width: Columns there are.
    """

    def __init__(self, members: tuple[MemberView, ...], width: int) -> None:
        client_ids = Counter(each.client_id for each in members)
        short_ids = Counter(_short_id(each) for each in members)
        self._names: dict[str, str] = {}
        self._brief: dict[str, str] = {}
        for each in members:
            is_short = width < WIDE_COLUMNS and short_ids[_short_id(each)] == 1
            member_id = _short_id(each) if is_short else each.member_id
            name = printable(f"{each.client_id} {member_id}".strip())
            tells_apart = bool(each.client_id) and client_ids[each.client_id] == 1
            self._names[each.member_id] = name
            self._brief[each.member_id] = (
                printable(each.client_id) if width < NARROW_COLUMNS and tells_apart else name
            )

    def __getitem__(self, member_id: str) -> str:
        return self._names[member_id]

    def brief(self, member_id: str) -> str:
        """Return a name for tables of partitions, which have little room.

        Args:
            member_id: The member, which need not be one of the group any more.
        """
        return self._brief.get(member_id, printable(member_id))


def _short_id(member: MemberView) -> str:
    return member.member_id[:_SHORT_ID_LENGTH]


def plain_table() -> Table:
    """Return a table without lines."""
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
