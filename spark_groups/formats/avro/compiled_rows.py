"""Runs the interpreter over a column, and grows buffers and adds programs as it asks for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_groups.formats.avro.instructions import (
    AT_SLOT,
    CURSOR_NUMBERS,
    NEEDED_BYTES,
    PLACE,
    ROW,
    SCHEMA_ID,
    Status,
)
from spark_groups.formats.avro.interpreter import decode_rows
from spark_groups.formats.avro.program import Programs
from spark_groups.formats.avro.resolution import Step, StepOfId
from spark_groups.formats.avro.slots import Refusal, Slot, SlotBuffers

_FIRST_IDS: Final = 64
_REFUSED: Final = -1


class CompiledRows:
    """Decodes columns with compiled code.

    Args:
        root: The slots of the decoded column.
        own: How bytes without a frame are read; None: all have a frame.
        bytes_max: The most bytes of the decoded values of one call.
        record_bytes_max: The same, where the first record alone has more.
    """

    def __init__(
        self, root: Slot, own: Step | None, *, bytes_max: int, record_bytes_max: int
    ) -> None:
        self._root, self._own, self._bytes_max = root, own, bytes_max
        self._record_bytes_max = record_bytes_max
        self._used = self._used_by_none = np.zeros((len(list(root.all())), 2))
        self.forget()

    def forget(self) -> None:
        """Forget all programs."""
        self._programs = Programs(self._root)
        self._places: dict[int, int] = {}
        self._make_table(_FIRST_IDS)
        if self._own is not None:
            self._add(0, self._own)

    def forget_ids(self, schema_ids: Collection[int]) -> None:
        """Forget how records with some schema ids are read."""
        if schema_ids:
            for each in schema_ids:
                self._places.pop(each, None)
            self._make_table(len(self._ids))

    def _make_table(self, size: int) -> None:
        """Make the hash table of schema ids, at most half full."""
        self._ids, self._places_of = np.full(size, -1, np.int64), np.zeros(size, np.int64)
        for schema_id, place in self._places.items():
            self._enter(schema_id, place)

    def _enter(self, schema_id: int, place: int) -> None:
        mask = len(self._ids) - 1
        index = schema_id & mask
        while self._ids[index] >= 0:
            index = index + 1 & mask
        self._ids[index], self._places_of[index] = schema_id, place

    def _add(self, schema_id: int, step: Step | None) -> None:
        place = _REFUSED if step is None else self._programs.place_of(step)
        self._places[schema_id] = place
        if 2 * len(self._places) > len(self._ids):
            self._make_table(2 * len(self._ids))
        else:
            self._enter(schema_id, place)

    def decode(self, column: pa.Array, step_of_id: StepOfId) -> tuple[pa.Array, dict[int, Refusal]]:
        """Decode the first rows of a column, or all; return the values, and the refused rows.

        Args:
            column: The bytes.
            step_of_id: Is asked once for each schema id.
        """
        buffers = SlotBuffers(self._root, len(column), self._bytes_max, self._used)
        refused: dict[int, Refusal] = {}
        rows = self._decode(column, step_of_id, buffers, refused, alone=False)
        if rows:
            self._used = buffers.used(rows)
            return buffers.take(rows), refused
        buffers = SlotBuffers(self._root, 1, self._record_bytes_max, self._used_by_none)
        rows = self._decode(column[:1], step_of_id, buffers, refused, alone=True)
        return buffers.take(rows), refused

    def _decode(
        self,
        column: pa.Array,
        step_of_id: StepOfId,
        buffers: SlotBuffers,
        refused: dict[int, Refusal],
        *,
        alone: bool,
    ) -> int:
        """Decode the first rows into buffers, and return how many; 0: the first is too large."""
        rows = len(column)
        present = np.ones(rows, np.bool_)
        if column.null_count:
            present = np.array(column.is_valid().to_numpy(zero_copy_only=False))
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: rows + 1]
        octets = column.buffers()[2]
        place = (octets.address, octets.size) if octets is not None else (0, 0)
        cursor = np.zeros(CURSOR_NUMBERS, np.int64)
        cursor[PLACE] = -1
        while True:
            status = self._run(place, offsets, present, buffers, cursor)
            row, slot = int(cursor[ROW]), int(cursor[AT_SLOT])
            if status is Status.DONE:
                return row
            if status is Status.ID_IS_NEW:
                schema_id = int(cursor[SCHEMA_ID])
                self._add(schema_id, step_of_id(schema_id))
                continue
            if status is Status.SLOT_IS_FULL:
                if buffers.grow(slot, int(cursor[NEEDED_BYTES])):
                    continue
                if not alone:
                    buffers.roll_back(row)
                    return row
                status = Status.IS_TOO_LARGE
            buffers.roll_back(row)
            cursor[PLACE] = -1
            refused[row] = status, slot, int(cursor[SCHEMA_ID])
            present[row] = False

    def _run(
        self,
        octets: tuple[int, int],
        offsets: npt.NDArray[Any],
        present: npt.NDArray[Any],
        buffers: SlotBuffers,
        cursor: npt.NDArray[Any],
    ) -> Status:
        programs = self._programs
        literals = programs.literals
        return Status(
            decode_rows(
                *octets,
                offsets,
                present,
                self._own is None,
                self._ids,
                self._places_of,
                programs.null_place,
                programs.code,
                buffers.table,
                programs.counters,
                literals.ctypes.data,
                len(literals),
                cursor,
            )
        )
