"""Decodes columns in plain Python, where compiled code is unavailable; the results are the same.

Each step becomes a function that reads a value at a position.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from spark_groups.formats.avro.instructions import EMPTY_ITEMS_MAX, LENGTH, REST, Op, Status, Store
from spark_groups.formats.avro.resolution import (
    Default,
    ReadBranch,
    ReadFields,
    ReadItems,
    ReadMember,
    ReadNull,
    ReadValue,
    Step,
    StepOfId,
)
from spark_groups.formats.avro.slots import Refusal, Slot

Read = Callable[["_Record", int], tuple[Any, int]]
"""Reads a value of a record at a position; returns it, and the position after it."""

_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)
_DIGITS: Final = Context(prec=80)
_FRAME: Final = struct.Struct(">bi")
_WORTH: Final = 8
"""How many bytes a decoded value may take for each of its record, roughly."""


class _RefusedError(Exception):
    def __init__(self, status: Status, slot: Slot | None) -> None:
        super().__init__()
        self.status, self.slot = status, -1 if slot is None else slot.index


class _Record:
    """The bytes of a record, and how many items and bytes of values it may still have."""

    __slots__ = ("bytes_left", "end", "items_left", "octets")

    def __init__(self, octets: bytes, at: int, bytes_max: float) -> None:
        self.octets, self.end, self.bytes_left = octets, len(octets), bytes_max
        self.items_left: float = self.end - at + EMPTY_ITEMS_MAX

    def take(self, size: int, slot: Slot | None) -> None:
        """Take room for a value that the bytes may not spell out."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise _RefusedError(Status.IS_TOO_LARGE, slot)


class PlainRows:
    """Decodes columns in plain Python.

    Args:
        root: The slots of the decoded column.
        own: How bytes without a frame are read; None: all have a frame.
        bytes_max: The most bytes of the decoded values of one call, roughly.
        record_bytes_max: The most bytes of one record's items and defaults, roughly.
    """

    def __init__(
        self, root: Slot, own: Step | None, *, bytes_max: int, record_bytes_max: int
    ) -> None:
        self._root, self._bytes_max = root, bytes_max
        self._record_bytes_max = record_bytes_max
        self._own = None if own is None else _reader(own, root)
        self.forget()

    def forget(self) -> None:
        """Forget all readers."""
        self._readers: dict[int, Read | None] = {}

    def forget_ids(self, schema_ids: Collection[int]) -> None:
        """Forget how records with some schema ids are read."""
        for each in schema_ids:
            self._readers.pop(each, None)

    def decode(self, column: pa.Array, step_of_id: StepOfId) -> tuple[pa.Array, dict[int, Refusal]]:
        """Decode the first rows of a column, or all; return the values, and the refused rows.

        Args:
            column: The bytes.
            step_of_id: Is asked once for each schema id.
        """
        values: list[Any] = []
        refused: dict[int, Refusal] = {}
        left: float = self._bytes_max
        for row, scalar in enumerate(column):
            octets, value = scalar.as_py(), None
            left -= _WORTH * len(octets or b"")
            if left < 0 and row:
                break
            if octets is not None:
                schema_id = -1
                try:
                    read, at = self._own, 0
                    if read is None:
                        schema_id, at = _frame(octets), _FRAME.size
                        read = self._reader_of(schema_id, step_of_id)
                    record = _Record(octets, at, self._record_bytes_max)
                    try:
                        value = _read_all(read, record, at)
                    finally:
                        left -= self._record_bytes_max - record.bytes_left
                except _RefusedError as error:
                    refused[row] = error.status, error.slot, schema_id
            values.append(value)
        return pa.array(values, self._root.type), refused

    def _reader_of(self, schema_id: int, step_of_id: StepOfId) -> Read:
        if schema_id not in self._readers:
            step = step_of_id(schema_id)
            self._readers[schema_id] = None if step is None else _reader(step, self._root)
        read = self._readers[schema_id]
        if read is None:
            raise _RefusedError(Status.SCHEMA_IS_REFUSED, None)
        return read


