"""The state of the group at the coordinator."""

from __future__ import annotations

from typing import Final

from group_lab.coordinator.classic.group import ClassicGroup, ClassicState
from group_lab.coordinator.design_0_9.group import CoordinatorState, DesignGroup
from group_lab.coordinator.group import ConsumerGroup, GroupState
from group_lab.coordinator.member import GroupMember
from group_lab.coordinator.records import TargetMemberValue
from group_lab.sim import facts
from group_lab.sim.checkers.checker import Checker, on
from group_lab.sim.embedded_protocols import assignments_of
from group_lab.sim.history import History
from group_lab.sim.scene import Scene
from spark_groups.group.member.events import EpochChanged, PartitionsAssigned
from spark_groups.types import TopicIdPartition, TopicPartition

SLACK_S: Final = 2.0
"""Allowed delay: a failed append is retried after a second."""


class TimeoutsEnforced(Checker):
    """The coordinator removes members by their session and rebalance timeouts.

    Each coordinator starts the timeouts again when it takes over.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._revoking: dict[str, tuple[object, float, int]] = {}
        """The partitions that each member must revoke, since when, and its rebalance timeout then.

        A later timeout, or a late heartbeat with an earlier one, counts for the next revocation.
        """

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        self._check(fact.group)

    @on(facts.Quiet)
    def _quiet(self, _fact: facts.Quiet) -> None:
        self._check(self.scene.coordination.group)

    @on(facts.Replaced)
    def _replaced(self, _fact: facts.Replaced) -> None:
        self._revoking.clear()

    def _check(self, group: ConsumerGroup) -> None:
        coordination = self.scene.coordination
        if not coordination.answers:
            return
        now = self.scene.now
        for member in group.members.values():
            last_heartbeat_at = coordination.last_heartbeat_at.get(member.member_id, now)
            silent_s = self._overdue_s(last_heartbeat_at, self.scene.swarm.session_s)
            if silent_s > 0:
                self.fail(
                    f"{member.member_id} has been silent {silent_s:.1f} s"
                    " longer than its session timeout"
                )
            self._check_revocation(member)
        for gone in self._revoking.keys() - group.members.keys():
            del self._revoking[gone]

    def _check_revocation(self, member: GroupMember) -> None:
        if not member.pending_revocation:
            self._revoking.pop(member.member_id, None)
            return
        revoking = frozenset(member.pending_revocation)
        # A classic member's rebalance timeout begins with its next heartbeat.
        until_heartbeat_ms = member.classic.session_timeout_ms if member.classic else 0
        begun = (revoking, self.scene.now, member.rebalance_timeout_ms + until_heartbeat_ms)
        known, since, timeout_ms = self._revoking.setdefault(member.member_id, begun)
        if revoking != known:
            self._revoking[member.member_id] = begun
            return
        slow_s = self._overdue_s(since, timeout_ms / 1000)
        if slow_s > 0:
            self.fail(
                f"{member.member_id} has been revoking {slow_s:.1f} s"
                " longer than its rebalance timeout"
            )

    def _overdue_s(self, since: float, timeout_s: float) -> float:
        # No member can be removed while appends fail.
        due_at = max(since + timeout_s, self.scene.coordination.failing_until)
        return self.scene.now - due_at - SLACK_S - self.scene.swarm.replication_s


class LegalTarget(Checker):
    """A target assigns each partition once, and only to members.

    So does the leader of a generation of a classic group, and the coordinator of the 0.9 design.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._targets: list[tuple[str, TargetMemberValue]] = []
        self._member_ids: list[str] = []
        self._generation_id = 0
        """The last generation that was checked."""

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        group = fact.group
        if group.in_memory:
            self._check_generation(group.in_memory)
            return
        targets, member_ids = list(group.targets.items()), list(group.members)
        if targets == self._targets and member_ids == self._member_ids:
            # Most changes are commits.
            return
        self._targets, self._member_ids = targets, member_ids
        targeted: dict[TopicIdPartition, str] = {}
        for member_id, target in targets:
            if member_id not in group.members:
                self.fail(f"{member_id} has a target and is not a member")
            for key in target.partitions.partitions:
                if targeted.setdefault(key, member_id) != member_id:
                    self.fail(f"{key} is assigned to {targeted[key]} and to {member_id}")

    def _check_generation(self, group: ClassicGroup | DesignGroup) -> None:
        """Check what the members of a generation were assigned."""
        is_steady = group.state in (ClassicState.STABLE, CoordinatorState.STEADY)
        if not is_steady or group.generation_id == self._generation_id:
            return
        self._generation_id = group.generation_id
        targeted: dict[TopicPartition, str] = {}
        for member_id, partitions in assignments_of(group).items():
            for key in partitions:
                if targeted.setdefault(key, member_id) != member_id:
                    self.fail(f"{key} is assigned to {targeted[key]} and to {member_id}")


