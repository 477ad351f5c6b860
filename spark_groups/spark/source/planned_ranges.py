"""What both readers do with planned ranges: take them in turn, and face what is gone of them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from spark_groups.errors import DataLossError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.types import OffsetRange, TopicPartition

_log = logging.getLogger(__name__)


def rounds(ranges: Iterable[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """Return ranges in groups that have each partition once; those without offsets are left out.

    Args:
        ranges: What is read; those of one partition follow each other by their offsets.
    """
    found: list[list[OffsetRange]] = []
    seen: Counter[TopicPartition] = Counter()
    for each in sorted(each for each in ranges if len(each)):
        partition = each.topic_partition
        turn = seen[partition]
        seen[partition] += 1
        if turn == len(found):
            found.append([])
        found[turn].append(each)
    yield from found


def lose(settings: RangeSettings, what: str) -> None:
    """Fail or go on where offsets are gone, as `failOnDataLoss` says.

    Args:
        settings: How ranges are read.
        what: What is lost, in words.

    Raises:
        DataLossError: `failOnDataLoss` is true.
    """
    if settings.fail_on_data_loss:
        raise DataLossError(f"{what}; set failOnDataLoss to false to go on with what there is")
    _log.warning("%s; going on, as failOnDataLoss is false", what)
