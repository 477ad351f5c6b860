"""The groups of a cluster, and the types and states that a list of them can be limited to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from spark_groups.errors import OptionsError
from spark_groups.observation.views import STATE_MEANINGS
from spark_groups.wire.cluster import ListedGroup

GROUP_TYPES: Final[Mapping[str, str]] = {
    "classic": "classic",
    "consumer": "consumer",
    "share": "share",
    "streams": "streams",
    "generic": "classic",
}
"""The type as brokers write it, by what an option says; `generic` is KIP-848's word for classic."""
DESCRIBED_TYPES: Final = {
    name: value for name, value in GROUP_TYPES.items() if value in {"classic", "consumer"}
}
"""Those that `describe` shows."""
GROUP_STATES: Final[Mapping[str, str]] = {
    each.lower(): each for each in (*STATE_MEANINGS, "NotReady")
}
"""Kafka's name by what an option says; NotReady is a state of streams groups
(org.apache.kafka.common.GroupState)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group in a list.

    Args:
        group_id: Its id.
        group_type: classic, consumer, share or streams.
        protocol_type: What its members call themselves; empty if there are only offsets.
        group_state: The coordinator's word.
    """

    group_id: str
    group_type: str
    protocol_type: str
    group_state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListView:
    """The groups of a cluster.

    Args:
        groups: Sorted by id.
    """

    groups: tuple[GroupRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain values."""
        return {"groups": [asdict(each) for each in self.groups]}


def view_groups(listed: Iterable[ListedGroup]) -> GroupListView:
    """Return the groups of a cluster as people look at them.

    Args:
        listed: What the brokers list.
    """
    rows = (
        GroupRow(
            group_id=each.group_id,
            group_type=each.group_type.lower(),
            protocol_type=each.protocol_type,
            group_state=each.group_state,
        )
        for each in listed
    )
    return GroupListView(groups=tuple(sorted(rows, key=lambda row: row.group_id)))


def parse_names(given: Iterable[str], known: Mapping[str, str], what: str) -> tuple[str, ...]:
    """Read names as Kafka's tool takes them: in any case, separated by commas.

    Args:
        given: What was given to an option, each time.
        known: Kafka's names by what may be given, in lower case.
        what: What they name, in the plural.

    Raises:
        OptionsError: One is not known.
    """
    words = [word.strip() for text in given for word in text.split(",")]
    wrong = [word for word in words if word.lower() not in known]
    if wrong:
        near = difflib.get_close_matches(wrong[0].lower(), known, n=1)
        valid = ", ".join(dict.fromkeys(known.values()))
        hint = f"did you mean {known[near[0]]}?" if near else f"valid {what} are {valid}"
        raise OptionsError(f"{wrong[0]!r} is none of the {what}: {hint}")
    return tuple(dict.fromkeys(known[word.lower()] for word in words))
