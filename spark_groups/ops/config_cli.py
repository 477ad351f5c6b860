"""`spark-groups config`: what the brokers let an operator decide about a group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from spark_groups.errors import OptionsError
from spark_groups.ops.connecting import Brokers, GroupArgument, JsonFlag, connects
from spark_groups.ops.output import output_for
from spark_groups.ops.render_settings import render_settings
from spark_groups.ops.setting_changes import (
    are_in_force,
    check_changes,
    parse_changes,
    view_settings,
)
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigResource
from spark_groups.wire.group_settings import GroupSettings, group_settings

_SHOWN_WITHIN_S: Final = 5.0
"""How long a broker may take to show what the controller has accepted."""
_ASK_AGAIN_S: Final = 0.05


@connects
def config(
    group: GroupArgument,
    brokers: Brokers,
    set_values: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set it; repeatable.")
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", metavar="NAME", help="Take the group's own value away; repeatable."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show and change what is set for a group: heartbeat interval, session time-out.

    Each value is shown with its origin, and with the minimum and maximum of the coordinator's
    broker. The group need not exist: settings can be made before its first member joins, and stay
    after its last offset is gone. Members are told with their next heartbeat.

    Example: spark-groups config flight-readers --set consumer.session.timeout.ms=60000

    Exit code 1 if a change is refused; then nothing is changed.
    """
    if not group:
        raise typer.BadParameter("a group id is not empty", param_hint="GROUP")
    try:
        changes = parse_changes(set_values or (), unset or ())
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error
    with brokers.cluster() as cluster:
        before = settings = group_settings(cluster, group)
        if changes:
            check_changes(changes, before)
            cluster.alter_configuration(ConfigResource.GROUP, group, changes)
            settings = _settings_with(cluster, group, changes, brokers.timeout_s / 2)
    view = view_settings(group, settings, changes, before)
    output_for(as_json=as_json).show(view, lambda _: render_settings(view))


def _settings_with(
    cluster: Cluster, group_id: str, changes: Mapping[str, str | None], timeout_s: float
) -> GroupSettings:
    """Return the settings as soon as the brokers show changes that were accepted."""
    deadline = time.monotonic() + min(timeout_s, _SHOWN_WITHIN_S)
    while True:
        settings = group_settings(cluster, group_id)
        cannot_tell = not settings.group_is_known
        if are_in_force(changes, settings) or cannot_tell or time.monotonic() > deadline:
            return settings
        time.sleep(_ASK_AGAIN_S)
