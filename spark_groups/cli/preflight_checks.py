"""The checks of `spark-groups preflight`: can a member of the consumer protocol join a group now?

Each check is a function from facts about the group to a finding; `CHECKS` lists them. The
conditions are those of the coordinator (org.apache.kafka.coordinator.group.GroupMetadataManager,
validateOnlineUpgrade, and ConsumerGroup.fromClassicGroup).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Final

from spark_groups.errors import ErrorCode, rule_for
from spark_groups.group.member.embedded import CONSUMER_PROTOCOL_TYPE
from spark_groups.group.member.events import listed
from spark_groups.group.member.grant_command import Identity, remedy_of
from spark_groups.group.member.messages import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from spark_groups.observation.plain_values import View, partition_ranges
from spark_groups.observation.reading import GroupType
from spark_groups.types import TopicPartition
from spark_groups.wire.group_settings import GroupSettings

MIGRATION_POLICY: Final = "group.consumer.migration.policy"
CONSUMER_MAX_SIZE: Final = "group.consumer.max.size"
CLASSIC_MAX_SIZE: Final = "group.max.size"
REBALANCE_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
BROKER_KEYS: Final = (MIGRATION_POLICY, CONSUMER_MAX_SIZE, CLASSIC_MAX_SIZE, REBALANCE_PROTOCOLS)
GROUP_FEATURE: Final = "group.version"
UPGRADES: Final = frozenset({"bidirectional", "upgrade"})
DOWNGRADES: Final = frozenset({"bidirectional", "downgrade"})
COOPERATIVE: Final = "cooperative-sticky"
"""From its second rebalance on librdkafka's copies user data of subscriptions into assignments."""
LIBRDKAFKA_ASSIGNMENT_VERSION: Final = 0
"""Kafka's own clients write version 1 or later."""
_NAMED_MAX: Final = 3


class Verdict(Enum):
    """What a finding means for a member that joins, best first."""

    OK = "ok"
    WARNING = "warning"
    UNKNOWN = "unknown"
    BLOCKS = "blocks"


_SEVERITY: Final = {verdict: rank for rank, verdict in enumerate(Verdict)}


