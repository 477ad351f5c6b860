"""Decodes Avro's bytes into the buffers of slots: compiled code that interprets programs.

Every position is checked before a byte is read, and every slot's room before a value is stored. A
reader that fails returns a position after the end.

Source: the specification of Apache Avro 1.12, Binary Encoding.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import boolean, int64, typeof

from spark_groups.formats.avro import instructions as names
from spark_groups.formats.avro.instructions import EMPTY_ITEMS_MAX, Op, Status, Store
from spark_groups.records.compiling import compiled, entry_point
from spark_groups.records.memory import (
    copy,
    copy_16,
    load_8,
    load_32,
    load_64,
    store_8,
    store_32,
    store_64,
    store_double,
    store_float,
)

_FRAME_BYTES: Final = 5
_NO_ID: Final = -1
_IS_NEW: Final = -2
_INT_MAX: Final = 2**31 - 1
_THOUSANDS_MAX: Final = (2**63 - 1) // 1000
_NUMBERS: Final = typeof(np.empty(1, np.int64))
_OFFSETS: Final = typeof(np.frombuffer(b"1234", np.int32))
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_HIGH_BITS_OF: Final = np.array(
    [0x8080808080808080 & (1 << 8 * n) - 1 for n in range(9)], np.uint64
)
"""The high bits of the first bytes of a word, by their number."""
_LIMITS: Final = np.array(
    [(10**digits >> 64, 10**digits & 0xFFFFFFFFFFFFFFFF) for digits in range(39)], np.uint64
)
"""Above the largest decimal, in two halves, by its precision."""


@compiled
def _varint(base: Any, at: Any, end: Any) -> Any:
    """Read a number in zigzag encoding: the number, and the position after it."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < np.uint64(64):
        byte = load_8(base + at)
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if shift == np.uint64(63) and byte > np.uint64(1):
                break
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), end + 1


@compiled
def _follows(address: Any, size: Any, low: Any, high: Any) -> bool:
    """Return whether a lead byte is followed by a byte in a range, then by continuation bytes."""
    second = np.int64(load_8(address + 1))
    if second < low or second > high:
        return False
    for index in range(2, size):
        if load_8(address + index) & np.uint64(0xC0) != np.uint64(0x80):
            return False
    return True


@compiled
def _is_utf8(address: Any, size: Any) -> Any:
    """Return whether bytes are UTF-8, as the Unicode standard's table 3-7 has it."""
    at = 0
    while at < size:
        if at + 8 <= size and load_64(address + at) & _HIGH_BITS == np.uint64(0):
            at += 8
            continue
        lead: Any = np.int64(load_8(address + at))
        if lead < 0x80:
            at += 1
            continue
        count = 2 + (lead >= 0xE0) + (lead >= 0xF0)
        if lead < 0xC2 or lead > 0xF4 or count > size - at:
            return False
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if not _follows(address + at, count, low, high):
            return False
        at += count
    return True


@compiled
def _read_number(base: Any, at: Any, end: Any, op: Any, slot: Any, store: Any, slots: Any) -> Any:
    """Read an int or a long."""
    value, at = _varint(base, at, end)
    if at > end:
        return Status.IS_TRUNCATED, at
    if op == Op.INT and (value > _INT_MAX or value < -_INT_MAX - 1):
        return Status.INT_IS_TOO_LARGE, at
    if store == Store.NOTHING:
        return Status.DONE, at
    used, values = slots[slot, names.USED], slots[slot, names.VALUES]
    if store == Store.INT64:
        store_64(values + 8 * used, value)
    elif store == Store.INT32:
        store_32(values + 4 * used, value)
    elif store == Store.MILLIS_TO_MICROS:
        if value > _THOUSANDS_MAX or value < -_THOUSANDS_MAX:
            return Status.TIMESTAMP_IS_TOO_LARGE, at
        store_64(values + 8 * used, 1000 * value)
    elif store == Store.FLOAT64:
        store_double(values + 8 * used, np.float64(value))
    else:
        store_float(values + 4 * used, np.float32(value))
    slots[slot, names.USED] = used + 1
    return Status.DONE, at


