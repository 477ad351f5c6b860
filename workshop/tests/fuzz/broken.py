"""Targets with one fault each, which the fuzzer has to find."""

from __future__ import annotations

import ctypes

import numpy as np

from workshop.fuzz.targets import Target
from workshop.parts.guard import guarded


def _overread(octets: bytes) -> None:
    wire = guarded(np.frombuffer(octets, np.uint8))
    length = octets[0] if octets else 0
    ctypes.string_at(wire.ctypes.data, min(length, 4096))


def _raise(octets: bytes) -> None:
    if b"!" in octets:
        raise KeyError("not an error of the package")


def _fill_memory(octets: bytes) -> None:
    if octets[:1] == b"!":
        bytearray(1 << 34)


TARGETS = (
    Target("overread", lambda: [b"\x05abcd"], _overread),
    Target("raises", lambda: [b"right", b"   "], _raise),
    Target("memory", lambda: [b"right", b"   "], _fill_memory),
    Target("right", lambda: [b"right"], len),  # type: ignore[arg-type]
)
