"""Ranges in turn, and what is gone of them."""

from __future__ import annotations

import logging
import uuid

import pytest

from spark_groups.errors import DataLossError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.source.planned_ranges import lose, rounds
from spark_groups.types import OffsetRange

TOPIC_ID = uuid.UUID(int=7)


def piece(index: int, first: int, until: int) -> OffsetRange:
    return OffsetRange(TOPIC_ID, "t", index, first, until)


def test_pieces_of_a_partition_come_one_after_the_other() -> None:
    given = [piece(0, 30, 40), piece(1, 0, 5), piece(0, 0, 10), piece(0, 20, 20), piece(0, 10, 15)]
    assert list(rounds(given)) == [
        [piece(0, 0, 10), piece(1, 0, 5)],
        [piece(0, 10, 15)],
        [piece(0, 30, 40)],
    ]
    assert list(rounds([piece(0, 3, 3)])) == []


def test_loss_is_an_error_or_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = RangeSettings(bootstrap_servers=("b:1",), group_id="g")
    with pytest.raises(DataLossError, match="all is gone; set failOnDataLoss to false"):
        lose(settings, "all is gone")
    forgiving = RangeSettings(bootstrap_servers=("b:1",), group_id="g", fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, "spark_groups"):
        lose(forgiving, "all is gone")
    assert "all is gone; going on, as failOnDataLoss is false" in caplog.text
