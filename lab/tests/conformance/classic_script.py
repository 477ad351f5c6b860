"""Requests of groups with members of the classic protocol, drawn from a seed.

Some groups have members of the classic protocol only, others of both, which convert the group
whenever the first one of the consumer protocol joins and the last one leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from group_lab.assignors.embedded import encode_assignment, encode_subscription
from group_lab.coordinator import messages as c
from group_lab.coordinator.classic import messages as k
from lab.tests.conformance.script import INSTANCES, NO_MEMBER, Asked, GroupScript
from lab.tests.scenarios.wording import MEMBER_ID_REQUIRED
from lab.tests.scenarios.world import ClassicResponse
from spark_groups.errors import ErrorCode
from spark_groups.group.member.embedded import EmbeddedAssignment, Subscription, decode_assignment
from spark_groups.types import TopicPartition

LONG_MS, SHORT_MS = 120_000, 1_500
"""Timeouts that last for most scripts, and those that are waited for."""
CLASSIC_AT_ONCE = 6
"""One more than the brokers let into a group."""
MIXED_SHARE = 0.6
"""How many of the groups have members of both protocols."""
IN_A_MIXED_GROUP = 3
"""How many members of each protocol a mixed group has at most."""
PROTOCOLS = (
    ("range",),
    ("range", "roundrobin"),
    ("cooperative-sticky",),
    ("cooperative-sticky", "range"),
)
"""What the members of a group support."""
REBALANCE_IN_PROGRESS = 27
JOIN, SYNC = "join", "sync"
GONE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)
MUST_JOIN = frozenset({REBALANCE_IN_PROGRESS, int(ErrorCode.ILLEGAL_GENERATION)})
BROKEN_JOINS: tuple[dict[str, object], ...] = (
    {"group_id": ""},
    {"session_timeout_ms": 100},
    {"session_timeout_ms": 2_000_000_000},
    {"protocols": ()},
    {"protocols": (k.ClassicProtocol("another"),)},
    {"protocol_type": "connect"},
    {"protocol_type": ""},
)
"""The mistake of an invalid join."""


@dataclass
class ClassicView:
    """A member of the classic protocol in the state of its last answer.

    Args:
        join: Its last join.
        generations: Its generations, the newest last.
        leads: The members, if it leads.
        must: What it has to do next: "join", "sync" or nothing.
        waits_for: The join or sync that is not answered.
    """

    join: k.JoinGroupRequest
    member_id: str = ""
    generations: list[int] = field(default_factory=lambda: [-1])
    protocol_name: str | None = None
    leads: tuple[k.JoinedMember, ...] = ()
    assigned: frozenset[TopicPartition] = frozenset()
    must: str = JOIN
    waits_for: object = None
    is_gone: bool = False

    @property
    def generation_id(self) -> int:
        return self.generations[-1]


@dataclass
class ClassicScript(GroupScript):
    """The requests about one group with members of the classic protocol."""

    classic: list[ClassicView] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._is_mixed = self.chance.random() < MIXED_SHARE
        self._protocols = self.chance.choice(PROTOCOLS)
        self._has_timeouts = self.chance.random() < 0.4
        of_operators = (self._list, self._delete_offsets, self._delete_group, self._describe)
        consumer = {
            action: weight
            for action, weight in self._actions.items()
            if self._is_mixed or action in of_operators
        }
        for only_consumers in (self._unsubscribe, self._late_without_topics):
            consumer.pop(only_consumers, None)
        classic: dict[Callable[[], Asked | None], int] = {
            self._classic_join: 8,
            self._proceed: 100,
            self._join_again: 5,
            self._take_the_place: 2,
            self._sync_anything: 3,
            self._classic_beat: 12,
            self._classic_leave: 4,
            self._remove: 1,
            self._broken_join: 2,
            self._join_as_a_stranger: 2,
            self._commit: 8,
            self._fetch: 3,
            self._describe_groups: 6,
            self._describe: 4,
        }
        self._actions = {**consumer, **classic}
        if self._is_mixed:
            self._actions[self._leave] = 8

    def note_classic(self, view: ClassicView, request: object, answer: ClassicResponse) -> None:
        """Update a member of the classic protocol from an answer."""
        if view.waits_for is request:
            view.waits_for = None
        code = getattr(answer, "error_code", 0)
        own = getattr(request, "member_id", "") == view.member_id
        if isinstance(answer, k.JoinGroupResponse):
            if code in (0, MEMBER_ID_REQUIRED):
                view.member_id, view.must, view.is_gone = answer.member_id, JOIN, False
            if code == 0:
                view.generations.append(answer.generation_id)
                view.protocol_name = answer.protocol_name
                view.leads = answer.members
                view.must = SYNC
        elif isinstance(answer, k.SyncGroupResponse) and code == 0 and own:
            view.assigned = decode_assignment(answer.assignment).partitions
            view.must = ""
        if code in MUST_JOIN and own:
            view.must = JOIN
        view.is_gone |= code in GONE and own

    def forget(self, view: object) -> None:
        """Forget a member that the group does not have any more."""
        if isinstance(view, ClassicView):
            view.waits_for, view.is_gone = None, True

    def forget_waiting(self) -> None:
        """Forget joins and syncs that will not be answered: the coordinator is another one."""
        for view in self.classic:
            if view.waits_for is not None:
                view.waits_for, view.must = None, JOIN

    # Joins.

    def present(self) -> list[str]:
        """Return the members of the consumer protocol; few in a mixed group."""
        return super().present()

    def _join(self) -> Asked | None:
        if len(self.present()) >= IN_A_MIXED_GROUP:
            return None
        return super()._join()

    def _views(self) -> list[ClassicView]:
        return [view for view in self.classic if not view.is_gone]

    def _some_view(self) -> ClassicView | None:
        views = [view for view in self._views() if view.member_id]
        return self.chance.choice(views) if views else None

    def _classic_join(self) -> Asked | None:
        """Somebody new joins."""
        at_once = IN_A_MIXED_GROUP if self._is_mixed else CLASSIC_AT_ONCE
        if len(self._views()) >= at_once:
            return None
        return self._new(self.chance.choice((None, None, None, *INSTANCES)), "a classic join")

    def _take_the_place(self) -> Asked | None:
        """Somebody joins under an instance id that is or was another member's."""
        known = {view.join.group_instance_id for view in self.classic}
        known |= {view.instance_id for view in self.members.values()}
        instances = sorted(filter(None, known))
        if not instances:
            return None
        return self._new(self.chance.choice(instances), "a static member that returns")

    def _new(self, instance_id: str | None, why: str) -> Asked:
        view = ClassicView(self._classic_joining(instance_id))
        self.classic.append(view)
        if instance_id is not None:
            for other in self.classic[:-1]:
                # The other one learns it from its next answer, if it ever asks again.
                is_same = other.join.group_instance_id == instance_id
                other.is_gone |= is_same and self.chance.random() < 0.5
        return self._send(view, view.join, why)

    def _classic_joining(self, instance_id: str | None, member_id: str = "") -> k.JoinGroupRequest:
        timeouts = (LONG_MS, LONG_MS, SHORT_MS) if self._has_timeouts else (LONG_MS,)
        return k.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.chance.choice(timeouts),
            rebalance_timeout_ms=self.chance.choice(timeouts),
            member_id=member_id,
            group_instance_id=instance_id,
            protocols=self._supported(self._subscription()),
        )

    def _supported(self, subscription: Subscription) -> tuple[k.ClassicProtocol, ...]:
        names = list(self._protocols)
        if self.chance.random() < 0.2:
            self.chance.shuffle(names)
        metadata = encode_subscription(subscription)
        return tuple(k.ClassicProtocol(each, metadata) for each in names)

    def _subscription(self, view: ClassicView | None = None) -> Subscription:
        owned: frozenset[TopicPartition] = frozenset()
        if view is not None and self._protocols[0] == "cooperative-sticky":
            owned = view.assigned
        if view is not None and self.chance.random() < 0.1:
            owned = frozenset(each for each in sorted(view.assigned) if self.chance.random() < 0.5)
        return Subscription(
            topics=self._topics(),
            user_data=b"u" if self.chance.random() < 0.02 else None,
            owned_partitions=owned,
            generation_id=view.generation_id if view else -1,
            version=self.chance.choice((0, 1, 2, 3, 3, 3, 3, 3)),
        )

    def _send(self, view: ClassicView, request: k.JoinGroupRequest, why: str) -> Asked:
        view.join, view.waits_for = request, request
        return Asked(request, why, view=view)

    def _proceed(self) -> Asked | None:
        """Do what a member has to do next, as clients do."""
        views = [view for view in self._views() if view.must and view.waits_for is None]
        if not views:
            return None
        view = self.chance.choice(views)
        if view.must == SYNC:
            return self._syncing(view, "a sync")
        owned = view.assigned if self._protocols[0] == "cooperative-sticky" else frozenset()
        protocols = view.join.protocols
        if owned:
            protocols = self._supported(self._subscription(view))
        request = replace(view.join, member_id=view.member_id, protocols=protocols)
        return self._send(view, request, "a join that is due")

    def _join_again(self) -> Asked | None:
        view = self._some_view()
        if view is None or (view.waits_for is not None and self.chance.random() < 0.7):
            return None
        request = replace(view.join, member_id=view.member_id)
        if self.chance.random() < 0.5:
            request = replace(request, protocols=self._supported(self._subscription(view)))
        return self._send(view, request, "a join of a member")

    def _broken_join(self) -> Asked | None:
        view = self._some_view() or ClassicView(self._classic_joining(None))
        member_id = self.chance.choice(("", view.member_id))
        request = replace(view.join, member_id=member_id, **self.chance.choice(BROKEN_JOINS))
        return Asked(request, "a join that is not valid")

    def _join_as_a_stranger(self) -> Asked | None:
        """A join with the member id of somebody else, gone or present, or an unknown one."""
        ids = [NO_MEMBER, *(view.member_id for view in self.classic[-6:]), *self.present()]
        instance_id = self.chance.choice((None, None, *INSTANCES))
        request = self._classic_joining(instance_id, self.chance.choice(ids) or NO_MEMBER)
        return Asked(request, "a join of a stranger")

    # Syncs and heartbeats.

    def _syncing(self, view: ClassicView, why: str) -> Asked:
        request = k.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=view.generation_id,
            member_id=view.member_id,
            group_instance_id=view.join.group_instance_id,
            protocol_type=self.chance.choice((None, *["consumer"] * 30)),
            protocol_name=self.chance.choice((None, *[view.protocol_name] * 30)),
            assignments=self._assignments(view) if view.leads else {},
        )
        view.waits_for = request
        return Asked(request, why, view=view)

    def _assignments(self, view: ClassicView) -> dict[str, bytes]:
        """Compute any assignment, as the leader: each partition has one owner at most."""
        members = sorted(each.member_id for each in view.leads)
        shares: dict[str, set[TopicPartition]] = {each: set() for each in members}
        for name in sorted(self.topics.ids):
            for partition in range(self.topics.counts[name]):
                if self.chance.random() < 0.9:
                    owner = self.chance.choice(members)
                    shares[owner].add(TopicPartition(name, partition))
        user_data = b"u" if self.chance.random() < 0.03 else None
        return {
            each: encode_assignment(
                EmbeddedAssignment(partitions=frozenset(share), user_data=user_data)
            )
            for each, share in shares.items()
            if self.chance.random() < 0.97
        }

    def _sync_anything(self) -> Asked | None:
        """A sync that is not due, or not valid."""
        view = self._some_view()
        if view is None or view.waits_for is not None:
            return None
        asked = self._syncing(view, "a sync of any kind")
        assert isinstance(asked.request, k.SyncGroupRequest)
        changes: dict[str, object] = self.chance.choice(
            (
                {},
                {"generation_id": view.generation_id + 1},
                {"generation_id": self.chance.choice(view.generations)},
                {"protocol_name": "another"},
                {"protocol_type": "connect"},
                {"member_id": NO_MEMBER},
                {"group_instance_id": self.chance.choice((None, *INSTANCES))},
                {"group_id": self._some_group()},
            )
        )
        request = replace(asked.request, **changes)
        view.waits_for = request
        return replace(asked, request=request)

    def _classic_beat(self) -> Asked | None:
        views = self.classic[-8:] if self.chance.random() < 0.15 else self._views()
        views = [view for view in views if view.member_id]
        if not views:
            return None
        view = self.chance.choice(views)
        older = self.chance.choice(view.generations)
        generation_id = view.generation_id
        request = k.ClassicHeartbeatRequest(
            group_id=self._some_group(),
            generation_id=self.chance.choice((*[generation_id] * 8, older, generation_id + 1)),
            member_id=view.member_id,
            group_instance_id=self.chance.choice((*[view.join.group_instance_id] * 8, *INSTANCES)),
        )
        return Asked(request, "a classic heartbeat", view=view)

    # Leaves, offsets and operators.

    def _classic_leave(self) -> Asked | None:
        view = self._some_view()
        if view is None:
            return None
        instance_id = self.chance.choice((view.join.group_instance_id, None))
        view.is_gone = True
        leaving = c.LeavingMember(view.member_id, instance_id)
        request = c.LeaveGroupRequest(group_id=self.group_id, members=(leaving,))
        return Asked(request, "a classic leave")

    def _remove(self) -> Asked:
        """An operator removes members of any protocol: by id, by instance id, or by both."""
        known = [view.member_id for view in self.classic[-6:] if view.member_id]
        known += [*list(self.members)[-IN_A_MIXED_GROUP:], NO_MEMBER]
        members = []
        for _ in range(self.chance.choice((0, 1, 1, 2, 3))):
            instance_id = self.chance.choice((None, None, *INSTANCES))
            is_anybody = instance_id is not None and self.chance.random() < 0.7
            name = "" if is_anybody else self.chance.choice(known)
            members.append(c.LeavingMember(name, instance_id))
        request = c.LeaveGroupRequest(group_id=self._some_group(), members=tuple(members))
        return Asked(request, "an operator removes members")

    def _who(self) -> tuple[str, int]:
        view = self._some_view()
        if view is None or (self._is_mixed and self.chance.random() < 0.5):
            return super()._who()
        if self.chance.random() < 0.1:
            return "", -1
        older = self.chance.choice(view.generations)
        newest = view.generation_id
        return view.member_id, self.chance.choice((newest, newest, newest, older, newest + 1))

    def _describe_groups(self) -> Asked:
        return Asked(k.DescribeGroupsRequest(group_id=self._some_group()), "a classic description")
