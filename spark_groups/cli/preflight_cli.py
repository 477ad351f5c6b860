"""`spark-groups preflight`: can a member of the consumer protocol join a group?

Reads the live group, its coordinator's settings and the principal's rights; nothing is changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.cli.connecting import Brokers, GroupArgument, JsonFlag, connects, usage_errors
from spark_groups.cli.output import QUIET_STYLE, UNKNOWN, Column, plain, show, table_of
from spark_groups.cli.preflight_checks import (
    BROKER_KEYS,
    GROUP_FEATURE,
    Finding,
    GroupFacts,
    MemberFacts,
    MemberProtocol,
    PreflightView,
    TopicFacts,
    Verdict,
    check_group,
)
from spark_groups.cli.registry_check import (
    CURE,
    REGISTRY,
    RegistryAnswer,
    RegistryUrl,
    Subject,
    ask_registry,
)
from spark_groups.errors import ErrorCode, OptionsError, ProtocolError, printable
from spark_groups.group.ledger.commit_metadata import known_counts
from spark_groups.group.member.grant_command import Identity
from spark_groups.group.member.messages import (
    NO_LEADER_EPOCH,
    DescribedMember,
    DescribeGroupRequest,
    Fetched,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetAndMetadata,
    found_and_failed,
)
from spark_groups.group.member.near_names import hint
from spark_groups.group.member.subscription import Subscription
from spark_groups.observation.reading import GroupType
from spark_groups.observation.views import MEMBER_TYPES, authorized_operations
from spark_groups.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigResource, refuse
from spark_groups.wire.group_admin import (
    ClassicMember,
    describe_classic_group,
    probe_consumer_protocol,
)
from spark_groups.wire.group_settings import group_settings
from spark_groups.wire.security.security import Security
from spark_groups.wire.topic_metadata import KnownTopic

_STYLES: Final[Mapping[Verdict, str]] = {
    Verdict.OK: "green",
    Verdict.WARNING: "yellow",
    Verdict.UNKNOWN: "yellow",
    Verdict.BLOCKS: "red",
}
_ANSWERS: Final[Mapping[Verdict, str]] = {
    Verdict.OK: "a member of the consumer protocol can join now",
    Verdict.WARNING: "a member of the consumer protocol can join now: read the warnings first",
    Verdict.UNKNOWN: "it is unknown whether a member of the consumer protocol can join",
    Verdict.BLOCKS: "a member of the consumer protocol cannot join now",
}
_DESCRIPTIONS: Final = 3
"""How often a group is described that changes its type meanwhile."""
Committed = Mapping[TopicIdPartition, OffsetAndMetadata]
Unknown = dict[TopicIdPartition, tuple[str, int]]
"""The request that failed, and Kafka's error code."""
_ALWAYS_SHOWN: Final = frozenset({"group type", "offsets", REGISTRY})
"""Checks to read before a query starts, also if they are ok: which group it is, and where it is."""
_JOINABLE: Final = frozenset({Verdict.OK, Verdict.WARNING})


