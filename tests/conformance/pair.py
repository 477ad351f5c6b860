"""A broker and the model of its version, asked the same; the first difference ends a script."""

from __future__ import annotations

import dataclasses
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

from spark_groups.assignors.java_order import DEFAULT_TABLE, uuid_hash
from spark_groups.coordinator.profile import Profile
from spark_groups.errors import ErrorCode
from spark_groups.protocol import messages as m
from spark_groups.types import TopicId
from tests.conformance.fields import differences, fields_of, in_short
from tests.conformance.script import REBALANCE_MS, Asked, GroupScript, Told, Topics
from tests.scenarios.model_world import ModelWorld
from tests.scenarios.scene import AGAIN_S
from tests.scenarios.world import World

GROUPS = 3
SESSION = "consumer.session.timeout.ms"
LONG_MS, SHORT_MS = "60000", "1000"
"""A session that outlasts a script, and one that is waited for."""
ENDS_WITHIN_S = 20.0
SHOWN_BEFORE = 12
"""How many steps of the group are told beside one that differs."""


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
    ended: list[str] = field(default_factory=list)
    _said: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.model = ModelWorld(self.profile)
        self._began = self.broker.now()
        prefix = f"seed-{self.seed}"
        self.topics = Topics(tuple(f"{prefix}-{each}" for each in ("a", "b", "c", "never")))
        # A group keeps its offsets: another run of the same seed is about other groups.
        run = uuid.uuid4().hex[:8]
        api_versions = (9, 10) if self.profile.commits_topic_ids else (9,)
        self.groups = [
            GroupScript(f"{prefix}-{run}-{number}", self.chance, self.topics, api_versions)
            for number in range(GROUPS)
        ]

    def play(self, steps: int) -> None:
        """Ask so many times.

        Raises:
            DisagreementError: An answer differs.
        """
        for name in self.topics.names[:2]:
            self._create(name)
        for group in self.groups:
            self._configure(group.group_id, LONG_MS)
        while self.steps < steps:
            drawn = self.chance.random()
            if drawn < 0.015:
                self._change_topics()
            elif drawn < 0.024:
                self._let_expire(self.chance.choice(self.groups))
            else:
                group = self.chance.choice(self.groups)
                self._ask(group, group.next())

    # Requests.

    def _ask(self, group: GroupScript, asked: Asked) -> object:
        """Ask both, compare, and return the answer."""
        self.steps += 1
        self._pass()
        request = asked.request
        both: tuple[Any, Any]
        match request:
            case m.HeartbeatRequest() | m.DescribeGroupRequest():
                both = self.broker.ask(request), self.model.ask(request)
            case m.OffsetCommitRequest():
                how = (request, self._wire_names(), asked.api_version)
                both = self.broker.commit(*how), self.model.commit(*how)
            case m.OffsetFetchRequest():
                how_to_fetch = (request, self._wire_names(), asked.api_version)
                both = self.broker.fetch(*how_to_fetch), self.model.fetch(*how_to_fetch)
        self._compare(group.group_id, f"{asked.why}, v{asked.api_version}", request, *both)
        if isinstance(request, m.HeartbeatRequest):
            group.note(request, both[0])
        return both[0]

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

    def _pass(self) -> None:
        """Let the model's clock follow the broker's."""
        self.model.sleep(self.broker.now() - self._began - self.model.now())

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

    def _configure(self, group_id: str, session_ms: str) -> None:
        both = [
            each.configure(group_id, {SESSION: session_ms}) for each in (self.broker, self.model)
        ]
        self._compare(group_id, "an operator", {SESSION: session_ms}, *both)

    # Time-outs.

    def _let_expire(self, group: GroupScript) -> None:
        """Let a member fall silent, or not revoke, until the broker has removed it."""
        present = group.present()
        if not present:
            return
        name = self.chance.choice(present)
        told = group.members[name]
        ends = self._falls_silent if self.chance.random() < 0.5 else self._does_not_revoke
        if ends(group, name, told):
            self._await_end(group, name)
            self._pass()
            self.ended.append(ends.__name__)
        self._ask(group, Asked(m.DescribeGroupRequest(group_id=group.group_id), "after a time-out"))

    def _falls_silent(self, group: GroupScript, name: str, told: Told) -> bool:
        self._configure(group.group_id, SHORT_MS)
        last = self._ask(group, self._heartbeat(group, name, told, "the last one before silence"))
        self._configure(group.group_id, LONG_MS)
        assert isinstance(last, m.HeartbeatResponse)
        return last.error_code == ErrorCode.NONE

    def _does_not_revoke(self, group: GroupScript, name: str, told: Told) -> bool:
        """Shorten the rebalance time-out, and let another one join: it may owe something then."""
        beat = self._heartbeat(group, name, told, "a short rebalance time-out")
        short = dataclasses.replace(
            beat.request, rebalance_timeout_ms=int(SHORT_MS), topic_partitions=told.assigned
        )
        self._ask(group, dataclasses.replace(beat, request=short))
        self._ask(group, group.joining(told.topics))
        self._ask(group, self._heartbeat(group, name, told, "told to revoke, or not", -1))
        found = self.model.shard.groups[group.group_id].members.get(name)
        if found is not None and found.pending_revocation:
            return True
        self._ask(group, self._heartbeat(group, name, told, "a long rebalance time-out"))
        return False

    def _heartbeat(
        self,
        group: GroupScript,
        name: str,
        told: Told,
        why: str,
        rebalance_timeout_ms: int = REBALANCE_MS,
    ) -> Asked:
        request = m.HeartbeatRequest(
            group_id=group.group_id,
            member_id=name,
            member_epoch=told.epoch,
            instance_id=told.instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        return Asked(request, why)

    def _await_end(self, group: GroupScript, name: str) -> None:
        ends_by = self.broker.now() + ENDS_WITHIN_S
        while True:
            described = self.broker.ask(m.DescribeGroupRequest(group_id=group.group_id))
            assert isinstance(described, m.DescribeGroupResponse)
            if name not in {each.member_id for each in described.members}:
                return
            assert self.broker.now() < ends_by, f"{name} is still there; {self.how_to_repeat}"
            self.broker.sleep(AGAIN_S)


def _bucket(topic_id: TopicId) -> int:
    hashed = uuid_hash(topic_id)
    return (hashed ^ hashed >> 16) & (DEFAULT_TABLE - 1)