class MemberProtocol(Enum):
    """The protocol that a member uses."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """A member of the group.

    Args:
        member_epoch: Only of members in consumer groups.
        subscription_version: The embedded version of a classic member's subscription; None: not
            shown, or unreadable.
        assignment_version: The same of its assignment.
        user_data_bytes: Length of the user data in its assignment.
    """

    member_id: str
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    protocol: MemberProtocol = MemberProtocol.CLASSIC
    member_epoch: int | None = None
    subscription_version: int | None = None
    assignment_version: int | None = None
    user_data_bytes: int | None = None

    @property
    def name(self) -> str:
        """The member id, with the instance id of a static member."""
        return f"{self.instance_id} ({self.member_id})" if self.instance_id else self.member_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic that the new member would read.

    Args:
        error_code: Why it is unknown; 0 if it exists.
        hint: What follows its name: the topic that may have been meant.
        operations: What the principal may do with it; None: unknown.
        committed: Partitions with a committed offset.
        uncommitted: Partitions without one.
        unknown: Partitions whose offsets are unknown, with the request that failed and Kafka's
            error code.
        out_of_range: Partitions whose committed offset is not in the log.
        without_leader_epoch: Partitions whose offset was committed without a leader epoch.
        partition_count_at_start: The partition count when the group began to read the topic, if a
            committed offset names it.
    """

    name: str
    error_code: int = 0
    hint: str = ""
    operations: frozenset[str] | None = None
    committed: frozenset[int] = frozenset()
    uncommitted: frozenset[int] = frozenset()
    unknown: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    out_of_range: frozenset[int] = frozenset()
    without_leader_epoch: frozenset[int] = frozenset()
    partition_count_at_start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What brokers report about a group, its members' topics, and the cluster.

    Args:
        identity: The principal that would join.
        instance_id: The instance id of the member that would join; None: it is dynamic.
        probe_code: Kafka's error code for a heartbeat of a member that the group does not have.
        group_version: The level of the feature `group.version`.
        broker: The coordinator's settings `BROKER_KEYS`; empty: unknown.
        broker_reason: Why they are unknown.
        group_type: None: there is no such group.
        describe_code: Why the type is unknown, as an error code.
        protocol_type: Of a classic group.
        topics: Those requested, or else those of the group.
        pattern: That of the member that would join; empty: it names topics.
        held_topics: Topics of the group that are internal to Kafka and that no member names: a
            pattern matches them, and a query does not read them.
        offsets_problem: Why committed offsets are unknown; empty if they are known.
    """

    group_id: str
    identity: Identity
    instance_id: str | None = None
    probe_code: int = ErrorCode.GROUP_ID_NOT_FOUND.value
    group_version: int = 1
    broker: Mapping[str, str | None] = field(default_factory=dict)
    broker_reason: str = ""
    settings: GroupSettings = field(default_factory=GroupSettings)
    group_type: GroupType | None = None
    describe_code: int = 0
    group_state: str = ""
    protocol_type: str = ""
    assignor_name: str = ""
    members: tuple[MemberFacts, ...] = ()
    topics: tuple[TopicFacts, ...] = ()
    pattern: str = ""
    held_topics: tuple[str, ...] = ()
    offsets_problem: str = ""

    @property
    def classic_members(self) -> tuple[MemberFacts, ...]:
        return tuple(member for member in self.members if member.protocol is MemberProtocol.CLASSIC)

    @property
    def must_be_converted(self) -> bool:
        """Whether the first member of the consumer protocol converts the group."""
        is_live = bool(self.members) or self.group_state not in _WITHOUT_MEMBERS
        return self.group_type is GroupType.CLASSIC and is_live


_WITHOUT_MEMBERS: Final = frozenset({"", "Empty", "Dead"})
"""In other states of a classic group a member may be joining that no description shows yet."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict of one check, its reason, and the cure; empty if nothing must be done.

    Args:
        check: The name of the check in `CHECKS`; `check_group` fills it in.
    """

    check: str = field(default="", kw_only=True)
    verdict: Verdict
    reason: str
    cure: str = ""


_ok = partial(Finding, Verdict.OK)
_warning = partial(Finding, Verdict.WARNING)
_unknown = partial(Finding, Verdict.UNKNOWN)
_blocks = partial(Finding, Verdict.BLOCKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightView(View):
    """Whether a member of the consumer protocol can join a group: the worst of all findings."""

    group_id: str
    verdict: Verdict
    group_type: GroupType | None
    group_state: str
    protocol_type: str
    assignor_name: str
    members: tuple[MemberFacts, ...]
    findings: tuple[Finding, ...]


def check_group(facts: GroupFacts, *further: Finding) -> PreflightView:
    """Return the findings of all checks, and the worst of their verdicts.

    Args:
        facts: What brokers report.
        further: Findings about what a query needs beside its group.
    """
    of_group = [replace(check(facts), check=name) for name, check in CHECKS.items()]
    findings = (*of_group, *further)
    return PreflightView(
        group_id=facts.group_id,
        verdict=max((finding.verdict for finding in findings), key=_SEVERITY.__getitem__),
        group_type=facts.group_type,
        group_state=facts.group_state,
        protocol_type=facts.protocol_type,
        assignor_name=facts.assignor_name,
        members=facts.members,
        findings=findings,
    )


def check_protocol(facts: GroupFacts) -> Finding:
    """Check that the coordinator accepts the heartbeats of the consumer protocol."""
    if facts.probe_code != ErrorCode.UNSUPPORTED_VERSION:
        return _ok(f"the cluster has {GROUP_FEATURE}={facts.group_version}")
    if facts.group_version < 1:
        return _blocks(
            f"the cluster's feature {GROUP_FEATURE} is at level 0: joins fail with"
            " UNSUPPORTED_VERSION",
            f"kafka-features.sh upgrade --feature {GROUP_FEATURE}=1",
        )
    protocols = facts.broker.get(REBALANCE_PROTOCOLS) or "unknown"
    return _blocks(
        f"the coordinator does not speak the consumer protocol: {REBALANCE_PROTOCOLS} is"
        f" {protocols}",
        f"add consumer to {REBALANCE_PROTOCOLS} on every broker and restart it",
    )


def check_group_rights(facts: GroupFacts) -> Finding:
    """Check that the principal may join: a heartbeat needs READ on the group."""
    code = facts.probe_code
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        remedy = remedy_of(code, facts.identity, group_id=facts.group_id)
        reason = "the principal may not join the group (GROUP_AUTHORIZATION_FAILED)"
        return _blocks(reason, remedy)
    if code in _PROBE_ANSWERS:
        return _ok("the principal has READ on the group")
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return _unknown("only a coordinator that speaks the consumer protocol can answer")
    reason = f"the coordinator answered {ErrorCode.name_of(code)}"
    return _unknown(reason, rule_for(code).remedy)


_PROBE_ANSWERS: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
)
"""Answers to a member that the group does not have, from a coordinator that it may ask."""


def check_topic_rights(facts: GroupFacts) -> Finding:
    """Check that the principal may describe and read each topic."""
    if not facts.topics and facts.pattern:
        reason = f"the pattern {facts.pattern!r} matches no topic that the principal may describe"
        cure = "it must match whole names: spark-groups validate-regex shows what it matches"
        return _warning(reason, cure)
    if not facts.topics:
        reason = "not checked: no topics are known"
        return _warning(reason, "name those of the query with --topic or --pattern")
    denied = sorted(
        topic.name
        for topic in facts.topics
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        or (topic.operations is not None and not {"READ", "DESCRIBE"} <= topic.operations)
    )
    if denied:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        remedy = remedy_of(code, facts.identity, group_id=facts.group_id, topics=denied)
        return _blocks(f"the principal may not read {_listed(denied)}", remedy)
    failed = [topic for topic in facts.topics if topic.error_code]
    if failed:
        name = ErrorCode.name_of(failed[0].error_code)
        reason = f"{_listed(f'{each.name}{each.hint}' for each in failed)}: {name}"
        cure = "create the topics, or correct the names: a query waits for missing topics"
        return _warning(reason, cure)
    hidden = [topic.name for topic in facts.topics if topic.operations is None]
    if hidden:
        reason = f"brokers do not report the principal's rights on {_listed(hidden)}"
        return _unknown(reason)
    reason = f"READ and DESCRIBE on {_listed(topic.name for topic in facts.topics)}"
    if facts.held_topics:
        reason += (
            f"; a pattern matches {_listed(facts.held_topics)}, internal to Kafka: assigned, and"
            " not read by a query"
        )
    return _ok(reason)


def check_group_type(facts: GroupFacts) -> Finding:
    """Check that the group is one that consumers can share, or can be made one."""
    if facts.group_type is GroupType.CLASSIC:
        return _classic_type(facts)
    if facts.group_type is GroupType.CONSUMER:
        classic = len(facts.classic_members)
        mixed = f", {classic} of them classic" if classic else ""
        who = _members(len(facts.members))
        return _ok(
            f"a consumer group of {who}{mixed}: any member of the consumer protocol can join"
        )
    if facts.group_type is GroupType.UNKNOWN:
        is_denied = facts.describe_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        cure = "grant it DESCRIBE on the group" if is_denied else "check again"
        return _unknown(_why_undescribed(facts), cure)
    if facts.group_type is None:
        return _ok("no such group: the first member creates it")
    return _TYPES[facts.group_type]


def _classic_type(facts: GroupFacts) -> Finding:
    kind, count = facts.protocol_type, len(facts.members)
    if kind in {"", CONSUMER_PROTOCOL_TYPE}:
        is_live = facts.must_be_converted
        who = f"a classic group of {_members(count)}" if is_live else "an empty classic group"
        return _ok(f"{who}: the first join converts it")
    if facts.must_be_converted:
        reason = f"its members are not consumers: their protocol type is {kind}"
        return _blocks(reason, _OTHER_ID)
    reason = (
        f"an empty group of protocol type {kind}: a join succeeds, but excludes its former members"
        " (INCONSISTENT_GROUP_PROTOCOL)"
    )
    return _warning(reason, _OTHER_ID)


_OTHER_ID: Final = "choose another group id"
_TYPES: Final[Mapping[GroupType, Finding]] = {
    GroupType.SHARE: _blocks("a share group: only share consumers can join", _OTHER_ID),
    GroupType.STREAMS: _blocks(
        "a streams group: only Kafka Streams applications can join", _OTHER_ID
    ),
}


def _why_undescribed(facts: GroupFacts) -> str:
    if facts.describe_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return "the principal may not describe the group"
    return "the group changed its type while it was described"


def check_group_state(facts: GroupFacts) -> Finding:
    """Check that the group is not in a rebalance, in which a conversion may fail."""
    if not facts.must_be_converted or facts.group_state == _STABLE:
        return _ok(facts.group_state or "there is no state yet")
    reason = (
        f"{facts.group_state}: brokers show neither assignor nor assignments during a rebalance;"
        " joins in a group's first rebalance fail with UNKNOWN_SERVER_ERROR, which a query retries"
    )
    return _unknown(reason, f"wait until the group is {_STABLE}, and check again")


_STABLE: Final = "Stable"


def check_policy(facts: GroupFacts) -> Finding:
    """Check that the coordinator's broker converts classic groups."""
    if not facts.must_be_converted:
        return _ok("does not matter: there are no classic members to convert")
    policy = facts.broker.get(MIGRATION_POLICY)
    if policy is None:
        return _unreadable(facts, MIGRATION_POLICY)
    if policy.lower() in UPGRADES:
        return _ok(f"{MIGRATION_POLICY}={policy}")
    return _blocks(
        f"{MIGRATION_POLICY}={policy}: joins fail with GROUP_ID_NOT_FOUND",
        f"set {MIGRATION_POLICY}=bidirectional on every broker and restart it, or stop all"
        " classic consumers first",
    )


