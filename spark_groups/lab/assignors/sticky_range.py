"""How the range assignor cuts a topic under KIP-848: it co-partitions topics, and it is sticky.

The KIP does not say how. The reading here: each topic is cut as Kafka 4 cuts it, but a member keeps
what it has of it up to its share, lowest first, and a partition too many stays with a member that
has it; what is free goes upwards to the members in their order. Ranges are contiguous where nothing
was kept, and topics with equal counts that are given out together stay cut alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from spark_groups.lab.assignors.assignor import GroupSpec
from spark_groups.types import TopicId


def sticky(
    group: GroupSpec, topic_id: TopicId, member_ids: Sequence[str]
) -> dict[str, Sequence[int]]:
    """Return what members have up to their share, and what was free of the rest."""
    count = group.partition_counts[topic_id]
    quota, extras = divmod(count, len(member_ids))
    kept: dict[str, Sequence[int]] = {}
    for member_id in member_ids:
        target = group.members[member_id].target
        had = sorted(each.partition for each in target.partitions if each.topic_id == topic_id)
        room = quota + (extras > 0 and len(had) > quota)
        extras -= room - quota
        kept[member_id] = had[:room]
    taken = {each for partitions in kept.values() for each in partitions}
    free = (each for each in range(count) if each not in taken)
    for member_id, own in kept.items():
        room = quota - len(own)
        if room >= 0 and extras > 0:
            room += 1
            extras -= 1
        kept[member_id] = [*own, *islice(free, max(room, 0))]
    return kept