class MemberEpochs(Checker):
    """Member epochs never go back, and never exceed the target's or the group's.

    An epoch that a coordinator lost before replicating it was never sent to a member. A consumer of
    the 0.9 design is assigned partitions once in a generation: its generation ids increase.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._epochs: dict[str, int] = {}

    @on(facts.Happened)
    def _happened(self, fact: facts.Happened) -> None:
        event = fact.event
        if isinstance(event, EpochChanged):
            before = self._epochs.get(event.member_id, 0)
            if event.member_epoch < before:
                self.fail(f"{event.member_id} is at {event.member_epoch} after {before}")
            self._epochs[event.member_id] = event.member_epoch

    @on(facts.ClassicHappened)
    def _assigned(self, fact: facts.ClassicHappened) -> None:
        event = fact.event
        is_design = self.scene.coordination.profile.assigns_in_join
        # A consumer that was fenced meanwhile reports its assignment without a generation.
        if is_design and isinstance(event, PartitionsAssigned) and event.member_epoch >= 0:
            before = self._epochs.get(event.member_id, 0)
            if event.member_epoch <= before:
                self.fail(f"{event.member_id} is assigned {event.member_epoch} after {before}")
            self._epochs[event.member_id] = event.member_epoch

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


class ComputationIsDue(Checker):
    """A member computes the target only while the group epoch is ahead of it.

    The coordinator may compute it itself meanwhile, and then stops the member's computation: no
    other check would notice one that runs for nothing, because its result is refused.
    """

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        group, coordination = fact.group, self.scene.coordination
        member_id = coordination.computing_member_id
        is_due = group.group_epoch > group.assignment_epoch
        if coordination.answers and member_id is not None and not is_due:
            self.fail(
                f"{member_id} computes a target, but that of group epoch {group.group_epoch} is"
                " there already"
            )


class StableGroup(Checker):
    """In a STABLE group each member has its target, and all partitions are assigned.

    The latter needs a coordinator that has compared the group with the current topics, and has
    resolved its patterns with them. After an error of a client-side assignor neither holds: the
    targets of earlier topics are kept.
    """

    @on(facts.GroupChanged)
    def _changed(self, fact: facts.GroupChanged) -> None:
        group = fact.group
        if group.state is not GroupState.STABLE:
            return
        if group.target_metadata and group.target_metadata.error:
            return
        for member in group.members.values():
            target = group.targets.get(member.member_id)
            wanted = target.partitions.partitions if target else frozenset()
            if wanted != member.assigned.keys() or member.pending_revocation:
                self.fail(f"the group is stable, but {member.member_id} does not have its target")
        is_compared = group.topics_version == self.scene.storage.image.version
        if is_compared and not self.scene.swarm.by_pattern:
            held = {key for member in group.members.values() for key in member.assigned}
            if missing := self.scene.storage.logs.keys() ^ held:
                self.fail(f"the group is stable, but unassigned or missing are {missing}")