def check_downgrade(facts: GroupFacts) -> Finding:
    """Check that the group becomes classic again after the last member that is not has left."""
    count = len(facts.classic_members)
    if not count:
        return _ok("does not matter: there are no classic members")
    policy, limit = facts.broker.get(MIGRATION_POLICY), _limit(facts, CLASSIC_MAX_SIZE)
    if policy is None:
        return replace(_unreadable(facts, MIGRATION_POLICY), verdict=Verdict.WARNING)
    if policy.lower() not in DOWNGRADES:
        reason = (
            f"{MIGRATION_POLICY}={policy}: after the last member of the consumer protocol leaves,"
            " the group is not converted back"
        )
        cure = f"set {MIGRATION_POLICY}=bidirectional on every broker and restart it"
        return _warning(reason, cure)
    if limit is not None and count > limit:
        reason = f"{_members(count)}, but {CLASSIC_MAX_SIZE}={limit}: it is not converted back"
        return _warning(reason, f"raise {CLASSIC_MAX_SIZE} on every broker and restart it")
    return _ok(
        "the group becomes classic again when the last member of the consumer protocol leaves"
    )


def _not_shown(facts: GroupFacts) -> Finding | None:
    """Return a finding if there are no embedded bytes to judge, or none are shown."""
    if not facts.must_be_converted:
        return _ok("does not matter: there are no classic members to convert")
    if facts.protocol_type == CONSUMER_PROTOCOL_TYPE and facts.group_state == _STABLE:
        return None
    return _unknown("brokers show it only of stable groups of consumers")


