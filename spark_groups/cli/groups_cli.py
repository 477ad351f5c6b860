"""`spark-groups groups`: the groups of a cluster, filtered by type and state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from spark_groups.cli.connecting import Brokers, JsonFlag, connects, usage_errors
from spark_groups.cli.output import UNKNOWN, Column, show, table_of
from spark_groups.cli.render import STATE_STYLES
from spark_groups.errors import OptionsError, printable
from spark_groups.group.member.near_names import nearest
from spark_groups.observation.plain_values import View
from spark_groups.observation.reading import GroupType
from spark_groups.observation.views import STATE_MEANINGS
from spark_groups.wire.cluster import ListedGroup

GROUP_TYPES: Final[Mapping[str, str]] = {
    **{each.value: each.value for each in GroupType if each is not GroupType.UNKNOWN},
    "generic": GroupType.CLASSIC.value,
}
"""Kafka's name by option value; KIP-848 calls classic groups `generic`."""
DESCRIBED_TYPES: Final = {
    name: value for name, value in GROUP_TYPES.items() if value in {"classic", "consumer"}
}
"""The types that `describe` supports."""
GROUP_STATES: Final[Mapping[str, str]] = {
    each.lower(): each for each in (*STATE_MEANINGS, "NotReady")
}
"""By option value (org.apache.kafka.common.GroupState); only streams groups are NotReady."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group as ListGroups returns it.

    Args:
        group_type: classic, consumer, share or streams.
        protocol_type: Empty for a group that only has committed offsets.
    """

    group_id: str
    group_type: str
    protocol_type: str
    group_state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListView(View):
    """The groups of a cluster, sorted by id."""

    groups: tuple[GroupRow, ...]


def view_groups(listed: Iterable[ListedGroup]) -> GroupListView:
    """Return the groups that brokers list, sorted by id."""
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
    """Parse names as Kafka's tool does: case-insensitive, comma-separated.

    Args:
        known: Kafka's names by option value in lower case.

    Raises:
        OptionsError: A name is unknown.
    """
    words = [word.strip() for text in given for word in text.split(",")]
    wrong = [word for word in words if word.lower() not in known]
    if wrong:
        near = nearest(wrong[0].lower(), known, similarity=0.6)
        valid = ", ".join(dict.fromkeys(known.values()))
        hint = f"did you mean {known[near]}?" if near else f"valid {what} are {valid}"
        raise OptionsError(f"{wrong[0]!r} is not one of the {what}: {hint}")
    return tuple(dict.fromkeys(known[word.lower()] for word in words))


@connects
def groups(
    brokers: Brokers,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Filter by type: classic (or generic), consumer, share, streams; repeatable.",
        ),
    ] = None,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Filter by state, such as Empty; repeatable."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List all groups of the cluster: id, type, protocol and state.

    Types and states are case-insensitive, and may be comma-separated.

    Example: spark-groups groups --type consumer --state stable,reconciling

    Exit code 1 if a broker does not answer.
    """
    with usage_errors():
        wanted_types = parse_names(types or (), GROUP_TYPES, "types")
        wanted_states = parse_names(states or (), GROUP_STATES, "states")
    with brokers.cluster() as cluster:
        view = view_groups(cluster.list_groups(types=wanted_types, states=wanted_states))
    show(view, render_groups, as_json=as_json)


def render_groups(view: GroupListView) -> RenderableType:
    """Return one row for each group."""
    if not view.groups:
        return Text("no matching groups")
    return table_of(
        view.groups,
        Column("GROUP", lambda each: each.group_id),
        Column("TYPE", lambda each: each.group_type.capitalize() or UNKNOWN),
        Column("PROTOCOL", lambda each: each.protocol_type or UNKNOWN),
        Column("STATE", _state),
    )


def _state(group: GroupRow) -> Text:
    state = printable(group.group_state) or UNKNOWN
    return Text(state, STATE_STYLES.get(group.group_state, ""))
