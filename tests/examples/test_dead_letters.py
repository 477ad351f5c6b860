"""Orders become dead letters, and are booked after a repair and a replay."""

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

NAME = "dead_letters"


def test_what_can_be_repaired_is_booked(tmp_path: Path) -> None:
    with EmbeddedKafka() as kafka:
        printed = play(NAME, tmp_path, kafka.bootstrap_servers, timeout_s=800)
    text = (EXAMPLES / NAME / "README.md").read_text(encoding="utf-8")
    [shown] = [each.text for each in blocks_of(text) if each.language == "text"]
    assert shown in printed
    counts = [line for line in printed.splitlines() if line.endswith("orders are booked")]
    assert counts == ["976 of 1000 orders are booked", "996 of 1000 orders are booked"]
    assert "4 of orders.billing.dead-letter-0 skipped" in printed
