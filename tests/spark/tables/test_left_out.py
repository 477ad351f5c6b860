"""Counts of the records whose keys or values tasks could not decode."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from spark_groups.spark.processing.counts import FateCount, FateCounts
from spark_groups.spark.processing.strategies import Fate
from spark_groups.spark.reading.decoded import decoded
from spark_groups.spark.schemas.row_formats import OnUndecodable
from spark_groups.spark.tables.left_out import count_undecodable
from tests.spark.reading.test_decoded import records, settings


def counted(on_undecodable: OnUndecodable, *batches: pa.RecordBatch) -> tuple[FateCount, ...]:
    counts = FateCounts()
    for each in decoded(settings(on_undecodable), batches, lambda *_: None):
        count_undecodable(each, counts)
    return counts.counts


def test_records_that_are_null_are_counted_with_their_offsets_and_the_first_reason() -> None:
    batches = records(b"a", b"\xff", b"b"), records(b"c", first=20), records(b"\xfe", first=30)
    (found,) = counted(OnUndecodable.NULL, *batches)
    assert replace(found, error=None) == FateCount(Fate.UNDECODABLE, "t", 3, 2, 11, 30, None)
    assert found.error == "the value cannot be decoded: it is not UTF-8: byte 0 is 0xff"
    assert str(found).startswith("2 of t-3 undecodable (offset 11 to 30): the value cannot")


def test_nothing_is_counted_where_all_records_are_decoded_or_become_dead_letters() -> None:
    assert counted(OnUndecodable.NULL, records(b"a", None)) == ()
    assert counted(OnUndecodable.DEAD_LETTERS, records(b"a", b"\xff")) == ()
