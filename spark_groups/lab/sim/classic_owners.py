"""What classic members own in their own view, which a classic group's coordinator does not know."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.protocol.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from spark_groups.types import TopicIdPartition


class ClassicOwners:
    """Keeps `Coordination.classic_owners`, and publishes what a group took from unaware members."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._owners = scene.coordination.classic_owners
        self._was_classic = False
        """Whether the group was a classic group at its last change."""
        self._removed: set[str] = set()
        """Classic members that a consumer group has removed, and that own partitions in their own
        view."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {facts.ClassicHappened: self._happened, facts.GroupChanged: self._changed}

    def _happened(self, fact: facts.ClassicHappened) -> None:
        owners, event = self._owners, fact.event
        match event:
            case PartitionsAssigned(partitions=partitions, member_id=member_id):
                owner = (fact.who, member_id, event.member_epoch)
                for key in partitions:
                    # An assignment of an earlier generation may arrive late.
                    if key not in owners or owners[key][2] <= event.member_epoch:
                        owners[key] = owner
            case PartitionsRevoked(partitions=partitions) | PartitionsLost(partitions=partitions):
                for key in partitions:
                    if key in owners and owners[key][0] == fact.who:
                        del owners[key]

    def _changed(self, fact: facts.GroupChanged) -> None:
        group = fact.group
        was_classic, self._was_classic = self._was_classic, group.classic is not None
        if not self._owners or self._was_classic:
            return
        taken: dict[str, set[TopicIdPartition]] = {}
        for key, (_, member_id, _) in self._owners.items():
            member = group.members.get(member_id)
            if member is None:
                self._removed.add(member_id)
                continue
            is_unaware = was_classic or member_id in self._removed
            if is_unaware and key not in {*member.assigned, *member.pending_revocation}:
                taken.setdefault(member_id, set()).add(key)
        self._removed -= group.members.keys()
        for member_id, keys in taken.items():
            self._scene.publish(facts.TakenUnaware(member_id, frozenset(keys)))
