"""Batch reads: the backlog of a group, or topics of no group as Spark's own source reads them.

The backlog starts at committed offsets, where there are any. No member joins and nothing is
committed, so this also reads groups of the classic protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_groups.errors import GroupNotFoundError, OptionsError
from spark_groups.group.ledger.commit_metadata import committed_topics, known_counts
from spark_groups.group.ledger.starting import Timestamps, no_record
from spark_groups.group.member.messages import (
    NO_OFFSET,
    DescribeGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    TopicMetadata,
    found_and_failed,
)
from spark_groups.group.member.near_names import hint
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.reading import GroupReading
from spark_groups.spark.control.running_query import cluster_of
from spark_groups.spark.options.option_values import EndingOffsets
from spark_groups.spark.options.range_settings import lose
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetRange,
    TopicIdPartition,
    TopicPartition,
)
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.configuration import refuse
from spark_groups.wire.security.security import warn_of_open_secrets

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicIdPartition, int]
_NOTHING_LISTED: Final = ListOffsetsResponse()


@dataclass(frozen=True, slots=True)
class Timed:
    """The first records with the timestamps of the options, or later ones; NO_OFFSET: none.

    Args:
        starts: By the timestamps at which partitions start.
        untils: By those before which the read ends.
    """

    starts: Offsets = field(default_factory=dict)
    untils: Offsets = field(default_factory=dict)


def read_backlog(
    options: SourceOptions, identity: ClusterIdentity, *, may_be_new: bool = False
) -> tuple[OffsetRange, ...]:
    """Return the offsets of a batch read, sorted, at most one range per partition.

    These are the offsets that a group has not read yet; without a group, all offsets between those
    that the options name.

    Args:
        options: Membership and trigger options have no effect here.
        identity: Gets the id of the cluster.
        may_be_new: Whether a group that does not exist counts as one without committed offsets.

    Raises:
        GroupNotFoundError: The group does not exist, and may not be new.
        OptionsError: The group does not read the chosen topics, or a new group has none; the
            options name other partitions, or a timestamp without a record.
        DataLossError: A log ends before its starting offset, and `failOnDataLoss` is true.
        BrokerUnreachableError: A broker did not respond in time.
        ProtocolError: A broker returned an error or an invalid response.
    """
    warn_of_open_secrets(options.security)
    if options.group is None:
        reading = _no_group(options, identity)
    else:
        reading = _group(options, identity, may_be_new=may_be_new)
    topics = chosen_topics(reading, options)
    keys = {
        TopicIdPartition(topic.topic_id, index): TopicPartition(topic.name, index)
        for topic in topics
        for index in range(topic.partition_count)
    }
    _check_named(options.ending, set(keys.values()))
    timestamps = options.starting.timestamps, options.ending.timestamps
    with cluster_of(options, identity) as cluster:
        starts = _listed(cluster, keys, reading.log_starts, EARLIEST_TIMESTAMP)
        # Before the ends, so that none of these lies beyond its end.
        timed_starts = _at_timestamps(cluster, keys, timestamps[0], options)
        # The observer reads to the high watermark, past uncommitted transactions.
        is_known = not options.read_committed and timestamps[0] is None
        known_ends = reading.log_ends if is_known else _NOTHING_LISTED
        ends = _listed(
            cluster, keys, known_ends, LATEST_TIMESTAMP, read_committed=options.read_committed
        )
        # After the ends, so that a partition without such a record has none up to its end.
        timed = Timed(timed_starts, _at_timestamps(cluster, keys, timestamps[1], options))
    return tuple(sorted(unread(reading, topics, starts, ends, options, timed=timed)))


def _check_named(ending: EndingOffsets, partitions: set[TopicPartition]) -> None:
    """Raise an OptionsError unless the end names all partitions or none, as for Spark's source."""
    option, named = "endingOffsets", {*ending.by_partition}
    if ending.timestamps is not None:
        option, named = ending.timestamps.option, {*ending.timestamps.by_partition_ms}
    for problem, wrong in (
        ("lacks", partitions - named),
        ("names partitions that do not exist or are not read:", named - partitions),
    ):
        if named and wrong:
            raise OptionsError(f"{option} {problem} {', '.join(map(str, sorted(wrong)))}")


