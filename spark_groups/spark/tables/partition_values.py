"""The rows of each partition of a table, and the text of its values in Delta's log.

Executors import this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_ROW: Final = "row"


def split(
    rows: pa.Table, partition_by: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield the rows of each partition, without the columns that have its values.

    Args:
        rows: The rows.
        partition_by: The columns; none: all rows are in one partition. Rows that lack one have null
            there.

    Yields:
        The value of each column as text, and the rows. Empty text is that of rows with empty text,
        which readers take for null.
    """
    if not partition_by:
        yield {}, rows
        return
    names = [f"{number}" for number in range(len(partition_by))]
    given = [each for each in partition_by if each in rows.column_names]
    nulls = pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
    texts = [_texts(rows[each]) if each in given else nulls for each in partition_by]
    keys = pa.table(texts, names=names)
    numbered = keys.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    found = numbered.group_by(names, use_threads=False).aggregate([(_ROW, "list")])
    rest = rows.drop_columns(given)
    for index in range(found.num_rows):
        values = (found[name][index].as_py() for name in names)
        chosen = found[f"{_ROW}_list"][index].values
        yield dict(zip(partition_by, values, strict=True)), rest.take(chosen)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as text: those of times with a zone in UTC, with the zone.

    A reader takes text without a zone to be in the zone of its session.
    """
    if kinds.is_timestamp(column.type):
        pattern = "%Y-%m-%dT%H:%M:%SZ" if column.type.tz else "%Y-%m-%d %H:%M:%S"
        return pc.strftime(column, pattern)
    if kinds.is_decimal(column.type):
        # Arrow writes small numbers with an exponent, which not every reader takes.
        texts = column.cast(pa.string()).dictionary_encode().unify_dictionaries()
        known = texts.chunk(0).dictionary if texts.num_chunks else pa.array([], pa.string())
        plain = pa.array([format(Decimal(each), "f") for each in known.to_pylist()], pa.string())
        return pa.chunked_array([plain.take(chunk.indices) for chunk in texts.chunks], pa.string())
    return column.cast(pa.string())
