"""What a `load()` asks for, in the form in which it travels from process to process.

Whoever unpickles options has to import what checks them, and all that they consist of. So they
travel packed: only the process that checks them and a query's runner ever import that.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spark_groups.spark.options.range_settings import RangeSettings
    from spark_groups.spark.options.source_options import SourceOptions

SOURCE_NAME: Final = "kafka-group"
"""What `format()` calls the source."""
COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint,"
    " timestamp timestamp, timestampType int"
)
"""Exactly those of the source `kafka`."""
HEADER_COLUMN: Final = "headers array<struct<key: string, value: binary>>"

RANGE_COLUMNS: Final = (
    "topic string, partition int, fromOffset bigint, untilOffset bigint, topicId string"
)
"""The columns of `emit=ranges`; the first four are those of its own `OffsetRange`."""


def columns(*, include_headers: bool) -> str:
    """Return the source's schema as Spark's DDL."""
    return f"{COLUMNS}, {HEADER_COLUMN}" if include_headers else COLUMNS


@dataclass(frozen=True)
class Load:
    """What one `load()` asks for.

    Args:
        columns: The schema in Spark's DDL.
        packed_options: All options, pickled, with secrets; excluded from the repr.
    """

    columns: str
    emits_ranges: bool
    range_settings: RangeSettings
    packed_options: bytes = field(repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Load:
        """Check the options of a load.

        Raises:
            OptionsError: Some of them are wrong; all that is wrong is listed.
        """
        from spark_groups.spark.options.source_options import SourceOptions
        from spark_groups.spark.options.values import Emit

        checked = SourceOptions.of(options)
        emits_ranges = checked.emit is Emit.RANGES
        return cls(
            columns=RANGE_COLUMNS
            if emits_ranges
            else columns(include_headers=checked.include_headers),
            emits_ranges=emits_ranges,
            range_settings=checked.range_settings(),
            packed_options=pickle.dumps(checked),
        )

    def options(self) -> SourceOptions:
        """Return the options as they were checked."""
        unpacked: SourceOptions = pickle.loads(self.packed_options)
        return unpacked
