"""Retention that overtakes readers: records of a topic are deleted that the group has not read.

Kafka deletes up to an offset (DeleteRecords) as retention does. Only records that were not
committed by then may be missing afterwards, and only from this topic, which is written to the
append sink alone: a table refuses a gap until someone accepts it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from spark_groups.errors import SparkGroupsError
from workshop.chaos.faults.schedule import Overtaking, RetentionFaultKind
from workshop.chaos.members.ensemble import Outcome
from workshop.chaos.results.facts import Deletion, Partition
from workshop.chaos.systems.cluster import Broker, ClusterError

SHORT_LIVED: Final = {"wasps": 2}
"""The topic, with its number of partitions."""
UNREAD: Final = 30
"""How many records of a partition are not committed when its reader stands still or is down."""
AWAITED_S: Final = 10.0
"""How long a deletion waits for such a partition."""
_LOOK_AGAIN_S: Final = 0.2


class Retention:
    """Deletes records in a thread, one partition at a time.

    Args:
        broker: The broker.
        group_id: The group.
        say: Shows a line.
    """

    def __init__(self, broker: Broker, group_id: str, say: Callable[[str], None]) -> None:
        self.outcomes: Counter[tuple[RetentionFaultKind, Outcome]] = Counter()
        self.deletions: list[Deletion] = []
        self.problems: list[str] = []
        """What ended a deletion that is no answer of a broker."""
        self._broker = broker
        self._group_id = group_id
        self._say = say
        self._thread: threading.Thread | None = None
        self._settled = threading.Event()

    @property
    def is_busy(self) -> bool:
        """Whether records are being deleted."""
        return self._thread is not None and self._thread.is_alive()

    def settle(self) -> None:
        """Wait for no partition any more."""
        self._settled.set()

    def carry_out(self, fault: Overtaking) -> None:
        """Delete a share of a partition's unread records, as soon as one is not read."""
        if self.is_busy:
            self.outcomes[RetentionFaultKind.OVERTAKE, Outcome.SKIPPED] += 1
            return
        self._thread = threading.Thread(
            target=self._work, args=(fault.share,), name="chaos-retention", daemon=True
        )
        self._thread.start()

    def _work(self, share: float) -> None:
        try:
            is_done = self._delete(share)
        except (KafkaException, ClusterError, SparkGroupsError, TimeoutError) as error:
            # A broker may be down; a deletion that happened nevertheless is noted already.
            self._say(f"records were not deleted: {error}")
            is_done = False
        except Exception as error:
            self.problems.append(f"{RetentionFaultKind.OVERTAKE.value}: its thread died: {error!r}")
            raise
        self.outcomes[
            RetentionFaultKind.OVERTAKE, Outcome.DONE if is_done else Outcome.SKIPPED
        ] += 1

    def _delete(self, share: float) -> bool:
        found = self._overtaken()
        if found is None:
            return False
        partition, committed, unread = found
        count = round(share * unread)
        before_offset = committed + count
        self.deletions.append(Deletion(time.time(), partition, before_offset))
        self._broker.delete_before(partition, before_offset)
        topic, index = partition
        self._say(f"retention: {count} records of {topic}-{index} deleted that were not committed")
        return True

    def _overtaken(self) -> tuple[Partition, int, int] | None:
        """Wait for a partition that is not read; return its committed offset and its lag."""
        deadline_s = time.monotonic() + AWAITED_S
        while True:
            ends, committed = self._broker.ends(SHORT_LIVED), self._broker.committed(self._group_id)
            unread = {each: end - committed.get(each, 0) for each, end in ends.items()}
            partition = max(unread, key=unread.__getitem__)
            if unread[partition] >= UNREAD:
                return partition, committed.get(partition, 0), unread[partition]
            if self._settled.wait(_LOOK_AGAIN_S) or time.monotonic() > deadline_s:
                return None
