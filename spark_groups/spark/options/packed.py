"""A `load()` in the form that travels between processes.

Options travel pickled, so executors never import pydantic.
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
KEY_NAME: Final = "spark_groups"
"""The name of a load's key in the metadata of the first column of its ranges."""


def columns(*, include_headers: bool) -> str:
    """Return the schema of records in Spark's DDL."""
    return f"{COLUMNS}, {HEADER_COLUMN}" if include_headers else COLUMNS


def with_schemas(checked: SourceOptions) -> tuple[RangeSettings, tuple[str, ...]]:
    """Return settings with the schemas that rows have, and sentences about them for the log.

    Args:
        checked: The options.

    Raises:
        SchemaLookupError: A registry does not have a schema, or does not return it.
    """
    settings = checked.range_settings()
    if settings.formats is None:
        return settings, ()
    from spark_groups.spark.schemas.decoders import looked_up

    formats, notes = looked_up(settings.formats, checked.api_timeout_ms / 1000)
    return replace(settings, formats=formats), notes


def decoded_columns(names: str, settings: RangeSettings) -> str:
    """Return the schema of records whose keys and values are decoded, in Spark's DDL.

    Args:
        names: That of records with bytes.
        settings: With the formats and their schemas.

    Raises:
        OptionsError: A schema cannot be used.
    """
    import pyarrow as pa

    from spark_groups.formats.ddl import ddl_of
    from spark_groups.spark.schemas.decoders import row_schema
    from spark_groups.spark.schemas.row_formats import UNDECODABLE

    columns = row_schema(
        pa.schema([("key", pa.binary()), ("value", pa.binary())]), settings.formats
    )
    both = ", ".join(f"{name} {ddl_of(columns.field(name).type)}" for name in ("key", "value"))
    last = [f"{each.name} {ddl_of(each.type)}" for each in columns if each.name == UNDECODABLE]
    return ", ".join([names.replace("key binary, value binary", both, 1), *last])


@dataclass(frozen=True)
class Load:
    """A validated `load()`.

    Args:
        columns: The schema in Spark's DDL.
        packed_options: All options, pickled, with secrets; excluded from the repr.
        notes: Sentences for the log about schemas that were looked up.
        key: A random text that the columns carry where a function must find its query by it: with
            `emit=ranges` through Spark Connect; empty elsewhere.
    """

    columns: str
    emits_ranges: bool
    range_settings: RangeSettings
    packed_options: bytes = field(repr=False)
    notes: tuple[str, ...] = ()
    key: str = field(default="", repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Load:
        """Validate the options of a load().

        Raises:
            OptionsError: Options are invalid; lists all.
            SchemaLookupError: A registry does not have the schema of rows, or does not return it.
        """
        from spark_groups.spark.options.option_values import Emit
        from spark_groups.spark.options.source_options import SourceOptions
        from spark_groups.wire.security.config_references import Allowed

        checked = SourceOptions.of(options, may_lack_group=True)
        settings = checked.range_settings()
        notes: tuple[str, ...] = ()
        key = ""
        if checked.emit is Emit.RANGES:
            names = RANGE_COLUMNS
            key = uuid.uuid4().hex if Allowed.by(os.environ).is_connect else ""
        else:
            names = columns(include_headers=checked.include_headers)
            if settings.formats is not None:
                settings, notes = with_schemas(checked)
                names = decoded_columns(names, settings)
        return cls(
            columns=names,
            emits_ranges=checked.emit is Emit.RANGES,
            range_settings=settings,
            packed_options=pickle.dumps(checked),
            notes=notes,
            key=key,
        )

    def options(self) -> SourceOptions:
        """Return the validated options."""
        unpacked: SourceOptions = pickle.loads(self.packed_options)
        return unpacked
