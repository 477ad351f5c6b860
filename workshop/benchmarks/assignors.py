"""How long each assignor computes for a large group, in processor time.

    python -m workshop.benchmarks.assignors [--members 10000] [--partitions 100000] [--topics 100]

Each computes three times: for a group without partitions, after one of its members has left, and
after another one has joined. With --mixed half of the members subscribe to half of the topics.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from group_lab.assignors.assignor import GroupSpec, MemberSpec
from group_lab.assignors.classic import (
    ClassicAssignor,
    ClassicMember,
    ClassicRangeAssignor,
    RoundRobinAssignor,
)
from group_lab.assignors.registry import assignors
from group_lab.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from spark_groups.group.member.embedded import NO_GENERATION, EmbeddedAssignment, Subscription
from spark_groups.types import NO_PARTITIONS, Assignment

Wanted = Mapping[str, tuple[str, ...]]
"""The topics of each member."""


def of_a_coordinator(name: str, *, sticky_range: bool = False) -> Callable[..., Any]:
    """Return a function that assigns for a consumer group, and takes its last result."""
    assignor = assignors(stable_extras=True, range_is_sticky=sticky_range)[name]

    def assign(
        wanted: Wanted, counts: Mapping[str, int], before: Mapping[str, Assignment]
    ) -> tuple[float, Any]:
        ids = {each: uuid.uuid5(uuid.NAMESPACE_OID, each) for each in counts}
        members = {
            each: MemberSpec(
                frozenset(ids[topic] for topic in topics), target=before.get(each, NO_PARTITIONS)
            )
            for each, topics in wanted.items()
        }
        by_id = {ids[topic]: count for topic, count in counts.items()}
        spec = GroupSpec(members, len(set(wanted.values())) == 1, by_id)
        return timed(lambda: assignor.assign(spec))

    return assign


def of_a_leader(assignor: ClassicAssignor) -> Callable[..., Any]:
    """Return a function that assigns for a classic group, and takes its last result."""

    def assign(
        wanted: Wanted, counts: Mapping[str, int], before: Mapping[str, EmbeddedAssignment]
    ) -> tuple[float, Any]:
        members = {}
        for member_id, topics in wanted.items():
            had = before[member_id].partitions if member_id in before else None
            generation_id = NO_GENERATION if had is None else 1
            subscription = Subscription(
                topics=topics,
                user_data=assignor.user_data(had, generation_id),
                owned_partitions=had or frozenset(),
                generation_id=generation_id,
            )
            members[member_id] = ClassicMember(subscription)
        return timed(lambda: assignor.assign(members, counts))

    return assign


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor time in seconds, and the result."""
    began = time.process_time()
    result = act()
    return time.process_time() - began, result


ASSIGNORS = {
    "uniform": of_a_coordinator("uniform"),
    "range": of_a_coordinator("range"),
    "range (KIP)": of_a_coordinator("range", sticky_range=True),
    "classic range": of_a_leader(ClassicRangeAssignor()),
    "roundrobin": of_a_leader(RoundRobinAssignor()),
    "sticky": of_a_leader(StickyAssignor()),
    "cooperative-sticky": of_a_leader(CooperativeStickyAssignor()),
}


def ids(count: int) -> Iterable[str]:
    """Return member ids as Java's client makes them."""
    return (f"consumer-g-1-{uuid.uuid5(uuid.NAMESPACE_OID, str(each))}" for each in range(count))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(ASSIGNORS))
    given = parser.parse_args()
    counts = {f"t{each:04}": given.partitions // given.topics for each in range(given.topics)}
    everything = tuple(counts)
    half = everything[: len(everything) // 2] if given.mixed else everything
    *members, newcomer = ids(given.members + 1)
    wanted = {member: half if at % 2 else everything for at, member in enumerate(members)}
    fewer = dict(list(wanted.items())[1:])
    say = sys.stdout.write
    say(f"load average {os.getloadavg()[0]:.2f}\n\n")
    say("| assignor | all free | one left | one joined |\n|---|---:|---:|---:|\n")
    for name in given.only:
        first_s, result = ASSIGNORS[name](wanted, counts, {})
        left_s, result = ASSIGNORS[name](fewer, counts, result)
        joined_s, result = ASSIGNORS[name]({**fewer, newcomer: everything}, counts, result)
        say(f"| {name} | {first_s:.2f} | {left_s:.2f} | {joined_s:.2f} |\n")


if __name__ == "__main__":
    main()
