"""A fetch shows how far it is."""

from __future__ import annotations

import pytest

from spark_groups.lab.broker.progress import fetch_progress

LINES = [f"found org#module{index};1 in central" for index in range(45)]
LINES += [f"[SUCCESSFUL ] org#module{index};1!module.jar (3ms)" for index in range(45)]


def test_plain_lines_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with fetch_progress("Apache Kafka 4.3.1") as progress:
        for line in ["confs: [default]", *LINES]:
            progress.follow(line)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "fetching Apache Kafka 4.3.1 from Maven (once)",
        "fetched 20 of about 45 artifacts",
        "fetched 40 of about 45 artifacts",
        "fetched 45 artifacts of Apache Kafka 4.3.1",
    ]


def test_a_bar_in_a_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with fetch_progress("Apache Kafka 4.3.1") as progress:
        for line in LINES:
            progress.follow(line)
        assert progress.bar is not None
        progress.bar.refresh()
        assert (progress.found, progress.fetched) == (45, 45)
    assert "fetching Apache Kafka 4.3.1" in capfd.readouterr().err
