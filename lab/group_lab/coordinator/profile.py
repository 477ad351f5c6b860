"""Coordinators that the model can follow: the text of the KIP, or a release of Kafka.

Each field is one behaviour that differs. Code checks a field, never a version. Readings of the KIP
where it is open are in docs/decisions/0012-readings-of-the-kip.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Final


class MemberIds(Enum):
    """The side that makes member ids."""

    SERVER = "the coordinator, in the answer to a join without one (KIP-848)"
    CLIENT = "the member, before it joins (KIP-1082)"


class OffsetFencing(Enum):
    """The older member epochs that OffsetCommit accepts."""

    EQUAL_EPOCH = "none: the epoch must be the member's"
    ASSIGNMENT_EPOCH = "those since the partition was assigned (KIP-1251)"


class AssignorBump(Enum):
    """When a change of the group's assignor bumps the group epoch."""

    NEVER = "never on its own"
    CHANGED_VOTE = "when a member changes its vote and with it the result"
    EVERY_HEARTBEAT = "whenever a heartbeat computes another one, as with a tie (KAFKA-20434)"


class DowngradeRebalance(Enum):
    """Whether a group rebalances when a classic member replaces its last other member."""

    NEVER = "never (4.0)"
    NEW_SUBSCRIPTION = "if the member subscribes to other topics"
    STALE_TARGET = "also if the target is not that of the group epoch (from 4.3 on)"


