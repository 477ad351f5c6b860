"""The groups of a cluster as text for people."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.ops.group_list import GroupListView
from spark_groups.ops.render import STATE_STYLES
from spark_groups.ops.render_text import UNKNOWN, plain_table


def render_groups(view: GroupListView) -> RenderableType:
    """Return one row for each group.

    Args:
        view: The groups.
    """
    if not view.groups:
        return Text("no such groups")
    table = plain_table()
    for header in ("GROUP", "TYPE", "PROTOCOL", "STATE"):
        table.add_column(header, overflow="fold")
    for each in view.groups:
        table.add_row(
            Text(printable(each.group_id)),
            Text(printable(each.group_type).capitalize() or UNKNOWN),
            Text(printable(each.protocol_type) or UNKNOWN),
            Text(printable(each.group_state) or UNKNOWN, STATE_STYLES.get(each.group_state, "")),
        )
    return table
