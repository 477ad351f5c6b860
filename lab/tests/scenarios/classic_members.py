"""Members of the classic protocol by hand: every join, sync and heartbeat is written down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from group_lab.assignors.embedded import encode_assignment, encode_subscription
from group_lab.coordinator.classic import messages as k
from lab.tests.scenarios.scene import AGAIN_S, BOUND_S, ClassicMember, Command, Scene
from lab.tests.scenarios.wording import MEMBER_ID_REQUIRED, code_text, partitions_by_name
from lab.tests.scenarios.world import Asked, ClassicRequest, ClassicResponse
from spark_groups.group.member.embedded import (
    NO_GENERATION,
    EmbeddedAssignment,
    Subscription,
    decode_assignment,
)
from spark_groups.types import TopicPartition

SESSION_MS = 60_000
REBALANCE_MS = 60_000
NOT_TAKEN = "nothing-known"
"""A member id that no coordinator generated."""
ASSIGNED = re.compile(r"(\S+) ([^,;\s](?:[^;]*[^;\s])?)\s*(?:;|$)")


class ClassicMembers:
    """The commands join, sync, beat, leave, await, rebalance and describe-groups.

    Args:
        scene: What commands share.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.commands = {
            "join": self._join,
            "sync": self._sync,
            "beat": self._beat,
            "await": self._await,
            "rebalance": self._rebalance,
            "describe-groups": self._describe,
        }
        self._asked: dict[str, ClassicRequest] = {}

    def arrived(self) -> list[str]:
        """Return the answers that came to requests that waited."""
        if all(each.sent is None for each in self.scene.raw_classic.values()):
            return []
        self.scene.world.settle()
        return self._arrived(list(self.scene.raw_classic))

    # Requests.

    def _join(self, command: Command) -> list[str]:
        """`join m1 m2 topics=foo protocols=range`: a member without an id asks for one first."""
        names = [each for each in command.words if each != "once"]
        by_name = {name: self._joining(name, command) for name in names}
        command.options.clear()
        lines: list[str] = []
        if "once" not in command.words:
            for name in names:
                self._ask_for_id(name)
        for name in names:
            request = by_name[name]
            if not request.member_id and "once" not in command.words:
                request = replace(request, member_id=self.scene.raw_classic[name].member_id)
            lines += self._send(name, request)
        return lines

    def _ask_for_id(self, name: str) -> None:
        """Get a member id, as clients do: the coordinator answers a first join with one."""
        member = self.scene.raw_classic[name]
        if member.member_id or member.join.member_id or member.join.group_instance_id:
            return
        answer = self._wait(self.scene.world.send(member.join), f"an id of {name}")
        assert isinstance(answer, k.JoinGroupResponse)
        if answer.error_code == MEMBER_ID_REQUIRED:
            member.member_id = answer.member_id

    def _joining(self, name: str, command: Command) -> k.JoinGroupRequest:
        """Return the join of a member: options that are not given are those of its last one."""
        options = dict(command.options)
        group_id = options.pop("group", self.scene.group_id)
        member = self.scene.raw_classic.get(name)
        if member is None:
            first = k.JoinGroupRequest(
                group_id=group_id, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS
            )
            member = self.scene.raw_classic[name] = ClassicMember(first)
        before = member.join
        names = options.pop("protocols", None)
        member.subscription = self._subscription(member, options)
        metadata = encode_subscription(member.subscription)
        protocols = names.split(",") if names else [each.name for each in before.protocols]
        if names == "":
            protocols = []
        instance_id = self._instance_of(member, options.pop("instance", None))
        member_id = options.pop("id", None)
        if member_id == "-":
            member.member_id = ""
        member.join = k.JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=int(options.pop("session", before.session_timeout_ms)),
            rebalance_timeout_ms=int(options.pop("rebalance", before.rebalance_timeout_ms)),
            member_id=member.member_id if member_id is None else self._id_of(member_id),
            group_instance_id=instance_id,
            protocol_type=options.pop("type", before.protocol_type),
            protocols=tuple(k.ClassicProtocol(each, metadata) for each in protocols),
        )
        if options:
            raise ValueError(f"join has no option {', '.join(sorted(options))}")
        return member.join

    def _id_of(self, text: str) -> str:
        """Return the id that a command names: `-` is none, a member's name its id."""
        if text == "-":
            return ""
        is_known = text in self.scene.raw_classic or text in self.scene.raw
        return self.scene.member_id(text) if is_known else NOT_TAKEN

    @staticmethod
    def _instance_of(member: ClassicMember, text: str | None) -> str | None:
        """Return the instance id of a request: `-` is none."""
        return member.join.group_instance_id if text is None else None if text == "-" else text

    def _subscription(self, member: ClassicMember, options: dict[str, str]) -> Subscription:
        before = member.subscription
        topics, owned = options.pop("topics", None), options.pop("owned", None)
        text, version = options.pop("generation", None), options.pop("version", None)
        user_data, rack_id = options.pop("user-data", None), options.pop("rack", None)
        generation_id = int(text) if text else member.generation_id if owned else NO_GENERATION
        return Subscription(
            topics=before.topics if topics is None else tuple(filter(None, topics.split(","))),
            user_data=before.user_data if user_data is None else user_data.encode() or None,
            owned_partitions=(
                member.assigned if owned == "all" else partitions_by_name(owned or "none")
            ),
            generation_id=generation_id,
            rack_id=before.rack_id if rack_id is None else rack_id,
            version=before.version if version is None else int(version),
        )

    def _sync(self, command: Command) -> list[str]:
        """`sync m1 m2 assign="m1 foo[0-1]; m2 foo[2-3]"`: only the leader's has the assignment."""
        assigned = self._assignments(command.take("assign"), command.take("user-data"))
        options = {key: command.take(key) for key in ("generation", "id", "instance", "protocol")}
        command.done()
        lines: list[str] = []
        for name in command.words:
            member = self.scene.raw_classic[name]
            generation, member_id = options["generation"], options["id"]
            instance_id, protocol = options["instance"], options["protocol"]
            request = k.SyncGroupRequest(
                group_id=member.join.group_id,
                generation_id=int(generation) if generation else member.generation_id,
                member_id=member.member_id if member_id is None else self._id_of(member_id),
                group_instance_id=self._instance_of(member, instance_id),
                protocol_type=member.join.protocol_type,
                protocol_name=protocol or member.protocol_name,
                assignments=assigned if member.leads else {},
            )
            lines += self._send(name, request)
        return lines

    def _assignments(self, text: str | None, user_data: str | None) -> Mapping[str, bytes]:
        """Read assignments by member, as the leader sends them."""
        found = {
            self.scene.member_id(name): encode_assignment(
                EmbeddedAssignment(
                    partitions=partitions_by_name(partitions),
                    user_data=user_data.encode() if user_data else None,
                )
            )
            for name, partitions in ASSIGNED.findall(text or "")
        }
        if text and not found:
            raise ValueError(f"{text!r} is no assignment: write m1 foo[0-1]; m2 foo[2-3]")
        return found

    def _beat(self, command: Command) -> list[str]:
        options = {key: command.take(key) for key in ("generation", "id", "instance")}
        command.done()
        lines: list[str] = []
        for name in command.words:
            member = self.scene.raw_classic[name]
            generation, member_id = options["generation"], options["id"]
            request = k.ClassicHeartbeatRequest(
                group_id=member.join.group_id,
                generation_id=int(generation) if generation else member.generation_id,
                member_id=member.member_id if member_id is None else self._id_of(member_id),
                group_instance_id=self._instance_of(member, options["instance"]),
            )
            answer = self._wait(self.scene.world.send(request), f"a heartbeat of {name}")
            lines.append(f"{name}: {code_text(answer.error_code)}")
        return lines

    def _await(self, command: Command) -> list[str]:
        """Wait for the answers to requests that the coordinator kept waiting."""
        for name in command.words:
            sent = self.scene.raw_classic[name].sent
            if sent is None:
                raise ValueError(f"{name} does not wait for an answer")
            self._wait(sent, f"the answer to {name}")
        return self._arrived(command.words)

    def _rebalance(self, command: Command) -> list[str]:
        """Let members join and sync; a leader computes what the line says.

        `rebalance A B topics=foo protocols=range assign="A foo[0-2]; B foo[3-5]"`.
        """
        names, assign = command.words, command.take("assign")
        self._join(command)
        members = self.scene.raw_classic
        self._await_all(names)
        (leader,) = (name for name in names if members[name].leads)
        lines = [f"generation {members[leader].generation_id}, {members[leader].protocol_name},"]
        lines[0] += f" leader {leader}"
        self._sync(Command("sync", list(names), {"assign": assign} if assign else {}))
        self._await_all(names)
        return [*lines, *(f"{name}: {self._has(members[name])}" for name in names)]

    def _await_all(self, names: list[str]) -> None:
        waiting = [name for name in names if self.scene.raw_classic[name].sent]
        said = self._await(Command("await", waiting))
        refused = [line for line in said if not re.search(r": (generation|assigned) ", line)]
        if refused:
            raise AssertionError(f"the rebalance failed: {'; '.join(refused)}")

    def _describe(self, command: Command) -> list[str]:
        """DescribeGroups: only the leader's protocol and members of a stable group are known."""
        request = k.DescribeGroupsRequest(group_id=self.scene.group_of(command))
        command.done()
        answer = self._wait(self.scene.world.send(request), "a description")
        assert isinstance(answer, k.DescribeGroupsResponse)
        if answer.error_code:
            return [f"{code_text(answer.error_code)}: {self.scene.message(answer.error_message)}"]
        members = {self.scene.member_name(each.member_id): each for each in answer.members}
        lines = [", ".join(filter(None, (answer.group_state, answer.protocol_data)))]
        for name in sorted(members):
            each = members[name]
            about = f", instance {each.group_instance_id}" if each.group_instance_id else ""
            has = self._text(decode_assignment(each.member_assignment).partitions)
            lines.append(f"  {name}{about}: has {has}")
        return lines

    # Answers.

    def _send(self, name: str, request: ClassicRequest) -> list[str]:
        """Send a join or a sync; return its answer, or that it waits."""
        member = self.scene.raw_classic[name]
        assert member.sent is None, f"{name} already waits for an answer"
        self._asked[name] = request
        member.sent = self.scene.world.send(request)
        self.scene.world.settle()
        lines = self._arrived(list(self.scene.raw_classic))
        return lines if member.sent is None else [*lines, f"{name}: waits"]

    def _arrived(self, names: list[str]) -> list[str]:
        members = self.scene.raw_classic
        answers = {name: sent.answer() for name in names if (sent := members[name].sent)}
        if any(answers.values()):
            # Often several members are answered together.
            self.scene.world.settle()
            answers = {name: sent.answer() for name in names if (sent := members[name].sent)}
        for name, answer in answers.items():
            # All ids are known before an answer that names them is shown.
            if isinstance(answer, k.JoinGroupResponse) and not answer.error_code:
                members[name].member_id = answer.member_id
        lines: list[str] = []
        for name, answer in answers.items():
            if answer is not None:
                members[name].sent = None
                lines.append(f"{name}: {self._took(members[name], answer)}")
        return lines

    def _took(self, member: ClassicMember, answer: ClassicResponse) -> str:
        """Change a member by an answer, and return how the answer is shown."""
        if isinstance(answer, k.JoinGroupResponse):
            return self._joined(member, answer)
        assert isinstance(answer, k.SyncGroupResponse)
        if answer.error_code:
            return code_text(answer.error_code)
        member.assigned = decode_assignment(answer.assignment).partitions
        return f"assigned {self._has(member)}"

    def _joined(self, member: ClassicMember, answer: k.JoinGroupResponse) -> str:
        if answer.error_code == MEMBER_ID_REQUIRED:
            member.member_id = answer.member_id
        if answer.error_code:
            return code_text(answer.error_code)
        member.generation_id = answer.generation_id
        member.protocol_name = answer.protocol_name
        leads = answer.leader == answer.member_id
        member.leads = answer.members if leads else ()
        self.scene.names.note_epoch(member.join.group_id, answer.generation_id)
        generation = self.scene.names.epoch_out(member.join.group_id, answer.generation_id)
        text = f"generation {generation}, {answer.protocol_name}"
        if leads:
            text += f", leads {' '.join(sorted(self._called(each) for each in answer.members))}"
        else:
            leader = self.scene.member_name(answer.leader)
            text += f", follows {leader}" if leader else ", no leader"
        return f"{text}, skips the assignment" if answer.skip_assignment else text

    def _called(self, member: k.JoinedMember) -> str:
        name = self.scene.member_name(member.member_id)
        return f"{name}/{member.group_instance_id}" if member.group_instance_id else name

    def _has(self, member: ClassicMember) -> str:
        return self._text(member.assigned)

    def _text(self, partitions: frozenset[TopicPartition]) -> str:
        by_name: dict[str, list[int]] = {}
        for each in partitions:
            by_name.setdefault(each.topic, []).append(each.partition)
        return self.scene.names.by_name(by_name)

    def _wait(self, sent: Asked, what: str) -> ClassicResponse:
        deadline = self.scene.world.now() + BOUND_S
        while (answer := sent.answer()) is None:
            if self.scene.world.now() > deadline:
                raise AssertionError(f"not within {BOUND_S:g} s: {what}")
            self.scene.world.sleep(AGAIN_S)
        return answer
