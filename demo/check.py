"""The demo's verdict: written rows compared with loaded rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from demo.flights import Flight
from demo.spark_log import read_rows
from spark_groups.broker.embedded import EmbeddedKafka

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@dataclass(frozen=True)
class Verdict:
    """The result of the comparison.

    Args:
        produced: Rows that the broker acknowledged.
        written: Rows of all finished batches of all applications.
        distinct: Different places in the topic (partition and offset) among them.
        missing: Flights that no application wrote.
        foreign: Rows that differ from every loaded flight.
        committed: Committed offset and log end by partition, from Kafka's own tool.
    """

    produced: int
    written: int
    distinct: int
    missing: int
    foreign: int
    committed: dict[int, tuple[int, int]]

    @property
    def twice(self) -> int:
        """Rows that were written more than once."""
        return self.written - self.distinct

    @property
    def is_all_committed(self) -> bool:
        """Whether committed offsets cover all rows of every partition."""
        ends = [end for _, end in self.committed.values()]
        at_end = all(offset == end for offset, end in self.committed.values())
        return at_end and sum(ends) == self.produced

    @property
    def is_good(self) -> bool:
        """Whether nothing is lost."""
        complete = not self.missing and not self.foreign and self.distinct == self.produced
        return complete and self.is_all_committed


def compare(
    flights: Iterable[Flight],
    rows: Iterable[tuple[str | None, str | None, int, int]],
    committed: dict[int, tuple[int, int]],
    produced: int,
) -> Verdict:
    """Compare written rows with loaded flights.

    Args:
        flights: The loaded flights; all different.
        rows: Key, value, partition and offset of each written row.
        committed: Committed offset and log end by partition.
        produced: Rows that the broker acknowledged.
    """
    places: Counter[tuple[int, int]] = Counter()
    found: set[tuple[str | None, str | None]] = set()
    for key, value, partition, offset in rows:
        places[partition, offset] += 1
        found.add((key, value))
    expected = {(flight.key, flight.value) for flight in flights}
    return Verdict(
        produced=produced,
        written=places.total(),
        distinct=len(places),
        missing=len(expected - found),
        foreign=len(found - expected),
        committed=committed,
    )


def written_rows(outputs: Iterable[Path]) -> Iterable[tuple[str | None, str | None, int, int]]:
    """Return key, value, partition and offset of each row of finished batches.

    Args:
        outputs: A directory for each application, read through its own log.
    """
    table = read_rows(outputs, ("key", "value", "partition", "offset"))
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def describe_group(kafka: EmbeddedKafka, group_id: str) -> str:
    """Return the output of Kafka's ConsumerGroupCommand for a group.

    Args:
        kafka: The broker.
        group_id: The group.
    """
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    return kafka.run_tool(GROUP_COMMAND, *servers, "--describe", "--group", group_id)


def parse_description(text: str, topic: str) -> dict[int, tuple[int, int]]:
    """Return committed offset and log end by partition.

    Args:
        text: The output of ConsumerGroupCommand.
        topic: The topic.
    """
    line = re.compile(rf"^\S+\s+{re.escape(topic)}\s+(\d+)\s+(\d+)\s+(\d+)\s", re.MULTILINE)
    return {int(p): (int(offset), int(end)) for p, offset, end in line.findall(text)}
