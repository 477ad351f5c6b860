"""Whether a schema registry answers, and whether rows can have the schema of a subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from spark_groups.errors import OptionsError
from spark_groups.formats.ddl import ddl_of
from spark_groups.spark.schemas.decoders import row_schema
from spark_groups.spark.schemas.registry import SchemaRegistry
from spark_groups.spark.schemas.registry_settings import PREFIX, setting_of
from spark_groups.spark.schemas.row_formats import (
    ColumnFormat,
    Format,
    RegistryAccess,
    RowFormats,
    SchemaVersion,
)

_ANSWER_S: Final = 10.0


def checked_registry(urls: str, subject: str | None, settings: Mapping[str, str]) -> str:
    """Return what a registry answers, in words.

    Args:
        urls: Its addresses, separated by commas.
        subject: The subject; None: any answer will do.
        settings: Its settings, with the prefix of the source's options; others are ignored.

    Raises:
        SchemaLookupError: It does not answer, refuses, or has no such subject.
        OptionsError: Rows cannot have the schema, or a setting cannot be resolved.
    """
    own = []
    for name, text in settings.items():
        if name.startswith(PREFIX):
            short = name.removeprefix(PREFIX)
            try:
                own.append((short, setting_of(short, text)))
            except ValueError as error:
                raise OptionsError(f"{name}: {error}") from error
    addresses = tuple(each.strip() for each in urls.split(",") if each.strip())
    registry = SchemaRegistry(RegistryAccess(urls=addresses, settings=tuple(own)))
    if subject is None:
        return f"{urls} has {len(registry.subjects(_ANSWER_S))} subjects"
    found = registry.schema_of_subject(subject, SchemaVersion(), _ANSWER_S)
    value = ColumnFormat(format=Format.AVRO, schema=found.text, subject=subject)
    kind = row_schema(pa.schema([("value", pa.binary())]), RowFormats(value=value)).field(0).type
    return f"version {found.version} of {subject} (id {found.schema_id}): {ddl_of(kind)}"
