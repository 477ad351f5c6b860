"""A broker and the model of its version, asked the same; the first difference ends a script."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from group_lab.assignors.java_order import DEFAULT_TABLE, uuid_hash
from group_lab.coordinator import messages as c
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.subscriptions import BATCH_REFRESH_MIN_INTERVAL_S
from lab.tests.conformance.fields import differences, fields_of, in_short
from lab.tests.conformance.script import REBALANCE_MS, Asked, GroupScript, MemberView, Topics
from lab.tests.scenarios.model_world import ModelWorld
from lab.tests.scenarios.scene import AGAIN_S, BOUND_S
from lab.tests.scenarios.world import World
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.types import TopicId

GROUPS = 3
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.assignment.interval.ms"
LONG_MS, SHORT_MS = "60000", "1000"
"""A session that lasts for most scripts, and one that is waited for."""
INTERVALS_MS = ("0", "0", "400", "1500")
"""Between two targets of a group."""
SETTINGS = (
    {INTERVAL: "400"},
    {INTERVAL: None},
    {INTERVAL: "15001"},
    {INTERVAL: "soon"},
    {SESSION: "10"},
    {"consumer.heartbeat.interval.ms": "700"},
    {"consumer.nothing": "1"},
)
"""What an operator may set for a group; brokers take three of them."""
RESTARTS_SHARE = 0.001
SHOWN_BEFORE = 12
"""How many steps of the group are shown beside one that differs."""
MARGIN_S = 0.15
"""Nothing is asked closer than this to the moment at which a timer fires or an interval ends."""


class DisagreementError(AssertionError):
    """The model does not say what the broker says; the message has the way there."""


@dataclass
class Pair:
    """One script on a broker and on the model.

    Args:
        broker: The world of the broker.
        profile: The model's profile.
        seed: What decides.
        how_to_repeat: The command that plays this seed again.
    """

    broker: World
    profile: Profile
    seed: int
    how_to_repeat: str
    steps: int = 0
    compared: int = 0
    given_up: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)
    _lags_s: dict[str, float] = field(default_factory=dict)
    _said: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.model = ModelWorld(self.profile)
        # A target without a time was computed at 0: the model begins later.
        self._began = self.broker.now() - self.model.now()
        prefix = f"seed-{self.seed}"
        self.topics = Topics(tuple(f"{prefix}-{each}" for each in ("a", "b", "c", "never")))
        # A group keeps its offsets: another run of the same seed is about other groups.
        self._prefix = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count()
        self.groups: list[GroupScript] = []

    def play(self, requests: int) -> None:
        """Ask until so many requests are compared.

        Raises:
            DisagreementError: An answer differs.
            TimeoutError: The broker is too slow to be compared: every moment that matters passes
                while it answers.
        """
        # The first time makes a topic, which is a reason to look patterns up again.
        self.broker.await_patterns()
        for name in self.topics.names[:2]:
            self._create(name)
        for _ in range(GROUPS):
            self._add_group()
        while self.compared < requests:
            if len(self.given_up) > requests:
                raise TimeoutError(f"{len(self.given_up)} groups given up: the broker is too slow")
            drawn, group = self.chance.random(), self.chance.choice(self.groups)
            if drawn < 0.015:
                self._change_topics()
            elif drawn < 0.024:
                self._let_expire(group)
            elif drawn < 0.030:
                self._configure(group.group_id, self.chance.choice(SETTINGS))
            elif drawn < 0.040:
                self._let_interval_end(group)
            elif drawn < 0.040 + RESTARTS_SHARE:
                self._restart()
            else:
                self._ask(group, group.next())

    def _add_group(self) -> None:
        group_id = f"{self._prefix}-{next(self._numbers)}"
        api_versions = (9, 10) if self.profile.commits_topic_ids else (9,)
        self.groups.append(self._script(group_id, api_versions))
        self._configure(group_id, {SESSION: LONG_MS})
        interval_ms = self.chance.choice(INTERVALS_MS)
        if self.profile.batches_assignments:
            self._configure(group_id, {INTERVAL: interval_ms})

    def _script(self, group_id: str, api_versions: tuple[int, ...]) -> GroupScript:
        return GroupScript(group_id, self.chance, self.topics, api_versions)

    # Requests.

    def _ask(self, group: GroupScript, asked: Asked) -> object:
        """Ask both, compare, and return the answer."""
        self.steps += 1
        self._pass(group)
        request, edges = asked.request, self._edges(group.group_id)
        both: tuple[Any, Any]
        match request:
            case m.HeartbeatRequest():
                both = (
                    self.broker.ask(request, asked.client_id),
                    self.model.ask(request, asked.client_id),
                )
            case m.DescribeGroupRequest():
                both = self.broker.ask(request), self.model.ask(request)
            case c.ListGroupsRequest():
                both = (
                    self._own(self.broker.operate(request)),
                    self._own(self.model.operate(request)),
                )
            case c.DeleteGroupsRequest() | c.LeaveGroupRequest() | c.OffsetDeleteRequest():
                both = self.broker.operate(request), self.model.operate(request)
            case m.OffsetCommitRequest():
                how = (request, self._wire_names(), asked.api_version)
                both = self.broker.commit(*how), self.model.commit(*how)
            case m.OffsetFetchRequest():
                how_to_fetch = (request, self._wire_names(), asked.api_version)
                both = self.broker.fetch(*how_to_fetch), self.model.fetch(*how_to_fetch)
        if not self._is_sure(group, edges):
            return both[0]
        self._compare(group.group_id, f"{asked.why}, v{asked.api_version}", request, *both)
        self.compared += 1
        if isinstance(request, m.HeartbeatRequest):
            group.note(request, both[0])
            wakes_at = self.model.shard.next_wakeup()
            if wakes_at is not None and wakes_at <= self.model.now():
                self.broker.await_patterns()
                self.model.await_patterns()
            self._note_lag(group)
        return both[0]

    def _is_sure(self, group: GroupScript, edges: list[float]) -> bool:
        """Return whether both took a request on the same side of every moment that matters.

        If not, nothing more can be compared of the group, and another one takes its place.

        Args:
            group: The group that was asked.
            edges: When its intervals end and timers fire, as far as that was known before.
        """
        if group.group_id in self.given_up:
            return False
        if not any(self.model.now() < each < self._now() for each in edges):
            return True
        self.groups = [each for each in self.groups if each is not group]
        self.given_up.add(group.group_id)
        self._lags_s.pop(group.group_id, None)
        self._add_group()
        return False

    def _note_lag(self, group: GroupScript) -> None:
        """Note how much later the broker may have begun a timer or an interval."""
        lag_s = self._now() - self.model.now()
        self._lags_s[group.group_id] = max(lag_s, self._lags_s.get(group.group_id, 0.0))

    def _own(self, listed: object) -> object:
        """Return a list without the groups of others and those given up, ordered by their ids."""
        assert isinstance(listed, c.ListGroupsResponse)
        own = [
            each
            for each in listed.groups
            if each.group_id.startswith(self._prefix) and each.group_id not in self.given_up
        ]
        return replace(listed, groups=tuple(sorted(own, key=lambda each: each.group_id)))

    def _compare(
        self, group_id: str, why: str, request: object, broker: object, model: object
    ) -> None:
        names = self._wire_names()
        left, right = fields_of(broker, names), fields_of(model, names)
        asked = f"{why}: {in_short(request, names)}"
        if left == right:
            self._said.append((group_id, f"{asked} -> {in_short(broker, names)}"))
            return
        before = [text for each, text in self._said if each == group_id][-SHOWN_BEFORE:]
        lines = [
            f"seed {self.seed}, step {self.steps}, {self.profile.name}: {asked}",
            *(f"  {each}" for each in differences(left, right)),
            "before that, in this group:",
            *(f"  {each}" for each in before),
            "topics: " + ", ".join(f"{name} {self.topics.ids[name]}" for name in self.topics.ids),
            f"repeat: {self.how_to_repeat}",
        ]
        raise DisagreementError("\n".join(lines))

    def _wire_names(self) -> dict[TopicId, str]:
        return {
            **self.topics.old_ids,
            **{topic_id: name for name, topic_id in self.topics.ids.items()},
        }

    def _pass(self, group: GroupScript | None = None) -> None:
        """Let the model's clock follow the broker's, and keep away from moments that matter.

        Args:
            group: The group of the next request; None for none of them.
        """
        group_id = group.group_id if group else None
        # The next timer may be another group's, which the broker began late, too.
        lag_s = max(self._lags_s.values(), default=0.0)
        while ends_s := [
            edge + lag_s + MARGIN_S
            for edge in self._edges(group_id)
            if edge - MARGIN_S < self._now() < edge + lag_s + MARGIN_S
        ]:
            self.broker.sleep(min(ends_s) - self._now())
            # The timer after the one that fires may be as close.
            self._follow()
        self._follow()

    def _follow(self) -> None:
        """Let the model's clock reach the broker's, and wait for members that end by it."""
        before = self._members()
        self.model.sleep(self._now() - self.model.now())
        for each, member_ids in self._members().items():
            if gone := before.get(each, set()) - member_ids:
                self._await_end(each, gone)

    def _now(self) -> float:
        """Return the broker's time on the model's clock."""
        return self.broker.now() - self._began

    def _edges(self, group_id: str | None) -> list[float]:
        """Return when a timer fires, and when intervals of a group end.

        A request before such a moment and one after it are not alike.
        """
        wakes_at = self.model.shard.next_wakeup()
        edges = [] if wakes_at is None else [wakes_at]
        if group_id is None:
            return edges
        group = self.model.shard.memory.group(group_id)
        edges += [
            each.timestamp_s + BATCH_REFRESH_MIN_INTERVAL_S for each in group.regexes.values()
        ]
        interval_s = self.model.shard.settings.assignment_interval_s(group_id)
        target = group.target_metadata
        if target and target.assignment_timestamp_s and interval_s:
            edges.append(target.assignment_timestamp_s + interval_s)
        return edges

    def _members(self) -> dict[str, set[str]]:
        memory, ids = self.model.shard.memory, [each.group_id for each in self.groups]
        return {each: set(memory.group(each).members) for each in ids}

    # What operators do.

    def _change_topics(self) -> None:
        name = self.chance.choice(self.topics.names[:3])
        if name not in self.topics.ids:
            self._create(name)
        elif self.topics.counts[name] < 6 and self.chance.random() < 0.6:
            count = self.topics.counts[name] + self.chance.randint(1, 2)
            self.topics.counts[name] = count
            self.broker.grow_topic(name, count)
            self.model.grow_topic(name, count)
        else:
            self.broker.delete_topic(name)
            self.model.delete_topic(name)
            self.topics.old_ids[self.topics.ids.pop(name)] = name

    def _create(self, name: str) -> None:
        """Create a topic whose id shares no bucket of a Java map with another one's.

        The order within a bucket is that in which the coordinator put topics into many a map; the
        model does not follow it (docs/fidelity.md).
        """
        count = self.topics.counts[name] = self.chance.randint(1, 5)
        taken = {_bucket(each) for each in self.topics.ids.values()}
        while _bucket(topic_id := self.broker.create_topic(name, count)) in taken:
            self.broker.delete_topic(name)
        self.topics.ids[name] = topic_id
        self.model.create_topic(name, count, topic_id)

    def _configure(self, group_id: str, values: Mapping[str, str | None]) -> None:
        both = [each.configure(group_id, values) for each in (self.broker, self.model)]
        self._compare(group_id, "an operator", values, *both)

    def _restart(self) -> None:
        """Stop the broker and start it again: members have whole sessions from then on."""
        self._pass()
        self.broker.restart()
        self.model.restart(self._now() - self.model.now())
        self._said += [(each.group_id, "the broker was restarted") for each in self.groups]

    # Timeouts.

    def _let_interval_end(self, group: GroupScript) -> None:
        """Wait for the end of an interval, if that is soon."""
        patience_s = 11.0 if self.chance.random() < 0.05 else 2.0
        self._pass()
        for edge in sorted(self._edges(group.group_id)):
            if 0.0 < edge - self._now() < patience_s:
                self.broker.sleep(edge + MARGIN_S - self._now())
                return

    def _let_expire(self, group: GroupScript) -> None:
        """Let a member fall silent, or not revoke, until the broker has removed it."""
        present = group.present()
        if not present:
            return
        name = self.chance.choice(present)
        view = group.members[name]
        ends = self._falls_silent if self.chance.random() < 0.3 else self._does_not_revoke
        if ends(group, name, view):
            wakes_at = self.model.shard.next_wakeup()
            assert wakes_at is not None
            self.broker.sleep(max(0.0, wakes_at + MARGIN_S - self._now()))
            self._pass()
            self.ended.append(ends.__name__)
        self._ask(group, Asked(m.DescribeGroupRequest(group_id=group.group_id), "after a timeout"))

    def _falls_silent(self, group: GroupScript, name: str, view: MemberView) -> bool:
        self._configure(group.group_id, {SESSION: SHORT_MS})
        last = self._ask(group, self._heartbeat(group, name, view, "the last one before silence"))
        self._configure(group.group_id, {SESSION: LONG_MS})
        assert isinstance(last, m.HeartbeatResponse)
        return last.error_code == ErrorCode.NONE

    def _does_not_revoke(self, group: GroupScript, name: str, view: MemberView) -> bool:
        """Shorten the rebalance timeout and add a member: this one may have to revoke."""
        beat = self._heartbeat(group, name, view, "a short rebalance timeout")
        short = replace(
            beat.request, rebalance_timeout_ms=int(SHORT_MS), topic_partitions=view.assigned
        )
        self._ask(group, replace(beat, request=short))
        self._ask(group, group.joining(view.topics))
        self._ask(group, self._heartbeat(group, name, view, "asked to revoke, or not", -1))
        found = self.model.shard.memory.group(group.group_id).members.get(name)
        if found is not None and found.pending_revocation:
            return True
        self._ask(group, self._heartbeat(group, name, view, "a long rebalance timeout"))
        return False

    def _heartbeat(
        self,
        group: GroupScript,
        name: str,
        view: MemberView,
        why: str,
        rebalance_timeout_ms: int = REBALANCE_MS,
    ) -> Asked:
        request = m.HeartbeatRequest(
            group_id=group.group_id,
            member_id=name,
            member_epoch=view.epoch,
            instance_id=view.instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        return Asked(request, why)

    def _await_end(self, group_id: str, gone: set[str]) -> None:
        """Wait until the broker, too, has removed members whose time is over."""
        ends_by = self.broker.now() + BOUND_S
        while left := gone & self._member_ids(group_id):
            assert self.broker.now() < ends_by, f"{left} are still there; {self.how_to_repeat}"
            self.broker.sleep(AGAIN_S)

    def _member_ids(self, group_id: str) -> set[str]:
        """Return the members that the broker has."""
        described = self.broker.ask(m.DescribeGroupRequest(group_id=group_id))
        assert isinstance(described, m.DescribeGroupResponse)
        return {each.member_id for each in described.members}


def _bucket(topic_id: TopicId) -> int:
    hashed = uuid_hash(topic_id)
    return (hashed ^ hashed >> 16) & (DEFAULT_TABLE - 1)
