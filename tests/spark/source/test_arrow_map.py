"""Arrow batches are mapped without a warning about pandas, which takes no part in it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_groups.spark.source.arrow_map import map_in_arrow


def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@pytest.mark.spark
def test_pandas_3_is_no_warning(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pd, "__version__", "3.1.1")
    rows = spark.range(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FutureWarning, match="fully support pandas"):
            rows.mapInArrow(same, "id long")
        mapped = map_in_arrow(rows, same, "id long")
    assert [row.id for row in mapped.collect()] == [0, 1, 2]
