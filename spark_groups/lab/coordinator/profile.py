"""Which coordinator the model behaves like: the KIP's text, or a version of Kafka as shipped.

One field is one behaviour that differs somewhere. Code asks a field, never a version. How the KIP
is read where it leaves something open is in docs/decisions/0012-readings-of-the-kip.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class MemberIds(Enum):
    """Who makes a member id."""

    SERVER = "the coordinator, in the answer to a join without one (KIP-848)"
    CLIENT = "the member, before it joins (KIP-1082)"


class OffsetFencing(Enum):
    """Which older member epochs an OffsetCommit is accepted with."""

    EQUAL_EPOCH = "none: the epoch must be the member's"
    ASSIGNMENT_EPOCH = "those since the partition was assigned (KIP-1251)"


class AssignorBump(Enum):
    """When another assignor of the group is a new group epoch."""

    NEVER = "not by itself"
    CHANGED_VOTE = "when a member that changes its mind changes it"
    EVERY_HEARTBEAT = "whenever a heartbeat finds another one, as with a tie (KAFKA-20434)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one coordinator does where coordinators differ; in brackets, which do.

    Args:
        name: What people call it: "kip-848" or "kafka-4.3".
        member_ids: Who makes member ids.
        first_group_epoch: The group epoch and the assignment epoch of a group that has no records
            of them yet (1 from 4.3 on).
        bumps_epoch_while_unrevoked: A member that acknowledged a revocation and must revoke more
            moves to its epoch + 1 (4.0, 4.1; KAFKA-19974).
        known_member_rejoins: A member that is still known may join again; else it is fenced until
            its session is over (the KIP, from 4.2 on; KAFKA-19233).
        known_static_member_rejoins: A static member that is still there may join again under its
            own member id; else its instance id is not released (the KIP).
        strips_unsubscribed: A heartbeat with another subscription takes away at once what is not
            subscribed any more (the KIP, from 4.2 on; KAFKA-19431).
        strip_overwrites_previous_epoch: That, like every other step, closes the window for a
            heartbeat whose answer was lost (the KIP, from 4.3 on).
        given_up_pattern_bumps: A member that gives its pattern up moves the group epoch (not 4.0).
        own_revocation_is_released: A target partition that the same member still revokes is not
            waited for (not 4.0; KAFKA-19449, in 4.1.2 and not in 4.1.1).
        hashes_metadata: Partition metadata is kept as a hash in the group's record; else in a
            record of its own (from 4.1 on; KIP-1101).
        refreshes_patterns: Patterns are looked up again after an interval (not 4.0).
        commits_topic_ids: OffsetCommit and OffsetFetch v10 are there, and offsets are kept with
            topic ids (the KIP, from 4.2 on).
        offset_fencing: Which older member epochs may commit.
        batches_assignments: The assignor runs at most once in an interval (from 4.3 on; KIP-1263).
        describes_revoking: Describe shows partitions that are being revoked (from 4.3 on;
            KAFKA-20431).
        describes_no_group_id: Describe without a group id is answered INVALID_GROUP_ID; else the
            broker fails at its own answer (not 4.0).
        compares_taken_targets: Where a member takes a place, its new target is compared with what
            was meant for that place; else with its own old one, and may not be written (4.4).
        full_group_takes_static_return: A static member returns to a full group (4.4; KAFKA-20601).
        last_leave_installs_target: The assignment epoch follows when the last member leaves (4.4;
            KAFKA-20442).
        assignor_bump: When another assignor of the group is a new group epoch.
        keeps_old_instance_ids: A member that joins under another instance id keeps the one it had
            as well, for ever (until 4.3; KAFKA-20747).
        every_join_bumps: A new member is a new group epoch whatever it subscribes to; else only if
            it changes what the group subscribes to (the KIP).
        assigns_by_itself: Changed topics are noticed, and a target computed for a new group epoch,
            without waiting for a heartbeat (the KIP).
        stable_extras: The homogeneous uniform assignor leaves the partition too many where it is
            (not 4.0.0; KAFKA-18688).
        kip_heartbeats: Heartbeats have what Kafka dropped: members may bring assignors, and answers
            name the partitions that are not released yet (the KIP).
        range_is_sticky: The range assignor looks at what members have (the KIP).
        tells_config_range: A group's setting that is out of bounds is refused with both bounds
            (4.4).
        tells_config_source: A group's setting says whether the broker's file has it (from 4.3 on).
    """

    name: str
    member_ids: MemberIds = MemberIds.CLIENT
    first_group_epoch: int = 0
    bumps_epoch_while_unrevoked: bool = False
    known_member_rejoins: bool = True
    known_static_member_rejoins: bool = False
    strips_unsubscribed: bool = True
    strip_overwrites_previous_epoch: bool = True
    given_up_pattern_bumps: bool = True
    own_revocation_is_released: bool = True
    hashes_metadata: bool = True
    refreshes_patterns: bool = True
    commits_topic_ids: bool = True
    offset_fencing: OffsetFencing = OffsetFencing.EQUAL_EPOCH
    batches_assignments: bool = False
    describes_revoking: bool = False
    describes_no_group_id: bool = True
    compares_taken_targets: bool = False
    full_group_takes_static_return: bool = False
    last_leave_installs_target: bool = False
    assignor_bump: AssignorBump = AssignorBump.NEVER
    keeps_old_instance_ids: bool = False
    every_join_bumps: bool = False
    assigns_by_itself: bool = False
    stable_extras: bool = True
    kip_heartbeats: bool = False
    range_is_sticky: bool = False
    tells_config_range: bool = False
    tells_config_source: bool = False


