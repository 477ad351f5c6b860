"""Decodes columns of Avro records, each with its writer's schema, into values of a reader's.

Its import compiles the interpreter, unless `spark/reading/compiled.py` has loaded that before.

Source of the frame: Confluent's documentation, Wire format.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from spark_groups.errors import SchemaError, UnknownSchemaIdError
from spark_groups.formats.avro.arrow_types import arrow_type_of
from spark_groups.formats.avro.instructions import (
    AT_SLOT,
    CURSOR_NUMBERS,
    NEEDED_BYTES,
    PLACE,
    REASONS,
    REST,
    ROW,
    SCHEMA_ID,
    Status,
)
from spark_groups.formats.avro.interpreter import decode_rows
from spark_groups.formats.avro.program import Programs
from spark_groups.formats.avro.resolution import resolve
from spark_groups.formats.avro.schema import Primitive, parse_schema
from spark_groups.formats.avro.slots import SlotBuffers, slot_of
from spark_groups.formats.decoding import DecodedColumn, SchemaOfId, Undecodable

PROGRAM_NUMBERS_MAX: Final = 2_000_000
"""About the most numbers of all programs that are kept."""
_NUMBERS_OF_AN_ID: Final = 400
"""As many more is a schema id worth."""
_FIRST_IDS: Final = 64
_REFUSED: Final = -1


class AvroDecoder:
    """Decodes a column of Avro records; a `ColumnDecoder`.

    Args:
        reader_schema: The schema of the decoded values, in JSON.
        schema_of_id: Returns a writer's schema by the id in front of each value (a zero byte and
            the id in 4 bytes, as Confluent's serializers write them); None: values are bare, and
            their schema is the reader's.
        bytes_max: The most bytes of the decoded values of one call.
        record_bytes_max: The same, where one record alone has more; None: it is refused.

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
    ) -> None:
        self._bytes_max, self._record_bytes_max = bytes_max, record_bytes_max or bytes_max
        if not 0 < bytes_max <= self._record_bytes_max < 2**31:
            raise ValueError("the limit of decoded values must be positive and fit 31 bits")
        self._reader = parse_schema(reader_schema, with_defaults=True)
        self.arrow_type: pa.DataType = arrow_type_of(self._reader)
        self._root = slot_of(self.arrow_type)
        self._paths = [slot.path for slot in self._root.all()]
        self._used = np.zeros((len(self._paths), 2))
        self._schema_of_id = schema_of_id
        self._forget()

    def _forget(self) -> None:
        """Forget how records are read, and make an empty hash table of schema ids."""
        self._programs = Programs(self._root)
        self._places: dict[int, int] = {}
        self._reasons: dict[int, str] = {}
        self._ids = np.full(_FIRST_IDS, -1, np.int64)
        self._places_of = np.zeros(_FIRST_IDS, np.int64)
        if self._schema_of_id is None:
            self._enter(0, self._programs.place_of(resolve(self._reader, self._reader)))

    def _enter(self, schema_id: int, place: int) -> None:
        """Enter a schema id into the hash table, which stays at most half full."""
        self._places[schema_id] = place
        entered = {schema_id: place}
        if 2 * len(self._places) > len(self._ids):
            entered, size = self._places, 2 * len(self._ids)
            self._ids, self._places_of = np.full(size, -1, np.int64), np.zeros(size, np.int64)
        mask = len(self._ids) - 1
        for each, its_place in entered.items():
            index = each & mask
            while self._ids[index] >= 0:
                index = index + 1 & mask
            self._ids[index], self._places_of[index] = each, its_place

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode the first records of a batch, or all.

        Args:
            column: The bytes (`pa.binary()`), null where a record has none.

        Raises:
            SchemaLookupError: A schema cannot be looked up now.
        """
        if not len(column):
            return DecodedColumn(pa.nulls(0, self.arrow_type))
        kept = self._programs.size + _NUMBERS_OF_AN_ID * len(self._places)
        if kept > PROGRAM_NUMBERS_MAX:
            self._forget()
        # They may be registered before the next call.
        self._unknown: dict[int, str] = {}
        refused: dict[int, Undecodable] = {}
        buffers = SlotBuffers(self._root, len(column), self._bytes_max, self._used)
        rows = self._fill(buffers, column, refused, alone=False)
        if rows:
            self._used = buffers.used(rows)
        else:
            buffers = SlotBuffers(self._root, 1, self._record_bytes_max, 0 * self._used)
            rows = self._fill(buffers, column[:1], refused, alone=True)
        return DecodedColumn(buffers.take(rows), refused)

    def _fill(
        self,
        buffers: SlotBuffers,
        column: pa.Array,
        refused: dict[int, Undecodable],
        *,
        alone: bool,
    ) -> int:
        """Decode the first rows into buffers, and return how many; 0: the first is too large."""
        present = np.ones(len(column), np.bool_)
        if column.null_count:
            present = np.array(column.is_valid().to_numpy(zero_copy_only=False))
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
        octets = column.buffers()[2]
        begin, size = (0, 0) if octets is None else (octets.address, octets.size)
        cursor, programs = np.zeros(CURSOR_NUMBERS, np.int64), self._programs
        cursor[PLACE] = -1
        while True:
            status = Status(
                decode_rows(
                    begin,
                    size,
                    offsets,
                    present,
                    self._schema_of_id is not None,
                    self._ids,
                    self._places_of,
                    programs.null_place,
                    programs.code,
                    buffers.table,
                    programs.counters,
                    programs.literals.ctypes.data,
                    len(programs.literals),
                    cursor,
                )
            )
            row, slot, schema_id = (int(cursor[each]) for each in (ROW, AT_SLOT, SCHEMA_ID))
            if status is Status.DONE:
                return row
            if status is Status.ID_IS_NEW:
                if self._learns(schema_id):
                    continue
                status = Status.SCHEMA_IS_REFUSED
            if status is Status.SLOT_IS_FULL:
                if buffers.grow(slot, int(cursor[NEEDED_BYTES])):
                    continue
                if not alone:
                    buffers.roll_back(row)
                    return row
                status = Status.IS_TOO_LARGE
            buffers.roll_back(row)
            cursor[PLACE] = -1
            refused[row] = self._undecodable(status, slot, schema_id)
            present[row] = False

    def _learns(self, schema_id: int) -> bool:
        """Enter how records of a schema are read, and return whether the schema is known."""
        assert self._schema_of_id is not None
        if schema_id in self._unknown:
            return False
        try:
            writer = parse_schema(self._schema_of_id(schema_id))
            if isinstance(writer, Primitive) and writer.type == "bytes":
                # The one exception of the wire format: they are not encoded.
                writer = replace(writer, size=REST)
            place = self._programs.place_of(resolve(writer, self._reader))
        except UnknownSchemaIdError as error:
            self._unknown[schema_id] = f"its schema is unknown: {error}"
            return False
        except SchemaError as error:
            place = _REFUSED
            self._reasons[schema_id] = f"its schema does not fit that of the rows: {error}"
        self._enter(schema_id, place)
        return True

    def _undecodable(self, status: Status, slot: int, schema_id: int) -> Undecodable:
        reason = REASONS.get(status) or self._unknown.get(schema_id) or self._reasons[schema_id]
        path = self._paths[slot] if slot >= 0 else ""
        if path:
            reason = f"{path}: {reason}"
        return Undecodable(reason, None if schema_id < 0 else schema_id)
