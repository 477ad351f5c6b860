"""Where the interpreter puts values: a slot for each Arrow array of a column, and its buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from spark_groups.formats.avro.instructions import (
    CAPACITY,
    DATA,
    DATA_BYTES,
    ENDS,
    HAS,
    SLACK_BYTES,
    SLOT_NUMBERS,
    USED,
    VALUES,
    WIDTH,
)
from spark_groups.values import dataclass

_FIRST_ITEMS: Final = 64
_FIRST_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one Arrow array.

    Args:
        index: Its number; those below it follow.
        type: Of the array.
        path: Where in the column it is, for messages.
        children: Its members; the items of an array; the keys and the values of a map.
        width: The size of a value in bytes, or `ENDS`; 0: it only counts.
        nulls: The slots that get a null with it.
    """

    index: int
    type: pa.DataType
    path: str
    children: tuple[Slot, ...]
    width: int
    nulls: tuple[int, ...]

    @property
    def is_items(self) -> bool:
        """Whether its children are as long as its last end."""
        return self.width == ENDS and len(self.children) > 0

    @property
    def bytes_of_value(self) -> int:
        """The size of a value, or of its end, and of whether it is null."""
        return 5 if self.width == ENDS else self.width + 1

    def all(self) -> Iterator[Slot]:
        """Return it and all below it, in their order."""
        yield self
        for child in self.children:
            yield from child.all()


