"""What a transcript does not tell is drawn, and drawn anew in part as long as answers differ.

A difference can only be due to what was drawn before it, so a few of those numbers are drawn anew
and the others are kept. A draw that agrees at least as long as the one before takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from spark_groups.lab.sim.chance import Bits

_PLACE_BITS: Final = 32
_ALL_ANEW_BITS: Final = 4
"""One in 16 draws keeps nothing, so that none gets stuck."""
_MORE_BITS: Final = 1
"""One or two numbers are drawn anew."""


@dataclass
class Redrawn:
    """Numbers of an earlier draw, but for some that are drawn anew.

    Args:
        chance: What new numbers are drawn from.
        kept: The numbers of the earlier draw.
        anew: The places of those that are not kept.
        drawn: What was drawn so far.
    """

    chance: Bits
    kept: Sequence[int] = ()
    anew: frozenset[int] = frozenset()
    drawn: list[int] = field(default_factory=list)

    def getrandbits(self, k: int, /) -> int:
        """Return a number of so many bits; places ask for as many in every draw."""
        place = len(self.drawn)
        is_kept = place < len(self.kept) and place not in self.anew
        self.drawn.append(self.kept[place] if is_kept else self.chance.getrandbits(k))
        return self.drawn[place]


@dataclass
class Draw:
    """How far a draw agrees.

    Args:
        numbers: What is drawn.
        differing: The places of the steps that differ.
        drawn_before: How many numbers were drawn up to each of them.
    """

    numbers: Redrawn
    differing: list[int] = field(default_factory=list)
    drawn_before: list[int] = field(default_factory=list)

    @property
    def can_be_better(self) -> bool:
        """Whether a difference may be due to a number that was drawn."""
        return any(self.drawn_before)

    @property
    def agreement(self) -> tuple[float, ...]:
        """The greater, the longer it agrees."""
        return (*self.differing, inf)

    def note_difference(self, place: int) -> None:
        """Note that a step differs."""
        self.differing.append(place)
        self.drawn_before.append(len(self.numbers.drawn))

    def is_behind(self, other: Draw) -> bool:
        """Tell whether it agrees less long than another one, which is played to its end."""
        return (*self.differing,) < other.agreement[: len(self.differing)]

    def changed(self, chance: Bits) -> Draw:
        """Return another draw, with new numbers where a difference may come from."""
        if not chance.getrandbits(_ALL_ANEW_BITS):
            return Draw(Redrawn(chance))
        counts = [count for count in self.drawn_before if count]
        count = counts[chance.getrandbits(_PLACE_BITS) % len(counts)]
        more = range(1 + chance.getrandbits(_MORE_BITS))
        anew = frozenset(chance.getrandbits(_PLACE_BITS) % count for _ in more)
        return Draw(Redrawn(chance, self.numbers.drawn, anew))
