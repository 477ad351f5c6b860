"""What classic members own in their own view, which a classic group's coordinator does not know."""

from __future__ import annotations

from group_lab.sim import facts
from group_lab.sim.classic_consumer import ClassicRun
from group_lab.sim.scene import Listeners, Scene
from spark_groups.group.member.events import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from spark_groups.types import TopicIdPartition


class ClassicOwners:
    """Keeps `Coordination.classic_owners`, and publishes what a group took from unaware members."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._owners = scene.coordination.classic_owners
        self._was_classic = False
        """Whether the group was a classic group at its last change."""
        self._views: dict[str, tuple[str, set[TopicIdPartition]]] = {}
        """By the run of a classic consumer: its member id, and the partitions that it considers its
        own, even if the coordinator has given them to others."""
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
                self._views[fact.who] = (member_id, {*self._view(fact.who), *partitions})
                self._take_from_earlier(member_id, partitions.partitions)
                for key in partitions:
                    # An assignment of an earlier generation may arrive late.
                    if key not in owners or owners[key][2] <= event.member_epoch:
                        owners[key] = owner
            case PartitionsRevoked(partitions=partitions) | PartitionsLost(partitions=partitions):
                self._view(fact.who).difference_update(partitions)
                for key in partitions:
                    if key in owners and owners[key][0] == fact.who:
                        del owners[key]

    def _take_from_earlier(self, member_id: str, given: frozenset[TopicIdPartition]) -> None:
        """Publish the partitions that went from members of an earlier generation to a member.

        A static member can miss a generation. It joins the next one without learning of that, and
        if it is cooperative, it then commits the partitions that it must revoke.
        """
        group = self._scene.coordination.group.classic
        if group is None:
            return
        for participant in self._scene.participants:
            member = participant.member
            if not isinstance(member, ClassicRun) or member.member_id == member_id:
                continue
            taken = given & member.owned.partitions
            if taken and member.generation_id != group.generation_id:
                self._scene.publish(facts.TakenUnaware(member.member_id, taken))

    def _view(self, who: str) -> set[TopicIdPartition]:
        return self._views[who][1] if who in self._views else set()

    def _changed(self, fact: facts.GroupChanged) -> None:
        group = fact.group
        was_classic, self._was_classic = self._was_classic, group.in_memory is not None
        epoch = group.in_memory.generation_id if group.in_memory else group.group_epoch
        # A group that is created again counts from its first generation.
        for key in [key for key, owner in self._owners.items() if owner[2] > epoch]:
            del self._owners[key]
        if not self._views or self._was_classic:
            return
        for member_id, view in self._views.values():
            member = group.members.get(member_id)
            if member is None:
                self._removed.add(member_id)
            elif was_classic or member_id in self._removed:
                taken = view - {*member.assigned, *member.pending_revocation}
                if taken:
                    self._scene.publish(facts.TakenUnaware(member_id, frozenset(taken)))
        self._removed -= group.members.keys()