@compiled
def _read_real(base: Any, at: Any, end: Any, op: Any, slot: Any, store: Any, slots: Any) -> Any:
    """Read a float, a double or a boolean."""
    size = 8 if op == Op.DOUBLE else 4 if op == Op.FLOAT else 1
    if size > end - at:
        return Status.IS_TRUNCATED, at
    used, values = slots[slot, names.USED], slots[slot, names.VALUES]
    if op == Op.DOUBLE:
        store_64(values + 8 * used, np.int64(load_64(base + at)))
    elif op == Op.BOOLEAN:
        truth = load_8(base + at)
        if truth > np.uint64(1):
            return Status.BOOLEAN_IS_WRONG, at
        store_8(values + used, np.int64(truth))
    elif store == Store.FLOAT32:
        store_32(values + 4 * used, np.int64(load_32(base + at)))
    else:
        number = np.uint32(load_32(base + at)).view(np.float32)
        store_double(values + 8 * used, np.float64(number))
    slots[slot, names.USED] = used + 1
    return Status.DONE, at + size


@compiled
def _append_octets(
    address: Any, size: Any, room: Any, slot: Any, is_text: Any, slots: Any, cursor: Any
) -> Any:
    """Append bytes to a slot, from an address where `room` bytes may be read."""
    used, ends = slots[slot, names.USED], slots[slot, names.VALUES]
    begin = np.int64(load_32(ends + 4 * used))
    if begin + size > slots[slot, names.DATA_BYTES]:
        cursor[names.NEEDED_BYTES] = begin + size
        return Status.SLOT_IS_FULL
    target = slots[slot, names.DATA] + begin
    is_plain = False
    if size <= 16 and room >= 16:
        # There is slack behind the data, and the next copy overwrites the surplus.
        copy_16(target, address)
        high = load_64(address) & _HIGH_BITS_OF[min(size, 8)]
        high |= load_64(address + 8) & _HIGH_BITS_OF[max(size, 8) - 8]
        is_plain = high == np.uint64(0)
    else:
        copy(target, address, size)
    if is_text != 0 and not is_plain and not _is_utf8(address, size):
        return Status.TEXT_IS_NOT_UTF8
    store_32(ends + 4 * used + 4, begin + size)
    slots[slot, names.USED] = used + 1
    return Status.DONE


@compiled
def _append_decimal(address: Any, size: Any, slot: Any, precision: Any, slots: Any) -> Any:
    """Append a big-endian number of any size as one of 128 bits."""
    if size == 0:
        return Status.DECIMAL_IS_TOO_LONG
    is_negative = load_8(address) >= np.uint64(0x80)
    sign = np.uint64(0xFF) if is_negative else np.uint64(0)
    high = ~np.uint64(0) if is_negative else np.uint64(0)
    low = high
    for index in range(size):
        if high >> np.uint64(56) != sign:
            return Status.DECIMAL_IS_TOO_LONG
        high = high << np.uint64(8) | low >> np.uint64(56)
        low = low << np.uint64(8) | load_8(address + index)
    high_size, low_size = high, low
    if is_negative:
        high_size, low_size = ~high, ~low + np.uint64(1)
        if low_size == np.uint64(0):
            high_size += np.uint64(1)
    above, below = _LIMITS[precision, 0], _LIMITS[precision, 1]
    if high_size > above or (high_size == above and low_size >= below):
        return Status.DECIMAL_IS_TOO_LONG
    values = slots[slot, names.VALUES] + 16 * slots[slot, names.USED]
    store_64(values, np.int64(low))
    store_64(values + 8, np.int64(high))
    slots[slot, names.USED] += 1
    return Status.DONE


