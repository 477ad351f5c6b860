"""From a run that fails to a smaller one that fails alike: less of everything, a step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from enum import Enum
from typing import Final, TypeVar

from spark_groups.lab.sim.swarm import CALM, Swarm

F = TypeVar("F")

LEAST: Final = {"queries": 1, "partitions": 1, "topics": 1, "chaos_s": 10.0}
"""What a run cannot do without."""
KEPT: Final = frozenset(
    {
        *("heartbeat_s", "session_s", "rebalance_s", "replication_s", "trigger_s", "starts_s"),
        "restart_s",
    }
)
"""What is not a matter of size."""


def shrunk(swarm: Swarm, fails: Callable[[Swarm], F | None]) -> F | None:
    """Return how the smallest swarm fails that was found, None if the first does not.

    Args:
        swarm: What fails.
        fails: Tries a swarm; returns how it fails, None if it does not.
    """
    found, smallest = fails(swarm), swarm
    while found is not None:
        for smaller in _smaller(smallest):
            again = fails(smaller)
            if again is not None:
                found, smallest = again, smaller
                break
        else:
            return found
    return found


def _smaller(swarm: Swarm) -> Iterator[Swarm]:
    """Yield swarms with less of one thing: none of it, half of it, one less."""
    for each in fields(swarm):
        name, value = each.name, getattr(swarm, each.name)
        if name in KEPT:
            continue
        if isinstance(value, Enum):
            steps: list[object] = [getattr(CALM, name)]
        else:
            least = LEAST.get(name, 0)
            halved = value // 2 if isinstance(value, int) else value / 2
            steps = [least, halved, value - 1] if isinstance(value, int) else [least, halved]
            steps = [step for step in steps if isinstance(step, int | float) and step >= least]
        if name in ("batch_s", "rate"):
            steps = [getattr(CALM, name)]
        for step in dict.fromkeys(steps):
            smaller = replace(swarm, **{name: step})  # type: ignore[arg-type]
            if step != value and _is_worth_it(value, step):
                yield smaller


def _is_worth_it(value: object, step: object) -> bool:
    """Tell whether a step is large enough: chances could be halved for ever."""
    if isinstance(value, float) and isinstance(step, float):
        return step == 0.0 or abs(value - step) > 0.005
    return True