@connects
def preflight(  # noqa: PLR0917
    group: GroupArgument,
    brokers: Brokers,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="A topic that the query will read; repeatable; default: those of the group.",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="The subscribePattern of the query, in place of topics: shows what it matches.",
        ),
    ] = None,
    instance_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The instance id of the member; default: it has none."),
    ] = None,
    schema_registry: RegistryUrl = None,
    subject: Subject = None,
    every_check: Annotated[
        bool,
        typer.Option("--all", help="Show all checks and members, also those that are in order."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check whether a Spark query, or another member of the consumer protocol, can join a group.

    Meant for groups of classic consumers, which the first such member converts. Checks features and
    migration policy of the brokers, type, state and assignor of the group, rights, sizes and
    committed offsets, and a schema registry if one is given. Each check is ok, a warning, unknown,
    or blocks. Nothing is changed. Shown are the type of the group, where a query starts, the
    registry, and the checks that are not ok; JSON has all.

    Example: spark-groups preflight flight-readers --bootstrap-server localhost:9092

    Exit code 1 if a check blocks, or its result is unknown.
    """
    if not group:
        raise typer.BadParameter("a group id must not be empty", param_hint="GROUP")
    with usage_errors("--pattern"):
        wanted = subscription_of(topics or (), pattern)
    with usage_errors("--subject"):
        answer = ask_registry(schema_registry, subject, brokers.registry_settings)
    view = checked_group(brokers, group, instance_id, wanted, answer)
    show(
        view,
        partial(render_preflight, every_check=every_check),
        as_json=as_json,
        is_success=view.verdict in _JOINABLE,
    )


def checked_group(
    brokers: Brokers,
    group_id: str,
    instance_id: str | None,
    wanted: Subscription | None,
    registry: RegistryAnswer | None = None,
) -> PreflightView:
    """Read a group from brokers, and return the findings of all checks.

    Args:
        instance_id: Of the member that would join.
        wanted: What it would read; None: the topics of the group.
        registry: What its schema registry has answered; None: it has none.

    Raises:
        BrokerUnreachableError: A request failed or timed out; names the addresses.
        ProtocolError: An answer cannot be read.
    """
    security = brokers.security or Security()
    identity = Identity(
        principal=security.principal, bootstrap_servers=tuple(brokers.bootstrap_servers.split(","))
    )
    with brokers.cluster() as cluster:
        facts = read_facts(cluster, group_id, identity, instance_id, wanted)
    return check_group(facts) if registry is None else check_group(facts, _of_registry(registry))


def _of_registry(answer: RegistryAnswer) -> Finding:
    if answer.is_well:
        return Finding(Verdict.OK, answer.text, check=REGISTRY)
    return Finding(Verdict.BLOCKS, f"a query cannot start: {answer.text}", CURE, check=REGISTRY)


def read_facts(
    cluster: Cluster,
    group_id: str,
    identity: Identity,
    instance_id: str | None = None,
    wanted: Subscription | None = None,
) -> GroupFacts:
    """Read what the checks need to know; a refused request is a fact.

    Args:
        instance_id: Of the member that would join.
        wanted: What it would read; None: the topics of the group.

    Raises:
        RequestError: A broker did not answer in time.
        ProtocolError: An answer cannot be read.
    """
    probe = probe_consumer_protocol(cluster, group_id, str(uuid.uuid4()))
    broker, broker_reason = _broker_settings(cluster, group_id)
    facts = GroupFacts(
        group_id=group_id,
        identity=identity,
        instance_id=instance_id,
        probe_code=probe.error_code,
        group_version=cluster.feature_levels().get(GROUP_FEATURE, 0),
        broker=broker,
        broker_reason=broker_reason,
        settings=group_settings(cluster, group_id),
    )
    for _ in range(_DESCRIPTIONS):
        described, subscribed = _with_group(cluster, facts)
        if described.describe_code != ErrorCode.GROUP_ID_NOT_FOUND:
            break
    facts = described
    try:
        committed, offsets_problem = cluster.fetch_all_offsets(group_id), ""
    except ProtocolError as error:
        committed, offsets_problem = {}, str(error)
    named = wanted.topic_names if wanted is not None else ()
    pattern = wanted.topic_regex if wanted is not None else None
    if wanted is not None and pattern is not None:
        every = cluster.every_topic().topics.values()
        subscribed = {e.topic.name: False for e in every if wanted.matches(e.topic.name)}
    matches_nothing = pattern is not None and not subscribed
    topics, held = (
        ((), ()) if matches_nothing else _read_topics(cluster, named, subscribed, committed)
    )
    return replace(
        facts,
        pattern=pattern or "",
        topics=topics,
        held_topics=held,
        offsets_problem=offsets_problem,
    )


def subscription_of(topics: Sequence[str], pattern: str | None) -> Subscription | None:
    """Return what a query would read; None: it names nothing.

    Raises:
        OptionsError: It names topics and a pattern, or the pattern is not RE2.
    """
    if pattern is None:
        return Subscription(topic_names=tuple(topics)) if topics else None
    if topics:
        raise OptionsError("give either topics or a pattern")
    try:
        return Subscription.of_pattern(pattern)
    except ValueError as error:
        raise OptionsError(str(error)) from error


def _broker_settings(cluster: Cluster, group_id: str) -> tuple[Mapping[str, str | None], str]:
    """Return the settings of the coordinator's broker, or none and the reason."""
    found = cluster.find_coordinator(FindCoordinatorRequest(group_id=group_id)).coordinator
    node = found or next(iter(cluster.nodes()), None)
    if node is None:
        return {}, "the cluster has no live broker"
    try:
        entries = cluster.describe_configuration(
            ConfigResource.BROKER, str(node.node_id), BROKER_KEYS
        )
    except ProtocolError as error:
        return {}, str(error)
    return {name: entry.value for name, entry in entries.items()}, ""


def _with_group(cluster: Cluster, facts: GroupFacts) -> tuple[GroupFacts, Mapping[str, bool]]:
    """Add the description of a group, and return the topics of its members.

    Each with whether a member names it; otherwise a pattern matches it.
    """
    group_id = facts.group_id
    if facts.probe_code != ErrorCode.UNSUPPORTED_VERSION:
        described = cluster.describe_group(DescribeGroupRequest(group_id=group_id))
        if described.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return _undescribed(facts, described.error_code), {}
        if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            what = f"ConsumerGroupDescribe of {group_id!r}"
            refuse(described.error_code, what, described.error_message)
            names = {name for member in described.members for name in member.subscribed_topic_names}
            found = replace(
                facts,
                group_type=GroupType.CONSUMER,
                group_state=described.group_state,
                assignor_name=described.assignor_name,
                members=tuple(map(_consumer, described.members)),
            )
            assigned = dict.fromkeys(described.topic_names.values(), False)
            return found, assigned | dict.fromkeys(names, True)
    group = describe_classic_group(cluster, group_id)
    if group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return _undescribed(facts, group.error_code), {}
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        other = _other_type(cluster, group_id)
        if other in {GroupType.CLASSIC, GroupType.CONSUMER}:  # converted between the two requests
            return _undescribed(facts, group.error_code), {}
        return replace(facts, group_type=other), {}
    refuse(group.error_code, f"DescribeGroups of {group_id!r}", group.error_message)
    names = {name for member in group.members for name in member.subscribed_topic_names}
    found = replace(
        facts,
        group_type=GroupType.CLASSIC,
        group_state=group.group_state,
        protocol_type=group.protocol_type,
        assignor_name=group.assignor_name,
        members=tuple(map(_classic, group.members)),
    )
    return found, dict.fromkeys(names, True)


def _other_type(cluster: Cluster, group_id: str) -> GroupType | None:
    """Return the type of a group that neither description finds; most often there is none."""
    listed = {each.group_id: each.group_type.lower() for each in cluster.list_groups()}
    found = listed.get(group_id)
    return next((each for each in GroupType if each.value == found), None)


def _undescribed(facts: GroupFacts, code: int) -> GroupFacts:
    return replace(facts, group_type=GroupType.UNKNOWN, describe_code=code)


def _consumer(member: DescribedMember) -> MemberFacts:
    return MemberFacts(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        protocol=MemberProtocol(MEMBER_TYPES.get(member.member_type, "unknown")),
        member_epoch=member.member_epoch,
    )


def _classic(member: ClassicMember) -> MemberFacts:
    subscription, assignment = member.subscription, member.embedded_assignment
    return MemberFacts(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        subscription_version=subscription.version if subscription else None,
        assignment_version=assignment.version if assignment else None,
        user_data_bytes=len(assignment.user_data or b"") if assignment else None,
    )


def _read_topics(
    cluster: Cluster, named: Collection[str], of_group: Mapping[str, bool], fetched: Fetched
) -> tuple[tuple[TopicFacts, ...], tuple[str, ...]]:
    """Read the named topics, or else those of the group, or else those with committed offsets.

    Returns:
        The topics, and the names of those that a query of the group would hold.
    """
    names: Collection[str] = named or of_group.keys()
    committed, failed = found_and_failed(fetched)
    if not names:
        topic_ids = frozenset(each.topic_id for each in fetched)
        if not topic_ids:
            return (), ()
        known = cluster.metadata(MetadataRequest(topic_ids=topic_ids)).topics
        names = [each.name for each in known]
    metadata = cluster.topics(names, with_operations=True)
    found = {each.topic.name: each for each in metadata.topics.values()}
    asked = MetadataRequest(topic_names=frozenset(names), wants_near=True)
    near = cluster.metadata(asked).near if len(found) < len(names) else {}
    held = {
        name
        for name, each in found.items()
        if each.topic.is_internal and not (named or of_group.get(name, True))
    }
    partitions = frozenset(
        key
        for key, each in committed.items()
        if key.topic_id in metadata.topics and each.committed_offset >= 0
    )
    out_of_range, unlisted = _out_of_range(cluster, committed, partitions)
    unknown = {key: ("OffsetFetch", code) for key, code in failed.items()} | unlisted
    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
    topics = tuple(
        _topic(found[name], committed, partitions, out_of_range, unknown)
        if name in found
        else TopicFacts(
            name=name, error_code=metadata.errors.get(name, absent), hint=hint(name, near)
        )
        for name in sorted(set(names) - held)
    )
    return topics, tuple(sorted(held))


def _out_of_range(
    cluster: Cluster, committed: Committed, partitions: frozenset[TopicIdPartition]
) -> tuple[frozenset[TopicIdPartition], Unknown]:
    """Return the partitions whose committed offset is not in the log, and those without answer."""
    if not partitions:
        return frozenset(), {}
    (starts, failed), (ends, also_failed) = (
        found_and_failed(
            cluster.list_offsets(ListOffsetsRequest(partitions=partitions, timestamp_ms=at)).answers
        )
        for at in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    )
    out_of_range = frozenset(
        key
        for key in partitions & starts.keys() & ends.keys()
        if not starts[key].offset <= committed[key].committed_offset <= ends[key].offset
    )
    return out_of_range, {key: ("ListOffsets", c) for key, c in (failed | also_failed).items()}


def _topic(
    known: KnownTopic,
    committed: Committed,
    partitions: frozenset[TopicIdPartition],
    out_of_range: frozenset[TopicIdPartition],
    unknown: Unknown,
) -> TopicFacts:
    topic = known.topic
    mine = {key.partition: committed[key] for key in partitions if key.topic_id == topic.topic_id}
    failed = {key.partition: why for key, why in unknown.items() if key.topic_id == topic.topic_id}
    operations = authorized_operations(known.authorized_operations)
    return TopicFacts(
        name=topic.name,
        operations=None if operations is None else frozenset(operations),
        committed=frozenset(mine),
        uncommitted=frozenset(range(topic.partition_count)) - mine.keys() - failed.keys(),
        unknown=failed,
        out_of_range=frozenset(
            key.partition for key in out_of_range if key.topic_id == topic.topic_id
        ),
        without_leader_epoch=frozenset(
            index for index, each in mine.items() if each.leader_epoch == NO_LEADER_EPOCH
        ),
        partition_count_at_start=known_counts(committed).get(topic.topic_id),
    )


def render_preflight(view: PreflightView, *, every_check: bool = False) -> RenderableType:
    """Return a row for each check that matters, the cures, the members, and the verdict.

    Args:
        every_check: Whether checks that are ok have rows, too, and members of every group.
    """
    findings = [
        each
        for each in view.findings
        if every_check or each.verdict is not Verdict.OK or each.check in _ALWAYS_SHOWN
    ]
    parts: list[RenderableType] = [
        table_of(
            findings,
            Column("CHECK", lambda each: each.check),
            Column("VERDICT", lambda each: Text(each.verdict.value, _STYLES[each.verdict])),
            Column("REASON", lambda each: each.reason),
        )
    ]
    parts += [
        Text(f"{finding.check}: {printable(finding.cure)}") for finding in findings if finding.cure
    ]
    hidden = len(view.findings) - len(findings)
    if hidden:
        parts.append(Text(f"{hidden} other checks are ok: --all shows them", QUIET_STYLE))
    has_classic = any(each.protocol is MemberProtocol.CLASSIC for each in view.members)
    if has_classic or (every_check and view.members):
        parts += [Text(), _members_table(view)]
    group = Text.assemble(("group ", QUIET_STYLE), (printable(view.group_id), "bold"))
    style = _STYLES[view.verdict]
    answer = Text.assemble(group, ": ", (view.verdict.value, style), f", {_ANSWERS[view.verdict]}")
    return Group(*parts, Text(), answer)


def _members_table(view: PreflightView) -> Table:
    is_static = any(member.instance_id for member in view.members)
    is_classic = view.group_type is GroupType.CLASSIC
    return table_of(
        view.members,
        Column("MEMBER", lambda each: each.member_id),
        Column("INSTANCE", lambda each: each.instance_id or "", is_shown=is_static),
        Column("CLIENT", lambda each: each.client_id or UNKNOWN),
        Column("HOST", lambda each: each.client_host or UNKNOWN),
        Column("PROTOCOL", lambda each: each.protocol.value),
        Column("SUBSCRIPTION", lambda each: plain(each.subscription_version), True, is_classic),
        Column("ASSIGNMENT", lambda each: plain(each.assignment_version), True, is_classic),
        Column("USER DATA", lambda each: plain(each.user_data_bytes), True, is_classic),
    )