@compiled
def _append_null(slot: Any, slots: Any) -> None:
    used = slots[slot, names.USED]
    width, values = slots[slot, names.WIDTH], slots[slot, names.VALUES]
    if width == names.ENDS:
        store_32(values + 4 * used + 4, np.int64(load_32(values + 4 * used)))
    elif width == 4:
        store_32(values + 4 * used, 0)
    elif width == 1:
        store_8(values + used, 0)
    else:
        for index in range(width // 8):
            store_64(values + width * used + 8 * index, 0)
    store_8(slots[slot, names.HAS] + used, 0)
    slots[slot, names.USED] = used + 1


@compiled
def _append_nulls(code: Any, place: Any, count: Any, slots: Any, cursor: Any) -> Any:
    """Append a null to each slot of a table, or to none."""
    for index in range(place, place + count):
        slot = np.int64(code[index])
        if slots[slot, names.USED] >= slots[slot, names.CAPACITY]:
            cursor[names.AT_SLOT] = slot
            return Status.SLOT_IS_FULL
    for index in range(place, place + count):
        _append_null(np.int64(code[index]), slots)
    return Status.DONE


@compiled
def _end_items(slot: Any, items: Any, slots: Any) -> Any:
    """Append the end of an array or a map, unless it is skipped."""
    if slot < 0:
        return Status.DONE
    used, ends = slots[slot, names.USED], slots[slot, names.VALUES]
    begin = np.int64(load_32(ends + 4 * used))
    if items > _INT_MAX - begin:
        return Status.SLOT_IS_FULL
    store_32(ends + 4 * used + 4, begin + items)
    slots[slot, names.USED] = used + 1
    return Status.DONE


@compiled
def _read_block(base: Any, at: Any, end: Any, items_left: Any) -> Any:
    """Return the status and the number of items of a block, and where they begin."""
    count, at = _varint(base, at, end)
    if count < 0:
        size, at = _varint(base, at, end)
        count = -count
        if at <= end and (count < 0 or size < 0 or size > end - at):
            return Status.LENGTH_IS_WRONG, np.int64(0), at
    if at > end:
        return Status.IS_TRUNCATED, np.int64(0), at
    if count > items_left:
        return Status.TOO_MANY_ITEMS, np.int64(0), at
    return Status.DONE, np.int64(count), at


@compiled
def _read_value(state: Any, op: Any, slot: Any, x: Any, y: Any, slots: Any, cursor: Any) -> Any:
    """Read a value of one slot, and return the status and the position after it."""
    base, at, end, base_end, _ = state
    if op <= Op.LONG:
        return _read_number(base, at, end, op, slot, y, slots)
    if op <= Op.BOOLEAN:
        return _read_real(base, at, end, op, slot, y, slots)
    size = end - at if x == names.REST else x
    if x == names.LENGTH:
        size, at = _varint(base, at, end)
        if at > end:
            return Status.IS_TRUNCATED, at
    if size < 0 or size > end - at:
        return Status.LENGTH_IS_WRONG, at
    status = Status.DONE
    if op == Op.DECIMAL:
        status = _append_decimal(base + at, size, slot, y, slots)
    elif slot >= 0:
        status = _append_octets(base + at, size, base_end - at, slot, y, slots, cursor)
    return status, at + size


@compiled
def _append_symbol(symbol: Any, place: Any, count: Any, slot: Any, tables: Any) -> Any:
    """Append the text of an enum's symbol, which a table of instructions has."""
    code, slots, _, literals, literals_end, cursor = tables
    if symbol < 0 or symbol >= count:
        return Status.SYMBOL_IS_WRONG
    begin, size = np.int64(code[place + 2 * symbol]), np.int64(code[place + 2 * symbol + 1])
    if begin < 0:
        return Status.SYMBOL_IS_UNKNOWN
    return _append_octets(literals + begin, size, literals_end - begin, slot, 0, slots, cursor)


@compiled
def _read_branch(base: Any, at: Any, end: Any, count: Any) -> Any:
    """Return the status and the number of a union's branch, and the position after it."""
    branch, at = _varint(base, at, end)
    if at > end:
        return Status.IS_TRUNCATED, np.int64(0), at
    if branch < 0 or branch >= count:
        return Status.BRANCH_IS_WRONG, np.int64(0), at
    return Status.DONE, branch, at


@compiled
def _state(cursor: Any, index: Any) -> Any:
    """Return a state of `_run` that the cursor has."""
    at = names.STATE + index
    return cursor[at], cursor[at + 1], cursor[at + 2], cursor[at + 3], cursor[at + 4]


@compiled
def _keep_state(cursor: Any, place: Any, state: Any, record: Any) -> None:
    cursor[names.PLACE] = place
    for index in range(5):
        cursor[names.STATE + index] = state[index]
        cursor[names.STATE + 5 + index] = record[index]


@compiled
def _run(state: Any, record: Any, place: Any, tables: Any) -> Any:
    """Run a program over the bytes of a record, and return a status.

    The state is an address, a position after it, the ends of the record and of all bytes, and how
    many items there may be. An instruction that finds a slot full has done nothing.
    """
    code, slots, counters, literals, literals_end, cursor = tables
    base, at, end, base_end, items_left = state
    status = Status.DONE
    while status == Status.DONE:
        state, own_place, place = (base, at, end, base_end, items_left), place, place + 4
        op, slot = np.int64(code[own_place]), np.int64(code[own_place + 1])
        x, y = np.int64(code[own_place + 2]), np.int64(code[own_place + 3])
        cursor[names.AT_SLOT] = slot
        if slot >= 0 and slots[slot, names.USED] >= slots[slot, names.CAPACITY]:
            status = Status.SLOT_IS_FULL
        elif op <= Op.DECIMAL:
            status, at = _read_value(state, op, slot, x, y, slots, cursor)
        elif op == Op.NULLABLE:
            status, branch, at = _read_branch(base, at, end, 2)
            if status != Status.DONE or branch != x:
                place += y + 1
            else:
                status = _append_nulls(code, place, y, slots, cursor)
                place = np.int64(code[place + y])
        elif op == Op.COUNT:
            slots[slot, names.USED] += 1
        elif op == Op.ENUM:
            symbol, at = _varint(base, at, end)
            status = Status.IS_TRUNCATED
            if at <= end:
                status = _append_symbol(symbol, place, x, slot, tables)
            place += 2 * x
        elif op == Op.NULLS:
            status = _append_nulls(code, place, x, slots, cursor)
            place += x
        elif op == Op.UNION:
            status, branch, at = _read_branch(base, at, end, x)
            place = np.int64(code[place + branch])
        elif op == Op.JUMP:
            place = x
        elif op == Op.LIST:
            counters[2 * x + 1] = 0
        elif op == Op.BLOCK:
            status, count, at = _read_block(base, at, end, items_left)
            items_left -= count
            counters[2 * x] = count
            if status == Status.DONE and count == 0:
                place = y
                status = _end_items(slot, counters[2 * x + 1], slots)
        elif op == Op.NEXT:
            counters[2 * x] -= 1
            counters[2 * x + 1] += 1
            place = y + 4 if counters[2 * x] > 0 else y
        elif op == Op.LITERAL:
            record = base, at, end, base_end, items_left
            base, at, end, base_end, items_left = literals, x, x + y, literals_end, _INT_MAX
        elif op == Op.LITERAL_END:
            base, at, end, base_end, items_left = record
        elif op == Op.REFUSE:
            status = Status.BRANCH_IS_UNKNOWN
        else:
            cursor[names.AT_SLOT] = -1
            return Status.DONE if at == end else Status.HAS_BYTES_LEFT
    if status == Status.SLOT_IS_FULL:
        _keep_state(cursor, own_place, state, record)
    return status


@compiled
def _schema_id(address: Any, size: Any) -> Any:
    """Return the schema id in front of a record; -1: there is none."""
    if size < _FRAME_BYTES or load_8(address) != np.uint64(0):
        return np.int64(_NO_ID)
    schema_id = np.uint64(0)
    for index in range(1, _FRAME_BYTES):
        schema_id = schema_id << np.uint64(8) | load_8(address + index)
    return np.int64(schema_id) if schema_id <= np.uint64(_INT_MAX) else np.int64(_NO_ID)


@compiled
def _place_of(ids: Any, places: Any, schema_id: Any) -> Any:
    """Return where the program of a schema begins; -1: it is refused, -2: it is new."""
    index = schema_id & len(ids) - 1
    while ids[index] != schema_id:
        if ids[index] < 0:
            return np.int64(_IS_NEW)
        index = index + 1 & len(ids) - 1
    return places[index]


@entry_point(
    int64(
        *(int64, int64, _OFFSETS, typeof(np.empty(1, np.bool_))),
        *(boolean, _NUMBERS, _NUMBERS, int64),
        *(typeof(np.empty(1, np.int32)), typeof(np.empty((1, 1), np.int64)), _NUMBERS),
        *(int64, int64, _NUMBERS),
    )
)
def decode_rows(
    octets: Any,
    octets_end: Any,
    offsets: Any,
    present: Any,
    is_framed: bool,
    ids: Any,
    places: Any,
    null_place: Any,
    code: Any,
    slots: Any,
    counters: Any,
    literals: Any,
    literals_end: Any,
    cursor: Any,
) -> Any:
    """Decode rows until the caller must act.

    Args:
        octets, octets_end: The address of the bytes of all rows, and how many there are.
        offsets: Where each row's begin, and the last one's end.
        present: Which rows have any; the others become null.
        is_framed: Whether each row begins with a schema id; else all are of the first program.
        ids: A hash table of known schema ids; -1: a free place. Its size is a power of two.
        places: Where their programs begin; -1: rows of the schema are refused.
        null_place: The program of a null.
        code, slots: All programs, and the table of slots.
        counters: Two numbers for each level of arrays and maps.
        literals, literals_end: The address of literals, and how many bytes they have.
        cursor: The row to begin at; is moved.

    Returns:
        Why it stopped: a `Status`.
    """
    last_id, last_place = np.int64(_NO_ID), np.int64(_IS_NEW)
    for row in range(cursor[names.ROW], len(present)):
        cursor[names.ROW], cursor[names.SCHEMA_ID], cursor[names.NEEDED_BYTES] = row, _NO_ID, 0
        cursor[names.AT_SLOT] = -1
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        place = np.int64(null_place)
        if not present[row]:
            end = at
        elif at < 0 or at > end or end > octets_end:
            return Status.IS_TRUNCATED
        elif is_framed:
            schema_id = _schema_id(octets + at, end - at)
            cursor[names.SCHEMA_ID] = schema_id
            if schema_id < 0:
                return Status.FRAME_IS_WRONG
            if schema_id != last_id:
                last_id, last_place = schema_id, _place_of(ids, places, schema_id)
            place = last_place
            if place < 0:
                return Status.ID_IS_NEW if place == _IS_NEW else Status.SCHEMA_IS_REFUSED
            at += _FRAME_BYTES
        else:
            place = places[0]
        state = octets, at, end, octets_end, end - at + EMPTY_ITEMS_MAX
        record = state
        if cursor[names.PLACE] >= 0:
            place, state, record = cursor[names.PLACE], _state(cursor, 0), _state(cursor, 5)
            cursor[names.PLACE] = -1
        tables = code, slots, counters, literals, literals_end, cursor
        status = _run(state, record, place, tables)
        if status != Status.DONE:
            return status
    cursor[names.ROW] = len(present)
    return Status.DONE
