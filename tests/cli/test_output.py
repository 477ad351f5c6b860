"""Where a command's answer goes, with and without a terminal."""

from __future__ import annotations

import json
from functools import partial

import pytest
import typer
from rich.console import RenderableType

from spark_groups.cli.output import PARTITION_ROWS_MAX, console, number, partition_rows_max, show
from spark_groups.cli.remove_cli import RemovalView, check_ids, render_removals
from spark_groups.cli.render import render_group
from spark_groups.observation.views import GroupView, view_group
from tests.observation.groups import ONE, member, read

ROWS = PARTITION_ROWS_MAX + 1
VIEW = view_group(read(member(ONE, range(ROWS)), partitions=ROWS))
VARIABLES = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERM")


def group_text(view: GroupView, *, every_partition: bool = False) -> RenderableType:
    rows_max = partition_rows_max(every_partition=every_partition)
    return render_group(view, width=console().width, max_partition_rows=rows_max)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    show(VIEW, group_text, as_json=True)
    assert json.loads(capsys.readouterr().out) == VIEW.to_json()


def test_the_same_view_is_a_document_or_text(capsys: pytest.CaptureFixture[str]) -> None:
    view = RemovalView(group_id="g", removals=check_ids((), ["gate-1"], []))
    for as_json, begins in ((True, "{"), (False, "instance id gate-1: unknown (")):
        with pytest.raises(typer.Exit) as exited:
            show(view, render_removals, as_json=as_json, is_success=view.is_complete)
        assert exited.value.exit_code == 1
        assert capsys.readouterr().out.startswith(begins)


def test_piped_output_is_plain_complete_and_never_folded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(VIEW, group_text, as_json=False)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert text.count(f"app-1 {ONE}") == 1 + ROWS


def test_columns_are_respected_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show(VIEW, group_text, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert len(lines) > ROWS


@pytest.mark.parametrize("every_partition", [False, True])
def test_in_a_terminal_many_partitions_share_rows_unless_all_are_wanted(
    every_partition: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    show(VIEW, partial(group_text, every_partition=every_partition), as_json=False)
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
    show(VIEW, group_text, as_json=False)
    text = capsys.readouterr().out
    assert not [code for code in ("\x1b[31m", "\x1b[32m", "\x1b[33m") if code in text]


def test_numbers_have_separators_and_the_unknown_is_a_dash() -> None:
    assert (number(1_234_567), number(0), number(None)) == ("1,234,567", "0", "—")
