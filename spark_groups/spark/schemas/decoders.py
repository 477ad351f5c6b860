"""The decoders of a stream's columns, and the schemas that they need from a registry."""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from spark_groups.errors import OptionsError, SchemaError
from spark_groups.formats.decoding import ColumnDecoder, SchemaOfId
from spark_groups.formats.text import TextDecoder
from spark_groups.spark.schemas.registry import registry_of
from spark_groups.spark.schemas.row_formats import (
    UNDECODABLE,
    ColumnFormat,
    Format,
    OnUndecodable,
    RowFormats,
    SchemaVersion,
)

_log = logging.getLogger(__name__)

UNDECODABLE_TYPE: Final = pa.struct(
    [("key", pa.binary()), ("value", pa.binary()), ("reason", pa.string())]
)
_BYTES_MAX: Final = 16 * 1024 * 1024
_RECORD_SHARE: Final = 4
"""One record's values may take this part of a task's memory; the record itself takes a fifth."""


def looked_up(formats: RowFormats, timeout_s: float) -> RowFormats:
    """Return formats with the schemas that rows have, from the registry where it has them.

    Args:
        formats: As options give them.
        timeout_s: How long to wait for a registry that is away, in seconds.

    Raises:
        SchemaLookupError: The registry has no such schema, did not answer in time, refuses, or
            answers something else.
    """
    found: dict[str, ColumnFormat] = {}
    if formats.registry is not None:
        access = replace(formats.registry, look_up_id=uuid.uuid4().hex)
        formats = replace(formats, registry=access)
    for name, each in formats.by_column.items():
        if each.needs_lookup:
            assert formats.registry is not None
            registry = registry_of(formats.registry)
            schema = registry.schema_of_subject(each.subject, each.version, timeout_s)
            found[name] = replace(
                each, schema=schema.text, version=SchemaVersion(schema.version, schema.schema_id)
            )
    return replace(
        formats, key=found.get("key", formats.key), value=found.get("value", formats.value)
    )


def schema_notes(before: RowFormats, formats: RowFormats) -> Iterator[str]:
    """Yield a sentence for each schema that was looked up.

    Args:
        before: As options give them.
        formats: With the schemas.
    """
    for name, each in formats.by_column.items():
        wanted, found = before.by_column[name].version, each.version
        if not before.by_column[name].needs_lookup or wanted.schema_id is not None:
            continue
        yield (
            f"the column {name} has the schema of version {found.version} of {each.subject}, schema"
            f" id {found.schema_id}"
            + (
                ""
                if wanted.version is not None
                else ", the latest one. The next start looks it up again, and a batch that runs"
                f" again then has the columns of that: set {name}SchemaVersion to"
                f" {found.version} to keep these"
            )
        )


def row_schema(schema: pa.Schema, formats: RowFormats | None) -> pa.Schema:
    """Return the columns of rows.

    Args:
        schema: Those of records, with keys and values as bytes.
        formats: With their schemas; None: rows have the bytes.

    Raises:
        OptionsError: A schema of the options cannot be used, or its library is missing.
    """
    if formats is None:
        return schema
    for name, each in formats.by_column.items():
        place = schema.get_field_index(name)
        try:
            kind = decoder_of(each, None, compiled=False).arrow_type
        except SchemaError as error:
            what = f"the schema of {each.subject}" if each.subject else f"{name}Schema"
            raise OptionsError(f"{what}: {error}") from error
        schema = schema.set(place, pa.field(name, kind))
    if formats.on_undecodable is OnUndecodable.NULL:
        schema = schema.append(pa.field(UNDECODABLE, UNDECODABLE_TYPE))
    return schema


def decoders_of(
    formats: RowFormats, *, timeout_s: float, memory_bytes: int, compiled: bool
) -> Mapping[str, ColumnDecoder]:
    """Return the decoders of columns, by name.

    Args:
        formats: With their schemas.
        timeout_s: How long to wait for a registry that is away, in seconds.
        memory_bytes: The memory of a task.
        compiled: Whether compiled code may be used.
    """
    bytes_max = min(_BYTES_MAX, memory_bytes // 16)
    return {
        name: decoder_of(
            each,
            _schema_of_id(formats, name, timeout_s),
            bytes_max=bytes_max,
            record_bytes_max=min(memory_bytes // _RECORD_SHARE, 2**31 - 1),
            compiled=compiled,
        )
        for name, each in formats.by_column.items()
    }


def _schema_of_id(formats: RowFormats, name: str, timeout_s: float) -> SchemaOfId | None:
    """Return a function that looks writers' schemas up; None: records have no schema ids."""
    if formats.registry is None:
        return None
    registry, reader = registry_of(formats.registry), formats.by_column[name]
    # A task that failed at an unknown id runs with new decoders.
    registry.forget_unknown()
    own_id, is_said = reader.version.schema_id, False
    if own_id is not None:
        # The tasks need no registry for records of the schema that rows have.
        registry.learn(own_id, reader.schema, reader.subject)

    def schema_of_id(schema_id: int) -> str:
        nonlocal is_said
        text = registry.schema_of_id(schema_id, timeout_s, reader.subject)
        if own_id is not None and schema_id > own_id and not is_said:
            is_said = True
            _log.warning(
                "a record has a %s with the schema id %d, which came after that of the query's rows"
                " (id %d): fields that it adds are left out until the query starts again",
                *(name, schema_id, own_id),
            )
        return text

    return schema_of_id


def decoder_of(
    each: ColumnFormat,
    schema_of_id: SchemaOfId | None,
    *,
    bytes_max: int = _BYTES_MAX,
    record_bytes_max: int = _BYTES_MAX,
    compiled: bool,
) -> ColumnDecoder:
    """Return the decoder of one column.

    Args:
        each: Its format, with its schema.
        schema_of_id: Looks writers' schemas up; None: records have no schema ids.
        bytes_max: The most bytes of the decoded values of one call.
        record_bytes_max: The same, where one Avro record alone has more.
        compiled: Whether compiled code may be used.

    Raises:
        SchemaError: The schema cannot be used.
        OptionsError: The format's library is missing.
    """
    is_framed = schema_of_id is not None
    match each.format:
        case Format.AVRO:
            from spark_groups.formats.avro.decoder import AvroDecoder  # noqa: PLC0415

            return AvroDecoder(
                each.schema,
                schema_of_id,
                bytes_max=bytes_max,
                record_bytes_max=record_bytes_max,
                compiled=compiled,
            )
        case Format.JSON:
            from spark_groups.formats.json_values import JsonDecoder  # noqa: PLC0415

            return JsonDecoder(each.schema, bytes_max=bytes_max, framed=is_framed)
        case Format.PROTOBUF:
            from spark_groups.formats.protobuf_values import ProtobufDecoder  # noqa: PLC0415

            return ProtobufDecoder(
                base64.b64decode(each.schema),
                each.message,
                bytes_max=bytes_max,
                framed=is_framed,
            )
        case _:
            return TextDecoder()