class NoGroupIdError(IntEnum):
    """The answers to ConsumerGroupDescribe without a group id."""

    UNKNOWN_SERVER_ERROR = -1
    INVALID_GROUP_ID = 24
    INVALID_REQUEST = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The behaviours in which coordinators differ; the coordinators with each are in brackets.

    Args:
        name: "kip-848" or "kafka-4.3".
        first_group_epoch: Group epoch and assignment epoch of a group without records of them (1
            from 4.3 on).
        bumps_epoch_while_unrevoked: A member that acknowledged a revocation and must revoke more
            moves to its epoch + 1 (4.0, 4.1; KAFKA-19974).
        known_member_rejoins: A known member may join again; otherwise it is fenced until its
            session timeout (the KIP, from 4.2 on; KAFKA-19233).
        known_static_member_rejoins: A present static member may join again under its member id;
            otherwise its instance id counts as unreleased (the KIP).
        strips_unsubscribed: A heartbeat with a new subscription removes unsubscribed partitions at
            once (the KIP, from 4.2 on; KAFKA-19431).
        strip_overwrites_previous_epoch: So doing, like any other step, ends the acceptance of the
            previous member epoch (the KIP, from 4.3 on).
        empty_subscription_is_a_step: Likewise a change to a subscription without any topic name,
            by name or by resolved pattern, even if the member holds nothing (from 4.3 on).
        dropped_pattern_bumps: Dropping a pattern bumps the group epoch (not 4.0).
        own_revocation_is_released: A member does not wait for target partitions that it still
            revokes itself (not 4.0; KAFKA-19449, in 4.1.2 and not in 4.1.1).
        hashes_metadata: The group's record has a hash of the partition metadata, instead of a
            separate record (from 4.1 on; KIP-1101).
        refreshes_patterns: Patterns are resolved again after an interval (not 4.0).
        commits_topic_ids: OffsetCommit and OffsetFetch have v10, and offsets are stored with topic
            ids (the KIP, from 4.2 on).
        batches_assignments: The assignor runs at most once per interval (from 4.3 on; KIP-1263).
        describes_revoking: Describe includes partitions being revoked (from 4.3 on; KAFKA-20431).
        no_group_id_error: The answer to Describe without a group id: INVALID_REQUEST (the KIP), or
            INVALID_GROUP_ID; in 4.0 the broker fails on its own response.
        compares_taken_targets: The new target of a static successor is compared with that of its
            predecessor; otherwise with its own old one, and may not be written (4.4).
        full_group_takes_static_return: A static member may return to a full group (4.4;
            KAFKA-20601).
        last_leave_installs_target: The assignment epoch follows when the last member leaves (4.4;
            KAFKA-20442).
        keeps_old_instance_ids: A member that joins with another instance id also keeps its old one,
            for ever (until 4.3; KAFKA-20747).
        classic_join_drops_pattern: A classic member that replaces a static one drops its pattern
            (not 4.0).
        classic_follows_target: A classic member joins again when the target has changed; otherwise
            as soon as the group epoch has grown (the KIP, from 4.3 on; KIP-1263).
        disabled_policy_refuses_classic: With the migration policy `disabled` no classic member can
            join a consumer group (from 4.3 on).
        syncs_below_target: SyncGroup below the epoch of the target is answered with the partitions
            that are in it and assigned already; otherwise with REBALANCE_IN_PROGRESS (the KIP).
        checks_rebalance_timeout: A rebalance timeout of 0 or less is refused (the KIP).
        checks_embedded_metadata: The embedded metadata of a classic member must have version 3 and
            the member's generation, and counts as that of a client-side assignor (the KIP).
        upgrade_keeps_epoch: The conversion also records the metadata of the topics, so the join
            that converts bumps the group epoch only if it subscribes to other topics (not 4.0).
        refused_upgrade_is_invalid: A join that cannot convert its classic group is answered
            INVALID_REQUEST (the KIP), and not GROUP_ID_NOT_FOUND.
        downgrade_rebalance: Whether a group rebalances when a classic consumer takes the place of
            its last member of the consumer protocol.
        every_join_bumps: Every new member bumps the group epoch; otherwise only one that changes
            the subscribed topics (the KIP).
        assigns_by_itself: Topic changes are detected, and targets computed, without a heartbeat
            (the KIP).
        stable_extras: The homogeneous uniform assignor keeps surplus partitions in place (not
            4.0.0; KAFKA-18688).
        kip_heartbeats: Heartbeats have the fields that Kafka dropped: client-side assignors and
            pending partitions (the KIP).
        range_is_sticky: The range assignor considers current assignments (the KIP).
        reports_config_range: The error for a group setting out of bounds has both bounds (4.4).
        reports_config_source: DescribeConfigs shows whether a value is from the broker's file (from
            4.3 on).
        kip_metrics: Metrics have the names and quantiles of the text (the KIP).
        counts_leaves: A group epoch that the end of a member bumps counts as a rebalance (the KIP).
        has_classic_group_count: There are the metrics classic-group-count and offset-count (4.4).
        assigns_in_join: Groups are those of the design for Kafka 0.9: the coordinator assigns
            partitions in the answer to JoinGroup (only the design).
    """

    name: str
    member_ids: MemberIds = MemberIds.CLIENT
    first_group_epoch: int = 0
    bumps_epoch_while_unrevoked: bool = False
    known_member_rejoins: bool = True
    known_static_member_rejoins: bool = False
    strips_unsubscribed: bool = True
    strip_overwrites_previous_epoch: bool = True
    empty_subscription_is_a_step: bool = False
    dropped_pattern_bumps: bool = True
    own_revocation_is_released: bool = True
    hashes_metadata: bool = True
    refreshes_patterns: bool = True
    commits_topic_ids: bool = True
    offset_fencing: OffsetFencing = OffsetFencing.EQUAL_EPOCH
    batches_assignments: bool = False
    describes_revoking: bool = False
    no_group_id_error: NoGroupIdError = NoGroupIdError.INVALID_GROUP_ID
    compares_taken_targets: bool = False
    full_group_takes_static_return: bool = False
    last_leave_installs_target: bool = False
    assignor_bump: AssignorBump = AssignorBump.NEVER
    keeps_old_instance_ids: bool = False
    classic_join_drops_pattern: bool = True
    classic_follows_target: bool = False
    disabled_policy_refuses_classic: bool = False
    syncs_below_target: bool = False
    checks_rebalance_timeout: bool = False
    checks_embedded_metadata: bool = False
    upgrade_keeps_epoch: bool = True
    refused_upgrade_is_invalid: bool = False
    downgrade_rebalance: DowngradeRebalance = DowngradeRebalance.STALE_TARGET
    every_join_bumps: bool = False
    assigns_by_itself: bool = False
    stable_extras: bool = True
    kip_heartbeats: bool = False
    range_is_sticky: bool = False
    reports_config_range: bool = False
    reports_config_source: bool = False
    kip_metrics: bool = False
    counts_leaves: bool = False
    has_classic_group_count: bool = False
    assigns_in_join: bool = False


KAFKA_4_0: Final = Profile(
    name="kafka-4.0",
    bumps_epoch_while_unrevoked=True,
    known_member_rejoins=False,
    strips_unsubscribed=False,
    strip_overwrites_previous_epoch=False,
    dropped_pattern_bumps=False,
    own_revocation_is_released=False,
    hashes_metadata=False,
    refreshes_patterns=False,
    commits_topic_ids=False,
    no_group_id_error=NoGroupIdError.UNKNOWN_SERVER_ERROR,
    keeps_old_instance_ids=True,
    classic_join_drops_pattern=False,
    upgrade_keeps_epoch=False,
    downgrade_rebalance=DowngradeRebalance.NEVER,
    stable_extras=False,
)
KAFKA_4_1: Final = replace(
    KAFKA_4_0,
    name="kafka-4.1",
    dropped_pattern_bumps=True,
    own_revocation_is_released=True,
    hashes_metadata=True,
    refreshes_patterns=True,
    no_group_id_error=NoGroupIdError.INVALID_GROUP_ID,
    classic_join_drops_pattern=True,
    upgrade_keeps_epoch=True,
    downgrade_rebalance=DowngradeRebalance.NEW_SUBSCRIPTION,
    stable_extras=True,
)
KAFKA_4_2: Final = replace(
    KAFKA_4_1,
    name="kafka-4.2",
    bumps_epoch_while_unrevoked=False,
    known_member_rejoins=True,
    strips_unsubscribed=True,
    commits_topic_ids=True,
)
KAFKA_4_3: Final = replace(
    KAFKA_4_2,
    name="kafka-4.3",
    first_group_epoch=1,
    strip_overwrites_previous_epoch=True,
    empty_subscription_is_a_step=True,
    offset_fencing=OffsetFencing.ASSIGNMENT_EPOCH,
    batches_assignments=True,
    describes_revoking=True,
    classic_follows_target=True,
    disabled_policy_refuses_classic=True,
    downgrade_rebalance=DowngradeRebalance.STALE_TARGET,
    reports_config_source=True,
)
KAFKA_4_4: Final = replace(
    KAFKA_4_3,
    name="kafka-4.4",
    compares_taken_targets=True,
    full_group_takes_static_return=True,
    last_leave_installs_target=True,
    assignor_bump=AssignorBump.EVERY_HEARTBEAT,
    keeps_old_instance_ids=False,
    reports_config_range=True,
    has_classic_group_count=True,
)
KIP_848: Final = Profile(
    name="kip-848",
    member_ids=MemberIds.SERVER,
    known_static_member_rejoins=True,
    hashes_metadata=False,
    assignor_bump=AssignorBump.CHANGED_VOTE,
    classic_follows_target=True,
    no_group_id_error=NoGroupIdError.INVALID_REQUEST,
    syncs_below_target=True,
    checks_rebalance_timeout=True,
    checks_embedded_metadata=True,
    refused_upgrade_is_invalid=True,
    every_join_bumps=True,
    assigns_by_itself=True,
    kip_heartbeats=True,
    range_is_sticky=True,
    kip_metrics=True,
    counts_leaves=True,
)
DESIGN_0_9: Final = Profile(
    name="design-0.9",
    commits_topic_ids=False,
    assigns_in_join=True,
)
"""The design for Kafka 0.9; `PROFILES` leaves it out, because it has no consumer groups."""

PROFILES: Final = {
    each.name: each for each in (KIP_848, KAFKA_4_0, KAFKA_4_1, KAFKA_4_2, KAFKA_4_3, KAFKA_4_4)
}
"""Every profile with consumer groups, by its name."""

_VERSION: Final = re.compile(r"(?:kafka)?[-_ ]?v?(\d+)[._](\d+)(?:[._]\d+)?")
_KIP: Final = re.compile(r"kip[-_ ]?848")


def profile_named(text: str) -> Profile:
    """Return the profile of a version or of the KIP.

    Args:
        text: "kafka-4.3", "4.3", "4.3.1" or "kip848", in any case.

    Raises:
        KeyError: There is no such profile.
    """
    name = text.strip().lower()
    version = _VERSION.fullmatch(name)
    if version:
        return PROFILES[f"kafka-{version[1]}.{version[2]}"]
    return KIP_848 if _KIP.fullmatch(name) else PROFILES[name]
