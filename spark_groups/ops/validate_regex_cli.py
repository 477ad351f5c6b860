"""`spark-groups validate-regex`: which topics a pattern would match."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_groups.ops.connecting import Brokers, JsonFlag, connects
from spark_groups.ops.output import output_for
from spark_groups.ops.regex_view import view_regex
from spark_groups.ops.render_regex import render_regex


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
    output_for(as_json=as_json).show(view, lambda _: render_regex(view))
    if view.fault:
        raise typer.Exit(1)