def _frame(octets: bytes) -> int:
    """Return the schema id before a record."""
    magic, schema_id = _FRAME.unpack_from(octets) if len(octets) >= _FRAME.size else (-1, -1)
    if magic != 0 or schema_id < 0:
        raise _RefusedError(Status.FRAME_IS_WRONG, None)
    return int(schema_id)


def _read_all(read: Read, record: _Record, at: int) -> Any:
    value, at = read(record, at)
    if at != record.end:
        raise _RefusedError(Status.HAS_BYTES_LEFT, None)
    return value


def _varint(record: _Record, at: int, slot: Slot | None) -> tuple[int, int]:
    value, shift, octets, end = 0, 0, record.octets, record.end
    while at < end and shift < 64:
        byte = octets[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise _RefusedError(Status.IS_TRUNCATED, slot)


def _reader(step: Step, slot: Slot | None) -> Read:  # noqa: PLR0911
    """Return what reads the values of a step for a slot, or skips them."""
    if isinstance(step, ReadValue):
        return _VALUES[step.op](step, slot)
    if isinstance(step, ReadItems):
        return _items_reader(step, slot)
    if isinstance(step, ReadFields):
        return _fields_reader(step, slot)
    if isinstance(step, ReadBranch):
        return _branch_reader([_reader(each, slot) for each in step.branches], slot)
    if isinstance(step, ReadMember) and slot is not None:
        name, read_member = f"member{step.index}", _reader(step.step, slot.children[step.index])

        def read(record: _Record, at: int) -> tuple[Any, int]:
            value, at = read_member(record, at)
            return {name: value}, at

        return read
    if isinstance(step, Default):
        size, literal = len(step.octets), _Record(step.octets, 0, float("inf"))
        literal.items_left = float("inf")
        default, _ = _reader(step.step, slot)(literal, 0)

        def read_default(record: _Record, at: int) -> tuple[Any, int]:
            record.take(size, slot)
            return default, at

        return read_default
    if isinstance(step, ReadNull):
        return lambda _, at: (None, at)

    def refuse(_: _Record, __: int) -> tuple[Any, int]:
        raise _RefusedError(Status.BRANCH_IS_UNKNOWN, slot)

    return refuse


def _items_reader(step: ReadItems, slot: Slot | None) -> Read:
    read_item = _reader(step.item, None if slot is None else slot.children[-1])
    below = [each for part in ([] if slot is None else slot.children) for each in part.all()]
    with_it = {index for part in ([] if slot is None else slot.children) for index in part.nulls}
    size = sum(each.bytes_of_value for each in below if each.index in with_it)
    key_step = ReadValue(Op.BYTES, LENGTH, int(slot is not None))
    read_key = _reader(key_step, None if slot is None else slot.children[0])

    def read(record: _Record, at: int) -> tuple[Any, int]:
        items: list[Any] = []
        while True:
            count, at = _block(record, at, slot)
            if count == 0:
                return items, at
            for _ in range(count):
                record.take(size, slot)
                if step.is_map:
                    key, at = read_key(record, at)
                    item, at = read_item(record, at)
                    items.append((key, item))
                else:
                    item, at = read_item(record, at)
                    items.append(item)

    return read


def _block(record: _Record, at: int, slot: Slot | None) -> tuple[int, int]:
    count, at = _varint(record, at, slot)
    if count < 0:
        size, at = _varint(record, at, slot)
        count = -count
        if count not in _LONG or not 0 <= size <= record.end - at:
            raise _RefusedError(Status.LENGTH_IS_WRONG, slot)
    if count > record.items_left:
        raise _RefusedError(Status.TOO_MANY_ITEMS, slot)
    record.items_left -= count
    return count, at


def _fields_reader(step: ReadFields, slot: Slot | None) -> Read:
    names = [] if slot is None else [field.name for field in slot.type]
    readers = [
        (names[index], _reader(each, slot.children[index]))
        if slot is not None and index >= 0
        else (None, _reader(each, None))
        for index, each in step.fields
    ]

    def read(record: _Record, at: int) -> tuple[Any, int]:
        values = {}
        for name, read_field in readers:
            values[name], at = read_field(record, at)
        values.pop(None, None)
        return values, at

    return read


def _branch_reader(readers: list[Read], slot: Slot | None) -> Read:
    def read(record: _Record, at: int) -> tuple[Any, int]:
        branch, at = _varint(record, at, slot)
        if not 0 <= branch < len(readers):
            raise _RefusedError(Status.BRANCH_IS_WRONG, slot)
        return readers[branch](record, at)

    return read


def _number_reader(step: ReadValue, slot: Slot | None) -> Read:
    is_int, store = step.op is Op.INT, step.y

    def read(record: _Record, at: int) -> tuple[Any, int]:
        value, at = _varint(record, at, slot)
        if is_int and value not in _INT:
            raise _RefusedError(Status.INT_IS_TOO_LARGE, slot)
        if store == Store.MILLIS_TO_MICROS:
            value *= 1000
            if value not in _LONG:
                raise _RefusedError(Status.TIMESTAMP_IS_TOO_LARGE, slot)
        elif store == Store.FLOAT32:
            return float(np.float32(np.int64(value))), at
        elif store == Store.FLOAT64:
            return float(value), at
        return value, at

    return read


def _real_reader(step: ReadValue, slot: Slot | None) -> Read:
    form = struct.Struct("<f" if step.op is Op.FLOAT else "<d")

    def read(record: _Record, at: int) -> tuple[Any, int]:
        if form.size > record.end - at:
            raise _RefusedError(Status.IS_TRUNCATED, slot)
        return form.unpack_from(record.octets, at)[0], at + form.size

    return read


def _boolean_reader(_: ReadValue, slot: Slot | None) -> Read:
    def read(record: _Record, at: int) -> tuple[Any, int]:
        if at >= record.end:
            raise _RefusedError(Status.IS_TRUNCATED, slot)
        if record.octets[at] > 1:
            raise _RefusedError(Status.BOOLEAN_IS_WRONG, slot)
        return record.octets[at] == 1, at + 1

    return read


def _octets_reader(step: ReadValue, slot: Slot | None) -> Read:
    has_length = step.x == LENGTH
    is_text = slot is not None and step.y == 1

    def read(record: _Record, at: int) -> tuple[Any, int]:
        size = record.end - at if step.x == REST else step.x
        if has_length:
            size, at = _varint(record, at, slot)
        if not 0 <= size <= record.end - at:
            raise _RefusedError(Status.LENGTH_IS_WRONG, slot)
        octets = record.octets[at : at + size]
        if not is_text:
            return octets, at + size
        try:
            return octets.decode("utf-8"), at + size
        except UnicodeDecodeError:
            raise _RefusedError(Status.TEXT_IS_NOT_UTF8, slot) from None

    return read


def _decimal_reader(step: ReadValue, slot: Slot | None) -> Read:
    read_octets = _octets_reader(ReadValue(Op.BYTES, step.x), slot)
    scale = slot.type.scale if slot is not None and kinds.is_decimal(slot.type) else 0

    def read(record: _Record, at: int) -> tuple[Any, int]:
        octets, at = read_octets(record, at)
        number = int.from_bytes(octets, "big", signed=True)
        if not octets or abs(number) >= 10**step.y:
            raise _RefusedError(Status.DECIMAL_IS_TOO_LONG, slot)
        return Decimal(number).scaleb(-scale, _DIGITS), at

    return read


def _symbol_reader(step: ReadValue, slot: Slot | None) -> Read:
    def read(record: _Record, at: int) -> tuple[Any, int]:
        number, at = _varint(record, at, slot)
        if not 0 <= number < len(step.symbols):
            raise _RefusedError(Status.SYMBOL_IS_WRONG, slot)
        symbol = step.symbols[number]
        if symbol is None:
            raise _RefusedError(Status.SYMBOL_IS_UNKNOWN, slot)
        return symbol, at

    return read


_VALUES: Final[dict[Op, Callable[[ReadValue, Slot | None], Read]]] = {
    Op.INT: _number_reader,
    Op.LONG: _number_reader,
    Op.FLOAT: _real_reader,
    Op.DOUBLE: _real_reader,
    Op.BOOLEAN: _boolean_reader,
    Op.BYTES: _octets_reader,
    Op.DECIMAL: _decimal_reader,
    Op.ENUM: _symbol_reader,
}