def check_assignor(facts: GroupFacts) -> Finding:
    """Check that no assignment carries user data, which a conversion would lose."""
    assignor = facts.assignor_name
    carriers = [member for member in facts.members if member.user_data_bytes]
    versions = {member.assignment_version for member in facts.members}
    hidden = _not_shown(facts)
    if hidden is not None:
        return hidden
    if carriers:
        return _with_user_data(assignor, carriers)
    if assignor == COOPERATIVE and LIBRDKAFKA_ASSIGNMENT_VERSION in versions:
        return _warning(
            f"{assignor} of librdkafka: its next rebalance puts user data into the assignments,"
            " and then joins fail with GROUP_ID_NOT_FOUND",
            "join before any consumer joins or leaves, or use range or roundrobin there",
        )
    return _ok(f"{assignor}, without user data")


def _with_user_data(assignor: str, carriers: Sequence[MemberFacts]) -> Finding:
    kind, cure = "custom assignor", "give the consumers one of Kafka's assignors"
    if assignor == COOPERATIVE:
        kind, cure = "librdkafka's", "give the consumers of librdkafka range or roundrobin"
    reason = (
        f"{kind} {assignor} put user data into the assignments of {_names(carriers)}, which a"
        " conversion would lose: joins fail with GROUP_ID_NOT_FOUND"
    )
    return _blocks(reason, f"{cure}, or stop all of them before the join")


