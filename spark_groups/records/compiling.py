"""Compilation of functions, and machine instructions that numba does not offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])


def entry_point(signature: Any) -> Callable[[_Function], _Function]:
    """Compile a function that Python calls, or load it from the cache, when its module is imported.

    With its one signature declared, nothing is compiled later, and other types are refused. The
    function runs without the GIL.

    Args:
        signature: Numba's types of the result and the arguments.
    """
    made = njit(signature, cache=True, nogil=True, error_model="numpy", _nrt=False)
    return cast("Callable[[_Function], _Function]", made)


def compiled(function: _Function) -> _Function:
    """Compile a function that only compiled functions call, and inline it.

    Without `forceinline` each call would copy the descriptors of all arrays, and without
    `_nrt=False` count references to them: measured, 17 and 5 million rows a second, not 25. The
    latter also ensures that nothing here allocates memory.
    """
    made = njit(nogil=True, error_model="numpy", _nrt=False, forceinline=True)
    return cast("_Function", made(function))


def has_crc32c_instruction() -> bool:
    """Return whether compiled code may use the CRC-32C instruction of x86-64."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return str(triple).startswith("x86_64") and "+sse4.2" in str(features).split(",")


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Return a pointer to an element of a one-dimensional array of bytes."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


@intrinsic  # type: ignore[untyped-decorator]
def _copy_many(
    typing: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any
) -> Any:
    """Copy bytes between arrays, without a bounds check."""
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to_array, to_index, from_array, from_index, count = arguments
        to_pointer = _address(context, builder, signature.args[0], to_array, to_index)
        from_pointer = _address(context, builder, signature.args[2], from_array, from_index)
        cgutils.raw_memcpy(builder, to_pointer, from_pointer, count, 1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_16(typing: Any, target: Any, target_at: Any, source: Any, source_at: Any) -> Any:
    """Copy 16 bytes, in two instructions."""
    signature = types.void(target, types.int64, source, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to_array, to_index, from_array, from_index = arguments
        vector = ir.IntType(128).as_pointer()
        to_pointer = _address(context, builder, signature.args[0], to_array, to_index)
        from_pointer = _address(context, builder, signature.args[2], from_array, from_index)
        octets = builder.load(builder.bitcast(from_pointer, vector), align=1)
        builder.store(octets, builder.bitcast(to_pointer, vector), align=1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_16_of(
    typing: Any,
    target: Any,
    target_at: Any,
    is_first: Any,
    first: Any,
    first_at: Any,
    second: Any,
    second_at: Any,
) -> Any:
    """Copy 16 bytes of one of two arrays, without a branch, without a bounds check."""
    arrays = target, types.int64, types.boolean, first, types.int64, second, types.int64
    signature = types.void(*arrays)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to_array, to_index, choice, one_array, one_index, other_array, other_index = arguments
        vector = ir.IntType(128).as_pointer()
        to_pointer = _address(context, builder, signature.args[0], to_array, to_index)
        one = _address(context, builder, signature.args[3], one_array, one_index)
        other = _address(context, builder, signature.args[5], other_array, other_index)
        pointer = builder.select(choice, one, other)
        octets = builder.load(builder.bitcast(pointer, vector), align=1)
        builder.store(octets, builder.bitcast(to_pointer, vector), align=1)
        return context.get_dummy_value()

    return signature, generate


@compiled
def copy_bytes(target: Any, target_at: int, source: Any, source_at: int, size: int) -> None:
    """Copy bytes between arrays; the caller has checked the bounds."""
    if size <= 16 and target_at + 16 <= len(target) and source_at + 16 <= len(source):
        # The next copy overwrites the surplus; this costs less than a call.
        copy_16(target, target_at, source, source_at)
    else:
        _copy_many(target, target_at, source, source_at, size)


@intrinsic  # type: ignore[untyped-decorator]
def load_64(typing: Any, source: Any, index: Any) -> Any:
    """Load eight bytes of an array as one little-endian number, without a bounds check."""
    signature = types.uint64(source, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _address(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator]
def crc32c_of_8_bytes(typing: Any, checksum: Any, word: Any) -> Any:
    """Extend a checksum by eight bytes, in one instruction of x86-64 (SSE 4.2)."""
    signature = types.uint64(types.uint64, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        instruction = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(number, [number, number]), "llvm.x86.sse42.crc32.64.64"
        )
        return builder.call(instruction, arguments)

    return signature, generate
