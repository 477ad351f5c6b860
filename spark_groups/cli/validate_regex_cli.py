"""`spark-groups validate-regex`: the topics that a subscription pattern matches."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.cli.connecting import Brokers, JsonFlag, connects
from spark_groups.cli.output import show
from spark_groups.errors import printable
from spark_groups.group.member.subscription import Subscription, surprising
from spark_groups.observation.plain_values import View

_INTERNAL: Final = "  internal to Kafka: assigned, not read"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexView(View):
    """A pattern, and the topics that it matches.

    Args:
        fault: Why it is not a valid RE2 expression, and how to fix it; empty if it is valid.
        hint: Why it may match fewer topics than intended; empty if nothing suggests so.
        matched: Topics whose whole name it matches, sorted.
        internal: Those of them that are internal to Kafka: assigned, but not read by a query.
        topics: The number of topics tried.
    """

    pattern: str
    fault: str = ""
    hint: str = ""
    matched: tuple[str, ...] = ()
    internal: tuple[str, ...] = ()
    topics: int = 0


def view_regex(
    pattern: str, topics: Iterable[str], internal: Collection[str] = frozenset()
) -> RegexView:
    """Return the topics that a coordinator would match.

    Args:
        internal: Those of the topics that are internal to Kafka.
    """
    try:
        subscription = Subscription.of_pattern(pattern)
    except ValueError as error:
        return RegexView(pattern=pattern, fault=str(error))
    names = sorted(topics)
    matched = [name for name in names if subscription.matches(name)]
    return RegexView(
        pattern=pattern,
        hint=surprising(pattern) or "",
        matched=tuple(matched),
        internal=tuple(name for name in matched if name in internal),
        topics=len(names),
    )


@connects
def validate_regex(
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="An RE2 expression, as for subscribePattern.")
    ],
    brokers: Brokers,
    as_json: JsonFlag = False,
) -> None:
    """Check that a pattern is valid RE2, and show the topics of the cluster that it matches.

    As in the coordinator, the pattern must match the whole topic name. Topics that are internal to
    Kafka are marked: the coordinator assigns them, and a query does not read them.

    Example: spark-groups validate-regex 'flights-.*'

    Exit code 1 if it is not a valid RE2 expression.
    """
    with brokers.cluster() as cluster:
        topics = [each.topic for each in cluster.every_topic().topics.values()]
    internal = {topic.name for topic in topics if topic.is_internal}
    view = view_regex(pattern, (topic.name for topic in topics), internal)
    show(view, render_regex, as_json=as_json, is_success=not view.fault)


def render_regex(view: RegexView) -> RenderableType:
    """Return the result as lines: valid or not, the matched topics, the hint."""
    pattern = printable(view.pattern)
    if view.fault:
        said = f"The regular expression `{pattern}` is invalid: {printable(view.fault)}"
        return Text(said, "red")
    lines = [
        Text(f"The regular expression `{pattern}` is valid."),
        Text(f"It matches {len(view.matched):,} of {view.topics:,} topics."),
        *(
            Text(f"  {printable(each)}{_INTERNAL if each in view.internal else ''}")
            for each in view.matched
        ),
    ]
    if view.hint:
        lines.append(Text(f"Note: {printable(view.hint)}", "yellow"))
    return Group(*lines)
