"""Members by hand: every heartbeat, commit and fetch is written down, right or wrong."""

from __future__ import annotations

from dataclasses import replace

from group_lab.coordinator.messages import KipHeartbeatResponse
from lab.tests.scenarios.scene import AGAIN_S, BOUND_S, Command, RawMember, Scene
from lab.tests.scenarios.wording import code_text
from spark_groups.group.member import messages as m
from spark_groups.types import NO_PARTITIONS, Assignment

REBALANCE_MS = 30_000


class RawMembers:
    """The commands hb, hb-until, commit and fetch.

    Args:
        scene: What commands share.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.commands = {
            "hb": self._heartbeat,
            "hb-until": self._heartbeat_until,
            "commit": self._commit,
            "fetch": self._fetch,
        }

    def live(self, name: str) -> Assignment:
        """Send one heartbeat, acknowledging the assignment, and show the assignment."""
        member = self.scene.raw[name]
        request = m.HeartbeatRequest(
            group_id=member.group_id,
            member_id=name,
            member_epoch=member.member_epoch,
            instance_id=member.instance_id,
        )
        self._beat(name, replace(request, topic_partitions=member.assigned), [])
        return member.assigned

    def _epoch(self, group_id: str, received: int, text: str | None) -> int:
        """Read an epoch: the last received one by default, `+1` one more, `old` one less."""
        if text is None:
            return received
        if text.startswith("+"):
            return received + int(text)
        return self.scene.names.epoch_in(group_id, int(text))

    def _member(self, name: str, group_id: str) -> RawMember:
        classic = self.scene.raw_classic.get(name)
        if classic is not None:
            # Commits and fetches have a generation in the place of an epoch.
            instance_id = classic.join.group_instance_id
            return RawMember(group_id, classic.generation_id, instance_id=instance_id)
        return self.scene.raw.setdefault(name, RawMember(group_id))

    def _request(self, name: str, command: Command) -> m.HeartbeatRequest:
        group_id = self.scene.group_of(command)
        member, how = self._member(name, group_id), set(command.words[1:])
        topics, regex = command.take("topics"), command.take("regex")
        names = None if topics is None else tuple(topics.split(",")) if topics else ()
        instance_id = command.take("instance")
        if "join" in how:
            self.scene.raw[name] = member = RawMember(
                group_id, instance_id=instance_id, topics=names, regex=regex
            )
        epoch = self._epoch(group_id, member.member_epoch, command.take("epoch"))
        epoch = 0 if "join" in how else -1 if "leave" in how else -2 if "return" in how else epoch
        owned = command.take("owned")
        rebalance = command.take("rebalance")
        full = bool(how & {"join", "full"})
        return m.HeartbeatRequest(
            group_id=group_id,
            member_id="" if name == "-" else name,
            member_epoch=epoch,
            instance_id=member.instance_id if instance_id is None else instance_id,
            rack_id=command.take("rack"),
            rebalance_timeout_ms=int(rebalance or (REBALANCE_MS if full else -1)),
            subscribed_topic_names=member.topics if full and names is None else names,
            subscribed_topic_regex=member.regex if full and regex is None else regex,
            server_assignor=command.take("assignor"),
            topic_partitions=self._owned(member, owned, how),
        )

    def _owned(self, member: RawMember, text: str | None, how: set[str]) -> Assignment | None:
        if text is None:
            return NO_PARTITIONS if "join" in how else member.assigned if "full" in how else None
        return member.assigned if text == "all" else self.scene.names.assignment(text)

    def _heartbeat(self, command: Command) -> list[str]:
        name = command.words[0]
        shown = (command.take("show") or "").split(",")
        request = self._request(name, command)
        command.done()
        return [self._beat(name, request, shown)[0]]

    def _beat(self, name: str, request: m.HeartbeatRequest, shown: list[str]) -> tuple[str, bool]:
        """Send a heartbeat; return its answer, and whether that is new."""
        return self._noted(name, request, self.scene.world.ask(request), shown)

    def _noted(
        self,
        name: str,
        request: m.HeartbeatRequest,
        answer: m.Response | m.RequestFailed,
        shown: list[str],
    ) -> tuple[str, bool]:
        """Note the answer to a heartbeat."""
        if isinstance(answer, m.RequestFailed):
            return f"{name}: no answer: {answer.reason}", True
        assert isinstance(answer, m.HeartbeatResponse)
        if answer.error_code:
            text = code_text(answer.error_code)
            if "message" in shown:
                text += f": {self.scene.message(answer.error_message)}"
            return f"{name}: {text}", True
        member = self._member(name, request.group_id)
        self.scene.names.note_epoch(request.group_id, answer.member_epoch)
        is_new = answer.member_epoch != member.member_epoch or answer.assignment is not None
        member.member_epoch = answer.member_epoch
        text = f"epoch {self.scene.names.epoch_out(request.group_id, answer.member_epoch)}"
        if answer.member_epoch < 0:
            return f"{name}: left", is_new
        if answer.assignment is not None:
            member.assigned = answer.assignment
            text += f", assigned {self.scene.names.partitions(answer.assignment)}"
        if isinstance(answer, KipHeartbeatResponse) and answer.pending_topic_partitions.partitions:
            text += f", pending {self.scene.names.partitions(answer.pending_topic_partitions)}"
        if "interval" in shown:
            text += f", a heartbeat every {answer.heartbeat_interval_ms} ms"
        return f"{name}: {text}", is_new

    def _heartbeat_until(self, command: Command) -> list[str]:
        """Repeat a plain heartbeat until its answer changes."""
        name = command.words[0]
        least, _, most = (command.take("between") or f"0..{BOUND_S}").partition("..")
        request = self._request(name, command)
        command.done()
        began_at = self.scene.world.now()
        while True:
            text, is_new = self._beat(name, request, [])
            passed_s = self.scene.world.now() - began_at
            if is_new or passed_s > float(most):
                break
            self.scene.world.sleep(AGAIN_S)
        if not is_new:
            return [f"{text}, nothing new within {most} s"]
        if passed_s < float(least):
            text += f", before {least} s had passed"
        elif float(least) > 0:
            text += f", after {least} s or more"
        return [text]

    @staticmethod
    def _asked_epoch(command: Command) -> str | None:
        epoch, generation = command.take("epoch"), command.take("generation")
        return epoch if generation is None else generation

    def _commit(self, command: Command) -> list[str]:
        name = command.words[0]
        group_id = self.scene.group_of(command)
        member = self._member(name, group_id)
        version, old = int(command.take("v") or 9), "old" in command.words[1:]
        epoch = self._epoch(group_id, member.member_epoch, self._asked_epoch(command))
        instance_id = command.take("instance") or member.instance_id
        extra = "x" * int(command.take("metadata") or 0)
        first, _, last = (command.take("all") or "").partition("..")
        wanted = {each: int(offset) for each, offset in command.options.items()}
        if first:
            topic, _, begin = first.rpartition("-")
            wanted |= {f"{topic}-{index}": 1 for index in range(int(begin), int(last) + 1)}
        request = m.OffsetCommitRequest(
            group_id=group_id,
            member_id="" if name == "-" else self.scene.member_id(name),
            member_epoch=-1 if name == "-" else epoch,
            instance_id=None if instance_id == "-" else instance_id,
            offsets={
                self.scene.names.key(each, old=old): m.OffsetAndMetadata(offset, extra)
                for each, offset in wanted.items()
            },
        )
        answers = self.scene.world.commit(request, self.scene.names.wire_names(), version)
        codes = {
            f"{self.scene.names.name(topic_id)}-{index}": code_text(code)
            for (topic_id, index), code in answers.items()
        }
        if first:
            return [f"{name}: {len(codes)} partitions {', '.join(sorted(set(codes.values())))}"]
        return [f"{name}: " + ", ".join(f"{key} {codes[key]}" for key in sorted(codes))]

    def _fetch(self, command: Command) -> list[str]:
        name, *keys = command.words
        group_id = self.scene.group_of(command)
        member = self._member(name, group_id)
        version = int(command.take("v") or 9)
        epoch = self._epoch(group_id, member.member_epoch, self._asked_epoch(command))
        command.done()
        request = m.OffsetFetchRequest(
            group_id=group_id,
            member_id=None if name == "-" else self.scene.member_id(name),
            member_epoch=-1 if name == "-" else epoch,
            partitions=frozenset(self.scene.names.key(each) for each in keys),
        )
        answer = self.scene.world.fetch(request, self.scene.names.wire_names(), version)
        if answer.error_code:
            return [f"{name}: {code_text(answer.error_code)}"]
        found = {
            f"{self.scene.names.name(key.topic_id)}-{key.partition}": code_text(each.error_code)
            if isinstance(each, m.PartitionError)
            else str(each.committed_offset)
            for key, each in answer.answers.items()
        }
        return [f"{name}: " + ", ".join(f"{key} {found[key]}" for key in sorted(found))]
