"""A `load()` in the form that travels between processes.

Options travel pickled, so executors never import pydantic.
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
COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint,"
    " timestamp timestamp, timestampType int"
)
"""As in Spark's Kafka source."""
HEADER_COLUMN: Final = "headers array<struct<key: string, value: binary>>"

RANGE_COLUMNS: Final = (
    "topic string, partition int, fromOffset bigint, untilOffset bigint, topicId string"
)
"""The columns with `emit=ranges`; the first four as in Spark's `OffsetRange`."""


def columns(*, include_headers: bool) -> str:
    """Return the schema of records in Spark's DDL."""
    return f"{COLUMNS}, {HEADER_COLUMN}" if include_headers else COLUMNS


@dataclass(frozen=True)
class Load:
    """A validated `load()`.

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
        """Validate the options of a load().

        Raises:
            OptionsError: Options are invalid; lists all.
        """
        from spark_groups.spark.options.option_values import Emit
        from spark_groups.spark.options.source_options import SourceOptions

        checked = SourceOptions.of(options, may_lack_group=True)
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
        """Return the validated options."""
        unpacked: SourceOptions = pickle.loads(self.packed_options)
        return unpacked