def slot_of(arrow_type: pa.DataType, path: str = "", index: int = 0) -> Slot:
    """Return the slots of a type.

    Args:
        arrow_type: The type.
        path: Where in the column it is.
        index: The number of its slot.
    """
    below: list[tuple[str, pa.DataType]] = []
    width = ENDS
    if kinds.is_struct(arrow_type):
        below = [(f"{path}.{each.name}".lstrip("."), each.type) for each in arrow_type]
        width = 0
    elif kinds.is_map(arrow_type):
        below = [(f"{path}{{}}", arrow_type.key_type), (f"{path}{{}}", arrow_type.item_type)]
    elif kinds.is_list(arrow_type):
        below = [(f"{path}[]", arrow_type.value_type)]
    elif not kinds.is_string(arrow_type) and not kinds.is_binary(arrow_type):
        width = max(1, int(arrow_type.bit_width) // 8)
    children, following = [], index + 1
    for name, kind in below:
        child = slot_of(kind, name, following)
        following += sum(1 for _ in child.all())
        children.append(child)
    with_it = [] if width == ENDS else [each for child in children for each in child.nulls]
    return Slot(index, arrow_type, path, tuple(children), width, (index, *with_it))


def new_octets(size: int) -> npt.NDArray[np.uint8]:
    """Return an array of any content."""
    return np.empty(size, np.uint8)


class SlotBuffers:
    """The buffers of all slots, for one call; they grow on demand.

    Args:
        root: The slot of the column.
        rows: How many rows there may be.
        bytes_max: The most bytes of all buffers.
        used_before: For each slot, how many values and bytes of data earlier rows needed, by row.
    """

    def __init__(
        self, root: Slot, rows: int, bytes_max: int, used_before: npt.NDArray[np.float64]
    ) -> None:
        self._root, self._bytes_max, self._bytes = root, bytes_max, 0
        self._slots = list(root.all())
        # Of each slot: values or ends, whether each is there, and data.
        self._parts = [[np.empty(0, np.uint8)] * 3 for _ in self._slots]
        self.table = np.zeros((len(self._slots), SLOT_NUMBERS), np.int64)
        of_rows = set(root.nulls)
        row_bytes = float(used_before[:, 1].sum())
        for slot in self._slots:
            values = 1.0 if slot.index in of_rows else float(used_before[slot.index, 0])
            row_bytes += values * slot.bytes_of_value
        rows = max(1, min(rows, int(bytes_max / 2 / row_bytes)))
        # Half of the memory is for rows, and a quarter for what any slot may need at first.
        share_bytes = bytes_max // 4 // len(self._slots)
        first_items = min(rows, _FIRST_ITEMS, share_bytes // 8)
        first_bytes = min(16 * rows, _FIRST_BYTES, share_bytes)
        for slot in self._slots:
            values, octets = (int(each * rows * 1.1) for each in used_before[slot.index])
            self.table[slot.index, WIDTH] = slot.width
            self._resize(slot, rows if slot.index in of_rows else values + first_items)
            if slot.width == ENDS and not slot.is_items:
                self._resize_data(slot, octets + first_bytes)

    def _resize(self, slot: Slot, capacity: int) -> None:
        numbers = self.table[slot.index]
        if slot.width == ENDS:
            self._enlarge(slot, VALUES, 4 * capacity + 4)
        else:
            self._enlarge(slot, VALUES, slot.width * capacity)
        self._enlarge(slot, HAS, capacity)
        values, has, _ = self._parts[slot.index]
        if slot.width == ENDS and not numbers[USED]:
            values[:4] = 0
        has[int(numbers[CAPACITY]) :] = 1
        numbers[CAPACITY] = capacity

    def _resize_data(self, slot: Slot, octets: int) -> None:
        self._enlarge(slot, DATA, octets + SLACK_BYTES)
        self.table[slot.index, DATA_BYTES] = octets

    def _enlarge(self, slot: Slot, column: int, size: int) -> None:
        parts, part = self._parts[slot.index], column - VALUES
        larger = new_octets(size)
        larger[: len(parts[part])] = parts[part]
        self._bytes += size - len(parts[part])
        parts[part] = larger
        self.table[slot.index, column] = larger.ctypes.data

    def grow(self, index: int, needed_bytes: int) -> bool:
        """Enlarge the buffers of a slot, and return whether the limit allows it.

        Args:
            index: The slot's.
            needed_bytes: How much data it must hold; 0: it needs room for one value more.
        """
        slot, numbers = self._slots[index], self.table[index]
        if needed_bytes:
            have, needed, size = int(numbers[DATA_BYTES]), needed_bytes, 1
        else:
            have = int(numbers[CAPACITY])
            needed, size = have + 1, slot.bytes_of_value
        left = have + (self._bytes_max - self._bytes) // size
        if needed > left:
            return False
        chosen = min(max(needed, 2 * have), left)
        if needed_bytes:
            self._resize_data(slot, chosen)
        else:
            self._resize(slot, chosen)
        return True

    def roll_back(self, rows: int) -> None:
        """Forget all values behind some rows."""
        self._roll_back(self._root, rows)

    def _roll_back(self, slot: Slot, count: int) -> None:
        numbers = self.table[slot.index]
        self._parts[slot.index][1][count : int(numbers[USED])] = 1
        numbers[USED] = count
        below = self._end(slot, count) if slot.is_items else count
        for child in slot.children:
            self._roll_back(child, below)

    def _end(self, slot: Slot, count: int) -> int:
        """Return where the data or the items of the first values end."""
        return int(self._parts[slot.index][0].view(np.int32)[count])

    def used(self, rows: int) -> npt.NDArray[np.float64]:
        """Return how many values and bytes of data a row needed in each slot."""
        found = np.zeros((len(self._slots), 2))
        found[:, 0] = self.table[:, USED]
        for slot in self._slots:
            if slot.width == ENDS and not slot.is_items:
                found[slot.index, 1] = self._end(slot, int(self.table[slot.index, USED]))
        return found / max(rows, 1)

    def take(self, rows: int) -> pa.Array:
        """Return the values of the rows; the buffers are not used again."""
        return self._array(self._root, rows)

    def _array(self, slot: Slot, count: int) -> pa.Array:
        values, has, octets = self._parts[slot.index]
        nulls = count - int(np.count_nonzero(has[:count]))
        buffers = [pa.py_buffer(np.packbits(has[:count], bitorder="little")) if nulls else None]
        size = self._end(slot, count) if slot.width == ENDS else count
        if slot.width == ENDS:
            buffers.append(pa.py_buffer(values[: 4 * count + 4]))
            if not slot.is_items:
                buffers.append(pa.py_buffer(octets[:size]))
        elif kinds.is_boolean(slot.type):
            buffers.append(pa.py_buffer(np.packbits(values[:count], bitorder="little")))
        elif slot.width:
            buffers.append(pa.py_buffer(values[: slot.width * count]))
        children = [self._array(child, size) for child in slot.children]
        if kinds.is_map(slot.type):
            entries = pa.struct([slot.type.key_field, slot.type.item_field])
            children = [pa.Array.from_buffers(entries, size, [None], 0, children=children)]
        return pa.Array.from_buffers(slot.type, count, buffers, nulls, children=children or None)
