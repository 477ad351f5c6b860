"""Requests that nobody would think of, drawn from a seed: what a group's members might say.

What is asked next depends on what was answered before: epochs and partitions that were told, and
old ones. As long as a broker and the model answer alike, a seed is a script.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from spark_groups.errors import ErrorCode
from spark_groups.protocol import messages as m
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition

REBALANCE_MS = 300_000
MEMBERS_AT_ONCE = 6
"""One more than the brokers let into a group."""
INSTANCES = ("i1", "i2", "i3")
GONE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
"""Who is told one of these is no member."""

Request = m.HeartbeatRequest | m.OffsetCommitRequest | m.OffsetFetchRequest | m.DescribeGroupRequest


@dataclass(frozen=True)
class Asked:
    """One request.

    Args:
        request: The request.
        api_version: Its version, where it counts.
        why: What it is to try out.
    """

    request: Request
    why: str
    api_version: int = 1


@dataclass
class Topics:
    """The topics of a script.

    Args:
        names: What topics may be called; the last one never exists.
        ids: Those that are there, by name.
        counts: How many partitions they have.
        old_ids: What those were called that were.
    """

    names: tuple[str, ...]
    ids: dict[str, TopicId] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    old_ids: dict[TopicId, str] = field(default_factory=dict)


@dataclass
class Told:
    """A member as it was told to be.

    Args:
        epochs: Its member epochs, the newest last.
        assigned: What it was assigned last.
        before: What it was assigned before that.
        instance_id: Its static identity.
        is_gone: Whether it left, or was told that it is no member.
        topics: What it subscribed to.
        last: Its last heartbeat.
    """

    epochs: list[int] = field(default_factory=lambda: [0])
    assigned: Assignment = NO_PARTITIONS
    before: Assignment = NO_PARTITIONS
    instance_id: str | None = None
    is_gone: bool = False
    topics: tuple[str, ...] = ()
    last: m.HeartbeatRequest | None = None

    @property
    def epoch(self) -> int:
        return self.epochs[-1]


@dataclass
class GroupScript:
    """What is asked about one group.

    Args:
        group_id: The group.
        chance: What decides.
        topics: The topics, shared with other groups.
        api_versions: Versions of OffsetCommit and OffsetFetch that the broker has.
    """

    group_id: str
    chance: random.Random
    topics: Topics
    api_versions: tuple[int, ...]
    members: dict[str, Told] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._assignor = self.chance.choice((None, None, "uniform", "range"))
        self._actions: dict[Callable[[], Asked | None], int] = {
            self._join: 8,
            self._beat: 14,
            self._acknowledge: 16,
            self._in_full: 5,
            self._report_anything: 5,
            self._stale: 4,
            self._ahead: 1,
            self._again: 3,
            self._rejoin: 2,
            self._leave: 3,
            self._leave_for_a_moment: 3,
            self._come_back: 4,
            self._subscribe: 8,
            self._as_a_stranger: 2,
            self._commit: 12,
            self._fetch: 6,
            self._describe: 8,
        }

    def next(self) -> Asked:
        """Choose what to ask next."""
        actions, weights = list(self._actions), list(self._actions.values())
        while True:
            asked = self.chance.choices(actions, weights)[0]()
            if asked is not None:
                return asked

    def note(self, request: m.HeartbeatRequest, answer: m.HeartbeatResponse) -> None:
        """Note what a member was told."""
        told = self.members.setdefault(request.member_id, Told(instance_id=request.instance_id))
        if answer.error_code:
            # What a stranger is told in a member's name is not about the member.
            is_its_own = request.instance_id == told.instance_id
            told.is_gone |= is_its_own and answer.error_code in GONE
            return
        told.last = request
        told.is_gone = answer.member_epoch < 0
        told.instance_id = request.instance_id or told.instance_id
        if request.subscribed_topic_names is not None:
            told.topics = request.subscribed_topic_names
        if answer.member_epoch > 0 and answer.member_epoch != told.epoch:
            told.epochs.append(answer.member_epoch)
        if answer.assignment is not None and answer.assignment != told.assigned:
            told.before, told.assigned = told.assigned, answer.assignment

    def present(self) -> list[str]:
        """Return the members that have not left, as far as they know."""
        return [name for name, told in self.members.items() if not told.is_gone]

    # Heartbeats.

    def _join(self) -> Asked | None:
        if len(self.present()) >= MEMBERS_AT_ONCE:
            return None
        instance_id = self.chance.choice((None, None, None, *INSTANCES))
        member_id = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        return Asked(self._joining(member_id, instance_id, self._topics()), "a join")

    def joining(self, topics: tuple[str, ...]) -> Asked:
        """Return the join of somebody new."""
        member_id = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        return Asked(self._joining(member_id, None, topics), "a join")

    def _joining(
        self, member_id: str, instance_id: str | None, topics: tuple[str, ...]
    ) -> m.HeartbeatRequest:
        return m.HeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=0,
            instance_id=instance_id,
            rack_id=self.chance.choice((None, "r1")),
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=topics,
            server_assignor=self._assignor,
            topic_partitions=NO_PARTITIONS,
        )

    def _topics(self) -> tuple[str, ...]:
        """Choose a subscription: mostly that of the others."""
        if self.chance.random() < 0.6:
            return self.topics.names[:2]
        return tuple(self.chance.sample(self.topics.names, self.chance.randint(0, 3)))

    def _someone(self) -> str | None:
        present = self.present()
        return self.chance.choice(present) if present else None

    def _heartbeat(
        self, why: str, owned: Assignment | None = None, epoch: int | None = None
    ) -> Asked | None:
        name = self._someone()
        if name is None:
            return None
        told = self.members[name]
        request = m.HeartbeatRequest(
            group_id=self.group_id,
            member_id=name,
            member_epoch=told.epoch if epoch is None else epoch,
            instance_id=told.instance_id,
            topic_partitions=owned,
        )
        return Asked(request, why)

    def _beat(self) -> Asked | None:
        return self._heartbeat("a plain heartbeat")

    def _changed(self, asked: Asked | None, **changes: object) -> Asked | None:
        return asked and replace(asked, request=replace(asked.request, **changes))

    def _acknowledge(self) -> Asked | None:
        asked = self._heartbeat("what was told is owned")
        return asked and self._changed(asked, topic_partitions=self._told(asked).assigned)

    def _in_full(self) -> Asked | None:
        asked = self._heartbeat("a full heartbeat")
        return asked and self._changed(
            asked,
            topic_partitions=self._told(asked).assigned,
            subscribed_topic_names=self._told(asked).topics,
            rebalance_timeout_ms=REBALANCE_MS,
        )

    def _report_anything(self) -> Asked | None:
        asked = self._heartbeat("anything is owned")
        return asked and self._changed(asked, topic_partitions=self._anything(self._told(asked)))

    def _stale(self) -> Asked | None:
        asked = self._heartbeat("an older epoch")
        if asked is None or len(self._told(asked).epochs) < 3:
            return None
        told = self._told(asked)
        owned = self.chance.choice((None, told.assigned, self._anything(told)))
        older = self.chance.choice(told.epochs[1:-1][-3:])
        return self._changed(asked, member_epoch=older, topic_partitions=owned)

    def _ahead(self) -> Asked | None:
        asked = self._heartbeat("a greater epoch")
        return asked and self._changed(asked, member_epoch=self._told(asked).epoch + 1)

    def _again(self) -> Asked | None:
        name = self._someone()
        last = self.members[name].last if name else None
        return Asked(last, "the same request again") if last else None

    def _rejoin(self) -> Asked | None:
        name = self._someone()
        if name is None:
            return None
        told = self.members[name]
        return Asked(self._joining(name, told.instance_id, told.topics), "a join of a member")

    def _leave(self) -> Asked | None:
        return self._heartbeat("a leave", epoch=-1)

    def _leave_for_a_moment(self) -> Asked | None:
        asked = self._heartbeat("a leave for a moment", epoch=-2)
        is_static = asked and self._told(asked).instance_id
        return asked if is_static or self.chance.random() < 0.1 else None

    def _come_back(self) -> Asked | None:
        away = [name for name, told in self.members.items() if told.is_gone and told.instance_id]
        if not away:
            return None
        name = self.chance.choice(away[-3:])
        told = self.members[name]
        new = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        member_id = self.chance.choice((name, new))
        return Asked(self._joining(member_id, told.instance_id, told.topics), "a static return")

    def _subscribe(self) -> Asked | None:
        asked = self._heartbeat("other topics")
        owned = self.chance.choice((None, self._told(asked).assigned)) if asked else None
        return self._changed(asked, subscribed_topic_names=self._topics(), topic_partitions=owned)

    def _as_a_stranger(self) -> Asked | None:
        """Somebody who is gone, or an instance id that is not the member's."""
        name = self.chance.choice(list(self.members)[-6:]) if self.members else None
        if name is None:
            return None
        told = self.members[name]
        request = m.HeartbeatRequest(
            group_id=self.group_id,
            member_id=name,
            member_epoch=self.chance.choice((told.epoch, -1, -2)),
            instance_id=self.chance.choice((told.instance_id, *INSTANCES)),
        )
        return Asked(request, "a stranger")

    def _told(self, asked: Asked) -> Told:
        assert isinstance(asked.request, m.HeartbeatRequest)
        return self.members[asked.request.member_id]

    def _anything(self, told: Told) -> Assignment:
        known = sorted((told.assigned | told.before).partitions)
        return Assignment(frozenset(each for each in known if self.chance.random() < 0.5))

    # Offsets and operators.

    def _keys(self) -> list[TopicIdPartition]:
        """Choose partitions: owned or not, and now and then one that is not there."""
        ids = [self.topics.ids[name] for name in sorted(self.topics.ids)]
        if self.chance.random() < 0.15:
            ids += self.topics.old_ids
        if not ids:
            return []
        names = {topic_id: name for name, topic_id in self.topics.ids.items()}
        keys = set()
        for _ in range(self.chance.randint(1, 3)):
            topic_id = self.chance.choice(ids)
            bound = self.topics.counts.get(names.get(topic_id, ""), 2)
            too_far = self.chance.random() < 0.05
            keys.add(TopicIdPartition(topic_id, self.chance.randrange(bound) + 77 * too_far))
        return sorted(keys)

    def _who(self) -> tuple[str, int]:
        """Choose a member and an epoch for a request about offsets."""
        if not self.members or self.chance.random() < 0.1:
            return "", -1
        name = self.chance.choice(self.present() or list(self.members))
        if self.chance.random() < 0.1:
            name = self.chance.choice(list(self.members))
        told = self.members[name]
        older = self.chance.choice(told.epochs)
        return name, self.chance.choice((told.epoch, told.epoch, older, told.epoch + 1))

    def _commit(self) -> Asked | None:
        keys, (name, epoch) = self._keys(), self._who()
        if not keys:
            return None
        offsets = {key: m.OffsetAndMetadata(self.chance.randrange(1_000)) for key in keys}
        request = m.OffsetCommitRequest(
            group_id=self.group_id, member_id=name, member_epoch=epoch, offsets=offsets
        )
        versions = (*self.api_versions, *self.api_versions, 8)
        return Asked(request, "a commit", self.chance.choice(versions))

    def _fetch(self) -> Asked | None:
        keys, (name, epoch) = self._keys(), self._who()
        if not keys:
            return None
        request = m.OffsetFetchRequest(
            group_id=self.group_id,
            member_id=name or None,
            member_epoch=epoch,
            partitions=frozenset(keys),
        )
        return Asked(request, "a fetch", self.chance.choice(self.api_versions))

    def _describe(self) -> Asked:
        return Asked(m.DescribeGroupRequest(group_id=self.group_id), "a description")
