"""Decodes columns of Avro records, each with its writer's schema, into values of a reader's.

Source of the frame: Confluent's documentation, Wire format.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from spark_groups.errors import SchemaError, UnknownSchemaIdError
from spark_groups.formats.avro.arrow_types import arrow_type_of
from spark_groups.formats.avro.instructions import REASONS, REST, Status
from spark_groups.formats.avro.plain_rows import PlainRows
from spark_groups.formats.avro.resolution import Step, check_defaults, resolve, steps_in
from spark_groups.formats.avro.schema import Primitive, parse_schema
from spark_groups.formats.avro.slots import slot_of
from spark_groups.formats.decoding import DecodedColumn, SchemaOfId, Undecodable

_COMPILED: Final = "spark_groups.formats.avro.compiled_rows"
STEPS_MAX: Final = 500_000
"""About the most steps of all writers' schemas that are kept."""
_STEPS_OF_A_SCHEMA: Final = 100
"""As many more is a schema worth."""


class AvroDecoder:
    """Decodes a column of Avro records; a `ColumnDecoder`.

    Args:
        reader_schema: The schema of the decoded values, in JSON.
        schema_of_id: Returns a writer's schema by the id in front of each value (a zero byte and
            the id in 4 bytes, as Confluent's serializers write them); None: values are bare, and
            their schema is the reader's.
        bytes_max: The most bytes of the decoded values of one call.
        record_bytes_max: The same, where one record alone has more; None: it is refused.
        compiled: Whether to use compiled code, which the caller has prepared.

    Raises:
        SchemaError: The reader's schema is malformed, or no column can have its type.
    """

    def __init__(
        self,
        reader_schema: str,
        schema_of_id: SchemaOfId | None,
        *,
        bytes_max: int,
        record_bytes_max: int | None = None,
        compiled: bool,
    ) -> None:
        record_bytes_max = record_bytes_max or bytes_max
        if not 0 < bytes_max <= record_bytes_max < 2**31:
            raise ValueError("the limit of decoded values must be positive and fit 31 bits")
        self._reader = parse_schema(reader_schema)
        self.arrow_type: pa.DataType = arrow_type_of(self._reader)
        check_defaults(self._reader)
        self._root = slot_of(self.arrow_type)
        self._paths = [slot.path for slot in self._root.all()]
        self._schema_of_id = schema_of_id
        self._reasons: dict[int, str] = {}
        self._unknown: set[int] = set()
        self._steps = 0
        own = resolve(self._reader, self._reader) if schema_of_id is None else None
        kind: Any = PlainRows
        if compiled:
            kind = importlib.import_module(_COMPILED).CompiledRows
        self._rows = kind(self._root, own, bytes_max=bytes_max, record_bytes_max=record_bytes_max)

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode the first records of a batch, or all.

        Args:
            column: The bytes (`pa.binary()`), null where a record has none.

        Raises:
            SchemaLookupError: A schema cannot be looked up now.
        """
        if not len(column):
            return DecodedColumn(pa.nulls(0, self.arrow_type))
        if self._steps > STEPS_MAX:
            self._steps = 0
            self._reasons.clear()
            self._rows.forget()
        values, refused = self._rows.decode(column, self._step_of_id)
        reasons = {row: self._undecodable(*refused[row]) for row in sorted(refused)}
        # They may be registered before the next call.
        self._rows.forget_ids(self._unknown)
        self._unknown.clear()
        return DecodedColumn(values, reasons)

    def _step_of_id(self, schema_id: int) -> Step | None:
        """Return how records of a schema are read; None: they are refused."""
        assert self._schema_of_id is not None
        self._steps += _STEPS_OF_A_SCHEMA
        try:
            writer = parse_schema(self._schema_of_id(schema_id))
            if isinstance(writer, Primitive) and writer.type == "bytes":
                # The one exception of the wire format: they are not encoded.
                writer = replace(writer, size=REST)
            step = resolve(writer, self._reader)
        except UnknownSchemaIdError as error:
            self._unknown.add(schema_id)
            self._reasons[schema_id] = f"its schema is unknown: {error}"
        except SchemaError as error:
            self._reasons[schema_id] = f"its schema does not fit that of the rows: {error}"
        else:
            self._steps += steps_in(step)
            return step
        return None

    def _undecodable(self, status: Status, slot: int, schema_id: int) -> Undecodable:
        reason = REASONS.get(status) or self._reasons[schema_id]
        path = self._paths[slot] if slot >= 0 else ""
        if path:
            reason = f"{path}: {reason}"
        return Undecodable(reason, None if schema_id < 0 else schema_id)