KAFKA_4_0: Final = Profile(
    name="kafka-4.0",
    bumps_epoch_while_unrevoked=True,
    known_member_rejoins=False,
    strips_unsubscribed=False,
    strip_overwrites_previous_epoch=False,
    given_up_pattern_bumps=False,
    own_revocation_is_released=False,
    hashes_metadata=False,
    refreshes_patterns=False,
    commits_topic_ids=False,
    describes_no_group_id=False,
    keeps_old_instance_ids=True,
    stable_extras=False,
)
KAFKA_4_1: Final = replace(
    KAFKA_4_0,
    name="kafka-4.1",
    given_up_pattern_bumps=True,
    own_revocation_is_released=True,
    hashes_metadata=True,
    refreshes_patterns=True,
    describes_no_group_id=True,
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
    offset_fencing=OffsetFencing.ASSIGNMENT_EPOCH,
    batches_assignments=True,
    describes_revoking=True,
    tells_config_source=True,
)
KAFKA_4_4: Final = replace(
    KAFKA_4_3,
    name="kafka-4.4",
    compares_taken_targets=True,
    full_group_takes_static_return=True,
    last_leave_installs_target=True,
    assignor_bump=AssignorBump.EVERY_HEARTBEAT,
    keeps_old_instance_ids=False,
    tells_config_range=True,
)
KIP_848: Final = Profile(
    name="kip-848",
    member_ids=MemberIds.SERVER,
    known_static_member_rejoins=True,
    hashes_metadata=False,
    assignor_bump=AssignorBump.CHANGED_VOTE,
    every_join_bumps=True,
    assigns_by_itself=True,
    kip_heartbeats=True,
    range_is_sticky=True,
)

PROFILES: Final = {
    each.name: each for each in (KIP_848, KAFKA_4_0, KAFKA_4_1, KAFKA_4_2, KAFKA_4_3, KAFKA_4_4)
}
"""Every profile by its name."""

_VERSION: Final = re.compile(r"(?:kafka)?[-_ ]?v?(\d+)[._](\d+)(?:[._]\d+)?")
_KIP: Final = re.compile(r"kip[-_ ]?848")


def profile_named(text: str) -> Profile:
    """Return the profile of a version, or of the KIP, as people write it.

    Args:
        text: "kafka-4.3", "4.3", "4.3.1" or "kip848", in any case.

    Raises:
        KeyError: There is no such profile.
    """
    said = text.strip().lower()
    version = _VERSION.fullmatch(said)
    if version:
        return PROFILES[f"kafka-{version[1]}.{version[2]}"]
    return KIP_848 if _KIP.fullmatch(said) else PROFILES[said]
