"""`spark-groups config`: the group configuration that brokers keep (resource GROUP)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.cli.connecting import Brokers, GroupArgument, JsonFlag, connects, usage_errors
from spark_groups.cli.output import QUIET_STYLE, UNKNOWN, Column, show, table_of
from spark_groups.errors import OptionsError, printable
from spark_groups.group.member.near_names import nearest
from spark_groups.observation.plain_values import View
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigOrigin, ConfigResource
from spark_groups.wire.group_settings import GroupSetting, GroupSettings, bound_keys, group_settings

_WHOLE_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class SettingChange:
    """The effective value of a setting before and after a change; None: unknown."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsView(View):
    """The settings of a group, which need not exist, and the changes that a command made.

    Args:
        reason: Why some settings are unknown; empty if all are known.
    """

    group_id: str
    settings: tuple[GroupSetting, ...]
    changed: tuple[SettingChange, ...] = ()
    reason: str = ""


def parse_changes(set_values: Iterable[str], unset: Iterable[str]) -> dict[str, str | None]:
    """Parse `--set name=value` and `--unset name`; None stands for a value to unset.

    Raises:
        OptionsError: Malformed or repeated names; lists all of them.
    """
    changes: dict[str, str | None] = {}
    problems: list[str] = []
    for text in set_values:
        name, equals, value = (each.strip() for each in text.partition("="))
        if not name or not equals or not value:
            problems.append(f"--set {text!r} is not name=value (to remove a value: --unset)")
        elif name in changes:
            problems.append(f"--set {name} is given twice")
        else:
            changes[name] = value
    removed: set[str] = set()
    for name in (each.strip() for each in unset):
        if not name or "=" in name:
            problems.append(f"--unset {name!r} is not a name")
        elif name in removed:
            problems.append(f"--unset {name} is given twice")
        elif name in changes:
            problems.append(f"{name} is given to --set and to --unset: choose one")
        removed.add(name)
    if problems:
        raise OptionsError("; ".join(dict.fromkeys(problems)))
    return changes | dict.fromkeys(removed)


def check_changes(changes: Mapping[str, str | None], settings: GroupSettings) -> None:
    """Check changes as the broker would, with a hint for each invalid one.

    Args:
        changes: New values by name; None unsets a value. Names that this client cannot see are
            left to the broker.

    Raises:
        OptionsError: Unknown names or values out of range; lists all of them.
    """
    problems = []
    for name, value in sorted(changes.items()):
        setting = settings.of(name)
        if setting is None and settings.group_is_known:
            problems.append(_unknown_name(name, [each.name for each in settings.settings]))
        elif setting is not None and value is not None:
            problems += _out_of_range(setting, value)
    if problems:
        raise OptionsError("; ".join(problems))


def _unknown_name(name: str, known: list[str]) -> str:
    near = nearest(name, known, similarity=0.6)
    hint = f"did you mean {near}?" if near else f"it has {', '.join(known)}"
    return f"this broker has no setting {name} for consumer groups: {hint}"


def _out_of_range(setting: GroupSetting, value: str) -> list[str]:
    least, most = setting.minimum, setting.maximum
    if least is None and most is None:
        return []
    if not _WHOLE_NUMBER.fullmatch(value):
        return [f"{setting.name}={value} is not a whole number"]
    if (least is None or least <= int(value)) and (most is None or int(value) <= most):
        return []
    range_text = " and ".join(
        f"{words} {bound} ({key})"
        for words, bound, key in zip(
            ("at least", "at most"), (least, most), bound_keys(setting.name), strict=True
        )
        if bound is not None
    )
    return [f"{setting.name}={value} is out of range: the broker accepts {range_text}"]


def are_in_force(changes: Mapping[str, str | None], settings: GroupSettings) -> bool:
    """Say whether a broker shows changes that were accepted; it may be a moment behind."""
    return all(_is_in_force(settings.of(name), value) for name, value in changes.items())


def _is_in_force(setting: GroupSetting | None, value: str | None) -> bool:
    if setting is None:
        return False
    return not _is_own(setting) if value is None else _is_own(setting) and setting.value == value


