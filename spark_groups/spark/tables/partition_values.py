"""The rows of each partition of a table of files.

Executors import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from spark_groups.errors import TableError

PARTITIONS_MAX: Final = 1000
"""The most partitions among the rows of one row group: the files of more would be tiny."""
_ROW: Final = "row"
_NO_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def split(
    rows: pa.Table,
    partition_by: Sequence[str],
    computed: Mapping[str, pa.DictionaryArray] | None = None,
    table: str = "the table",
) -> list[tuple[dict[str, str | None], pa.Table]]:
    """Return the rows of each partition, without the columns that have its values.

    Args:
        rows: The rows.
        partition_by: The columns; none: all rows are in one partition. Rows that lack one have null
            there.
        computed: In their place, values computed from columns, as text, by their names.
        table: The name of the table in errors.

    Returns:
        The value of each column as text, and the rows. Empty text is that of rows with empty text,
        which readers of Delta take for null.

    Raises:
        TableError: There are too many partitions.
    """
    rest = rows.drop_columns([each for each in partition_by if each in rows.column_names])
    keys = computed or {each: as_key(column_of(rows, each), _texts) for each in partition_by}
    if not keys:
        return [({}, rest)]
    names = [f"{number}" for number in range(len(keys))]
    codes = pa.table([each.indices for each in keys.values()], names=names)
    numbered = codes.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    found = numbered.group_by(names, use_threads=False).aggregate([(_ROW, "list")])
    if found.num_rows > PARTITIONS_MAX:
        raise TableError(
            f"{rows.num_rows:,} rows of one task are in {found.num_rows:,} partitions of {table} by"
            f" {', '.join(keys)}, and at most {PARTITIONS_MAX:,} are written at a time: their files"
            " would be tiny. Partition the table by fewer values, such as the day of a time"
        )
    lists = found[f"{_ROW}_list"].combine_chunks()
    # One copy of the rows in the order of their partitions, of which each file gets a slice.
    ordered = rest.combine_chunks().take(lists.values) if found.num_rows > 1 else rest
    of_keys = zip(names, keys.values(), strict=True)
    values = [key.dictionary.take(found[name].combine_chunks()) for name, key in of_keys]
    starts = lists.offsets.to_pylist()
    return [
        (
            dict(zip(keys, (each[index].as_py() for each in values), strict=True)),
            ordered.slice(starts[index], starts[index + 1] - starts[index]),
        )
        for index in range(found.num_rows)
    ]


def column_of(rows: pa.Table, name: str) -> pa.Array:
    """Return a column in one piece; nulls if the rows lack it.

    Args:
        rows: The rows.
        name: Its name.
    """
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.string())
    return rows[name].combine_chunks()


def as_key(column: pa.Array, texts_of: Callable[[pa.Array], pa.Array]) -> pa.DictionaryArray:
    """Return the text of the values of a column, each computed once.

    Args:
        column: The column.
        texts_of: Returns the texts of different values; two values may have one text.
    """
    encoded = column.dictionary_encode()
    texts = texts_of(encoded.dictionary).dictionary_encode()
    return pa.DictionaryArray.from_arrays(texts.indices.take(encoded.indices), texts.dictionary)


def _texts(values: pa.Array) -> pa.Array:
    """Return values as text in Delta's log: those of times with a zone in UTC, with the zone.

    A reader takes text without a zone to be in the zone of its session.
    """
    if kinds.is_timestamp(values.type):
        pattern = "%Y-%m-%dT%H:%M:%SZ" if values.type.tz else "%Y-%m-%d %H:%M:%S"
        return pc.strftime(values, pattern)
    if kinds.is_decimal(values.type):
        # Arrow writes small numbers with an exponent, which not every reader takes.
        texts = values.cast(pa.string()).to_pylist()
        return pa.array([format(Decimal(each), "f") for each in texts], pa.string())
    texts = values.cast(pa.string())
    if kinds.is_floating(values.type):
        # As Java writes them, and so reads them everywhere.
        texts = pa.array([_NO_NUMBERS.get(each, each) for each in texts.to_pylist()], pa.string())
    return texts
