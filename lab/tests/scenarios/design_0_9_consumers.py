"""The commands of the 0.9 design's consumers: whole consumers in virtual time.

Each consumer is the simulation's `DesignMembership`, with an application that polls ten times a
second, reads what there is at once, and commits before it joins. Requests take no time. Every line
has the second at which something happened; heartbeats without an error only on demand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from group_lab.coordinator.design_0_9.group import CoordinatorState
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
from group_lab.coordinator.topic_images import TopicsImage
from group_lab.sim.classic_membership import Failed, Lost
from group_lab.sim.design_0_9_membership import (
    ConsumerState,
    DesignConfig,
    DesignMembership,
    TopicFilter,
)
from lab.tests.scenarios.members_in_time import MembersInTime
from lab.tests.scenarios.scene import Command
from lab.tests.scenarios.wording import by_topic_text
from spark_groups.group.member.messages import OffsetAndMetadata, OffsetCommitRequest
from spark_groups.types import TopicIdPartition, TopicPartition

GROUP_ID: Final = "group"
BACKOFF_S: Final = 0.5
"""How long a consumer waits before it looks up the coordinator once more, or commits again."""
STATES: Final = {
    ConsumerState.DOWN: "Down",
    ConsumerState.STARTUP: "Startup & discover co-ordinator",
    ConsumerState.PART_OF_GROUP: "Part of a group",
    ConsumerState.REDISCOVER: "Re-discover co-ordinator",
    ConsumerState.STOPPED_CONSUMPTION: "Stopped consumption",
    ConsumerState.UNABLE_TO_JOIN: "unable to join a group",
}


@dataclass
class _Consumer:
    """A consumer, and what it knows of the coordinator.

    Args:
        node: Where it believes the coordinator to be; None while it looks that up.
        awake_at: Until then it does not poll: it processes a batch, or the process pauses.
        silent_until: Until then its requests get lost, and its connection stays open.
        retries_at: Not before then it looks up the coordinator, or commits again.
        sent_at: When it sent its request under way.
        reads_since: Since when it has read the same partitions without a stop.
        shown: The last printed state, what it reads, the topics it subscribes to.
    """

    name: str
    membership: DesignMembership
    node: int | None = None
    awake_at: float = 0.0
    silent_until: float = 0.0
    retries_at: float = 0.0
    ticket: Ticket | None = None
    sent_at: float = 0.0
    reads_since: float = 0.0
    shown_state: ConsumerState = ConsumerState.DOWN
    shown_reads: frozenset[TopicPartition] = frozenset()
    shown_topics: tuple[str, ...] = ()


class DesignConsumers(MembersInTime):
    """A group of whole consumers, and its coordinator."""

    def __init__(self) -> None:
        super().__init__(self._new_shard(TopicsImage(), Log(), 0.0))
        self._consumers: dict[str, _Consumer] = {}
        self._shows_heartbeats = False
        self._ids = 0
        self._node = 1
        self._former_lives = True
        self._loads_until: float | None = None
        self._stale_until = 0.0
        self._holds_writes = False
        self._names: dict[str, str] = {}
        """The consumer that each id was assigned to."""
        self._shown_state = CoordinatorState.READY
        self._shown_dead: frozenset[str] = frozenset()
        self.commands |= {
            "start": self._start,
            "stop": self._stop,
            "crash": self._crash,
            "pause": self._pause,
            "batch": self._pause,
            "cut": self._cut,
            "silence": self._silence,
            "fail-over": self._fail_over,
            "hold-writes": self._hold_writes,
            "write": self._write,
            "heartbeats": self._heartbeats,
            "reads": self._reads,
        }

    def _new_shard(self, topics: TopicsImage, log: Log, now: float) -> Shard:
        return Shard(DESIGN_0_9, Settings(), topics, log, now, make_classic_id=self._new_id)

    def _new_id(self, _prefix: str) -> str:
        """Make ids in the order of the joins, in which strategies then assign."""
        self._ids += 1
        return f"id-{self._ids:02}"

    def _say(self, text: str) -> None:
        self.lines.append(f"{self.now:g} s: {text}")

    # What happens to consumers.

    def _start(self, command: Command) -> None:
        """`start A B topics=orders session=9 frequency=3`: consumers that start now.

        `white=` and `black=` are wildcard subscriptions; `strategy=`; `keeps-id=no` joins without
        the consumer id always.
        """
        white, black = command.take("white"), command.take("black")
        subscription: tuple[str, ...] | TopicFilter = (command.take("topics") or "orders",)
        if white:
            subscription = TopicFilter.white_list(white)
        elif black:
            subscription = TopicFilter.black_list(black)
        config = DesignConfig(
            group_id=GROUP_ID,
            subscription=subscription,
            strategy=command.take("strategy") or "range",
            session_timeout_s=float(command.take("session") or 9),
            heartbeat_frequency=int(command.take("frequency") or 3),
            keeps_consumer_id=command.take("keeps-id") != "no",
        )
        for name in command.words:
            self._consumers[name] = consumer = _Consumer(name, DesignMembership(config))
            self._look(consumer)

    def _stop(self, command: Command) -> None:
        """`stop A`: it ends; the design has no request for that."""
        for name in command.words:
            consumer = self._consumers[name]
            consumer.membership.leave()
            self._look(consumer)

    def _crash(self, command: Command) -> None:
        """`crash A`: the process is gone."""
        for name in command.words:
            del self._consumers[name]
            self._say(f"{name} crashes")

    def _pause(self, command: Command) -> None:
        """`batch A 12`, `pause A 12`: it does not poll for so long: it processes, or is paused."""
        name, seconds = command.words
        what = "processes a batch" if command.name == "batch" else "pauses"
        until_s = self._consumers[name].awake_at = round(self.now + float(seconds), 1)
        self._say(f"{name} {what} until {until_s:g} s")

    def _reads(self, _: Command) -> None:
        """`reads`: what each consumer reads, and since when without a stop."""
        for each in self._consumers.values():
            since = f" since {each.reads_since:g} s" if each.shown_reads else ""
            self._say(f"{each.name} reads {_text(each.shown_reads)}{since}")

    def _heartbeats(self, command: Command) -> None:
        """`heartbeats all`: print also those without an error; `heartbeats errors`: no more."""
        (which,) = command.words
        self._shows_heartbeats = {"all": True, "errors": False}[which]

    # What happens to the coordinator.

    def _cut(self, command: Command) -> None:
        """`cut A`: the connection of A to the coordinator closes."""
        for name in command.words:
            self._disconnect(self._consumers[name], "the connection is closed")

    def _silence(self, command: Command) -> None:
        """`silence A 12`: for so long the requests of A get lost, and no connection closes."""
        name, seconds = command.words
        until_s = self._consumers[name].silent_until = round(self.now + float(seconds), 1)
        self._say(f"requests of {name} get lost until {until_s:g} s")

    def _fail_over(self, command: Command) -> None:
        """`fail-over load=3 stale=2`: another node is elected, and reads the group's metadata.

        For so many seconds it loads, and brokers name the former node. `former=lives`: that node
        refuses requests; otherwise connections to it close.
        """
        self._former_lives = command.take("former") == "lives"
        self._loads_until = round(self.now + float(command.take("load") or 0), 1)
        self._stale_until = round(self.now + float(command.take("stale") or 0), 1)
        self._node += 1
        what = "resigns" if self._former_lives else "dies"
        self._say(f"node {self._node - 1} {what}, node {self._node} is elected")
        self._enter(CoordinatorState.CATCH_UP)
        if self._former_lives:
            self.shard.unload(self.now)
        else:
            for each in self._consumers.values():
                self._disconnect(each, "the connection is closed")

    def _hold_writes(self, _: Command) -> None:
        """`hold-writes`: the next generation does not reach ZooKeeper before `write`."""
        self._holds_writes = True

    def _write(self, _: Command) -> None:
        """`write`: it is in ZooKeeper."""
        self._holds_writes = False
        self.settle()

    # Time.

    def wake(self) -> None:
        """Let the coordinator fire its due timers; an elected one begins once it has loaded."""
        if self._loads_until is not None:
            if self.now < self._loads_until:
                return
            self._loads_until = None
            self.shard = self._new_shard(self.shard.topics, self.shard.log, self.now)
        super().wake()

    def settle(self) -> None:
        """Replicate, and show what that changes in the coordinator's view."""
        self._look_at_group()
        if not (self._holds_writes and self._shown_state is CoordinatorState.REBALANCING):
            super().settle()
            self._look_at_group()

    def step(self) -> None:
        """Let each consumer poll, and send what it has to send."""
        for consumer in tuple(self._consumers.values()):
            if self.now < consumer.awake_at:
                continue
            self._receive(consumer)
            consumer.membership.poll(self.now, self.partition_counts)
            self._look(consumer)
            while self._acts(consumer):
                self._look(consumer)
        # The answers to parked requests that these steps caused.
        for consumer in tuple(self._consumers.values()):
            if self.now >= consumer.awake_at:
                self._receive(consumer)

    def _acts(self, consumer: _Consumer) -> bool:
        """Let a consumer send its next request; return whether it did, and was answered."""
        membership = consumer.membership
        if membership.state in (ConsumerState.DOWN, ConsumerState.UNABLE_TO_JOIN):
            return False
        if consumer.node is None:
            return self._discovers(consumer)
        if consumer.ticket is not None:
            return False
        request: Any
        if membership.is_preparing and membership.may_commit:
            request = self._commit(consumer) if self.now >= consumer.retries_at else None
        else:
            membership.prepared()
            request = membership.next_request(self.now)
        self._look(consumer)
        return request is not None and self._send(consumer, request)

    def _discovers(self, consumer: _Consumer) -> bool:
        """Let a consumer ask any broker for the coordinator."""
        if self.now < consumer.retries_at:
            return False
        consumer.node = self._node - (self.now < self._stale_until)
        self._say(f"{consumer.name}: ConsumerMetadata: node {consumer.node}")
        return True

    def _commit(self, consumer: _Consumer) -> OffsetCommitRequest:
        membership, by_name = consumer.membership, self.shard.topics.by_name
        keys = (TopicIdPartition(by_name[t].topic_id, number) for t, number in membership.owned)
        # Each partition gets ten records in a second, and the consumer keeps up.
        offset = OffsetAndMetadata(round(self.now * 10))
        return OffsetCommitRequest(
            group_id=GROUP_ID,
            member_id=membership.member_id,
            member_epoch=membership.generation_id,
            offsets=dict.fromkeys(keys, offset),
        )

    def _send(self, consumer: _Consumer, request: Any) -> bool:
        """Send a request; return whether it is answered at once."""
        consumer.sent_at = self.now
        if isinstance(request, DesignJoinGroupRequest):
            topics = ",".join(request.topics) or "none"
            known = request.consumer_id or "none"
            self._say(f"{consumer.name}: JoinGroup topics={topics} id={known}")
        if self.now < consumer.silent_until:
            consumer.ticket = Ticket(request)
            return False
        if consumer.node != self._node and not self._former_lives:
            consumer.ticket = Ticket(request)
            self._disconnect(consumer, "no connection")
            return False
        code = self._refusal(consumer, request)
        if code:
            consumer.ticket = Ticket(request, error_answer(request, code))
        else:
            consumer.ticket = self.shard.submit(request, self.now)
            self.settle()
        return self._receive(consumer)

    def _refusal(self, consumer: _Consumer, request: Any) -> int:
        """Return the error of a node that is not the coordinator, or not yet."""
        if consumer.node != self._node:
            return DesignErrorCode.NOT_COORDINATOR_FOR_GROUP
        is_loading = self._loads_until is not None
        return LOADING_ERRORS[type(request)] if is_loading else DesignErrorCode.NONE

    def _disconnect(self, consumer: _Consumer, why: str) -> None:
        """Let a consumer notice that the coordinator cannot be reached."""
        if consumer.membership.state not in (ConsumerState.DOWN, ConsumerState.UNABLE_TO_JOIN):
            self._say(f"{consumer.name}: {why}")
            consumer.membership.handle_failure(self.now)
            self._lose_node(consumer)
            self._look(consumer)

    def _lose_node(self, consumer: _Consumer) -> None:
        consumer.ticket, consumer.node = None, None
        consumer.retries_at = round(self.now + BACKOFF_S, 1)

    def _receive(self, consumer: _Consumer) -> bool:
        """Give a consumer the response to its request; return whether there was one."""
        ticket, membership = consumer.ticket, consumer.membership
        if ticket is None:
            return False
        request, response = ticket.request, cast(Any, ticket.response)
        if response is None:
            waited_s = round(self.now - consumer.sent_at, 1)
            if waited_s >= membership.response_timeout_s(request):
                self._disconnect(consumer, f"no response for {waited_s:g} s")
            return False
        consumer.ticket = None
        self._show(consumer, request, response)
        if isinstance(request, OffsetCommitRequest):
            self._committed(consumer, request, response)
        elif membership.handle_response(response, self.now):
            self._lose_node(consumer)
        self._look(consumer)
        return True

    def _committed(self, consumer: _Consumer, request: OffsetCommitRequest, response: Any) -> None:
        membership = consumer.membership
        (code,) = {*response.errors.values()}
        if code == DesignErrorCode.NONE:
            membership.prepared()
            return
        consumer.retries_at = round(self.now + BACKOFF_S, 1)
        if membership.commit_refused(code, request.member_epoch, request.member_id):
            self._lose_node(consumer)

    # What it prints.

    def _show(self, consumer: _Consumer, request: Any, response: Any) -> None:
        """Print a response."""
        name, generation_id = consumer.name, consumer.membership.generation_id
        if isinstance(request, OffsetCommitRequest):
            (code,) = {*response.errors.values()}
            self._say(f"{name}: OffsetCommit generation={generation_id}: {_code(code)}")
        elif isinstance(response, DesignJoinGroupResponse):
            shown = _code(response.error_code)
            if not response.error_code:
                shown = f"generation={response.group_generation_id} id={response.consumer_id}"
                self._names[response.consumer_id] = name
            self._say(f"{name}: JoinGroup answered: {shown}")
        elif response.error_code or self._shows_heartbeats:
            assert isinstance(request, DesignHeartbeatRequest)
            self._say(f"{name}: Heartbeat generation={generation_id}: {_code(response.error_code)}")

    def _look(self, consumer: _Consumer) -> None:
        """Print the changes of a consumer: its topics, its state, what it reads."""
        membership, name = consumer.membership, consumer.name
        subscription = membership.config.subscription
        if isinstance(subscription, TopicFilter):
            topics = subscription.topics_of(self.partition_counts)
            if topics != consumer.shown_topics:
                consumer.shown_topics = topics
                found = ",".join(sorted(self.partition_counts)) or "none"
                self._say(f"{name}: TopicMetadata: {found}; subscribes to {','.join(topics)}")
        reads, state = membership.readable, membership.state
        for event in membership.events:
            if isinstance(event, Lost):
                self._say(f"{name} loses {_text(event.partitions)}")
            elif isinstance(event, Failed):
                self._say(f"{name} fails: {event.error}")
        membership.events.clear()
        if reads != consumer.shown_reads:
            consumer.reads_since = self.now
        if state is not consumer.shown_state or reads != consumer.shown_reads:
            self._say(f"{name}: {STATES[state]}, reads {_text(reads)}")
        consumer.shown_state, consumer.shown_reads = state, reads

    def _look_at_group(self) -> None:
        """Print the changes of the coordinator: its state, and which consumers are dead."""
        group = self.shard.memory.group(GROUP_ID).design
        if group is None or self._loads_until is not None:
            return
        for each in sorted(group.dead - self._shown_dead):
            self._say(f"co-ordinator marks {self._names[each]} dead")
        self._shown_dead = group.dead
        self._enter(group.state)

    def _enter(self, state: CoordinatorState) -> None:
        """Print the state of the coordinator, if it is another one."""
        if state is not self._shown_state:
            self._say(f"co-ordinator: {state.value}")
        self._shown_state = state


def _code(code: int) -> str:
    return DesignErrorCode(code).name if code else "ok"


def _text(partitions: Iterable[TopicPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    return by_topic_text(by_topic)
