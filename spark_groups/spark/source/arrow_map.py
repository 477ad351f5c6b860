"""`mapInArrow` without PySpark's warning about pandas 3, which takes no part in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

MapBatches = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]

_ABOUT_PANDAS: Final = "PySpark does not yet fully support pandas"


def map_in_arrow(rows: DataFrame, function: MapBatches, columns: str) -> DataFrame:
    """Map the record batches of a DataFrame.

    PySpark implements `mapInArrow` as a function of its pandas module, and warns if pandas is 3.0
    or newer (FutureWarning of `pyspark.sql.pandas.utils`, PySpark 4.2 and 4.3).

    Args:
        rows: The rows.
        function: Maps the batches of a task; pickled to executors.
        columns: Its columns in Spark's DDL.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _ABOUT_PANDAS, FutureWarning)
        return rows.mapInArrow(function, columns)
