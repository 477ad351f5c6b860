"""Two applications write clicks into one Delta table; one of them is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groups.lab.broker.embedded import EmbeddedKafka
from tests.documents import blocks_of
from tests.examples.played import EXAMPLES, play

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

NAME = "clickstream_to_delta"


def test_every_click_is_in_the_table_once(tmp_path: Path) -> None:
    with EmbeddedKafka() as kafka:
        printed = play(NAME, tmp_path, kafka.bootstrap_servers, timeout_s=800)
    text = (EXAMPLES / NAME / "README.md").read_text(encoding="utf-8")
    [shown] = [each.text for each in blocks_of(text) if each.language == "text"]
    assert shown in printed
    assert "exit code 143" in printed
