"""`spark-groups validate-regex`: which topics a pattern would match."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.observation.plain_values import View
from spark_groups.ops.connecting import Brokers, JsonFlag, connects
from spark_groups.ops.output import show
from spark_groups.protocol.subscription import Subscription, surprising


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexView(View):
    """A pattern, and the topics that it matches.

    Args:
        fault: Why it is no RE2 expression, and what to write instead; empty if it is one.
        hint: Why it may match less than it seems to; empty if it does not look so.
        matched: Topics whose whole name it matches, sorted.
        topics: How many topics were tried.
    """

    pattern: str
    fault: str = ""
    hint: str = ""
    matched: tuple[str, ...] = ()
    topics: int = 0


def view_regex(pattern: str, topics: Iterable[str]) -> RegexView:
    """Return which topics a coordinator would take for a pattern."""
    try:
        subscription = Subscription.of_pattern(pattern)
    except ValueError as error:
        return RegexView(pattern=pattern, fault=str(error))
    names = sorted(topics)
    return RegexView(
        pattern=pattern,
        hint=surprising(pattern) or "",
        matched=tuple(name for name in names if subscription.matches(name)),
        topics=len(names),
    )


@connects
def validate_regex(
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="An RE2 expression, as in subscribePattern.")
    ],
    brokers: Brokers,
    as_json: JsonFlag = False,
) -> None:
    """Say whether a pattern is RE2, and which topics of the cluster it would match.

    It has to match whole names, as the coordinator has it.

    Example: spark-groups validate-regex 'flights-.*'

    Exit code 1 if it is no RE2 expression.
    """
    with brokers.cluster() as cluster:
        topics = cluster.every_topic().topics.values()
    view = view_regex(pattern, (each.topic.name for each in topics))
    show(view, render_regex, as_json=as_json, is_success=not view.fault)


def render_regex(view: RegexView) -> RenderableType:
    """Return whether a pattern is valid, the topics that it matches, and what is surprising."""
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
