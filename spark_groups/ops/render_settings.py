"""A group's settings as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.ops.render_text import UNKNOWN, plain_table
from spark_groups.ops.setting_changes import SettingsView
from spark_groups.wire.configuration import ConfigOrigin

_COLUMNS = ("VALUE", "ORIGIN", "WITHOUT IT", "MINIMUM", "MAXIMUM")
_OWN_STYLE, _QUIET_STYLE = "yellow", "dim"


def render_settings(view: SettingsView) -> RenderableType:
    """Return a group's settings as a table, with what was changed above it.

    Args:
        view: The settings. Values are written as they would be typed.
    """
    parts: list[RenderableType] = [
        Text(f"{each.name}: {_text(each.before)} -> {_text(each.after)}", _OWN_STYLE)
        for each in view.changed
    ]
    parts.append(
        Text.assemble(("settings of group ", _QUIET_STYLE), (printable(view.group_id), "bold"))
    )
    if view.settings:
        parts.append(_table(view))
    if view.reason:
        parts.append(Text(f"not everything is known: {printable(view.reason)}"))
    return Group(*parts)


def _table(view: SettingsView) -> Table:
    table = plain_table()
    table.add_column("SETTING", overflow="fold")
    for header in _COLUMNS:
        table.add_column(header, justify="left" if header == "ORIGIN" else "right")
    for each in view.settings:
        is_own = each.origin is ConfigOrigin.GROUP
        table.add_row(
            Text(printable(each.name)),
            Text(_text(each.value)),
            Text(each.origin.value, _OWN_STYLE if is_own else ""),
            Text(_text(each.inherited) if is_own else ""),
            Text(_text(each.minimum)),
            Text(_text(each.maximum)),
        )
    return table


def _text(value: str | int | None) -> str:
    return UNKNOWN if value is None else printable(str(value))
