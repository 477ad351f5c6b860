"""Members without Spark and without reading, hundreds in one process, over a few connections.

Each is the package's own state machine of a member, with the broker's heartbeat interval only, as
plain consumers have it. A revocation is acknowledged at once.
"""

from __future__ import annotations

import heapq
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from spark_groups.errors import ProtocolError
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    Node,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from spark_groups.group.member.subscription import Subscription
from spark_groups.types import Assignment
from spark_groups.wire.connection import RequestError
from spark_groups.wire.coordinator_connection import CoordinatorConnection

CONNECTIONS: Final = 8
ANSWER_S: Final = 30.0
"""A join of a large group waits for the computation of its target assignment."""
IDLE_S: Final = 0.5


class LightMember:
    """A member and the times of its heartbeats.

    Args:
        group_id: Its group.
        topic: Its subscription.
    """

    def __init__(self, group_id: str, topic: str) -> None:
        subscription = Subscription.of_names(topic)
        config = MemberConfig(group_id=group_id, subscription=subscription, fast_heartbeats=False)
        self.member = Member(config, lambda: str(uuid.uuid4()))
        self.late_s: list[tuple[float, float]] = []
        """When each accepted heartbeat was sent that was due one interval after the one before,
        and how much later than that. Joins and acknowledgements, which are due at once, are not
        among them."""
        self.changed_at: float | None = None
        """When an answer last changed its state, its member epoch or its assignment."""
        self._due_at: float | None = None
        self._accepted_at: float | None = None

    @property
    def is_stable(self) -> bool:
        """Whether it is a member and has everything of its assignment."""
        return self.member.state is MemberState.STABLE

    def poll(self, now: float) -> HeartbeatRequest | None:
        """Return the heartbeat to send now, None unless one is due."""
        self._due_at = self.member.next_wakeup()
        return self.member.poll_heartbeat(now)

    def answered(self, response: HeartbeatResponse | None, now: float) -> None:
        """Process the answer to the heartbeat in flight; None: there was none."""
        before = self._standing()
        if response is None:
            self.member.handle_failure(now)
        else:
            self.member.handle_response(response, now)
        self._note_lateness()
        if self._standing() != before:
            self.changed_at = now
        self.member.poll_events()
        if self.member.state is MemberState.RECONCILING:
            self.member.acknowledge(now)

    def _standing(self) -> tuple[MemberState, int, Assignment]:
        return self.member.state, self.member.member_epoch, self.member.assigned

    def _note_lateness(self) -> None:
        sent_at = self.member.last_accepted_sent_at
        before, self._accepted_at = self._accepted_at, sent_at
        if sent_at is None or before is None or sent_at == before:
            return
        wanted_at = before + self.member.pace.interval_s
        assert self._due_at is not None
        if self._due_at >= wanted_at:
            self.late_s.append((sent_at, sent_at - wanted_at))


class _Sender:
    """A thread that sends the heartbeats of some members over one connection."""

    def __init__(self, coordinator: Node) -> None:
        self._coordinator = coordinator
        self._connection = CoordinatorConnection()
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, LightMember]] = []
        self._number = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, light: LightMember) -> None:
        with self._changed:
            light.member.join(time.monotonic())
            self._schedule(light)

    def leave(self, light: LightMember) -> None:
        with self._changed:
            now = time.monotonic()
            light.member.leave(now)
            light.member.leave_now(now)
            self._schedule(light)

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join()
        self._connection.close()

    def _schedule(self, light: LightMember) -> None:
        """Queue a member for its next heartbeat; a second entry of it is harmless."""
        due_at = light.member.next_wakeup()
        if due_at is not None:
            self._number += 1
            heapq.heappush(self._due, (due_at, self._number, light))
            self._changed.notify_all()

    def _run(self) -> None:
        while (light := self._next()) is not None:
            with self._changed:
                request = light.poll(time.monotonic())
            if request is None:
                continue
            response = None
            with suppress(RequestError, ProtocolError):
                response = self._connection.send(self._coordinator, request, ANSWER_S)
            with self._changed:
                is_answer = isinstance(response, HeartbeatResponse)
                light.answered(response if is_answer else None, time.monotonic())
                self._schedule(light)

    def _next(self) -> LightMember | None:
        with self._changed:
            while not self._is_over:
                wait_s = self._due[0][0] - time.monotonic() if self._due else IDLE_S
                if self._due and wait_s <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait_s)
        return None


class LightMembers:
    """Members that send heartbeats in the background until they leave.

    Args:
        coordinator: The coordinator of all their groups.
        connections: How many connections, each with a thread.
    """

    def __init__(self, coordinator: Node, connections: int = CONNECTIONS) -> None:
        self.all: list[LightMember] = []
        """Those that joined and were not asked to leave, in the order of their joins."""
        self._coordinator = coordinator
        self._senders = [_Sender(coordinator) for _ in range(connections)]
        self._sender_of: dict[LightMember, _Sender] = {}

    def __enter__(self) -> LightMembers:
        return self

    def __exit__(self, *_: object) -> None:
        for sender in self._senders:
            sender.close()

    def join(self, group_ids: Iterable[str], topic: str) -> list[LightMember]:
        """Let a new member join each of these groups, and return the members."""
        joined = [LightMember(group_id, topic) for group_id in group_ids]
        for each in joined:
            sender = self._senders[len(self._sender_of) % len(self._senders)]
            self._sender_of[each] = sender
            sender.join(each)
        self.all += joined
        return joined

    def leave(self, members: Sequence[LightMember]) -> None:
        """Let members leave, without waiting for it."""
        self.all = [each for each in self.all if each not in members]
        for member in members:
            self._sender_of[member].leave(member)

    def are_stable(self, above_epoch: int = 0) -> bool:
        """Return whether all are stable at one member epoch, which is above another one."""
        epochs = {each.member.member_epoch for each in self.all}
        is_one_epoch = len(epochs) == 1 and min(epochs) > above_epoch
        return is_one_epoch and all(each.is_stable for each in self.all)

    def epoch(self) -> int:
        """Return the highest member epoch."""
        return max((each.member.member_epoch for each in self.all), default=0)

    def changed_at(self) -> float:
        """Return when an answer last changed a member that was not asked to leave."""
        return max((each.changed_at or 0.0 for each in self.all), default=0.0)

    def late_s(self, since: float, until: float) -> Iterator[float]:
        """Yield how late each heartbeat was that was due one interval after the one before.

        Args:
            since: When it was sent at the earliest, on the monotonic clock.
            until: When it was sent at the latest.
        """
        for light in list(self._sender_of):
            yield from (late for at, late in list(light.late_s) if since <= at <= until)

    def commit(self, committed_offset: int) -> int:
        """Commit this offset of each owned partition, and return of how many partitions."""
        connection, committed = CoordinatorConnection(), 0
        for each in self.all:
            member = each.member
            offset = OffsetAndMetadata(committed_offset=committed_offset)
            request = OffsetCommitRequest(
                group_id=member.config.group_id,
                member_id=member.member_id,
                member_epoch=member.member_epoch,
                offsets=dict.fromkeys(member.assigned, offset),
            )
            response = connection.send(self._coordinator, request, ANSWER_S)
            assert isinstance(response, OffsetCommitResponse)
            assert not any(response.errors.values()), response.errors
            committed += len(response.errors)
        connection.close()
        return committed