def check_embedded(facts: GroupFacts) -> Finding:
    """Check that the coordinator can read what the classic members embedded."""
    hidden = _not_shown(facts)
    if hidden is not None:
        return hidden
    unread = [
        member
        for member in facts.members
        if member.subscription_version is None or member.assignment_version is None
    ]
    if unread:
        reason = (
            f"the embedded subscription or assignment of {_names(unread)} is malformed: joins fail"
            " with GROUP_ID_NOT_FOUND"
        )
        cure = "update the client library of these consumers, or stop them before the join"
        return _blocks(reason, cure)
    subscriptions = {member.subscription_version or 0 for member in facts.members}
    assignments = {member.assignment_version or 0 for member in facts.members}
    return _ok(f"subscriptions {_versions(subscriptions)}, assignments {_versions(assignments)}")


def check_instance_ids(facts: GroupFacts) -> Finding:
    """Check whether the new member's instance id is free."""
    static = {
        member.instance_id: member for member in facts.members if member.instance_id is not None
    }
    if facts.instance_id is None:
        if not static:
            return _ok("the group has no static members")
        return _ok(f"taken: {_listed(static)}; check the id of a static member with --instance-id")
    holder = static.get(facts.instance_id)
    if holder is None:
        return _ok(f"{facts.instance_id} is free")
    if holder.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        return _ok(f"{facts.instance_id} left and may return: the new member takes its partitions")
    if holder.protocol is MemberProtocol.CLASSIC:
        return _warning(
            f"{facts.instance_id} belongs to the classic consumer {holder.member_id}: the new"
            " member replaces it, and it fails with FENCED_INSTANCE_ID",
            "stop that consumer first, or choose another instance id",
        )
    return _blocks(
        f"{facts.instance_id} belongs to {holder.member_id}: joins fail with"
        " UNRELEASED_INSTANCE_ID until it has left",
        f"stop that member, or: spark-groups remove {facts.group_id} --instance-id"
        f" {facts.instance_id}",
    )


def check_size(facts: GroupFacts) -> Finding:
    """Check that the group has room for one more member."""
    count, limit = len(facts.members), _limit(facts, CONSUMER_MAX_SIZE)
    if not count:
        return _ok("no members")
    if limit is None:
        return _unreadable(facts, CONSUMER_MAX_SIZE)
    if count < limit:
        return _ok(f"{_members(count)}; {CONSUMER_MAX_SIZE}={limit}")
    is_converted = not facts.must_be_converted or count <= limit
    replaced = {member.instance_id for member in facts.members} - {None}
    if is_converted and facts.instance_id in replaced:
        reason = (
            f"{_members(count)}, {CONSUMER_MAX_SIZE}={limit}: the member takes the place of"
            f" {facts.instance_id}, which fails with GROUP_MAX_SIZE_REACHED before Kafka 4.4"
        )
        return _unknown(reason, f"raise {CONSUMER_MAX_SIZE}, or use Kafka 4.4")
    code = "GROUP_MAX_SIZE_REACHED" if is_converted else "GROUP_ID_NOT_FOUND"
    reason = f"{_members(count)}, but {CONSUMER_MAX_SIZE}={limit}: a join fails with {code}"
    cure = f"raise {CONSUMER_MAX_SIZE} on every broker and restart it, or stop a member first"
    return _blocks(reason, cure)


