"""The backlog of a group: from its committed offsets to the log ends.

No member joins and nothing is committed, so this also reads groups of the classic protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from spark_groups.errors import GroupNotFoundError, OptionsError
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.reading import GroupReading
from spark_groups.offsets.starting import committed_topics, known_counts
from spark_groups.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_OFFSET,
    DescribeGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    TopicMetadata,
)
from spark_groups.spark.options.range_settings import lose
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.source.running_query import cluster_of
from spark_groups.types import OffsetRange, TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import refuse
from spark_groups.wire.security.security import warn_of_open_secrets

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicIdPartition, int]


def read_backlog(options: SourceOptions, *, may_be_new: bool = False) -> tuple[OffsetRange, ...]:
    """Return the offsets that a group has not read yet, sorted, at most one range per partition.

    Args:
        options: Membership and trigger options have no effect here.
        may_be_new: Whether a group that does not exist counts as one without committed offsets.

    Raises:
        GroupNotFoundError: The group does not exist, and may not be new.
        OptionsError: The group does not read the chosen topics, or a new group has none.
        DataLossError: A log ends before its starting offset, and `failOnDataLoss` is true.
        BrokerUnreachableError: A broker did not respond in time.
        ProtocolError: A broker returned an error or an invalid response.
    """
    warn_of_open_secrets(options.security)
    timeout_s = options.api_timeout_ms / 1000
    servers = ",".join(options.bootstrap_servers)
    try:
        with GroupObserver(servers, timeout_s=timeout_s, security=options.security) as observer:
            reading = observer.observe(options.group_id)
    except GroupNotFoundError:
        if not may_be_new:
            raise
        reading = _new_group(options)
    topics = chosen_topics(reading, options)
    keys = frozenset(
        TopicIdPartition(each.topic_id, index)
        for each in topics
        for index in range(each.partition_count)
    )
    with cluster_of(options) as cluster:
        starts = _listed(cluster, keys, reading.log_starts, EARLIEST_TIMESTAMP)
        # The observer reads to the high watermark, past uncommitted transactions.
        known_ends = ListOffsetsResponse() if options.read_committed else reading.log_ends
        ends = _listed(
            cluster, keys, known_ends, LATEST_TIMESTAMP, read_committed=options.read_committed
        )
    return tuple(sorted(unread(reading, topics, starts, ends, options)))


def _new_group(options: SourceOptions) -> GroupReading:
    names = options.subscription.topic_names
    if not names:
        raise OptionsError(
            f"the group {options.group_id!r} does not exist: name its topics with subscribe"
        )
    with cluster_of(options) as cluster:
        found = cluster.topics(names)
    return GroupReading(
        description=DescribeGroupResponse(group_id=options.group_id),
        topics=tuple(each.topic for each in found.topics.values()),
    )


def chosen_topics(reading: GroupReading, options: SourceOptions) -> tuple[TopicMetadata, ...]:
    """Return the chosen topics of a group; without a choice, all of its topics.

    Raises:
        OptionsError: The group does not read a topic in `subscribe`, or any that matches
            `subscribePattern`.
    """
    wanted = options.chosen
    if wanted is None:
        return reading.topics
    found = tuple(each for each in reading.topics if wanted.matches(each.name))
    missing = sorted({*wanted.topic_names} - {each.name for each in found})
    if missing or not found:
        known = ", ".join(sorted(each.name for each in reading.topics)) or "none"
        raise OptionsError(
            f"the group {options.group_id!r} does not read"
            f" {', '.join(missing) or f'any topic that matches {wanted.topic_regex!r}'}; its topics"
            f" are: {known}"
        )
    return found


def unread(
    reading: GroupReading,
    topics: tuple[TopicMetadata, ...],
    starts: Offsets,
    ends: Offsets,
    options: SourceOptions,
) -> Iterator[OffsetRange]:
    """Yield the unread offsets of each partition that has any.

    Raises:
        DataLossError: A log ends before its starting offset, and `failOnDataLoss` is true.
        ProtocolError: The broker returned an error for a committed offset.
    """
    counts = known_counts(reading.committed.offsets)
    # As for a query: without a known partition count, partitions without offsets count as new.
    uncounted = committed_topics(reading.committed.offsets) - counts.keys()
    counts |= dict.fromkeys(uncounted, 0)
    for topic in topics:
        whole: list[int] = []
        for index in range(topic.partition_count):
            key = TopicIdPartition(topic.topic_id, index)
            partition = TopicPartition(topic.name, index)
            refuse(reading.committed.errors.get(key, 0), f"OffsetFetch of {partition}")
            start, end = starts[key], ends[key]
            committed = reading.committed.offsets.get(key)
            if committed is not None and committed.committed_offset != NO_OFFSET:
                begin, why = committed.committed_offset, "is committed"
            else:
                known_count = counts.get(topic.topic_id)
                named = options.starting_offsets.of(partition, known_count=known_count)
                if topic.topic_id in uncounted and options.starting_offsets.skips(partition):
                    whole.append(index)
                begin = {EARLIEST_TIMESTAMP: start, LATEST_TIMESTAMP: end}.get(named, named)
                why = "is in startingOffsets"
            if begin > end:
                settings = options.range_settings()
                lose(settings, f"offset {begin} of {partition} {why}, but its log ends at {end}")
            elif begin < end:
                yield OffsetRange(topic.topic_id, topic.name, index, begin, end)
        if whole:
            logger.warning(
                "the group %r has no committed offset for partitions %s of %s, and the number of"
                " partitions when the group started is unknown: reading them from their earliest"
                " offsets; set their startingOffsets to change this",
                options.group_id,
                ", ".join(map(str, whole)),
                topic.name,
            )


def _listed(
    cluster: Cluster,
    keys: frozenset[TopicIdPartition],
    known: ListOffsetsResponse,
    timestamp_ms: int,
    *,
    read_committed: bool = False,
) -> Offsets:
    """Return an offset of each partition; known offsets are not requested again."""
    request = ListOffsetsRequest(
        partitions=keys - known.offsets.keys(),
        timestamp_ms=timestamp_ms,
        read_committed=read_committed,
    )
    found = cluster.list_offsets(request) if request.partitions else ListOffsetsResponse()
    for key, error_code in found.errors.items():
        refuse(error_code, f"ListOffsets of {key}")
    return {**known.offsets, **found.offsets}
