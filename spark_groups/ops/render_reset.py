"""A plan of new offsets, and what became of it, as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.ops.render_text import plain, plain_table
from spark_groups.ops.reset_plan import ResetView

NOT_EXECUTED = "No action is performed: --execute is missing."


def render_reset(view: ResetView) -> RenderableType:
    """Return one row for each partition, in the columns of Kafka's own tool, and what was done.

    Args:
        view: The plan.
    """
    table = plain_table()
    table.add_column("GROUP", overflow="fold")
    table.add_column("TOPIC", overflow="fold")
    for header in ("PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"):
        table.add_column(header, justify="right", no_wrap=True)
    with_remarks = any(each.remark or each.error for each in view.rows)
    if with_remarks:
        table.add_column("REMARK", overflow="fold")
    for each in view.rows:
        said = "; ".join(filter(None, (each.error and f"Error: {each.error}", each.remark)))
        table.add_row(
            Text(printable(view.group_id)),
            Text(printable(each.topic)),
            Text(plain(each.partition)),
            Text(plain(each.committed_offset)),
            Text(plain(each.new_offset)),
            *([Text(printable(said))] if with_remarks else []),
        )
    if view.refusal:
        return Group(table, Text(f"Error: {printable(view.refusal)}", "red"))
    told = [Text(view.next_start)]
    if not view.is_executed:
        told.append(Text(NOT_EXECUTED))
    return Group(table, *told)
