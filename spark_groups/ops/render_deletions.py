"""What became of groups and offsets that were to be deleted, as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.ops.deletions import DeletedGroup, GroupDeletionView, OffsetDeletionView
from spark_groups.ops.render_text import UNKNOWN, plain, plain_table


def render_deleted_groups(view: GroupDeletionView) -> RenderableType:
    """Return one line for each group.

    Args:
        view: The groups.
    """
    lines = [
        _line(each, "would be deleted" if view.is_dry_run else "deleted") for each in view.groups
    ]
    return Group(*lines, *dry_run_note(is_dry_run=view.is_dry_run))


def render_deleted_offsets(view: OffsetDeletionView) -> RenderableType:
    """Return one row for each partition, as Kafka's own tool does.

    Args:
        view: The offsets.
    """
    table = plain_table()
    table.add_column("TOPIC", overflow="fold")
    table.add_column("PARTITION", justify="right")
    table.add_column("STATUS", overflow="fold")
    for each in view.offsets:
        table.add_row(
            Text(printable(each.topic)),
            Text(plain(each.partition)),
            status(each.error, each.remark),
        )
    shown = table if view.offsets else Text(UNKNOWN)
    return Group(shown, *dry_run_note(is_dry_run=view.is_dry_run))


def dry_run_note(*, is_dry_run: bool) -> list[Text]:
    """Return the line that says that nothing was done, if nothing was.

    Args:
        is_dry_run: Whether nothing was to be done.
    """
    return [Text("No action is performed: this is what would be done.")] if is_dry_run else []


def status(error: str | None, remark: str) -> Text:
    """Return what became of one offset, in the words of Kafka's own tool.

    Args:
        error: Kafka's word for what went wrong; None: nothing did.
        remark: What to do about it.
    """
    return (
        Text("Successful", "green") if error is None else Text(f"Error: {error}, {remark}", "red")
    )


def _line(group: DeletedGroup, done: str) -> Text:
    name = printable(group.group_id)
    if group.error is None:
        return Text.assemble(f"group {name!r}: ", (done, "green"))
    said = f"could not be deleted due to: {group.error}, {group.remark}"
    return Text.assemble(f"group {name!r}: ", (said, "red"))
