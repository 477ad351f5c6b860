"""Values that are Protobuf messages, as columns: what Spark's `from_protobuf` gives.

ptars decodes all values of a batch in one pass. Where it refuses the batch, halves are tried.

An enum is the name of its value, and a number that has no name stays one, as text. A field that has
no presence and is not there is zero or empty, a field with presence is null. Timestamps, durations
and the wrappers of Google's standard messages are times, intervals and plain values; `uint32` is
bigint, and `uint64` decimal(20,0). Messages without fields are left out.

It differs from `from_protobuf`:

- A field without presence is zero or empty as with `emit.default.values`, which Spark does not set.
- Wrappers are plain values, and unsigned numbers are never negative.
- A default that a schema of proto2 names is not filled in: the field is null.
- Of several values of one oneof each is kept, and a message that comes twice is not merged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from spark_groups.errors import SchemaError, UnknownSchemaIdError, needs
from spark_groups.formats.columns import RowLimit, has_far_times, with_nulls, without
from spark_groups.formats.ddl import ddl_of
from spark_groups.formats.decoding import DecodedColumn, SchemaOfId, Undecodable
from spark_groups.formats.frames import FRAME_BYTES, behind, schema_id_of, unframed

_PREFIX: Final = "failed to decode Protobuf message: "
LONG_BYTES: Final = 16 * 1024
"""A message as long as this may have groups nested so deep that ptars overflows its stack."""
_IDS_MAX: Final = 2_000
"""Of how many schemas a decoder knows where they have its message."""


class ProtobufDecoder:
    """Decodes values that are messages of one type; it requires the extra `protobuf`.

    Args:
        descriptor_set: A serialized `FileDescriptorSet`, as `protoc --descriptor_set_out` makes it
            with `--include_imports`; Google's standard files may be missing.
        message_name: The full name of the message.
        schema_of_id: Returns a writer's schema, as registries do, by the id in front of each value,
            behind which message indexes stand; None: values are bare.
        bytes_max: About how much memory the values of one call may take.

    Raises:
        OptionsError: The extra is not installed.
        SchemaError: The set cannot be used, lacks the message, or rows cannot have the message.
    """

    def __init__(
        self,
        descriptor_set: bytes,
        message_name: str,
        schema_of_id: SchemaOfId | None = None,
        *,
        bytes_max: int,
    ) -> None:
        with needs("protobuf"):
            import ptars  # noqa: PLC0415

            from spark_groups.formats import protobuf_schemas  # noqa: PLC0415
        message = protobuf_schemas.message_of(descriptor_set, message_name)
        self._fault_of = protobuf_schemas.fault_finder(message)
        settings = ptars.PtarsConfig(
            timestamp_unit="us", duration_unit="us", enum_repr="string", list_value_name="element"
        )
        with _panics_as("ptars cannot read the descriptor set", SchemaError):
            self._handler = ptars.HandlerPool([message.file], settings).get_for_message(message)
        self.arrow_type = _wanted(pa.struct(list(self._handler.schema())))
        ddl_of(self.arrow_type)
        self._limit = RowLimit(self.arrow_type, 1, protobuf_schemas.longest_enum_name(message))
        self._bytes_max = bytes_max
        self._name = message_name
        self._is_framed = schema_of_id is not None

        @lru_cache(_IDS_MAX)
        def prefixes(schema_id: int) -> tuple[bytes, ...]:
            assert schema_of_id is not None
            return protobuf_schemas.index_prefixes(schema_of_id(schema_id), message_name)

        self._prefixes = prefixes

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode the first records of a batch, or all.

        Args:
            column: The bytes, null where a record has none.
        """
        column = column.slice(0, self._limit.rows(column, self._bytes_max))
        bodies, refused = unframed(column) if self._is_framed else (column, {})
        faults: dict[int, str] = {}
        if self._is_framed:
            bodies = self._without_indexes(column, bodies, faults)
        is_long = pc.fill_null(pc.greater(pc.binary_length(bodies), LONG_BYTES), False)
        for row in pc.indices_nonzero(is_long).to_pylist():
            fault = self._fault_of(bodies[row].as_py())
            if fault:
                faults[row] = fault
        bodies = without(bodies, faults)
        try:
            values = self._values(bodies)
        except ValueError:
            found = self._faults(bodies)
            faults |= found
            bodies = without(bodies, found)
            values = self._values(bodies)
        for row, reason in faults.items():
            schema_id = schema_id_of(column[row].as_py()) if self._is_framed else None
            refused[row] = Undecodable(f"it is no message {self._name}: {reason}", schema_id)
        return DecodedColumn(with_nulls(values, bodies), dict(sorted(refused.items())))

    def _without_indexes(
        self, column: pa.Array, bodies: pa.Array, faults: dict[int, str]
    ) -> pa.Array:
        """Return the messages; those that are of another type in their schema are faults."""
        ids = pc.if_else(bodies.is_valid(), pc.binary_slice(column, 0, FRAME_BYTES), None)
        ids_of: dict[bytes, list[bytes]] = {}
        unknown: dict[bytes, str] = {}
        for each in ids.unique().drop_null().to_pylist():
            try:
                for prefix in self._prefixes(schema_id_of(each)):
                    ids_of.setdefault(prefix, []).append(each)
            except UnknownSchemaIdError as error:  # noqa: PERF203
                unknown[each] = f"its schema is unknown: {error}"
        found = pa.nulls(len(bodies), bodies.type)
        for prefix, known in ids_of.items():
            is_known = pc.is_in(ids, pa.array(known, ids.type))
            is_one = pc.and_(is_known, pc.starts_with(bodies, prefix))
            found = pc.coalesce(found, behind(bodies, is_one, len(prefix)))
        is_other = pc.and_(found.is_null(), bodies.is_valid())
        for row in pc.indices_nonzero(is_other).to_pylist():
            why = unknown.get(ids[row].as_py())
            faults[row] = why or "the schema id and message indexes in its frame name another one"
        return found

    def _faults(self, bodies: pa.Array, first_row: int = 0) -> dict[int, str]:
        """Return why rows cannot be decoded, by row."""
        try:
            self._read(bodies.drop_null())
        except ValueError as error:
            if len(bodies) == 1:
                return {first_row: str(error).removeprefix(_PREFIX)}
            half = len(bodies) // 2
            behind = self._faults(bodies.slice(half), first_row + half)
            return self._faults(bodies.slice(0, half), first_row) | behind
        return {}

    def _values(self, bodies: pa.Array) -> pa.Array:
        """Return the decoded messages of the rows that are not null.

        Raises:
            ValueError: One of them cannot be decoded.
        """
        return pc.cast(self._read(bodies.drop_null()), self.arrow_type)

    def _read(self, present: pa.Array) -> pa.Array:
        with _panics_as("a length in it is beyond its end", ValueError):
            batch = self._handler.array_to_record_batch(present)
        found = batch.to_struct_array()
        if has_far_times(found):
            raise ValueError("a time in it is outside the years 1 to 9999")
        return found


@contextlib.contextmanager
def _panics_as(message: str, kind: type[Exception]) -> Iterator[None]:
    """Raise an error in place of one of Rust's panics, which Python does not catch as errors."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise kind(message) from error


def _wanted(read: pa.DataType) -> pa.DataType:
    """Return Spark's type of what ptars reads; all of it may be null."""
    if kinds.is_struct(read):
        fields = [
            (each.name, _wanted(each.type))
            for each in read
            if not kinds.is_struct(each.type) or each.type.num_fields
        ]
        return pa.struct(fields)
    if kinds.is_map(read):
        return pa.map_(_wanted(read.key_type), _wanted(read.item_type))
    if kinds.is_list(read):
        return pa.list_(pa.field("element", _wanted(read.value_type)))
    return {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}.get(read, read)
