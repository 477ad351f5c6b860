"""Randomness as an argument: what `random.Random` offers and a simulation needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Chance(Protocol):
    """A source of randomness; `random.Random(seed)` is one."""

    def random(self) -> float:
        """Return a number from 0 up to 1."""

    def randint(self, a: int, b: int, /) -> int:
        """Return an integer from `a` to `b`, both included."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between `a` and `b`."""

    def choice(self, seq: Sequence[T], /) -> T:
        """Return one element of a sequence."""


class Bits(Protocol):
    """A source of random bits, of which ids are made; `random.Random(seed)` is one."""

    def getrandbits(self, k: int, /) -> int:
        """Return a number of so many bits."""
