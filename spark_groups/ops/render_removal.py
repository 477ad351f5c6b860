"""What became of members that were to be removed, as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.ops.removal import IdKind, Outcome, Removal, RemovalView
from spark_groups.ops.render_deletions import dry_run_note

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
    lines = [_line(each, is_dry_run=view.is_dry_run) for each in view.removals]
    return Group(*lines, *dry_run_note(is_dry_run=view.is_dry_run))


def _line(removal: Removal, *, is_dry_run: bool) -> Text:
    outcome = removal.outcome.value
    if is_dry_run and removal.outcome is Outcome.REMOVED:
        outcome = "would be removed"
    said = [each for each in (_other_id(removal), removal.remark) if each]
    return Text.assemble(
        f"{removal.id_kind.value} {printable(removal.given)}: ",
        (outcome, _STYLES[removal.outcome]),
        printable(f" ({'; '.join(said)})" if said else ""),
    )


def _other_id(removal: Removal) -> str:
    if removal.outcome is not Outcome.REMOVED:
        return ""
    if removal.id_kind is IdKind.INSTANCE_ID:
        return f"member id {removal.member_id}"
    return f"instance id {removal.instance_id}" if removal.instance_id else ""
