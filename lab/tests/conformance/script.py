"""Unusual requests of a group's members, drawn from a seed.

The next request depends on earlier answers: their epochs and partitions, and
old ones. As long as a broker and the model answer alike, a seed is a script.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from group_lab.coordinator import messages as c
from lab.tests.scenarios.world import CLIENT_ID, ClassicRequest
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.types import (
    NO_PARTITIONS,
    Assignment,
    TopicId,
    TopicIdPartition,
    TopicPartition,
)

REBALANCE_MS = 300_000
MEMBERS_AT_ONCE = 6
"""One more than the brokers let into a group."""
INSTANCES = ("i1", "i2", "i3")
PATTERNS_SHARE = 0.4
"""How many of the groups have members that subscribe by pattern."""
OTHER_CLIENT_SHARE = 0.05
"""How many of the requests come from another client id."""
GONE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
"""A member that receives one of these is no longer in the group."""

OTHER_CLIENT_ID = "another"
NO_MEMBER = "not-a-member-of-anything"
BROKEN_HEARTBEATS: tuple[dict[str, object], ...] = (
    {"member_id": ""},
    {"group_id": ""},
    {"instance_id": ""},
    {"rack_id": " "},
    {"member_epoch": -3},
    {"member_epoch": -2, "instance_id": None},
    {"server_assignor": "nothing"},
    {"subscribed_topic_regex": "a["},
    {"subscribed_topic_regex": "(?=a)b"},
)
"""The mistake of an invalid request."""
BROKEN_JOINS: tuple[dict[str, object], ...] = (
    {"rebalance_timeout_ms": -1},
    {"topic_partitions": None},
    {"subscribed_topic_names": None, "subscribed_topic_regex": None},
    {"member_id": " "},
)
METADATA = ("", "a note", "\u00fcml\u00e4ute", "x" * 32_001)
"""Beside an offset; the last one is longer than the brokers take."""
STATES = ("Stable", "empty", "RECONCILING", "Assigning", "Dead", "nonsense")
TYPES = ("consumer", "Classic", "share")

Request = (
    m.HeartbeatRequest
    | m.OffsetCommitRequest
    | m.OffsetFetchRequest
    | m.DescribeGroupRequest
    | c.ListGroupsRequest
    | c.DeleteGroupsRequest
    | c.LeaveGroupRequest
    | c.OffsetDeleteRequest
    | ClassicRequest
)


@dataclass(frozen=True)
class Asked:
    """One request.

    Args:
        request: The request.
        api_version: Its version, where it counts.
        why: What it is to try out.
        client_id: Who sends it.
        view: The member of the classic protocol that it is about.
    """

    request: Request
    why: str
    api_version: int = 1
    client_id: str = CLIENT_ID
    view: object = None


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
class MemberView:
    """A member in the state of its last answer.

    Args:
        epochs: Its member epochs, the newest last.
        assigned: What it was assigned last.
        before: What it was assigned before that.
        instance_id: Its static identity.
        is_gone: Whether it left, or learned that it is no member.
        topics: What it subscribed to.
        regex: The pattern it subscribed by.
        last: Its last heartbeat.
    """

    epochs: list[int] = field(default_factory=lambda: [0])
    assigned: Assignment = NO_PARTITIONS
    before: Assignment = NO_PARTITIONS
    instance_id: str | None = None
    is_gone: bool = False
    topics: tuple[str, ...] = ()
    regex: str | None = None
    last: m.HeartbeatRequest | None = None

    @property
    def epoch(self) -> int:
        return self.epochs[-1]


@dataclass
class GroupScript:
    """The requests about one group.

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
    members: dict[str, MemberView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        voted = ((None,), (None,), ("uniform",), ("range",), (None, "uniform", "range"))
        self._votes = self.chance.choice(voted)
        self._has_patterns = self.chance.random() < PATTERNS_SHARE
        stem = self.topics.names[0].removesuffix("a")
        self._patterns = ("", f"{stem}[ab]", f"{stem}.*", f"{stem}c", "nothing")
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
            self._unsubscribe: 3,
            self._late_without_topics: 6,
            self._as_a_stranger: 2,
            self._under_another_instance_id: 3,
            self._broken: 3,
            self._commit: 12,
            self._fetch: 6,
            self._describe: 8,
            self._list: 2,
            self._remove: 2,
            self._delete_offsets: 1,
            self._delete_group: 1,
        }

    def next(self) -> Asked:
        """Choose what to ask next."""
        actions, weights = list(self._actions), list(self._actions.values())
        while True:
            asked = self.chance.choices(actions, weights)[0]()
            if asked is not None:
                is_another = self.chance.random() < OTHER_CLIENT_SHARE
                return replace(asked, client_id=OTHER_CLIENT_ID) if is_another else asked

    def note(self, request: m.HeartbeatRequest, answer: m.HeartbeatResponse) -> None:
        """Update a member from an answer."""
        if request.group_id != self.group_id or not request.member_id.strip():
            return
        view = self.members.setdefault(
            request.member_id, MemberView(instance_id=request.instance_id)
        )
        if answer.error_code:
            # An answer to another sender with the member's id is not about the member.
            is_its_own = request.instance_id == view.instance_id
            view.is_gone |= is_its_own and answer.error_code in GONE
            return
        view.last = request
        view.is_gone = answer.member_epoch < 0
        view.instance_id = request.instance_id or view.instance_id
        if request.subscribed_topic_names is not None:
            view.topics = request.subscribed_topic_names
        if request.subscribed_topic_regex is not None:
            view.regex = request.subscribed_topic_regex
        if answer.member_epoch > 0 and answer.member_epoch != view.epoch:
            view.epochs.append(answer.member_epoch)
        if answer.assignment is not None and answer.assignment != view.assigned:
            view.before, view.assigned = view.assigned, answer.assignment

    def present(self) -> list[str]:
        """Return the members that have not left, as far as they know."""
        return [name for name, view in self.members.items() if not view.is_gone]

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
            subscribed_topic_regex=self._pattern(),
            server_assignor=self.chance.choice(self._votes),
            topic_partitions=NO_PARTITIONS,
        )

    def _pattern(self) -> str | None:
        """Choose a pattern, in a group that has some."""
        if not self._has_patterns or self.chance.random() < 0.4:
            return None
        return self.chance.choice(self._patterns)

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
        view = self.members[name]
        request = m.HeartbeatRequest(
            group_id=self.group_id,
            member_id=name,
            member_epoch=view.epoch if epoch is None else epoch,
            instance_id=view.instance_id,
            topic_partitions=owned,
        )
        return Asked(request, why)

    def _beat(self) -> Asked | None:
        return self._heartbeat("a plain heartbeat")

    def _changed(self, asked: Asked | None, **changes: object) -> Asked | None:
        return asked and replace(asked, request=replace(asked.request, **changes))

    def _acknowledge(self) -> Asked | None:
        asked = self._heartbeat("the assigned partitions are owned")
        return asked and self._changed(asked, topic_partitions=self._view(asked).assigned)

    def _in_full(self) -> Asked | None:
        asked = self._heartbeat("a full heartbeat")
        return asked and self._changed(
            asked,
            topic_partitions=self._view(asked).assigned,
            subscribed_topic_names=self._view(asked).topics,
            subscribed_topic_regex=self._view(asked).regex,
            rebalance_timeout_ms=REBALANCE_MS,
        )

    def _report_anything(self) -> Asked | None:
        asked = self._heartbeat("anything is owned")
        return asked and self._changed(asked, topic_partitions=self._anything(self._view(asked)))

    def _stale(self) -> Asked | None:
        asked = self._heartbeat("an older epoch")
        if asked is None or len(self._view(asked).epochs) < 3:
            return None
        view = self._view(asked)
        owned = self.chance.choice((None, view.assigned, self._anything(view)))
        older = self.chance.choice(view.epochs[1:-1][-3:])
        return self._changed(asked, member_epoch=older, topic_partitions=owned)

    def _ahead(self) -> Asked | None:
        asked = self._heartbeat("a greater epoch")
        return asked and self._changed(asked, member_epoch=self._view(asked).epoch + 1)

    def _again(self) -> Asked | None:
        name = self._someone()
        last = self.members[name].last if name else None
        return Asked(last, "the same request again") if last else None

    def _rejoin(self) -> Asked | None:
        name = self._someone()
        if name is None:
            return None
        view = self.members[name]
        return Asked(self._joining(name, view.instance_id, view.topics), "a join of a member")

    def _leave(self) -> Asked | None:
        return self._heartbeat("a leave", epoch=-1)

    def _leave_for_a_moment(self) -> Asked | None:
        asked = self._heartbeat("a leave for a moment", epoch=-2)
        is_static = asked and self._view(asked).instance_id
        return asked if is_static or self.chance.random() < 0.1 else None

    def _come_back(self) -> Asked | None:
        away = [name for name, view in self.members.items() if view.is_gone and view.instance_id]
        if not away:
            return None
        name = self.chance.choice(away[-3:])
        view = self.members[name]
        new = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        member_id = self.chance.choice((name, new))
        return Asked(self._joining(member_id, view.instance_id, view.topics), "a static return")

    def _subscribe(self) -> Asked | None:
        asked = self._heartbeat("other topics")
        owned = self.chance.choice((None, self._view(asked).assigned)) if asked else None
        regex = self._pattern()
        names = None if regex is not None and self.chance.random() < 0.5 else self._topics()
        return self._changed(
            asked,
            subscribed_topic_names=names,
            subscribed_topic_regex=regex,
            topic_partitions=owned,
            server_assignor=self.chance.choice(self._votes),
        )

    def _unsubscribe(self) -> Asked | None:
        """Drop all topics and the pattern."""
        asked = self._heartbeat("no topics")
        owned = self.chance.choice((None, NO_PARTITIONS))
        return self._changed(
            asked, subscribed_topic_names=(), subscribed_topic_regex="", topic_partitions=owned
        )

    def _late_without_topics(self) -> Asked | None:
        """The epoch before, from a member that has dropped its topics: it may no longer count."""
        asked = self._heartbeat("the epoch before, without topics")
        if asked is None or self._view(asked).topics or len(self._view(asked).epochs) < 3:
            return None
        before = self._view(asked).epochs[-2]
        return self._changed(asked, member_epoch=before, topic_partitions=NO_PARTITIONS)

    def _as_a_stranger(self) -> Asked | None:
        """Somebody who is gone, or an instance id that is not the member's."""
        name = self.chance.choice(list(self.members)[-6:]) if self.members else None
        if name is None:
            return None
        view = self.members[name]
        request = m.HeartbeatRequest(
            group_id=self.group_id,
            member_id=name,
            member_epoch=self.chance.choice((view.epoch, -1, -2)),
            instance_id=self.chance.choice((view.instance_id, *INSTANCES)),
        )
        return Asked(request, "a stranger")

    def _under_another_instance_id(self) -> Asked | None:
        """A member joins again as somebody else: it may take the place of who is away."""
        name = self._someone()
        if name is None:
            return None
        instance_id = self.chance.choice((None, *INSTANCES))
        topics = self.chance.choice((self.members[name].topics, self._topics()))
        return Asked(self._joining(name, instance_id, topics), "a join under an instance id")

    def _broken(self) -> Asked | None:
        """A request that is not valid."""
        asked = self._join() if self.chance.random() < 0.5 else self._beat()
        if asked is None:
            return None
        assert isinstance(asked.request, m.HeartbeatRequest)
        breaks = BROKEN_HEARTBEATS
        if asked.request.member_epoch == 0:
            some = Assignment(frozenset(self._keys()))
            breaks = (*breaks, *BROKEN_JOINS, {"topic_partitions": some})
        broken = self._changed(asked, **self.chance.choice(breaks))
        return broken and replace(broken, why="a request that is not valid")

    def _view(self, asked: Asked) -> MemberView:
        assert isinstance(asked.request, m.HeartbeatRequest)
        return self.members[asked.request.member_id]

    def _anything(self, view: MemberView) -> Assignment:
        known = sorted((view.assigned | view.before).partitions)
        return Assignment(frozenset(each for each in known if self.chance.random() < 0.5))

    # Offsets and operators.

    def _keys(self) -> list[TopicIdPartition]:
        """Choose partitions: owned or not, and sometimes one that does not exist."""
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
        view = self.members[name]
        older = self.chance.choice(view.epochs)
        return name, self.chance.choice((view.epoch, view.epoch, older, view.epoch + 1))

    def _commit(self) -> Asked | None:
        keys, (name, epoch) = self._keys(), self._who()
        if not keys:
            return None
        offsets = {
            key: m.OffsetAndMetadata(
                self.chance.randrange(1_000),
                self.chance.choices(METADATA, (20, 5, 2, 1))[0],
                self.chance.choice((m.NO_LEADER_EPOCH, 0, 5)),
            )
            for key in keys
        }
        # Without a group id, an unknown member would create a group that outlasts the script.
        group_id = self._some_group() if epoch >= 0 else self.group_id
        request = m.OffsetCommitRequest(
            group_id=group_id,
            member_id=name,
            member_epoch=epoch,
            instance_id=self.chance.choice((None, None, None, *INSTANCES)),
            offsets=offsets,
        )
        versions = (*self.api_versions, *self.api_versions, 8)
        return Asked(request, "a commit", self.chance.choice(versions))

    def _fetch(self) -> Asked | None:
        keys, (name, epoch) = self._keys(), self._who()
        if not keys:
            return None
        request = m.OffsetFetchRequest(
            group_id=self._some_group(),
            member_id=name or None,
            member_epoch=epoch,
            partitions=frozenset(keys),
        )
        return Asked(request, "a fetch", self.chance.choice(self.api_versions))

    def _describe(self) -> Asked:
        return Asked(m.DescribeGroupRequest(group_id=self._some_group()), "a description")

    def _some_group(self) -> str:
        """Return the group, sometimes one that does not exist, or no group id."""
        if self.chance.random() < 0.05:
            return self.chance.choice((f"{self.group_id}-none", ""))
        return self.group_id

    def _list(self) -> Asked:
        states = self.chance.sample(STATES, self.chance.choice((0, 0, 1, 2)))
        types = self.chance.sample(TYPES, self.chance.choice((0, 0, 1, 2)))
        request = c.ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
        return Asked(request, "a list of the groups")

    def _remove(self) -> Asked:
        """An operator removes members: by id, by instance id, or by both."""
        members = []
        for _ in range(self.chance.choice((0, 1, 1, 1, 2, 3))):
            known = list(self.members)[-MEMBERS_AT_ONCE:]
            name = self.chance.choice((*known, NO_MEMBER))
            view = self.members.get(name, MemberView())
            instance_id = self.chance.choice((None, view.instance_id, *INSTANCES))
            is_anybody = instance_id is not None and self.chance.random() < 0.5
            members.append(c.LeavingMember("" if is_anybody else name, instance_id))
        group_id = self._some_group()
        request = c.LeaveGroupRequest(group_id=group_id, members=tuple(members))
        return Asked(request, "an operator removes members")

    def _delete_offsets(self) -> Asked | None:
        topics = self.chance.sample(self.topics.names, self.chance.randint(1, 2))
        partitions = frozenset(
            TopicPartition(name, self.chance.choice((0, 1, 77))) for name in topics
        )
        request = c.OffsetDeleteRequest(group_id=self._some_group(), partitions=partitions)
        return Asked(request, "an operator deletes offsets")

    def _delete_group(self) -> Asked:
        request = c.DeleteGroupsRequest(group_id=self._some_group())
        return Asked(request, "an operator deletes the group")