def view_settings(
    group_id: str,
    settings: GroupSettings,
    changes: Iterable[str] = (),
    before: GroupSettings | None = None,
) -> SettingsView:
    """Return the settings of a group, with the named changes."""

    def value(of: GroupSettings | None, name: str) -> str | None:
        setting = of.of(name) if of is not None else None
        return setting.value if setting is not None else None

    return SettingsView(
        group_id=group_id,
        settings=settings.settings,
        changed=tuple(
            SettingChange(name, value(before, name), value(settings, name))
            for name in sorted(changes)
        ),
        reason=settings.reason,
    )


_SHOWN_WITHIN_S: Final = 5.0
"""How long to wait until a broker reports a change that the controller accepted."""
_ASK_AGAIN_S: Final = 0.05


@connects
def config(
    group: GroupArgument,
    brokers: Brokers,
    set_values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a value; repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Remove the group's own value; repeatable."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show and change the settings of a group: heartbeat interval, session timeout.

    Each value is shown with its origin, and with the minimum and maximum of the coordinator's
    broker. The group need not exist: settings can be made before its first member joins, and
    outlive its last committed offset. Members receive new values with their next heartbeat.

    Example: spark-groups config flight-readers --set consumer.session.timeout.ms=60000

    Exit code 1 if any change is rejected; then nothing is changed.
    """
    if not group:
        raise typer.BadParameter("a group id must not be empty", param_hint="GROUP")
    with usage_errors():
        changes = parse_changes(set_values or (), unset or ())
    with brokers.cluster() as cluster:
        view = changed_settings(cluster, group, changes, brokers.timeout_s)
    show(view, render_settings, as_json=as_json)


def changed_settings(
    cluster: Cluster, group_id: str, changes: Mapping[str, str | None], timeout_s: float
) -> SettingsView:
    """Change settings of a group, and return all of them.

    Args:
        changes: Values by name; None unsets one. None at all: only read.
        timeout_s: How long to wait at most, half of it until a broker reports the changes.

    Raises:
        OptionsError: A change is invalid; nothing is changed.
        RequestError: No broker answered in time.
        ProtocolError: A broker refused.
    """
    before = settings = group_settings(cluster, group_id)
    if changes:
        check_changes(changes, before)
        cluster.alter_configuration(ConfigResource.GROUP, group_id, changes)
        settings = _settings_with(cluster, group_id, changes, timeout_s / 2)
    return view_settings(group_id, settings, changes, before)


def _settings_with(
    cluster: Cluster, group_id: str, changes: Mapping[str, str | None], timeout_s: float
) -> GroupSettings:
    deadline = time.monotonic() + min(timeout_s, _SHOWN_WITHIN_S)
    while True:
        settings = group_settings(cluster, group_id)
        is_unknown = not settings.group_is_known
        if are_in_force(changes, settings) or is_unknown or time.monotonic() > deadline:
            return settings
        time.sleep(_ASK_AGAIN_S)


_OWN_STYLE: Final = "yellow"


def render_settings(view: SettingsView) -> RenderableType:
    """Return the changes, and the settings as a table."""
    parts: list[RenderableType] = [
        Text(f"{each.name}: {_text(each.before)} -> {_text(each.after)}", _OWN_STYLE)
        for each in view.changed
    ]
    parts.append(
        Text.assemble(("settings of group ", QUIET_STYLE), (printable(view.group_id), "bold"))
    )
    if view.settings:
        parts.append(_table(view))
    if view.reason:
        parts.append(Text(f"some settings are unknown: {printable(view.reason)}"))
    return Group(*parts)


def _table(view: SettingsView) -> Table:
    return table_of(
        view.settings,
        Column("SETTING", lambda each: each.name),
        Column("VALUE", lambda each: _text(each.value), is_number=True),
        Column("ORIGIN", lambda each: Text(each.origin.value, _OWN_STYLE if _is_own(each) else "")),
        Column(
            "INHERITED", lambda each: _text(each.inherited) if _is_own(each) else "", is_number=True
        ),
        Column("MINIMUM", lambda each: _text(each.minimum), is_number=True),
        Column("MAXIMUM", lambda each: _text(each.maximum), is_number=True),
    )


def _is_own(setting: GroupSetting) -> bool:
    return setting.origin is ConfigOrigin.GROUP


def _text(value: str | int | None) -> str:
    return UNKNOWN if value is None else printable(str(value))
