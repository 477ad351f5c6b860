"""Every offset below a committed one, from the first on, has been in a finished batch."""

from __future__ import annotations

from spark_groups.sim import facts
from spark_groups.sim.checkers.checker import Checker
from spark_groups.sim.history import History
from spark_groups.sim.scene import Listeners, Scene
from spark_groups.types import TopicIdPartition


class NoGap(Checker):
    """Looks at each accepted offset, and in the end at each record.

    What retention took, or went with its topic, cannot be read any more. A plan in a checkpoint
    has no leader epochs: a log that was cut inside it cannot be told. Nor has an offset that an
    operator sets: whoever sets one above the place where the log was cut before decides to go on
    there, and what was written in between is skipped; nor can anybody tell that the log is cut
    below such an offset until a query has committed again.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._skipped: dict[TopicIdPartition, list[tuple[int, int]]] = {}
        """What an operator skipped, by partition."""
        self._unnoticed: dict[TopicIdPartition, int] = {}
        """Where a log was cut, until that or less is committed."""
        self._set_by_operator: dict[TopicIdPartition, int] = {}
        """Committed offsets that no query has set."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.Committed: self._committed,
            facts.OffsetReset: self._reset,
            facts.Cut: self._cut,
            facts.Quiet: self._quiet,
        }

    def _reset(self, fact: facts.OffsetReset) -> None:
        cut_at = self._unnoticed.get(fact.key)
        if cut_at is not None and cut_at < fact.new_offset:
            self._skipped.setdefault(fact.key, []).append((cut_at, fact.new_offset))
        self._set_by_operator[fact.key] = fact.new_offset

    def _cut(self, fact: facts.Cut) -> None:
        self._unnoticed[fact.key] = min(
            fact.end_offset, self._unnoticed.get(fact.key, fact.end_offset)
        )
        set_to = self._set_by_operator.get(fact.key)
        if set_to is not None and fact.end_offset < set_to:
            self._skipped.setdefault(fact.key, []).append((fact.end_offset, set_to))

    def _committed(self, fact: facts.Committed) -> None:
        self._set_by_operator.pop(fact.offset.key, None)
        each, reached = fact.offset, self.history.reached(fact.offset.key)
        if each.committed_offset <= self._unnoticed.get(each.key, -1):
            del self._unnoticed[each.key]
        if each.committed_offset > reached:
            self.fail(
                f"{each.member_id} commits {each.key} at {each.committed_offset}, finished is"
                f" {reached}: rows skipped"
            )

    def _quiet(self, _fact: facts.Quiet) -> None:
        history = self.history
        for key, log in self.scene.storage.logs.items():
            if self.scene.late.is_untold(self.scene.coordination.holder(key), key):
                continue
            lowest = max(history.lowest.get(key, log.end_offset), log.start_offset)
            was_read = history.read.get(key, set())
            unread = [
                lowest + index
                for index, record in enumerate(log.read(lowest, log.end_offset))
                if record not in was_read
                and not log.hides(record, read_committed=bool(self.scene.swarm.read_committed))
                and not self._is_excused(key, lowest + index)
            ]
            if unread:
                self.fail(
                    f"{len(unread)} records of {key} were never read, the first at {unread[0]}"
                )

    def _is_excused(self, key: TopicIdPartition, offset: int) -> bool:
        ranges = (*self.history.inherited.get(key, ()), *self._skipped.get(key, ()))
        return any(from_offset <= offset < until_offset for from_offset, until_offset in ranges)
