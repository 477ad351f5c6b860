"""A topic pattern and what it matches, as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.ops.regex_view import RegexView


def render_regex(view: RegexView) -> RenderableType:
    """Return whether a pattern is valid, the topics that it matches, and what is surprising.

    Args:
        view: The pattern.
    """
    pattern = printable(view.pattern)
    if view.fault:
        said = f"The regular expression `{pattern}` is invalid: {printable(view.fault)}"
        return Text(said, "red")
    lines = [
        Text(f"The regular expression `{pattern}` is valid."),
        Text(f"It matches {len(view.matched):,} of {view.topics:,} topics."),
        *(Text(f"  {printable(each)}") for each in view.matched),
    ]
    if view.hint:
        lines.append(Text(f"Note: {printable(view.hint)}", "yellow"))
    return Group(*lines)
