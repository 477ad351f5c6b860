"""What tests of several applications in one group share: a feed, the group's state, the output."""

from __future__ import annotations

import threading

from tests.runtime.members import committed
from workshop.parts.brokers import Row, produce

PARTITIONS = 6
BACKLOG = 1_500


class Feed:
    """Keeps a backlog in every partition, so that every batch finds rows of each.

    Args:
        bootstrap_servers: The broker.
        topic: The topic.
        group_id: The group whose committed offsets say how much was read.
        backlog: The number of unread rows in each partition.
        pause_s: How long it rests after each look.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        group_id: str,
        *,
        backlog: int = BACKLOG,
        pause_s: float = 0.05,
    ) -> None:
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self._place = (bootstrap_servers, topic, group_id)
        self._backlog = backlog
        self._pause_s = pause_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        servers, topic, group_id = self._place
        while not self._ending.wait(self._pause_s):
            read = committed(servers, group_id)
            rows = []
            for partition, end in self.ends.items():
                self.ends[partition] = max(end, read.get((topic, partition), 0) + self._backlog)
                rows += [Row(b"v", partition=partition)] * (self.ends[partition] - end)
            produce(servers, topic, rows)

    def stop(self) -> dict[int, int]:
        """End it and return how many rows each partition has."""
        self._ending.set()
        self._thread.join()
        return self.ends