def _at_timestamps(
    cluster: Cluster,
    keys: Mapping[TopicIdPartition, TopicPartition],
    timestamps: Timestamps | None,
    options: SourceOptions,
) -> Offsets:
    """Return the first offset at the timestamp of each partition that has one."""
    by_timestamp: dict[int, set[TopicIdPartition]] = {}
    for key, partition in keys.items():
        timestamp_ms = timestamps.of(partition) if timestamps is not None else None
        if timestamp_ms is not None:
            by_timestamp.setdefault(timestamp_ms, set()).add(key)
    found: dict[TopicIdPartition, int] = {}
    for timestamp_ms, asked in by_timestamp.items():
        found |= _listed(
            cluster, asked, _NOTHING_LISTED, timestamp_ms, read_committed=options.read_committed
        )
    return found


def _group(options: SourceOptions, identity: ClusterIdentity, *, may_be_new: bool) -> GroupReading:
    timeout_s = options.api_timeout_ms / 1000
    servers = ",".join(options.bootstrap_servers)
    try:
        with GroupObserver(
            servers,
            timeout_s=timeout_s,
            security=options.security,
            identity=identity,
            timeouts=options.timeouts,
        ) as observer:
            return observer.observe(options.group_id)
    except GroupNotFoundError:
        if not may_be_new:
            raise
        return _new_group(options, identity)


def _no_group(options: SourceOptions, identity: ClusterIdentity) -> GroupReading:
    """Return the chosen topics, of which nothing is committed."""
    if options.chosen is None:
        raise OptionsError("a batch read without kafka.group.id requires subscribe or its pattern")
    wanted = options.chosen
    with cluster_of(options, identity) as cluster:
        found = cluster.topics(wanted.topic_names) if wanted.topic_names else cluster.every_topic()
        for name, error_code in found.errors.items():
            if wanted.matches(name):
                refuse(error_code, f"Metadata of {name}")
        topics = tuple(
            each.topic
            for each in found.topics.values()
            if wanted.reads(each.topic.name, is_internal=each.topic.is_internal)
        )
        names = {topic.name for topic in topics}
        missing = sorted({*wanted.topic_names} - names)
        if missing:
            asked = MetadataRequest(topic_names=frozenset(wanted.topic_names), wants_near=True)
            near = cluster.metadata(asked).near
            listed = ", ".join(f"{name}{hint(name, near)}" for name in missing)
            raise OptionsError(f"subscribe: {listed} does not exist")
    return GroupReading(description=DescribeGroupResponse(group_id=""), topics=topics)


