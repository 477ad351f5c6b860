"""Which coordinator the model behaves like: the KIP's text, or a version of Kafka as shipped.

One field is one behaviour that differs somewhere. Code asks a field, never a version. How the KIP
is read where it leaves something open is in docs/decisions/0012-readings-of-the-kip.md.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one coordinator does where coordinators differ.

    Args:
        name: What people call it: "kip-848" or "kafka-4.3".
        member_ids: Who makes member ids.
        first_group_epoch: The epoch of a group before its first member joins.
        bumps_epoch_while_unrevoked: A member that acknowledged a revocation and must revoke more
            moves to its epoch + 1 (4.0, 4.1; removed by KAFKA-19974).
        known_member_rejoins: A join of a member that is still known is taken (KAFKA-19233);
            else it is fenced until its session is over.
        known_static_member_rejoins: So is that of a static member under its own member id (the
            KIP); else its instance id is not released.
        strips_unsubscribed: A changed subscription takes partitions away in the same heartbeat
            (KAFKA-19431).
        given_up_pattern_bumps: Who takes its pattern away moves the group epoch (4.1).
        strip_overwrites_previous_epoch: Taking them away closes the window for a heartbeat whose
            answer was lost, as every other step does (4.3).
        own_revocation_is_released: A target partition that the same member still revokes is not
            waited for (KAFKA-19449; of the 4.1 line, 4.1.2 has it and 4.1.1 does not).
        hashes_metadata: Partition metadata is kept as a hash in the group's record (KIP-1101);
            else in a record of its own.
        refreshes_patterns: Patterns are looked up again after an interval (4.1).
        commits_topic_ids: OffsetCommit and OffsetFetch v10 are there.
        offset_fencing: Which older member epochs may commit.
        batches_assignments: The assignor runs at most once in an interval (KIP-1263).
        describes_revoking: Describe shows partitions that are being revoked (KAFKA-20431).
        full_group_takes_static_return: A static member returns to a full group (KAFKA-20601).
        last_leave_installs_target: The assignment epoch follows when the last member leaves
            (KAFKA-20442).
        assignor_change_bumps: A change of the group's assignor is a new group epoch (KAFKA-20434).
        every_join_bumps: A new member is a new group epoch whatever it subscribes to (the KIP);
            else only if it changes what the group subscribes to.
        assigns_by_itself: A new group epoch and other topics are followed by a target without
            waiting for a heartbeat (the KIP only).
        stable_extras: The homogeneous uniform assignor leaves the partition too many where it is
            (KAFKA-18688).
        kip_heartbeats: Heartbeats have what Kafka dropped: members may bring assignors, and answers
            name the partitions that are not released yet (the KIP only).
        range_is_sticky: The range assignor looks at what members have (the KIP; not Kafka 4).
        tells_config_range: A group's setting that is out of bounds is refused with both bounds.
        tells_config_source: A group's setting says whether the broker's file has it.
    """

    name: str
    member_ids: MemberIds = MemberIds.CLIENT
    first_group_epoch: int = 0
    bumps_epoch_while_unrevoked: bool = False
    known_member_rejoins: bool = True
    known_static_member_rejoins: bool = False
    strips_unsubscribed: bool = True
    given_up_pattern_bumps: bool = True
    strip_overwrites_previous_epoch: bool = True
    own_revocation_is_released: bool = True
    hashes_metadata: bool = True
    refreshes_patterns: bool = True
    commits_topic_ids: bool = True
    offset_fencing: OffsetFencing = OffsetFencing.EQUAL_EPOCH
    batches_assignments: bool = False
    describes_revoking: bool = False
    full_group_takes_static_return: bool = False
    last_leave_installs_target: bool = False
    assignor_change_bumps: bool = False
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
    given_up_pattern_bumps=False,
    strip_overwrites_previous_epoch=False,
    own_revocation_is_released=False,
    hashes_metadata=False,
    refreshes_patterns=False,
    commits_topic_ids=False,
    stable_extras=False,
)
KAFKA_4_1: Final = replace(
    KAFKA_4_0,
    name="kafka-4.1",
    given_up_pattern_bumps=True,
    own_revocation_is_released=True,
    hashes_metadata=True,
    refreshes_patterns=True,
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
    full_group_takes_static_return=True,
    last_leave_installs_target=True,
    tells_config_range=True,
    assignor_change_bumps=True,
)
KIP_848: Final = Profile(
    name="kip-848",
    member_ids=MemberIds.SERVER,
    known_static_member_rejoins=True,
    hashes_metadata=False,
    kip_heartbeats=True,
    range_is_sticky=True,
    assignor_change_bumps=True,
    every_join_bumps=True,
    assigns_by_itself=True,
)

PROFILES: Final = {
    each.name: each for each in (KIP_848, KAFKA_4_0, KAFKA_4_1, KAFKA_4_2, KAFKA_4_3, KAFKA_4_4)
}
"""Every profile by its name."""
