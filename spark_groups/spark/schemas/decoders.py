"""The decoders of a stream's columns, and the schemas that they need from a registry."""

from __future__ import annotations

import base64
import importlib.util
import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from spark_groups.errors import OptionsError, SchemaError
from spark_groups.formats.avro.arrow_types import arrow_type_of
from spark_groups.formats.avro.schema import parse_schema
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


def looked_up(formats: RowFormats, timeout_s: float) -> tuple[RowFormats, tuple[str, ...]]:
    """Return formats with the schemas that rows have, and sentences about those for the log.

    Args:
        formats: As options give them.
        timeout_s: How long to wait for a registry that is away, in seconds.

    Raises:
        SchemaLookupError: The registry has no such schema, did not answer in time, refuses, or
            answers something else.
    """
    if formats.registry is None:
        return formats, ()
    access = replace(formats.registry, look_up_id=uuid.uuid4().hex)
    both, notes = {"key": formats.key, "value": formats.value}, list[str]()
    for name, each in formats.by_column.items():
        if not each.needs_lookup:
            continue
        registry = registry_of(access)
        schema = registry.schema_of_subject(each.subject, each.version, timeout_s)
        version = SchemaVersion(schema.version, schema.schema_id)
        both[name] = replace(each, schema=schema.text, version=version)
        if each.version.schema_id is not None:
            continue
        note = f"the column {name} has the schema of version {schema.version} of {each.subject}"
        note += f", schema id {schema.schema_id}"
        if each.version.version is None:
            note += (
                ", the latest one. The next start looks it up again, and a batch that runs again"
                f" then has the columns of that: set {name}SchemaVersion to {schema.version} to"
                " keep these"
            )
        notes.append(note)
    return replace(formats, registry=access, key=both["key"], value=both["value"]), tuple(notes)


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
            kind = _type_of(each)
        except SchemaError as error:
            what = f"the schema of {each.subject}" if each.subject else f"{name}Schema"
            raise OptionsError(f"{what}: {error}") from error
        schema = schema.set(place, pa.field(name, kind))
    if formats.on_undecodable is OnUndecodable.NULL:
        schema = schema.append(pa.field(UNDECODABLE, UNDECODABLE_TYPE))
    return schema


def _type_of(each: ColumnFormat) -> pa.DataType:
    if each.format is not Format.AVRO:
        return decoder_of(each, None).arrow_type
    # A driver does not wait for compiled code.
    if importlib.util.find_spec("numba") is None:
        raise OptionsError("Avro needs numba: install spark-groups[avro]")
    return arrow_type_of(parse_schema(each.schema, with_defaults=True))


def decoders_of(
    formats: RowFormats, *, timeout_s: float, memory_bytes: int
) -> Mapping[str, ColumnDecoder]:
    """Return the decoders of columns, by name; the caller has loaded the compiled code of Avro.

    Args:
        formats: With their schemas.
        timeout_s: How long to wait for a registry that is away, in seconds.
        memory_bytes: The memory of a task.
    """
    bytes_max = min(_BYTES_MAX, memory_bytes // 16)
    return {
        name: decoder_of(
            each,
            _schema_of_id(formats, name, timeout_s),
            bytes_max=bytes_max,
            record_bytes_max=min(memory_bytes // _RECORD_SHARE, 2**31 - 1),
        )
        for name, each in formats.by_column.items()
    }


def _schema_of_id(formats: RowFormats, name: str, timeout_s: float) -> SchemaOfId | None:
    """Return a function that looks writers' schemas up; None: records have no schema ids."""
    if formats.registry is None:
        return None
    reader = formats.by_column[name]
    kind = "PROTOBUF" if reader.format is Format.PROTOBUF else "AVRO"
    registry = registry_of(formats.registry, kind)
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
) -> ColumnDecoder:
    """Return the decoder of one column; the caller has loaded the compiled code of Avro.

    Args:
        each: Its format, with its schema.
        schema_of_id: Looks writers' schemas up; None: records have no schema ids.
        bytes_max: The most bytes of the decoded values of one call.
        record_bytes_max: The same, where one Avro record alone has more.

    Raises:
        SchemaError: The schema cannot be used.
        OptionsError: The format's library is missing.
    """
    match each.format:
        case Format.AVRO:
            from spark_groups.formats.avro.decoder import AvroDecoder  # noqa: PLC0415

            return AvroDecoder(
                each.schema,
                schema_of_id,
                bytes_max=bytes_max,
                record_bytes_max=record_bytes_max,
            )
        case Format.JSON:
            from spark_groups.formats.json_values import JsonDecoder  # noqa: PLC0415

            return JsonDecoder(each.schema, bytes_max=bytes_max, framed=schema_of_id is not None)
        case Format.PROTOBUF:
            from spark_groups.formats.protobuf_values import ProtobufDecoder  # noqa: PLC0415

            return ProtobufDecoder(
                base64.b64decode(each.schema), each.message, schema_of_id, bytes_max=bytes_max
            )
        case _:
            return TextDecoder()
