"""The offset log and the commit log of one checkpoint, as Spark writes them.

Spark writes the offsets of a batch before the batch runs, and its commit after. With asynchronous
progress tracking another thread writes both: at most one batch per interval gets entries, a killed
driver loses those that are not written yet, and the logs have holes. A restart begins at the last
entry of the offset log, and runs that batch again if the commit log lacks it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from group_lab.sim.chance import Chance
from group_lab.sim.scene import Scene

MAX_PENDING: Final = 3
"""How many entries may wait; Spark's query waits then."""
WRITE_S: Final = (0.005, 0.005, 0.1, 2.0)
"""How long the thread takes for an entry."""

BATCHES_BACK: Final = (0, 0, 1, 3)
"""How many batches a checkpoint lacks that replaces another."""

After = Callable[[float, Callable[[], None]], None]
"""Acts after some seconds, unless the driver is killed before."""


class SparkLogs:
    """The two logs.

    Args:
        every_s: Seconds between two batches with entries; 0: all have them, at once.
    """

    def __init__(self, scene: Scene, every_s: float) -> None:
        self._scene = scene
        self._every_s = every_s
        self._offsets: dict[int, str] = {}
        """Plans by batch."""
        self._commits: set[int] = set()
        self._batch_id = -1
        """The last batch of this run."""
        self._logged_at: float | None = None
        """When this run last asked for an entry; None: it has not."""
        self._must_commit = False
        """Whether the running batch gets an entry in the commit log."""
        self._pending: deque[Callable[[], object]] = deque()
        """Writes the entries that this run has asked for, in order."""
        self._free_at = 0.0
        """When the last of them is written."""

    def begin(self) -> None:
        """Note that a run starts."""
        self._batch_id = max(self._offsets, default=-1)
        # The first batch always gets one: it may be a batch that runs again.
        self._logged_at, self._must_commit = None, True
        self._pending, self._free_at = deque(), 0.0

    def forget(self) -> None:
        """Replace the checkpoint by a new one."""
        self._offsets, self._commits = {}, set()

    def restore(self, backup: SparkLogs, chance: Chance) -> None:
        """Replace the checkpoint by an older one, or by a copy of another query's.

        Args:
            backup: Whose checkpoint was copied; these logs: an older one of this query.
        """
        kept = max(backup._offsets, default=-1) - chance.choice(BATCHES_BACK)
        self._offsets = {each: plan for each, plan in backup._offsets.items() if each <= kept}
        # A copy of a checkpoint may lack the commit of its last batch.
        last = kept if chance.random() < 0.5 else kept - 1
        self._commits = {each for each in backup._commits if each <= last}

    @property
    def last_plan(self) -> str | None:
        """The text of the last plan in the offset log."""
        return self._offsets[max(self._offsets)] if self._offsets else None

    @property
    def batch_id(self) -> int:
        """The last batch of this run."""
        return self._batch_id

    @property
    def plan_before(self) -> str | None:
        """The text of the plan before the last one."""
        return self._offsets.get(max(self._offsets, default=0) - 1)

    @property
    def is_finished(self) -> bool:
        """Whether that batch is in the commit log, or there is none."""
        return not self._offsets or max(self._offsets) in self._commits

    def began(self, plan: str, after: After) -> None:
        """Note that Spark begins a batch which is not in the offset log."""
        self._batch_id += 1
        batch_id, now = self._batch_id, self._scene.now
        if self._logged_at is not None and now < self._logged_at + self._every_s:
            self._must_commit = False
            return
        self._must_commit, self._logged_at = True, now
        # If there are two drivers, the first to write an entry wins.
        self._write(lambda: self._offsets.setdefault(batch_id, plan), after)

    def finished(self, after: After) -> None:
        """Note that a batch is finished."""
        batch_id = self._batch_id
        if self._must_commit:
            self._write(lambda: self._commits.add(batch_id), after)

    def flush(self) -> None:
        """Write all entries, as a query does that ends."""
        while self._pending:
            self._pending.popleft()()

    def _write(self, write: Callable[[], object], after: After) -> None:
        if not self._every_s:
            write()
            return
        pending, now = self._pending, self._scene.now
        pending.append(write)
        if len(pending) > MAX_PENDING:
            pending.popleft()()

        def due() -> None:
            if pending and pending[0] is write:
                pending.popleft()()

        self._free_at = max(now, self._free_at) + self._scene.chance.choice(WRITE_S)
        after(self._free_at - now, due)
