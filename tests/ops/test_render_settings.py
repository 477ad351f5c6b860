"""Settings as text."""

from __future__ import annotations

from rich.console import Console

from spark_groups.ops.render_settings import render_settings
from spark_groups.ops.setting_changes import SettingsView, view_settings
from spark_groups.wire.group_settings import SESSION_TIMEOUT_MS, GroupSettings
from tests.ops.test_setting_changes import SETTINGS


def text(view: SettingsView) -> list[str]:
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(render_settings(view))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_each_setting_has_its_value_origin_and_bounds() -> None:
    assert text(view_settings("g", SETTINGS)) == [
        "settings of group g",
        "SETTING VALUE ORIGIN WITHOUT IT MINIMUM MAXIMUM",
        "consumer.heartbeat.interval.ms 5000 default 100 15000",
        "consumer.session.timeout.ms 50000 group 45000 45000 —",
        "consumer.switch true default — —",
    ]


def test_a_change_stands_above_the_table() -> None:
    lines = text(view_settings("g", SETTINGS, {SESSION_TIMEOUT_MS: "50000"}))
    assert lines[0] == "consumer.session.timeout.ms: — -> 50000"


def test_what_is_not_known_is_said() -> None:
    lines = text(view_settings("g\x1b", GroupSettings(reason="no access")))
    assert lines == ["settings of group g?", "not everything is known: no access"]
