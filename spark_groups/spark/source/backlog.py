"""What a group has not read yet: from its committed offsets to the ends of the logs.

It is read as an operator reads it: no member joins, nothing is committed, and a group of the
classic protocol can be asked, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from spark_groups.errors import OptionsError
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.reading import GroupReading
from spark_groups.offsets.starting import committed_topics, known_counts
from spark_groups.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_OFFSET,
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


def read_backlog(options: SourceOptions) -> tuple[OffsetRange, ...]:
    """Return the offsets that a group has not read yet, sorted; no partition twice.

    Args:
        options: Membership and trigger options have no effect here.

    Raises:
        GroupNotFoundError: There is no such group.
        OptionsError: The group has nothing to do with the topics that are chosen.
        DataLossError: A log ends before the offset to begin at, and `failOnDataLoss` is true.
        BrokerUnreachableError: Not all answers came in time.
        ProtocolError: A broker refused, or its answer cannot be read.
    """
    warn_of_open_secrets(options.security)
    timeout_s = options.api_timeout_ms / 1000
    servers = ",".join(options.bootstrap_servers)
    with GroupObserver(servers, timeout_s=timeout_s, security=options.security) as observer:
        reading = observer.observe(options.group_id)
    topics = chosen_topics(reading, options)
    keys = frozenset(
        TopicIdPartition(each.topic_id, index)
        for each in topics
        for index in range(each.partition_count)
    )
    with cluster_of(options) as cluster:
        starts = _listed(cluster, keys, reading.log_starts, EARLIEST_TIMESTAMP)
        # The group was read as operators read it: up to records that are not committed yet.
        known_ends = ListOffsetsResponse() if options.read_committed else reading.log_ends
        ends = _listed(
            cluster, keys, known_ends, LATEST_TIMESTAMP, read_committed=options.read_committed
        )
    return tuple(sorted(unread(reading, topics, starts, ends, options)))


def chosen_topics(reading: GroupReading, options: SourceOptions) -> tuple[TopicMetadata, ...]:
    """Return the topics of a group that are read: all of them, unless some are chosen.

    Raises:
        OptionsError: The group has nothing to do with a topic that is named, or with any that
            matches.
    """
    wanted = options.chosen
    if wanted is None:
        return reading.topics
    found = tuple(each for each in reading.topics if wanted.matches(each.name))
    missing = sorted({*wanted.topic_names} - {each.name for each in found})
    if missing or not found:
        known = ", ".join(sorted(each.name for each in reading.topics)) or "none"
        raise OptionsError(
            f"the group {options.group_id!r} has nothing to do with"
            f" {', '.join(missing) or f'any topic that {wanted.topic_regex!r} matches'}; its topics"
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
    """Yield what a group has not read yet of each partition, where there is anything.

    Raises:
        DataLossError: A log ends before the offset to begin at, and `failOnDataLoss` is true.
        ProtocolError: It is not known what is committed.
    """
    counts = known_counts(reading.committed.offsets)
    # As for a query: where nobody knows a count, what has no offset is taken for added later.
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
                "the group %r has no committed offset for partitions %s of %s, and nobody knows how"
                " many the topic had when the group began to read it: they are read from their"
                " beginning; name offsets of them in startingOffsets to choose otherwise",
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
    """Return an offset of each partition; those that are known are not asked for again."""
    request = ListOffsetsRequest(
        partitions=keys - known.offsets.keys(),
        timestamp_ms=timestamp_ms,
        read_committed=read_committed,
    )
    found = cluster.list_offsets(request) if request.partitions else ListOffsetsResponse()
    for key, error_code in found.errors.items():
        refuse(error_code, f"ListOffsets of {key}")
    return {**known.offsets, **found.offsets}
