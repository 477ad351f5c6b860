"""The leader of incremental cooperative rebalancing, as it was proposed: three policies.

Members hold on to their resources when they join, and report them in version 1 of Kafka's
subscription. The leader computes a sticky, balanced assignment, gives each member the resources
that no member claims, and has the others revoked; a member that has to revoke joins again at once.

- `Policy.IMMEDIATE` (Design I) resolves every imbalance at once.
- `Policy.DELAYED` (Design II) leaves the resources of a member that left without an owner for a
  while, in case the member returns. Meanwhile no other resource moves.
- `Policy.INCREMENTAL` (Design III) does this too, and moves a few resources at a time.

A resource is a topic and a number: a partition, or for Connect a task `("jdbc-sink", 0)` and the
connector itself `("jdbc-sink", -1)`. Where the proposal leaves a choice:

- A member that gets nothing new receives an empty assignment: its own needs no repetition.
- A delay that runs is not extended when another member leaves.
- A resource that two members claim, which cooperative members never do, is revoked from both, and
  assigned in the next rebalance.
- Even during a delay, a member has to revoke a resource that is gone, or whose topic it does not
  subscribe to any more.
- If the leader also led the last generation, and all members of that one are there, it delays
  nothing: resources without an owner are new, or their member did not receive its assignment.

Source: Incremental Cooperative Rebalancing: Support and Policies, Designs I to III.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil

from group_lab.assignors.embedded import ProposedAssignment
from group_lab.assignors.sticky import sticky_assignment
from group_lab.assignors.sticky_general import Claim
from spark_groups.group.member.embedded import Subscription
from spark_groups.types import TopicPartition

Resources = frozenset[TopicPartition]
NONE: Resources = frozenset()


class Policy(Enum):
    """When the leader resolves an imbalance."""

    IMMEDIATE = "immediate"
    """In the same rebalance, and one more if resources move."""
    DELAYED = "delayed"
    """Lost resources after a delay, or once a new member joins; any other imbalance at once."""
    INCREMENTAL = "incremental"
    """Lost resources in the same way; of others, a few in each interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderConfig:
    """The settings of a leader; all members have the same.

    Args:
        scheduled_rebalance_delay_s: How long lost resources wait for their member to return
            (Connect's `scheduled.rebalance.max.delay.ms`).
        first_delay_s: How long a group without any assignment waits for more members; 0 assigns at
            once. `Policy.IMMEDIATE` has no delays.
        moves_max: How many resources `Policy.INCREMENTAL` revokes in each interval.
        move_interval_s: The time between such moves.
    """

    policy: Policy
    scheduled_rebalance_delay_s: float = 300.0
    first_delay_s: float = 0.0
    moves_max: int = 1
    move_interval_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderMemory:
    """What a leader knows when the members join; without arguments, the leader is new to the group.

    Only the leader of the last generation knows everything; any other one knows as much as a
    follower.

    Args:
        subscribed: The topics of each member of the last generation; None if the leader did not
            lead that one.
        topics: Those of the last generation, once their resources have been assigned.
        target: The computed assignment, while resources still have to move to reach it. The leader
            keeps it until then, unless the group changes: otherwise resources could move in a
            circle.
        revoked: Resources that members had to revoke in the last generation.
        rebalance_at: When the delay of lost resources ends, in seconds; None if none runs.
        move_at: Before this time, `Policy.INCREMENTAL` moves nothing more.
    """

    subscribed: Mapping[str, frozenset[str]] | None = None
    topics: frozenset[str] = frozenset()
    target: Mapping[str, Resources] | None = None
    revoked: Resources = NONE
    rebalance_at: float | None = None
    move_at: float | None = None

    @classmethod
    def of_follower(cls, rebalance_at: float | None) -> LeaderMemory:
        """Return the knowledge of a member that becomes leader: it does not extend a delay.

        A follower cannot distinguish the delay of lost resources from the interval between moves.

        Args:
            rebalance_at: When the timeout of its last assignment ends; None if that had none.
        """
        return cls(rebalance_at=rebalance_at, move_at=rebalance_at)


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a rebalance.

    Args:
        assignments: By member id, as sent.
        memory: For the same leader's next decision.
        target: The computed assignment; `assignments` are the first step to it.
        waiting: Lost resources that no member gets before the delay ends.
    """

    assignments: Mapping[str, ProposedAssignment]
    memory: LeaderMemory
    target: Mapping[str, Resources]
    waiting: Resources


def decide(
    config: LeaderConfig,
    members: Mapping[str, Subscription],
    resources: Mapping[str, Collection[int]],
    memory: LeaderMemory,
    now: float,
) -> Decision:
    """Decide as the leader, once all members have joined a generation.

    Args:
        members: By member id, in the order of JoinGroup; each claims its `owned_partitions`.
        resources: The numbers of the resources by topic: of a topic with three partitions,
            `range(3)`. Topics that no member subscribes to are left out.
        now: Seconds of the clock to which the times in `memory` belong.
    """
    group = _joined(members, resources, memory)
    lost = _lost(config, group, memory)
    returned = _returned(group, lost, memory)
    waiting = lost.difference(*returned.values())
    rebalance_at = _rebalance_at(config, group, memory, now) if waiting else None
    if rebalance_at is None:
        waiting = NONE
    target = _last_target(group, waiting, memory) or _target(group, waiting, returned)
    imbalance = sorted(key for each, own in group.kept.items() for key in own - target[each])
    moves, move_at = _moves(config, [] if waiting else imbalance, memory, now)
    scheduled_at = rebalance_at if waiting or len(moves) == len(imbalance) else move_at
    is_first_delay = bool(waiting) and not group.known_topics
    assignments = _assignments(config, group, target, moves, _timeout_ms(scheduled_at, now))
    after = LeaderMemory(
        subscribed=group.subscribed,
        topics=frozenset() if is_first_delay else frozenset(key.topic for key in group.existing),
        target=target if imbalance else None,
        revoked=NONE.union(*(assignment.revoked for assignment in assignments.values())),
        rebalance_at=rebalance_at,
        move_at=move_at,
    )
    return Decision(assignments, after, target, waiting)


@dataclass(frozen=True, slots=True)
class _Group:
    """The members of a generation before they get anything.

    Args:
        claimed: What each member reports that it has.
        kept: What it may keep: resources that exist, that it subscribes to, and that no other
            member claims.
        existing: All resources of subscribed topics.
        free: Those that no member claims.
        known_topics: Topics of which a member has had resources before, as far as the leader knows.
            Without any, this is the first generation.
    """

    subscribed: Mapping[str, frozenset[str]]
    claimed: Mapping[str, Resources]
    kept: Mapping[str, Resources]
    existing: Resources
    free: Resources
    known_topics: frozenset[str]


def _joined(
    members: Mapping[str, Subscription],
    resources: Mapping[str, Collection[int]],
    memory: LeaderMemory,
) -> _Group:
    subscribed = {member_id: frozenset(known.topics) for member_id, known in members.items()}
    claimed = {member_id: known.owned_partitions for member_id, known in members.items()}
    existing = frozenset(
        TopicPartition(topic, number)
        for topic in frozenset[str]().union(*subscribed.values())
        for number in resources.get(topic, ())
    )
    claims = Counter(key for own in claimed.values() for key in own)
    kept = {
        each: frozenset(
            key for key in own & existing if claims[key] == 1 and key.topic in subscribed[each]
        )
        for each, own in claimed.items()
    }
    known_topics = memory.topics | {key.topic for key in claims}
    return _Group(subscribed, claimed, kept, existing, existing - claims.keys(), known_topics)


def _lost(config: LeaderConfig, group: _Group, memory: LeaderMemory) -> Resources:
    """Return the resources that wait: for their member to return, or at first for more members."""
    if config.policy is Policy.IMMEDIATE:
        return NONE
    if not group.known_topics:
        return group.free if config.first_delay_s else NONE
    last = memory.subscribed
    if memory.rebalance_at is None and last is not None and last.keys() <= group.claimed.keys():
        return NONE
    return frozenset(key for key in group.free - memory.revoked if key.topic in group.known_topics)


def _returned(group: _Group, lost: Resources, memory: LeaderMemory) -> dict[str, Resources]:
    """Deal lost resources to the new members, which may well be those that had them."""
    if not group.known_topics:
        return {}
    dealt: dict[str, set[TopicPartition]] = {each: set() for each in _new_members(group, memory)}
    for key in sorted(lost):
        takers = [each for each in dealt if key.topic in group.subscribed[each]]
        if takers:
            taker = min(takers, key=lambda each: (len(group.kept[each]) + len(dealt[each]), each))
            dealt[taker].add(key)
    return {each: frozenset(own) for each, own in dealt.items()}


def _new_members(group: _Group, memory: LeaderMemory) -> list[str]:
    """Return the members that joined since the last generation.

    A leader that does not know the last generation takes those without a resource for new, unless
    there are more members than resources for them, so that some have none in any case.
    """
    if memory.subscribed is not None:
        return [each for each in group.claimed if each not in memory.subscribed]
    counts = Counter(key.topic for key in group.existing)
    return [
        each
        for each, own in group.claimed.items()
        if not own and sum(counts[topic] for topic in group.subscribed[each]) >= len(group.claimed)
    ]


def _rebalance_at(
    config: LeaderConfig, group: _Group, memory: LeaderMemory, now: float
) -> float | None:
    """Return when the delay ends that runs, or begins now; None if it is over."""
    if memory.rebalance_at is not None:
        return memory.rebalance_at if memory.rebalance_at > now else None
    is_first = not group.known_topics
    return now + (config.first_delay_s if is_first else config.scheduled_rebalance_delay_s)


def _last_target(
    group: _Group, waiting: Resources, memory: LeaderMemory
) -> Mapping[str, Resources] | None:
    """Return the target that the leader has not reached yet, None if it needs another one."""
    target = memory.target
    if target is None or memory.subscribed != group.subscribed:
        return None
    return target if NONE.union(*target.values()) == group.existing - waiting else None


def _target(
    group: _Group, waiting: Resources, returned: Mapping[str, Resources]
) -> dict[str, Resources]:
    """Return the sticky assignment of everything that does not wait.

    Args:
        returned: Resources that new members take like their own.
    """
    numbers: dict[str, list[TopicPartition]] = {}
    rank: dict[TopicPartition, TopicPartition] = {}
    for key in sorted(group.existing - waiting):
        alike = numbers.setdefault(key.topic, [])
        # The sticky assignor knows partitions, numbered from 0 without gaps.
        rank[key] = TopicPartition(key.topic, len(alike))
        alike.append(key)
    claims = {
        each: Claim([rank[key] for key in own | returned.get(each, NONE)])
        for each, own in group.kept.items()
    }
    counts = {topic: len(each) for topic, each in numbers.items()}
    assigned, _ = sticky_assignment(group.subscribed, counts, claims)
    return {
        each: frozenset(numbers[topic][number] for topic, number in own)
        for each, own in assigned.items()
    }


def _moves(
    config: LeaderConfig, imbalance: list[TopicPartition], memory: LeaderMemory, now: float
) -> tuple[Resources, float | None]:
    """Return the resources that members revoke now, and the time before which no more move."""
    if config.policy is not Policy.INCREMENTAL:
        return frozenset(imbalance), None
    if memory.move_at is not None and now < memory.move_at:
        return NONE, memory.move_at
    moves = frozenset(imbalance[: config.moves_max])
    return moves, now + config.move_interval_s if moves else None


def _timeout_ms(scheduled_at: float | None, now: float) -> int:
    return 0 if scheduled_at is None else max(1, ceil((scheduled_at - now) * 1000))


def _assignments(
    config: LeaderConfig,
    group: _Group,
    target: Mapping[str, Resources],
    moves: Resources,
    timeout_ms: int,
) -> dict[str, ProposedAssignment]:
    """Return the assignments: of the target only what no member has to give up first."""
    found = {}
    for member_id, own in group.claimed.items():
        stays = group.kept[member_id] - moves
        gained = target[member_id] & group.free
        found[member_id] = ProposedAssignment(
            assigned=stays | gained if gained else NONE,
            revoked=own - stays,
            # A member that revokes joins again without any timeout.
            scheduled_rebalance_timeout_ms=timeout_ms if own <= stays else 0,
            version=0 if config.policy is Policy.IMMEDIATE else 1,
        )
    return found
