"""Another cluster, at whose addresses members may arrive: its topics have the same names.

Its records say so: one of them in a sink belongs nowhere there. Nothing may be committed in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from workshop.chaos.systems.cluster import Broker
from workshop.chaos.systems.production import Production

MARK: Final = "@elsewhere"
"""What the names of topics end with in its records."""


class Elsewhere:
    """The other cluster: what it has, and what members did to it.

    Args:
        bootstrap_servers: Its broker.
        group_id: The group of the members.
        topics: Partition counts by name.
        per_second: How many records are written in a second.
        seed: What partitions and sizes are drawn from.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        topics: Mapping[str, int],
        per_second: float,
        seed: int,
    ) -> None:
        self._broker = Broker(bootstrap_servers)
        self._group_id = group_id
        self._broker.create(topics)
        self._production = Production(bootstrap_servers, topics, per_second, seed, MARK)

    def start(self) -> None:
        """Begin to write records."""
        self._production.start()

    def stop(self) -> list[str]:
        """Write no more; return what must not be, in words."""
        self._production.stop()
        commits = self._broker.commit_history(self._group_id)
        count = sum(map(len, commits.values()))
        return [f"{count:,} offsets were committed in the other cluster"] if count else []
