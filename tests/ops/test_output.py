"""Where a command's answer goes, with and without a terminal."""

from __future__ import annotations

import json

import pytest

from spark_groups.ops.output import PARTITION_ROWS_MAX, ConsoleOutput, JsonOutput
from spark_groups.ops.removal import RemovalView, check_ids
from spark_groups.ops.setting_changes import view_settings
from spark_groups.ops.views import view_group
from tests.ops.groups import ONE, member, read
from tests.ops.test_setting_changes import SETTINGS

ROWS = PARTITION_ROWS_MAX + 1
VIEW = view_group(read(member(ONE, range(ROWS)), partitions=ROWS))
VARIABLES = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERM")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    JsonOutput().group(VIEW)
    assert json.loads(capsys.readouterr().out) == VIEW.to_json()


def test_settings_are_one_document_or_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    view = view_settings("g", SETTINGS)
    JsonOutput().settings(view)
    assert json.loads(capsys.readouterr().out) == view.to_json()
    ConsoleOutput().settings(view)
    text = capsys.readouterr().out
    assert ["consumer.session.timeout.ms", "50000", "group", "45000", "45000", "—"] in [
        line.split() for line in text.splitlines()
    ]


def test_removals_are_one_document_or_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = RemovalView(group_id="g", removals=check_ids((), ["gate-1"], []))
    JsonOutput().removals(view)
    assert json.loads(capsys.readouterr().out) == view.to_json()
    ConsoleOutput().removals(view)
    assert capsys.readouterr().out.startswith("instance id gate-1: unknown (")


def test_what_is_piped_is_plain_complete_and_never_folded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ConsoleOutput().group(VIEW)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert text.count(f"app-1 {ONE}") == 1 + ROWS


def test_columns_are_respected_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ConsoleOutput().group(VIEW)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert len(lines) > ROWS


@pytest.mark.parametrize("every_partition", [False, True])
def test_in_a_terminal_many_partitions_share_rows_unless_all_are_wanted(
    every_partition: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    ConsoleOutput(every_partition=every_partition).group(VIEW)
    text = capsys.readouterr().out
    assert "\x1b[" in text
    assert (f"flights 0-{ROWS - 1}" in text.partition("PARTITIONS")[2]) != every_partition
    assert (len(text.splitlines()) > ROWS) == every_partition


def test_no_color_means_no_colour_in_a_terminal_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    ConsoleOutput().group(VIEW)
    text = capsys.readouterr().out
    assert not [code for code in ("\x1b[31m", "\x1b[32m", "\x1b[33m") if code in text]
