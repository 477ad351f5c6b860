"""Compilation of functions, and what they do with arrays and numba does not offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from spark_groups.records import memory
from spark_groups.records.memory import address_of, either

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


@compiled
def copy_16(target: Any, target_at: int, source: Any, source_at: int) -> None:
    """Copy 16 bytes between arrays, without a bounds check."""
    memory.copy_16(address_of(target, target_at), address_of(source, source_at))


@compiled
def copy_16_of(
    target: Any,
    target_at: int,
    is_first: bool,
    first: Any,
    first_at: int,
    second: Any,
    second_at: int,
) -> None:
    """Copy 16 bytes of one of two arrays, without a branch, without a bounds check."""
    source = either(is_first, address_of(first, first_at), address_of(second, second_at))
    memory.copy_16(address_of(target, target_at), source)


@compiled
def copy_bytes(target: Any, target_at: int, source: Any, source_at: int, size: int) -> None:
    """Copy bytes between arrays; the caller has checked the bounds."""
    if size <= 16 and target_at + 16 <= len(target) and source_at + 16 <= len(source):
        # The next copy overwrites the surplus; this costs less than a call.
        copy_16(target, target_at, source, source_at)
    else:
        memory.copy(address_of(target, target_at), address_of(source, source_at), size)


@compiled
def load_64(source: Any, index: int) -> Any:
    """Load eight bytes of an array as one little-endian number, without a bounds check."""
    return memory.load_64(address_of(source, index))


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
