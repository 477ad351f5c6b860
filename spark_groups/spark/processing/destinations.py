"""The topics to which failed records of a batch go; they must exist before the first record."""

from __future__ import annotations

from collections.abc import Iterable

from spark_groups.errors import OptionsError
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.budget import addresses_of
from spark_groups.spark.processing.letters import Addresses
from spark_groups.spark.processing.strategies import Strategy
from spark_groups.wire.cluster import Cluster


def destinations(
    cluster: Cluster, strategy: Strategy, topics: Iterable[str], options: SourceOptions
) -> dict[str, Addresses]:
    """Return the retry and dead-letter topics of topics.

    Args:
        cluster: The cluster that has them.
        strategy: The strategy that writes to them.
        topics: The topics that are read.
        options: The options of the stream.

    Raises:
        OptionsError: A retry or dead-letter topic does not exist.
    """
    found = {topic: addresses_of(strategy, topic, options) for topic in topics}
    wanted = {name for each in found.values() for name in (each.retry, each.dead_letter)}
    names = {name for name in wanted if name is not None}
    if names:
        known = cluster.topics(names)
        there = {each.topic.name for each in known.topics.values()} | set(known.errors)
        if missing := sorted(names - there):
            raise OptionsError(
                f"there is no topic {', '.join(missing)}: the strategy"
                f" {type(strategy).__name__} writes to it; create it with"
                f" kafka-topics.sh --create --topic {missing[0]}"
            )
    return found
