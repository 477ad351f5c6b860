"""The commands of the 0.9 design's scenarios: requests written by hand, to the model.

The design was never in a release, so there is no broker to record. A consumer keeps the last id and
generation that it was answered; nothing is sent without a command.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from group_lab.coordinator import records as r
from group_lab.coordinator.design_0_9.group import CoordinatorState, DesignGroup
from group_lab.coordinator.design_0_9.messages import (
    LOADING_ERRORS,
    DesignErrorCode,
    DesignHeartbeatRequest,
    DesignJoinGroupRequest,
    DesignJoinGroupResponse,
)
from group_lab.coordinator.log import Log
from group_lab.coordinator.messages import error_answer
from group_lab.coordinator.profile import DESIGN_0_9
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.shard import Shard, Ticket
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from lab.tests.scenarios.scene import Command
from lab.tests.scenarios.wording import by_topic_text
from spark_groups.group.member.messages import (
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from spark_groups.types import TopicIdPartition, TopicPartition

GROUP = "group"


@dataclass
class Consumer:
    """What a consumer knows, and how it joins.

    Args:
        consumer_id: Its id by its last JoinGroup response; "" before.
        loses_response: Its next JoinGroup response gets lost.
    """

    topics: tuple[str, ...] = ()
    session_ms: int = 10_000
    strategy: str = "range"
    consumer_id: str = ""
    generation_id: int = -1
    loses_response: bool = False


class DesignStage:
    """One scenario.

    Args:
        moved: `DesignGroup.moved`; the caller puts `self.moved` in its place.
    """

    def __init__(self, moved: Callable[[DesignGroup, CoordinatorState], DesignGroup]) -> None:
        self.commands: dict[str, Callable[[Command], list[str]]] = {
            "topic": self._topic,
            "grow": self._topic,
            "join": self._join,
            "beat": self._beat,
            "commit": self._commit,
            "fetch": self._fetch,
            "find": self._find,
            "sleep": self._sleep,
            "state": self._state,
            "metadata": self._metadata,
            "lose-response": self._lose_response,
            "hold-writes": self._hold_writes,
            "write": self._write,
            "lose-write": self._lose_write,
            "fail-over": self._fail_over,
            "coordinator-dies": self._dies,
            "coordinator-loads": self._loads,
        }
        self.consumers: dict[str, Consumer] = {}
        self.log = Log()
        self.now = 0.0
        self.topics = TopicsImage()
        self._original = moved
        self._states: list[CoordinatorState] = []
        self._waiting: list[tuple[str, Ticket]] = []
        self._ids: list[tuple[str, str]] = []
        self._made = 0
        self._holds = False
        self._node = 1
        self._loading = False
        self.shard = self._new_shard()

    def play(self, line: str) -> list[str]:
        """Run one command and return what it prints."""
        command = Command.parse(line)
        if command.name not in self.commands:
            raise ValueError(f"no command {command.name!r}: {', '.join(sorted(self.commands))}")
        said = self.commands[command.name](command)
        command.done()
        return [*said, *self._passed()]

    def moved(self) -> Callable[[DesignGroup, CoordinatorState], DesignGroup]:
        """Return `DesignGroup.moved` that notes the states that the coordinator goes through."""

        def noted(group: DesignGroup, state: CoordinatorState) -> DesignGroup:
            self._states.append(state)
            return self._original(group, state)

        return noted

    def _new_shard(self) -> Shard:
        return Shard(
            DESIGN_0_9, Settings(), self.topics, self.log, self.now, make_classic_id=self._new_id
        )

    def _new_id(self, prefix: str) -> str:
        """Make ids in the order of the joins, in which strategies then assign."""
        self._made += 1
        return f"{prefix}-{self._made:02}"

    def _passed(self) -> list[str]:
        """Return what happened besides: responses to parked joins, and states gone through."""
        lines = []
        waiting, self._waiting = self._waiting, []
        for name, ticket in waiting:
            if ticket.response is None:
                self._waiting.append((name, ticket))
            else:
                lines.append(self._said(name, ticket))
        states, self._states = self._states, []
        return lines + [f"coordinator: {', '.join(each.value for each in states)}"] * bool(states)

    # What the consumers send.

    def _join(self, command: Command) -> list[str]:
        """`join A topics=orders,clicks session=10 strategy=range id=none`: a JoinGroup."""
        (name,) = command.words
        consumer = self.consumers.setdefault(name, Consumer())
        if topics := command.take("topics"):
            consumer.topics = tuple(topics.split(","))
        if session := command.take("session"):
            consumer.session_ms = round(float(session) * 1000)
        consumer.strategy = command.take("strategy") or consumer.strategy
        sent_id = command.take("id") or consumer.consumer_id
        request = DesignJoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=consumer.session_ms,
            topics=consumer.topics,
            consumer_id="" if sent_id == "none" else sent_id,
            partition_assignment_strategy=consumer.strategy,
        )
        ticket = self._send(command, request)
        parked = self.shard.parked.items()
        self._ids += [(key.member_id, name) for key, each in parked if each is ticket]
        if request.consumer_id:
            # A JoinGroup that is sent again replaces the first, unless it cannot be recognized.
            self._waiting = [each for each in self._waiting if each[0] != name]
        return self._taken(name, ticket)

    def _taken(self, name: str, ticket: Ticket) -> list[str]:
        """Replicate what a request wrote; its response is shown now, or when it arrives."""
        self._waiting.append((name, ticket))
        self._replicate()
        return [f"{name}: waits"] if ticket.response is None else []

    def _said(self, name: str, ticket: Ticket) -> str:
        """Return how a consumer is answered."""
        response: Any = ticket.response
        if isinstance(response, DesignJoinGroupResponse):
            return self._joined(name, response)
        codes = {*response.errors.values()} if hasattr(response, "errors") else None
        (code,) = codes or {response.error_code}
        return f"{name}: {DesignErrorCode(code).name if code else 'ok'}"

    def _joined(self, name: str, response: DesignJoinGroupResponse) -> str:
        """Return the answer to a JoinGroup, which the consumer keeps."""
        consumer = self.consumers[name]
        if response.error_code:
            return f"{name}: {DesignErrorCode(response.error_code).name}"
        if consumer.loses_response:
            consumer.loses_response = False
            return f"{name}: the response of generation {response.group_generation_id} is lost"
        consumer.consumer_id = response.consumer_id
        consumer.generation_id = response.group_generation_id
        owned = _text(response.partitions_to_own)
        return f"{name}: generation {consumer.generation_id}, owns {owned}"

    def _beat(self, command: Command) -> list[str]:
        """`beat A`: a heartbeat; `node=1` sends it there, `generation=1` with that generation."""
        (name,) = command.words
        request = DesignHeartbeatRequest(
            group_id=GROUP,
            group_generation_id=self._generation(command, name),
            consumer_id=command.take("id") or self.consumers[name].consumer_id,
        )
        return self._answered(command, name, request)

    def _commit(self, command: Command) -> list[str]:
        """`commit A orders-0=10`: an OffsetCommit."""
        (name,) = command.words
        generation_id = self._generation(command, name)
        consumer_id = command.take("id") or self.consumers[name].consumer_id
        offsets = {
            self._key(each): OffsetAndMetadata(int(command.options.pop(each)))
            for each in tuple(command.options)
            if each != "node"
        }
        request = OffsetCommitRequest(
            group_id=GROUP, member_id=consumer_id, member_epoch=generation_id, offsets=offsets
        )
        return self._answered(command, name, request)

    def _fetch(self, command: Command) -> list[str]:
        """`fetch orders-0`: the committed offset of a partition."""
        keys = frozenset(map(self._key, command.words))
        request = OffsetFetchRequest(
            group_id=GROUP, member_id=None, member_epoch=-1, partitions=keys
        )
        ticket = self._send(command, request)
        self._replicate()
        response: Any = ticket.response
        if response.error_code:
            return [DesignErrorCode(response.error_code).name]
        return [
            f"{name}: {response.answers[self._key(name)].committed_offset}"
            for name in command.words
        ]

    def _find(self, command: Command) -> list[str]:
        """`find A`: a ConsumerMetadata; `stale` asks a broker with the former metadata."""
        name, *stale = command.words
        return [f"{name}: the coordinator is node {self._node - len(stale)}"]

    def _generation(self, command: Command, name: str) -> int:
        named = command.take("generation")
        return int(named) if named else self.consumers[name].generation_id

    def _answered(self, command: Command, name: str, request: Any) -> list[str]:
        return self._taken(name, self._send(command, request))

    def _send(self, command: Command, request: Any) -> Ticket:
        node = int(command.take("node") or self._node)
        error = None
        if node != self._node:
            error = DesignErrorCode.NOT_COORDINATOR_FOR_GROUP
        elif self._loading:
            error = LOADING_ERRORS[type(request)]
        if error:
            return Ticket(request, error_answer(request, error))
        return self.shard.submit(request, self.now)

    def _key(self, text: str) -> TopicIdPartition:
        topic, _, partition = text.rpartition("-")
        return TopicIdPartition(self.topics.by_name[topic].topic_id, int(partition))

    # What happens to the coordinator.

    def _topic(self, command: Command) -> list[str]:
        """`topic orders 4` or `grow orders 6`: the topic has so many partitions from now on."""
        name, count = command.words
        known = self.topics.by_name.get(name)
        topic_id = known.topic_id if known else uuid.uuid5(uuid.NAMESPACE_OID, name)
        self.topics = self.topics.with_topic(TopicImage(topic_id, name, int(count)))
        if not self._loading:
            self.shard.set_topics(self.topics, self.now)
        return []

    def _sleep(self, command: Command) -> list[str]:
        """`sleep 6`: that many seconds pass, and session timeouts end."""
        (seconds,) = command.words
        began, end = self.now, self.now + float(seconds)
        lines: list[str] = []
        while (at := self._next_at()) is not None and at <= end:
            self.now = max(self.now, at)
            self.shard.wake(self.now)
            self._replicate()
            lines += [f"after {self.now - began:g} s: {each}" for each in self._passed()]
        self.now = end
        return lines

    def _next_at(self) -> float | None:
        return None if self._loading else self.shard.next_wakeup()

    def _replicate(self) -> None:
        if not self._holds:
            self.shard.replicate(self.now)
        self.shard.take_answered()

    def _lose_response(self, command: Command) -> list[str]:
        """`lose-response A`: the next JoinGroup response of A does not arrive."""
        (name,) = command.words
        self.consumers[name].loses_response = True
        return []

    def _hold_writes(self, _command: Command) -> list[str]:
        """`hold-writes`: writes to ZooKeeper take until `write`, `lose-write` or a failover."""
        self._holds = True
        return []

    def _write(self, _command: Command) -> list[str]:
        """`write`: what the coordinator writes is in ZooKeeper."""
        self._holds = False
        self._replicate()
        return []

    def _lose_write(self, _command: Command) -> list[str]:
        """`lose-write`: what the coordinator writes does not reach ZooKeeper."""
        self._holds = False
        self.shard.fail_append(self.now)
        return []

    def _fail_over(self, command: Command) -> list[str]:
        """`fail-over` or `fail-over before-write`: the coordinator dies, and another one loads."""
        return [*self._dies(command), *self._loads(command)]

    def _dies(self, command: Command) -> list[str]:
        """`coordinator-dies`: another broker is elected; connections to the former one break."""
        if "before-write" in command.words:
            self.log.truncate()
        self._states += [CoordinatorState.DOWN, CoordinatorState.CATCH_UP]
        self._holds, self._loading = False, True
        self._node += 1
        lost, self._waiting = self._waiting, []
        return [f"{name}: connection lost" for name, _ in lost]

    def _loads(self, _command: Command) -> list[str]:
        """`coordinator-loads`: the elected one has read the group's metadata."""
        self._loading = False
        self.shard = self._new_shard()
        return []

    # What it shows.

    def _state(self, _command: Command) -> list[str]:
        """`state`: the coordinator's state, and what it waits for."""
        group = self.shard.memory.group(GROUP).design or DesignGroup(group_id=GROUP)
        parts = [f"{group.state.value}, generation {group.generation_id}"]
        shown = (("consumers", group.members), ("joined", group.joins), ("dead", group.dead))
        for what, ids in shown:
            if ids:
                parts.append(f"{what} {', '.join(sorted(map(self._name, ids)))}")
        return ["; ".join(parts)]

    def _metadata(self, _command: Command) -> list[str]:
        """`metadata`: the group's metadata in ZooKeeper."""
        value = self.shard.memory.replicated(GROUP).design_generation
        if value is None:
            return ["nothing"]
        counts = ", ".join(f"{topic} {count}" for topic, count in value.partition_counts.items())
        return [
            f"generation {value.generation_id}, partitions: {counts or 'none'}",
            *sorted(f"  {self._consumer_text(each)}" for each in value.consumers),
        ]

    def _consumer_text(self, each: r.DesignConsumer) -> str:
        return (
            f"{self._name(each.consumer_id)}: topics {', '.join(each.topics)}, {each.strategy}, "
            f"session {each.session_timeout_ms / 1000:g} s, owns {_text(each.partitions)}"
        )

    def _name(self, consumer_id: str) -> str:
        """Return the name of a consumer by its id; one that it has no more is a former one."""
        name = next(name for each, name in reversed(self._ids) if each == consumer_id)
        latest = next(each for each, other in reversed(self._ids) if other == name)
        return name if latest == consumer_id else f"{name}(former)"


def _text(partitions: frozenset[TopicPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    return by_topic_text(by_topic)
