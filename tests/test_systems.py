"""Windows is refused at each start: of the command, the sources, the jobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from spark_groups.cli import main as cli
from spark_groups.errors import UnsupportedSystemError
from spark_groups.spark.source.source import KafkaGroupDataSource
from spark_groups.spark.state.source import KafkaGroupStateDataSource
from spark_groups.systems import check_system


@pytest.mark.parametrize("platform", ["win32", "cygwin"])
def test_windows_is_refused_with_the_reason_and_what_to_use(platform: str) -> None:
    with pytest.raises(UnsupportedSystemError, match=r"Windows: .*unix sockets.*WSL"):
        check_system(platform)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_linux_and_macos_are_not(platform: str) -> None:
    check_system(platform)


@pytest.mark.parametrize("source", [KafkaGroupDataSource, KafkaGroupStateDataSource])
def test_sources_start_on_no_windows(
    source: Callable[[dict[str, str]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UnsupportedSystemError):
        source({})


def test_command_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("spark-groups: spark-groups does not run on Windows")


@pytest.mark.parametrize(
    "module",
    ["spark_groups.jobs.consume", "spark_groups.cli.main", "spark_groups.spark.source.discovery"],
)
def test_module_that_checks_needs_no_fcntl(module: str) -> None:
    """An import that fails first would hide the reason."""
    program = f"import sys; sys.modules['fcntl'] = None; import {module}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
