"""Names that were meant: the existing name nearest to one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

COMPARED_MAX: Final = 10_000
"""How many existing names are compared; each comparison takes microseconds."""
HINTS_MAX: Final = 8
"""For how many missing names a near one is looked for."""


def nearest(name: str, known: Iterable[str], *, similarity: float = 0.75) -> str | None:
    """Return the known name that is nearest to a name, None if none is similar.

    Args:
        name: The name.
        known: The known names.
        similarity: How similar they must be, as `difflib` measures it: 1 is equal.
    """
    # Only names of about the same length can be similar.
    compared = sorted(known, key=lambda each: abs(len(each) - len(name)))[:COMPARED_MAX]
    return next(iter(difflib.get_close_matches(name, compared, n=1, cutoff=similarity)), None)


def near_names(missing: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the known name that is nearest to each missing one, without those that have none."""
    compared = sorted(known)
    asked = islice(sorted(set(missing)), HINTS_MAX)
    found = {name: nearest(name, compared) for name in asked}
    return {name: near for name, near in found.items() if near is not None}


def hint(name: str, near: Mapping[str, str]) -> str:
    """Return what follows a missing name in a message: which one was meant, if one is near."""
    return f" (did you mean {near[name]!r}?)" if name in near else ""
