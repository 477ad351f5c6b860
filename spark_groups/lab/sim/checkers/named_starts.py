"""A partition that `startingOffsets` names with an offset starts there."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.types import TopicIdPartition, TopicPartition


class NamedStarts(Checker):
    """Looks at the first offset that is committed of each partition there was at the beginning.

    What was created later is another partition, whatever its name. A log that was cut may end
    before that offset; a plain consumer does not know of it.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        by_partition = scene.starting.by_partition
        self._wanted: dict[TopicIdPartition, int] = {}
        for key in scene.storage.logs:
            name = scene.storage.name_of(key.topic_id) or ""
            wanted = by_partition.get(TopicPartition(name, key.partition), -1)
            if wanted >= 0:
                self._wanted[key] = wanted

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.Committed: self._committed}

    def _committed(self, fact: facts.Committed) -> None:
        each = fact.offset
        if each.before is not None or self.scene.swarm.consumers or each.key in self.history.cut:
            return
        wanted = self._wanted.get(each.key)
        if wanted is not None and each.committed_offset != wanted:
            self.fail(f"{each.key} begins at {each.committed_offset}, named is {wanted}")