def _new_group(options: SourceOptions, identity: ClusterIdentity) -> GroupReading:
    names = options.subscription.topic_names
    if not names:
        raise OptionsError(
            f"the group {options.group_id!r} does not exist: name its topics with subscribe"
        )
    with cluster_of(options, identity) as cluster:
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
    if options.group is None:
        return reading.topics
    if wanted is None:
        held = reading.held_topics()
        return tuple(topic for topic in reading.topics if topic.topic_id not in held)
    found = tuple(
        topic for topic in reading.topics if wanted.reads(topic.name, is_internal=topic.is_internal)
    )
    missing = sorted({*wanted.topic_names} - {each.name for each in found})
    if missing or not found:
        known = ", ".join(sorted(topic.name for topic in reading.topics)) or "none"
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
    *,
    timed: Timed = Timed(),
) -> Iterator[OffsetRange]:
    """Yield the unread offsets of each partition that has any.

    Raises:
        DataLossError: A log ends before its starting or ending offset, and `failOnDataLoss` is
            true.
        OptionsError: No record has the starting timestamp of a partition, or a later one; or a
            read without a group ends before it starts.
        ProtocolError: The broker returned an error for a committed offset.
    """
    found, failed = found_and_failed(reading.committed)
    counts = known_counts(found)
    # As for a query: without a known partition count, partitions without offsets count as new.
    uncounted = committed_topics(found) - counts.keys()
    counts |= dict.fromkeys(uncounted, 0)
    for topic in topics:
        whole: list[int] = []
        for index in range(topic.partition_count):
            key = TopicIdPartition(topic.topic_id, index)
            partition = TopicPartition(topic.name, index)
            refuse(failed.get(key, 0), f"OffsetFetch of {partition}")
            log = starts[key], ends[key]
            committed = found.get(key)
            if committed is not None and committed.committed_offset != NO_OFFSET:
                begin, why = committed.committed_offset, "is committed"
            else:
                known_count = counts.get(topic.topic_id)
                begin, why = _start(
                    key, partition, options, known_count=known_count, log=log, timed=timed
                )
                if topic.topic_id in uncounted and options.starting.skips(partition):
                    whole.append(index)
            until = _until(key, partition, ends[key], options, timed)
            if begin > ends[key]:
                settings = options.range_settings()
                lose(settings, f"offset {begin} of {partition} {why}, but its log ends at {log[1]}")
            elif options.group is None and begin > max(until, log[0]):
                raise OptionsError(f"offset {begin} of {partition} {why}, but the end is {until}")
            elif begin < until:
                yield OffsetRange(topic.topic_id, topic.name, index, begin, until)
        if whole:
            logger.warning(
                "the group %r has no committed offset for partitions %s of %s, and the number of"
                " partitions when the group started is unknown: reading them from their earliest"
                " offsets; set their startingOffsets to change this",
                options.group_id,
                ", ".join(map(str, whole)),
                topic.name,
            )


def _start(
    key: TopicIdPartition,
    partition: TopicPartition,
    options: SourceOptions,
    *,
    known_count: int | None,
    log: tuple[int, int],
    timed: Timed,
) -> tuple[int, str]:
    """Return where a partition without a committed offset starts, and the reason.

    Args:
        known_count: Partitions of the topic when the group began to read it; None: it has not.
        log: The start and the end of its log.
    """
    timestamp_ms = options.starting.timestamp_ms(partition, known_count=known_count)
    timestamps = options.starting.timestamps
    if timestamp_ms is not None and timestamps is not None:
        if timed.starts[key] != NO_OFFSET:
            return timed.starts[key], f"is the start by {timestamps.option}"
        if not options.starting.else_latest:
            raise OptionsError(no_record(f"{timestamps.option} of {partition} is", timestamp_ms))
        return log[1], "is the log end"
    named = options.starting.of(partition, known_count=known_count)
    begin = {EARLIEST_TIMESTAMP: log[0], LATEST_TIMESTAMP: log[1]}.get(named, named)
    return begin, "is in startingOffsets"


def _until(
    key: TopicIdPartition, partition: TopicPartition, end: int, options: SourceOptions, timed: Timed
) -> int:
    """Return the first offset of a partition that is not read.

    Raises:
        DataLossError: It is beyond the log end, and `failOnDataLoss` is true.
    """
    if options.ending.timestamps is not None:
        found = timed.untils.get(key, NO_OFFSET)
        return end if found == NO_OFFSET else min(found, end)
    named = options.ending.by_partition.get(partition, LATEST_TIMESTAMP)
    if named > end:
        what = f"endingOffsets of {partition} is {named}, but its log ends at {end}"
        lose(options.range_settings(), what)
    return end if named == LATEST_TIMESTAMP else min(named, end)


def _listed(
    cluster: Cluster,
    keys: Collection[TopicIdPartition],
    known: ListOffsetsResponse,
    timestamp_ms: int,
    *,
    read_committed: bool = False,
) -> Offsets:
    """Return an offset of each partition; known offsets are not requested again."""
    found, _ = found_and_failed(known.answers)
    request = ListOffsetsRequest(
        partitions=frozenset(keys) - found.keys(),
        timestamp_ms=timestamp_ms,
        read_committed=read_committed,
    )
    listed = cluster.list_offsets(request) if request.partitions else _NOTHING_LISTED
    more, failed = found_and_failed(listed.answers)
    for key, error_code in failed.items():
        refuse(error_code, f"ListOffsets of {key}")
    return {key: each.offset for key, each in (found | more).items()}
