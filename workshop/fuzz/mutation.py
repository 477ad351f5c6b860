"""Inputs that are nearly right: a few changes of something that is, drawn from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

SIZE_MAX: Final = 1 << 20
_CHANGES: Final = (0, 1, 1, 1, 2, 2, 3, 5, 9)
_EDGES: Final = tuple(
    sign * (1 << bits) + more
    for bits in (0, 7, 8, 15, 16, 24, 31, 32, 63)
    for sign in (1, -1)
    for more in (-1, 0, 1)
)
_WIDTHS: Final = (("b", 8), ("h", 16), ("i", 32), ("q", 64))

Change = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def drawn(seed: int, target: str, number: int, corpus: Sequence[bytes]) -> bytes:
    """Return one input of a target; the same for the same arguments.

    Args:
        seed: What everything is drawn from.
        target: The target's name.
        number: Which of its inputs.
        corpus: Valid inputs, and pieces of them to insert.
    """
    chance = random.Random(f"{seed} {target} {number}")
    octets = bytearray(chance.choice(corpus))
    for _ in range(chance.choice(_CHANGES)):
        chance.choice(_HOW)(chance, octets, corpus)
    return bytes(octets[:SIZE_MAX])


def _slice(chance: random.Random, octets: Sequence[int] | bytes) -> tuple[int, int]:
    begin = chance.randint(0, len(octets))
    return begin, min(len(octets), begin + chance.choice((1, 2, 4, 8, 64, 4096)))


def _flip(chance: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    if octets:
        octets[chance.randrange(len(octets))] ^= 1 << chance.randrange(8)


def _set_edge(chance: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    """Write a number that is the last of its kind, as wide as Kafka's fields are."""
    code, bits = chance.choice(_WIDTHS)
    edge = chance.choice(_EDGES) & ((1 << bits) - 1)
    place = chance.randint(0, len(octets))
    octets[place : place + bits // 8] = struct.pack(f">{code.upper()}", edge)


def _set_varint(chance: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    edge, varint = chance.choice(_EDGES) & ((1 << 64) - 1), bytearray()
    while edge > 127:
        varint.append(edge & 127 | 128)
        edge >>= 7
    varint.append(edge)
    place = chance.randint(0, len(octets))
    octets[place : place + chance.choice((0, 1, len(varint)))] = varint


def _delete(chance: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    begin, end = _slice(chance, octets)
    del octets[begin:end]


def _cut(chance: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    del octets[chance.randint(0, len(octets)) :]


def _repeat(chance: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    begin, end = _slice(chance, octets)
    times = chance.choice((1, 2, 100, 10_000))
    octets[begin:begin] = (octets[begin:end] * times)[:SIZE_MAX]


def _splice(chance: random.Random, octets: bytearray, corpus: Sequence[bytes]) -> None:
    other = chance.choice(corpus)
    begin, end = _slice(chance, other)
    piece = other if chance.random() < 0.3 else other[begin:end]
    place, behind = _slice(chance, octets)
    octets[place : chance.choice((place, behind))] = piece


def _put_noise(chance: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    place = chance.randint(0, len(octets))
    octets[place:place] = chance.randbytes(chance.choice((1, 4, 40)))


_HOW: Final[tuple[Change, ...]] = (
    *(_flip, _set_edge, _set_varint, _delete),
    *(_cut, _repeat, _splice, _put_noise),
)
