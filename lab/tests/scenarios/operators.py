"""What operators see and do, and members of the classic protocol."""

from __future__ import annotations

from group_lab.coordinator import messages as c
from lab.tests.scenarios.members import RawMembers
from lab.tests.scenarios.scene import AGAIN_S, BOUND_S, Command, Scene
from lab.tests.scenarios.wording import by_topic_text, code_text
from spark_groups.group.member import messages as m
from spark_groups.types import TopicPartition


class Operators:
    """Every command that is not a member's.

    Args:
        scene: What commands share.
        members: The members by hand, for `settle`.
    """

    def __init__(self, scene: Scene, members: RawMembers) -> None:
        self.scene = scene
        self._members = members
        self.commands = {
            "topic": self._topic,
            "grow": self._grow,
            "delete": self._delete,
            "produce": self._produce,
            "describe": self._describe,
            "find-coordinator": self._find_coordinator,
            "list": self._list,
            "remove": self._remove,
            "leave": self._remove,
            "delete-offsets": self._delete_offsets,
            "delete-group": self._delete_group,
            "configure": self._configure,
            "configuration": self._configuration,
            "sleep": self._sleep,
            "restart": self._restart,
            "epochs": self._epochs,
            "partitions": self._partitions,
            "feature": self._feature,
            "only-allow": self._only_allow,
            "classic": self._classic,
            "settle": self._settle,
        }

    def _topic(self, command: Command) -> list[str]:
        name, count = command.words
        self.scene.names.created(name, self.scene.world.create_topic(name, int(count)))
        return []

    def _grow(self, command: Command) -> list[str]:
        self.scene.world.grow_topic(command.words[0], int(command.words[1]))
        return []

    def _delete(self, command: Command) -> list[str]:
        self.scene.world.delete_topic(command.words[0])
        return []

    def _produce(self, command: Command) -> list[str]:
        """`produce orders 0=5 1=5`: rows by partition."""
        rows = {int(partition): int(count) for partition, count in command.options.items()}
        self.scene.world.produce(command.words[0], rows)
        return []

    def _describe(self, command: Command) -> list[str]:
        group_id = self.scene.group_of(command)
        shown = command.take("show")
        shows_message = shown == "message"
        command.done()
        answer = self.scene.world.ask(m.DescribeGroupRequest(group_id=group_id))
        assert isinstance(answer, m.DescribeGroupResponse)
        if answer.error_code:
            text, message = code_text(answer.error_code), self.scene.message(answer.error_message)
            return [f"{text}: {message}" if shows_message else text]
        if shown == "types":
            kinds = {0: "classic", 1: "consumer"}
            types = {self._called(each): kinds[each.member_type] for each in answer.members}
            listed = ", ".join(f"{name} {types[name]}" for name in sorted(types))
            return [f"{answer.group_state}: {listed}".rstrip()]
        lines = [
            f"{answer.group_state}, group epoch"
            f" {self.scene.names.epoch_out(group_id, answer.group_epoch)}"
            f", assignment epoch {self.scene.names.epoch_out(group_id, answer.assignment_epoch)}"
            f", {answer.assignor_name}"
        ]
        for each in sorted(answer.members, key=self._called):
            about = ", classic" if each.member_type == 0 else ""
            about += f", instance {each.instance_id}" if each.instance_id else ""
            member_epoch = self.scene.names.epoch_out(group_id, each.member_epoch)
            lines.append(
                f"  {self._called(each)}: epoch {member_epoch}"
                f"{about}, has {self.scene.names.partitions(each.assignment)}"
                f", target {self.scene.names.partitions(each.target_assignment)}"
            )
        return lines

    def _called(self, member: m.DescribedMember) -> str:
        if member.client_id in self.scene.classic:
            return member.client_id
        return self.scene.member_name(member.member_id)

    def _find_coordinator(self, command: Command) -> list[str]:
        group_id = self.scene.group_of(command)
        answer = self.scene.world.ask(m.FindCoordinatorRequest(group_id=group_id))
        assert isinstance(answer, m.FindCoordinatorResponse)
        return ["found" if answer.coordinator else code_text(answer.error_code)]

    def _list(self, command: Command) -> list[str]:
        group_id = self.scene.group_of(command)
        asked = [tuple((command.take(each) or "").split()) for each in ("states", "types")]
        command.done()
        found = [
            f"{each.group_type}, {each.group_state}"
            for each in self.scene.world.list_groups(asked[0], asked[1])
            if each.group_id == group_id
        ]
        return found or ["not listed"]

    def _remove(self, command: Command) -> list[str]:
        """`remove m1 -/i2 m3/i3`: by member id, by instance id, by both."""
        group_id = self.scene.group_of(command)
        parts = [each.partition("/") for each in command.words]
        members = tuple(
            c.LeavingMember("" if name == "-" else self.scene.member_id(name), instance_id or None)
            for name, _, instance_id in parts
        )
        answer = self.scene.world.operate(c.LeaveGroupRequest(group_id=group_id, members=members))
        assert isinstance(answer, c.LeaveGroupResponse)
        if answer.error_code:
            return [code_text(answer.error_code)]
        return [
            f"{self.scene.member_name(each.member_id) or '-'}"
            f"{f'/{each.instance_id}' if each.instance_id else ''}: {code_text(each.error_code)}"
            for each in answer.members
        ]

    def _delete_offsets(self, command: Command) -> list[str]:
        """`delete-offsets orders-0 orders-1`: by name."""
        group_id = self.scene.group_of(command)
        parts = [each.rpartition("-") for each in command.words]
        partitions = frozenset(TopicPartition(topic, int(index)) for topic, _, index in parts)
        request = c.OffsetDeleteRequest(group_id=group_id, partitions=partitions)
        answer = self.scene.world.operate(request)
        assert isinstance(answer, c.OffsetDeleteResponse)
        if answer.error_code:
            return [code_text(answer.error_code)]
        return [
            f"{key.topic}-{key.partition}: {code_text(answer.errors[key])}"
            for key in sorted(answer.errors)
        ]

    def _delete_group(self, command: Command) -> list[str]:
        request = c.DeleteGroupsRequest(group_id=self.scene.group_of(command))
        answer = self.scene.world.operate(request)
        assert isinstance(answer, c.DeleteGroupsResponse)
        return [code_text(answer.error_code)]

    def _configure(self, command: Command) -> list[str]:
        group_id = self.scene.group_of(command)
        shows_message = command.take("show") == "message"
        values = {key: value or None for key, value in command.options.items()}
        code, message = self.scene.world.configure(group_id, values)
        return [f"{code_text(code)}: {message}" if shows_message and code else code_text(code)]

    def _configuration(self, command: Command) -> list[str]:
        found = self.scene.world.configuration(self.scene.group_id)
        return [
            f"{key}: {found[key][0]}, from {found[key][1]}" if key in found else f"{key}: not known"
            for key in command.words
        ]

    def _sleep(self, command: Command) -> list[str]:
        seconds = float(command.words[0])
        self.scene.world.sleep(seconds)
        self.scene.slept_s += seconds
        return []

    def _restart(self, _command: Command) -> list[str]:
        """Stop the coordinator and start it again."""
        self.scene.world.restart()
        return []

    def _epochs(self, command: Command) -> list[str]:
        """`epochs as-sent`: show the broker's epochs, not counted from the first."""
        assert command.words == ["as-sent"], command.words
        self.scene.names.absolute = True
        return []

    def _partitions(self, command: Command) -> list[str]:
        """`partitions counted`: show how many, where ids of the broker decide which."""
        assert command.words == ["counted"], command.words
        self.scene.names.counted = True
        return []

    def _feature(self, command: Command) -> list[str]:
        for name, level in command.options.items():
            self.scene.world.set_feature(name, int(level))
        return []

    def _only_allow(self, command: Command) -> list[str]:
        resource, name, operation = command.words
        self.scene.world.allow(resource, self.scene.group_id if name == "-" else name, operation)
        return []

    def _classic(self, command: Command) -> list[str]:
        name, what = command.words
        if what == "join":
            self.scene.classic[name] = self.scene.world.classic_client(
                name,
                self.scene.group_id,
                command.options["topics"],
                command.options["strategy"],
            )
            return []
        if what == "close":
            self.scene.classic[name].close()
            return [f"{name}: closed"]
        return [f"{name}: has {by_topic_text(self.scene.classic[name].poll())}"]

    def _settle(self, command: Command) -> list[str]:
        """Let members of both protocols live until each has so many partitions."""
        each = int(command.options["each"])
        deadline = self.scene.world.now() + BOUND_S
        while True:
            has = {name: self._lives(name) for name in command.words}
            sizes = {name: len(pairs) for name, pairs in has.items()}
            if set(sizes.values()) == {each} and self._is_stable():
                together: dict[str, set[int]] = {}
                for topic, index in (pair for pairs in has.values() for pair in pairs):
                    together.setdefault(topic, set()).add(index)
                counts = ", ".join(f"{name} {size}" for name, size in sizes.items())
                return [f"{counts}; together {by_topic_text(together)}"]
            if self.scene.world.now() > deadline:
                raise AssertionError(f"not within {BOUND_S:g} s: {each} for each, but {sizes}")
            self.scene.world.sleep(AGAIN_S)

    def _lives(self, name: str) -> set[tuple[str, int]]:
        if name in self.scene.classic:
            polled = self.scene.classic[name].poll()
            return {(topic, index) for topic, indexes in polled.items() for index in indexes}
        has = self._members.live(name)
        return {(self.scene.names.name(key.topic_id), key.partition) for key in has}

    def _is_stable(self) -> bool:
        listed = self.scene.world.list_groups((), ())
        return any(
            each.group_id == self.scene.group_id and each.group_state == "Stable" for each in listed
        )
