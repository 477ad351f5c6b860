"""What the coordinator decides and how long it waits."""

from __future__ import annotations

from typing import Final

from spark_groups.lab.coordinator.group import ConsumerGroup, GroupState
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.records import TargetMemberValue
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker, on
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Scene
from spark_groups.protocol.events import EpochChanged
from spark_groups.types import TopicIdPartition

SLACK_S: Final = 2.0
"""How much later it may be: a log that takes nothing is tried again after a second."""


class Patience(Checker):
    """The coordinator waits for nobody longer than the session and rebalance time-outs say.

    Looks for members that are silent, or have something to give up, for too long.

    Each node begins to count anew when it takes over.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._revoking: dict[str, tuple[object, float]] = {}
        """What each member is to give up, and since when."""

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        self._look_at(fact.group)

    @on(facts.Quiet)
    def _quiet(self, _fact: facts.Quiet) -> None:
        self._look_at(self.scene.coordination.group)

    @on(facts.Replaced)
    def _replaced(self, _fact: facts.Replaced) -> None:
        self._revoking.clear()

    def _look_at(self, group: ConsumerGroup) -> None:
        coordination = self.scene.coordination
        if not coordination.answers:
            return
        now = self.scene.now
        for member in group.members.values():
            heard_at = coordination.heard_at.get(member.member_id, now)
            silent_s = self._overdue_s(heard_at, self.scene.swarm.session_s)
            if silent_s > 0:
                self.fail(f"{member.member_id} is silent, {silent_s:.1f} s longer than it may")
            self._look_at_revocation(member)
        for gone in self._revoking.keys() - group.members.keys():
            del self._revoking[gone]

    def _look_at_revocation(self, member: GroupMember) -> None:
        if not member.pending_revocation:
            self._revoking.pop(member.member_id, None)
            return
        revoking = frozenset(member.pending_revocation)
        known, since = self._revoking.get(member.member_id, (frozenset(), self.scene.now))
        if revoking != known:
            self._revoking[member.member_id] = (revoking, self.scene.now)
            return
        slow_s = self._overdue_s(since, member.rebalance_timeout_ms / 1000)
        if slow_s > 0:
            self.fail(f"{member.member_id} revokes, {slow_s:.1f} s longer than it may")

    def _overdue_s(self, since: float, timeout_s: float) -> float:
        # Nobody can be removed while the log takes nothing.
        due_at = max(since + timeout_s, self.scene.coordination.failing_until)
        return self.scene.now - due_at - SLACK_S - self.scene.swarm.replication_s


class LegalTarget(Checker):
    """A target assignment is legal: each partition once, and for members only.

    Looks at the target each time the group changes.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._targets: list[tuple[str, TargetMemberValue]] = []
        self._member_ids: list[str] = []
        """What was looked at."""

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        group = fact.group
        targets, member_ids = list(group.targets.items()), list(group.members)
        if targets == self._targets and member_ids == self._member_ids:
            # Most changes are offsets.
            return
        self._targets, self._member_ids = targets, member_ids
        meant: dict[TopicIdPartition, str] = {}
        for member_id, target in targets:
            if member_id not in group.members:
                self.fail(f"{member_id} has a target and is no member")
            for key in target.partitions.partitions:
                if meant.setdefault(key, member_id) != member_id:
                    self.fail(f"{key} is meant for {meant[key]} and for {member_id}")


class MemberEpochs(Checker):
    """The epochs that a member is told never go back, and never run ahead of the group.

    Follows each member id.

    What a coordinator wrote and lost before it was replicated was told to nobody.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._told: dict[str, int] = {}

    @on(facts.Happened)
    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, EpochChanged):
            before = self._told.get(event.member_id, 0)
            if event.member_epoch < before:
                self.fail(f"{event.member_id} is at {event.member_epoch} after {before}")
            self._told[event.member_id] = event.member_epoch

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        group, assignment_epoch = fact.group, fact.group.assignment_epoch
        if assignment_epoch > group.group_epoch:
            self.fail(f"the target is at {assignment_epoch}, the group at {group.group_epoch}")
        for member in group.members.values():
            if member.member_epoch > assignment_epoch:
                self.fail(
                    f"{member.member_id} is at {member.member_epoch}, the target at"
                    f" {assignment_epoch}"
                )


class StableGroup(Checker):
    """A group that says it is stable has reconciled: everybody has what is meant for them.

    STABLE: each member's assignment is its target, and together they are all there is to read.

    A coordinator that has not compared the group with the topics of the moment, or has not matched
    a pattern with them, cannot know.
    """

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        group = fact.group
        if group.state is not GroupState.STABLE:
            return
        for member in group.members.values():
            target = group.targets.get(member.member_id)
            wanted = target.partitions.partitions if target else frozenset()
            if wanted != member.assigned.keys() or member.pending_revocation:
                self.fail(f"the group is stable, but {member.member_id} has not what it should")
        is_compared = group.topics_version == self.scene.storage.image.version
        if is_compared and not self.scene.swarm.by_pattern:
            held = {key for member in group.members.values() for key in member.assigned}
            if missing := self.scene.storage.logs.keys() ^ held:
                self.fail(f"the group is stable, but these are missing or too many: {missing}")
