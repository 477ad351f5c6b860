"""Members with the assignor of Kafka Streams: their heartbeats, measurements, and computations."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from group_lab.assignors.streams import StreamsAssignor, Subtopology, Topology
from group_lab.assignors.streams_metadata import (
    AssignmentMetadata,
    MemberReason,
    StreamsError,
    TaskId,
    decode_assignment_metadata,
    decode_member,
)
from group_lab.assignors.streams_placement import StreamsConfig
from group_lab.coordinator import messages as c
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.coordinator.member import ClientAssignor
from group_lab.sim.client_side import entry_of, installed_members, received, spec_of
from lab.tests.scenarios.members import RawMembers
from lab.tests.scenarios.model_world import ModelWorld
from lab.tests.scenarios.scene import Command, Scene
from spark_groups.group.member import messages as m


class StreamsMembers(RawMembers):
    """The commands streams, lags, prepare and install, and hb for members with an assignor.

    Args:
        scene: What commands share.
        world: The world of the scene.
    """

    def __init__(self, scene: Scene, world: ModelWorld) -> None:
        super().__init__(scene)
        self.world = world
        self.commands = {
            "hb": self._heartbeat,
            "streams": self._streams,
            "lags": self._lags,
            "prepare": self._prepare,
            "install": self._install,
        }
        self._assignors: dict[str, StreamsAssignor] = {}
        self._sent: dict[str, ClientAssignor] = {}
        self._prepared: dict[str, c.PrepareAssignmentResponse] = {}

    def _streams(self, command: Command) -> list[str]:
        """`streams A B topics=foo/bar,baz acceptable.recovery.lag=100`: assignors of new members.

        Each member is an instance of its own; subtopologies are between slashes, all with state.
        """
        topics = command.options.pop("topics")
        topology = Topology(
            tuple(Subtopology(tuple(each.split(","))) for each in topics.split("/"))
        )
        names = {each.name.replace("_", "."): each.name for each in fields(StreamsConfig)}
        values = {names[name]: int(value) for name, value in command.options.items()}
        for name in command.words:
            process_id = uuid5(NAMESPACE_OID, name)
            self._assignors[name] = StreamsAssignor(process_id, topology, StreamsConfig(**values))
        return []

    def _lags(self, command: Command) -> list[str]:
        """`lags B 0_3=80`: a member measures the lags of the state that it has."""
        (name,) = command.words
        assignor = self._assignors[name]
        before = assignor.metadata()
        assignor.measure({_task(each): int(lag) for each, lag in command.options.items()})
        own = assignor.metadata()
        if own == before:
            return [f"{name}: nothing to report"]
        return [f"{name}: {_reported(own.reason, own.metadata.data)}"]

    def _heartbeat(self, command: Command) -> list[str]:
        name = command.words[0]
        request = self._request(name, command)
        command.done()
        if name not in self._assignors or request.member_epoch < 0:
            return [self._beat(name, request, [])[0]]
        if request.member_epoch == m.JOIN_GROUP_MEMBER_EPOCH:
            self._sent.pop(name, None)
        entry = entry_of(self._assignors[name])
        values: dict[str, Any] = {
            each.name: getattr(request, each.name) for each in fields(m.HeartbeatRequest)
        }
        named = None if self._sent.get(name) == entry else (entry,)
        before = self._member(name, request.group_id).member_epoch
        answer = self.world.ask(c.KipHeartbeatRequest(**values, client_assignors=named))
        text, _ = self._noted(name, request, answer, [])
        assert isinstance(answer, c.KipHeartbeatResponse)
        if answer.error_code:
            return [text]
        self._sent[name] = entry
        return [text + self._taken(name, answer, before)]

    def _taken(self, name: str, answer: c.KipHeartbeatResponse, epoch_before: int) -> str:
        """Give an answer to the assignor of its member; return what else it says."""
        text = ""
        if answer.should_compute_assignment:
            text += ", is to compute"
        if answer.assignment is not None and answer.member_epoch != epoch_before:
            assignor = self._assignors[name]
            assignor.on_assignment(answer.assignment_error, received(answer), answer.member_epoch)
            text += f"; {_tasks(assignor.assigned)}"
            if assignor.error:
                text += f"; error {_words(assignor.error)}"
        return text

    def _prepare(self, command: Command) -> list[str]:
        """`prepare A`: ConsumerGroupPrepareAssignment; shows what the assignor gets to know."""
        (name,) = command.words
        member = self._member(name, self.scene.group_id)
        request = c.PrepareAssignmentRequest(
            group_id=member.group_id, member_id=name, member_epoch=member.member_epoch
        )
        answer = self.world.shard.ask(request, self.world.now())
        assert isinstance(answer, c.PrepareAssignmentResponse)
        if answer.error_code:
            return [f"{name}: {CoordinatorErrorCode(answer.error_code).name}"]
        self._prepared[name] = answer
        return [
            f"{name}: {answer.assignor_name}, group epoch {answer.group_epoch}",
            *(
                f"  {each.member_id}: {_reported(each.reason, each.metadata_bytes)}"
                f", target {self.scene.names.partitions(each.topic_partitions)}"
                for each in answer.members
            ),
        ]

    def _install(self, command: Command) -> list[str]:
        """`install A`: the assignor computes, then ConsumerGroupInstallAssignment."""
        (name,) = command.words
        prepared = self._prepared.pop(name)
        found = self._assignors[name].assign(spec_of(prepared))
        member = self._member(name, self.scene.group_id)
        request = c.InstallAssignmentRequest(
            group_id=member.group_id,
            member_id=name,
            member_epoch=member.member_epoch,
            group_epoch=prepared.group_epoch,
            error=found.error,
            members=installed_members(found),
        )
        answer = self.world.shard.ask(request, self.world.now())
        assert isinstance(answer, c.InstallAssignmentResponse)
        if answer.error_code:
            return [f"{name}: {CoordinatorErrorCode(answer.error_code).name}"]
        if found.error:
            return [f"{name}: installed error {_words(StreamsError(found.error))}"]
        return [
            f"{name}: installed",
            *(
                f"  {each}: {_tasks(decode_assignment_metadata(own.metadata.data))}"
                f", target {self.scene.names.partitions(own.target)}"
                for each, own in sorted(found.members.items())
            ),
        ]


def _task(text: str) -> TaskId:
    subtopology, _, partition = text.partition("_")
    return TaskId(int(subtopology), int(partition))


def _reported(reason: int, data: bytes) -> str:
    """Write what a member reports."""
    lags = decode_member(data).task_lag
    listed = " ".join(f"{task}={lag}" for task, lag in sorted(lags.items()))
    return f"{_words(MemberReason(reason))}, lags {listed or 'none'}"


def _tasks(metadata: AssignmentMetadata) -> str:
    """Write the tasks of a member."""
    kinds = {
        "active": metadata.active_tasks,
        "standby": metadata.standby_tasks,
        "warm-up": metadata.warmup_tasks,
    }
    listed = (f"{kind} {' '.join(map(str, own))}" for kind, own in kinds.items() if own)
    return ", ".join(listed) or "no tasks"


def _words(value: MemberReason | StreamsError) -> str:
    """Return the KIP's name of a reason or an error."""
    return value.name.title().replace("_", "")
