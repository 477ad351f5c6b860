"""`spark-groups doctor`: what a query needs, whether it is there, and what to do if not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.observation.observe import OBSERVE_TIMEOUT_S
from spark_groups.ops.connecting import (
    BootstrapServer,
    CommandConfig,
    JsonFlag,
    Timeout,
    named_brokers,
)
from spark_groups.ops.doctor import Check, Diagnosis, Outcome, check_brokers, examine
from spark_groups.ops.output import output_for
from spark_groups.ops.render_text import plain_table
from spark_groups.runtime.started_broker import running_broker

_STYLES: Final[Mapping[Outcome, str]] = {
    Outcome.OK: "green",
    Outcome.WARNING: "yellow",
    Outcome.FAILED: "red",
    Outcome.SKIPPED: "dim",
}


def doctor(
    bootstrap_server: BootstrapServer = None,
    timeout: Timeout = OBSERVE_TIMEOUT_S,
    command_config: CommandConfig = None,
    as_json: JsonFlag = False,
) -> None:
    """Check Python, Java, Spark, its workers, and brokers: what a query needs on this machine.

    It starts a session of Spark, which takes some seconds. PYSPARK_PYTHON and JAVA_HOME are looked
    at as Spark does. Brokers are checked if one is named or was started here.

    Example: spark-groups doctor --bootstrap-server localhost:9092

    Exit code 1 if something is missing.
    """
    diagnosis = examine(_brokers(bootstrap_server, timeout, command_config))
    output_for(as_json=as_json).show(diagnosis, lambda _: render_diagnosis(diagnosis))
    if not diagnosis.is_well:
        raise typer.Exit(1)


def _brokers(
    bootstrap_server: BootstrapServer, timeout: Timeout, command_config: CommandConfig
) -> Check:
    if bootstrap_server is None and running_broker() is None:
        said = "none is named: --bootstrap-server"
        return Check(name="brokers", outcome=Outcome.SKIPPED, found=said)
    brokers = named_brokers(bootstrap_server, timeout, command_config)
    with brokers.cluster() as cluster:
        return check_brokers(cluster, brokers.bootstrap_servers)


def render_diagnosis(diagnosis: Diagnosis) -> RenderableType:
    """Return one row for each check, and what to do below them.

    Args:
        diagnosis: The checks.
    """
    table = plain_table()
    for header in ("CHECK", "RESULT", "FOUND"):
        table.add_column(header, overflow="fold")
    for each in diagnosis.checks:
        result = Text(each.outcome.value, _STYLES[each.outcome])
        table.add_row(Text(each.name), result, Text(printable(each.found)))
    cures = [Text(f"{each.name}: {printable(each.cure)}") for each in diagnosis.checks if each.cure]
    return Group(table, *cures)
