"""Loads and stores at addresses, for compiled code; the caller has checked the bounds."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic  # type: ignore[untyped-decorator]
def address_of(typing: Any, array: Any, index: Any) -> Any:
    """Return the address of an element of a one-dimensional array of bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin = context.make_array(array)(context, builder, arguments[0]).data
        return builder.ptrtoint(builder.gep(begin, [arguments[1]]), ir.IntType(64))

    return types.int64(array, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def either(typing: Any, is_first: Any, first: Any, second: Any) -> Any:
    """Return one of two addresses, without a branch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return types.int64(types.boolean, types.int64, types.int64), generate


def _load(bits: int) -> Any:
    """Return a function that loads an unsigned little-endian number."""

    def load(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            number = builder.load(pointer, align=1)
            return builder.zext(number, ir.IntType(64)) if bits < 64 else number

        return types.uint64(types.int64), generate

    return intrinsic(load)


def _store(kind: Any, bits: int) -> Any:
    """Return a function that stores a number, of an integer the lower bits."""

    def store(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number = arguments[1]
            if kind is types.int64 and bits < 64:
                number = builder.trunc(number, ir.IntType(bits))
            pointer = builder.inttoptr(arguments[0], number.type.as_pointer())
            builder.store(number, pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return intrinsic(store)


load_8, load_32, load_64 = _load(8), _load(32), _load(64)
store_8, store_32, store_64 = (
    _store(types.int64, 8),
    _store(types.int64, 32),
    _store(types.int64, 64),
)
store_float = _store(types.float32, 32)
store_double = _store(types.float64, 64)


@intrinsic  # type: ignore[untyped-decorator]
def copy(typing: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        octets = ir.IntType(8).as_pointer()
        to_pointer, from_pointer = (builder.inttoptr(each, octets) for each in arguments[:2])
        cgutils.raw_memcpy(builder, to_pointer, from_pointer, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_16(typing: Any, target: Any, source: Any) -> Any:
    """Copy 16 bytes, in two instructions."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.IntType(128).as_pointer()
        to_pointer, from_pointer = (builder.inttoptr(each, vector) for each in arguments)
        builder.store(builder.load(from_pointer, align=1), to_pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate
