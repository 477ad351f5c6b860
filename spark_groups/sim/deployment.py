"""Applications that are deployed anew: one by one, all at once, or more of them for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from spark_groups.sim.queries import Query
from spark_groups.sim.swarm import Deploy, Swarm

RESTART_S: Final = 1.0
"""How long an application is away when it is deployed anew."""


def steps_of(swarm: Swarm, queries: Sequence[Query]) -> Iterator[tuple[float, Callable[[], None]]]:
    """Yield what a deployment does, with the instant at which it does it.

    Args:
        swarm: What the run is made of.
        queries: The applications.
    """
    begins_at = swarm.starts_s + (swarm.chaos_s - swarm.starts_s) / 4
    match swarm.deploy:
        case Deploy.NONE:
            return
        case Deploy.ROLLING:
            for index, query in enumerate(queries):
                yield begins_at + index * swarm.deploy_every_s, partial(query.stop, RESTART_S)
        case Deploy.ALL_AT_ONCE:
            for query in queries:
                yield begins_at, partial(query.stop, RESTART_S)
        case Deploy.AUTOSCALE:
            # The second half goes for a third of the time, comes back, and goes for good.
            part_s = (swarm.chaos_s - begins_at) / 3
            for index, query in enumerate(queries[(len(queries) + 1) // 2 :]):
                step_s = index * min(swarm.deploy_every_s, part_s / len(queries))
                yield begins_at + step_s, partial(query.stop, part_s)
                yield begins_at + 2 * part_s + step_s, partial(query.stop, None)
