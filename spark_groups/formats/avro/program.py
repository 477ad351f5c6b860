"""Writes steps as a table of instructions, one program behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_groups.formats.avro.instructions import LENGTH, Op
from spark_groups.formats.avro.resolution import (
    Default,
    ReadBranch,
    ReadFields,
    ReadItems,
    ReadMember,
    ReadNull,
    ReadValue,
    Refuse,
    Step,
)
from spark_groups.formats.avro.slots import Slot

_NONE = -1


class Programs:
    """The programs of all writers' schemas so far; equal ones are one.

    Args:
        root: The slot of the decoded column.
    """

    def __init__(self, root: Slot) -> None:
        self._root = root
        self._code: list[int] = []
        self.code = np.zeros(1, np.int32)
        self._literals = bytearray()
        self._literal_places: dict[bytes, int] = {}
        self._places: dict[Step, int] = {}
        self._depth = 0
        self._depth_max = 0
        self.null_place = self.place_of(ReadNull())

    @property
    def size(self) -> int:
        """How many numbers all programs have."""
        return len(self._code)

    def place_of(self, step: Step) -> int:
        """Return where the program of a step begins; append it if it is new."""
        place = self._places.get(step)
        if place is None:
            place = self._places[step] = len(self._code)
            self._emit(step, self._root)
            self._add(Op.END)
            if len(self._code) > len(self.code):
                self.code = np.resize(self.code, 2 * len(self._code))
            self.code[place : len(self._code)] = self._code[place:]
            self.literals = np.frombuffer(bytes(self._literals) + b"\0", np.uint8)
            self.counters = np.zeros(2 * self._depth_max + 2, np.int64)
        return place

    def _add(self, op: Op, slot: Slot | None = None, x: int = 0, y: int = 0) -> int:
        """Append an instruction, and return its place."""
        self._code += op, _NONE if slot is None else slot.index, x, y
        return len(self._code) - 4

    def _literal(self, octets: bytes) -> int:
        place = self._literal_places.get(octets)
        if place is None:
            place = self._literal_places[octets] = len(self._literals)
            self._literals += octets
        return place

    def _emit(self, step: Step, slot: Slot | None) -> None:
        """Append the instructions of a step, whose value is for a slot, or is skipped."""
        if isinstance(step, ReadValue):
            self._emit_value(step, slot)
        elif isinstance(step, ReadItems):
            self._emit_items(step, slot)
        elif isinstance(step, ReadBranch):
            self._emit_branches(step.branches, slot)
        elif isinstance(step, ReadFields):
            if slot is not None:
                self._add(Op.COUNT, slot)
            for index, field in step.fields:
                self._emit(field, None if slot is None or index < 0 else slot.children[index])
        elif isinstance(step, Refuse):
            self._add(Op.REFUSE, slot)
        elif slot is None:
            pass
        elif isinstance(step, ReadNull):
            self._emit_nulls((slot,))
        elif isinstance(step, ReadMember):
            self._add(Op.COUNT, slot)
            self._emit(step.step, slot.children[step.index])
            self._emit_nulls(slot.children[: step.index] + slot.children[step.index + 1 :])
        elif isinstance(step, Default):
            self._add(Op.LITERAL, None, self._literal(step.octets), len(step.octets))
            self._emit(step.step, slot)
            self._add(Op.LITERAL_END)

    def _emit_value(self, step: ReadValue, slot: Slot | None) -> None:
        self._add(step.op, slot, len(step.symbols) or step.x, step.y)
        for symbol in step.symbols:
            octets = b"" if symbol is None else symbol.encode()
            self._code += (_NONE if symbol is None else self._literal(octets)), len(octets)

    def _emit_nulls(self, slots: Sequence[Slot]) -> None:
        below = [index for slot in slots for index in slot.nulls]
        self._add(Op.NULLS, None, len(below))
        self._code += below

    def _emit_items(self, step: ReadItems, slot: Slot | None) -> None:
        counter, self._depth = self._depth, self._depth + 1
        self._depth_max = max(self._depth_max, self._depth)
        if slot is not None:
            self._add(Op.LIST, slot, counter)
        block = self._add(Op.BLOCK, slot, counter)
        if step.is_map:
            key = ReadValue(Op.BYTES, LENGTH, int(slot is not None))
            self._emit(key, None if slot is None else slot.children[0])
        self._emit(step.item, None if slot is None else slot.children[-1])
        self._add(Op.NEXT, slot, counter, block)
        self._code[block + 3] = len(self._code)
        self._depth -= 1

    def _emit_branches(self, branches: Sequence[Step], slot: Slot | None) -> None:
        if slot is not None and len(branches) == 2 and ReadNull() in branches:
            null_branch = branches.index(ReadNull())
            self._add(Op.NULLABLE, slot, null_branch, len(slot.nulls))
            self._code += (*slot.nulls, _NONE)
            place = len(self._code) - 1
            self._emit(branches[1 - null_branch], slot)
            self._code[place] = len(self._code)
            return
        table = self._add(Op.UNION, slot, len(branches)) + 4
        self._code += [_NONE] * len(branches)
        jumps = []
        for index, branch in enumerate(branches):
            self._code[table + index] = len(self._code)
            self._emit(branch, slot)
            jumps.append(self._add(Op.JUMP))
        for jump in jumps:
            self._code[jump + 2] = len(self._code)