def check_offsets(facts: GroupFacts) -> Finding:
    """Check where a query would start, and whether it would find the records there."""
    if facts.offsets_problem:
        return _unknown(facts.offsets_problem)
    failures = sorted({each for topic in facts.topics for each in topic.unknown.values()})
    if failures:
        reasons = [
            f"{partition_ranges(_failing(facts.topics, why))}: {why[0]} returned"
            f" {ErrorCode.name_of(why[1])}"
            for why in failures
        ]
        cures = dict.fromkeys(rule_for(code).remedy for _, code in failures)
        return _unknown("; ".join(reasons), "; ".join(cures))
    lost = _partitions(facts.topics, lambda each: each.out_of_range)
    if lost:
        return _warning(
            f"the committed offsets of {partition_ranges(lost)} are not in the log any more: a"
            " query fails there, unless failOnDataLoss=false",
            f"see spark-groups describe {facts.group_id}; set them by spark-groups reset-offsets",
        )
    committed = [each for each in facts.topics if each.committed]
    if not committed:
        return _without_offsets(facts)
    unknown = [each for each in committed if each.partition_count_at_start is None]
    from_start = _partitions(unknown, lambda each: each.uncommitted)
    if from_start:
        return _warning(
            f"{partition_ranges(from_start)} have no committed offset, although others of the"
            " topic have: a query reads them from their beginning, even with"
            " startingOffsets=latest",
            "to skip their records, name them in startingOffsets, or wait until the group commits"
            " them",
        )
    count = sum(len(each.committed) for each in committed)
    without_leader_epoch = sum(len(each.without_leader_epoch) for each in committed)
    suffix = f"; {without_leader_epoch} without a leader epoch" if without_leader_epoch else ""
    return _ok(f"a query continues from {count} committed offsets{suffix}")


def _without_offsets(facts: GroupFacts) -> Finding:
    reason = "none are committed: startingOffsets decides where a query starts"
    if not facts.members:
        return _ok(reason)
    cure = "wait until the members have committed offsets, or set startingOffsets with care"
    return _warning(f"{reason}, not where the members are", cure)


def check_settings(facts: GroupFacts) -> Finding:
    """Check that the group's settings can be read."""
    settings = facts.settings
    session, interval = settings.session_timeout_ms, settings.heartbeat_interval_ms
    if session is None or interval is None:
        reason = f"session timeout and heartbeat interval are unknown: {settings.reason}"
        cure = "grant DESCRIBE_CONFIGS on the group; without it a query still joins"
        return _warning(reason, cure)
    kept = "; classic members keep their own" if facts.classic_members else ""
    return _ok(f"session timeout {session} ms, heartbeat interval {interval} ms{kept}")


Check = Callable[[GroupFacts], Finding]


def _of_described(check: Check) -> Check:
    """Return a check that answers `unknown` for a group that could not be described."""

    def checked(facts: GroupFacts) -> Finding:
        if facts.group_type is GroupType.UNKNOWN:
            return _unknown(f"not checked: {_why_undescribed(facts)}")
        return check(facts)

    return checked


CHECKS: Final[Mapping[str, Check]] = {
    "protocol": check_protocol,
    "group rights": check_group_rights,
    "topic rights": check_topic_rights,
    "group type": check_group_type,
    "group state": _of_described(check_group_state),
    "migration policy": _of_described(check_policy),
    "downgrade": _of_described(check_downgrade),
    "assignor": _of_described(check_assignor),
    "embedded versions": _of_described(check_embedded),
    "instance ids": _of_described(check_instance_ids),
    "group size": _of_described(check_size),
    "offsets": check_offsets,
    "settings": check_settings,
}
"""In the order in which they are shown."""


def _unreadable(facts: GroupFacts, key: str) -> Finding:
    reason = f"{key} is unknown: {facts.broker_reason or 'the broker did not report it'}"
    return _unknown(reason, "grant the principal DESCRIBE_CONFIGS on the cluster")


def _limit(facts: GroupFacts, key: str) -> int | None:
    text = facts.broker.get(key)
    return int(text) if text is not None and text.isdecimal() else None


def _partitions(
    topics: Iterable[TopicFacts], select: Callable[[TopicFacts], frozenset[int]]
) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in select(topic)]


def _failing(topics: Iterable[TopicFacts], why: tuple[str, int]) -> list[TopicPartition]:
    return _partitions(
        topics, lambda topic: frozenset(i for i, each in topic.unknown.items() if each == why)
    )


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count:,} members"


def _names(members: Sequence[MemberFacts]) -> str:
    return _listed(member.name for member in members)


def _listed(names: Iterable[str]) -> str:
    return listed(sorted(names), most=_NAMED_MAX)


def _versions(versions: Iterable[int]) -> str:
    return ", ".join(f"v{each}" for each in sorted(versions))
