"""What became of members that were to be removed, as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.ops.removal import IdKind, Outcome, Removal, RemovalView

_STYLES: Final[Mapping[Outcome, str]] = {
    Outcome.REMOVED: "green",
    Outcome.UNKNOWN: "yellow",
    Outcome.FENCED: "red",
    Outcome.REFUSED: "red",
}


def render_removals(view: RemovalView) -> RenderableType:
    """Return one line for each id that was given.

    Args:
        view: What became of them.
    """
    return Group(*(_line(each) for each in view.removals))


def _line(removal: Removal) -> Text:
    said = [each for each in (_other_id(removal), removal.remark) if each]
    return Text.assemble(
        f"{removal.id_kind.value} {printable(removal.given)}: ",
        (removal.outcome.value, _STYLES[removal.outcome]),
        printable(f" ({'; '.join(said)})" if said else ""),
    )


def _other_id(removal: Removal) -> str:
    if removal.outcome is not Outcome.REMOVED:
        return ""
    if removal.id_kind is IdKind.INSTANCE_ID:
        return f"member id {removal.member_id}"
    return f"instance id {removal.instance_id}" if removal.instance_id else ""
