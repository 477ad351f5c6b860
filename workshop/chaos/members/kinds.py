"""The kinds of members, and those beyond the usual ones, with faults that each of them can have.

They are drawn from a seed of their own: what a seed draws for a run without them stays as it is.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Final

from spark_groups.cli.table_names import TableKind
from workshop.chaos.faults.schedule import (
    FAULTS,
    GAP_S,
    Fault,
    FaultClass,
    FaultKind,
    QueryTraits,
    draw_faults,
    draw_queries,
)
from workshop.chaos.systems.record import Values

MEMBERS_MAX: Final = 12
"""How many members a run may have."""


class MemberKind(Enum):
    """What a member is."""

    QUERY = "query at the level of its driver"
    PLAIN = "plain consumer"
    CLASSIC = "plain consumer of the classic protocol"
    APPLICATION = "Spark application"


FAULTS_OF_APPLICATIONS: Final = tuple(kind for kind in FAULTS if kind is not FaultKind.GROW)
FAULTS_OF_CONSUMERS: Final = tuple(
    kind for kind in FAULTS_OF_APPLICATIONS if kind is not FaultKind.SLOW_BATCH
)
CONSUMER_GAP_S: Final = 18.0
"""How many seconds pass between two faults of one consumer, on average."""
APPLICATION_GAP_S: Final = 50.0
"""The same for one application, which takes longer to start."""
APPLICATION_INTERVAL_S: Final = 1.0
GROWTH_GAP_S: Final = 60.0
"""The same for the topics, where only applications are members."""


@dataclass(frozen=True, slots=True)
class Others:
    """The members of a run beside the queries.

    Args:
        plain: Plain consumers; the first one is part of each run.
        classic: Those of the classic protocol.
        applications: What Spark applications run.
    """

    plain: tuple[str, ...]
    classic: tuple[str, ...] = ()
    applications: tuple[QueryTraits, ...] = ()

    @property
    def usual(self) -> tuple[str, ...]:
        """The plain consumer whose faults are drawn with those of the queries."""
        return self.plain[:1]

    @property
    def consumers(self) -> tuple[str, ...]:
        """All that are no queries of Spark."""
        return (*self.plain, *self.classic)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.consumers, *(application.name for application in self.applications))

    def kinds(self, queries: Iterable[str]) -> dict[str, MemberKind]:
        """Return what each member of a run is, by name.

        Args:
            queries: The names of the queries.
        """
        return {
            **dict.fromkeys(queries, MemberKind.QUERY),
            **dict.fromkeys(self.plain, MemberKind.PLAIN),
            **dict.fromkeys(self.classic, MemberKind.CLASSIC),
            **{application.name: MemberKind.APPLICATION for application in self.applications},
        }


COUNTS: Final[Mapping[str, tuple[int, str]]] = {
    "plain_consumers": (1, "consumers without Spark"),
    "classic": (0, "consumers of the classic protocol"),
    "applications": (0, "Spark applications"),
}
"""The options that add members: the default, and the kind that is counted."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options for members beside the queries.

    Args:
        parser: The parser of the program.
    """
    for name, (default, what) in COUNTS.items():
        parser.add_argument(
            option_of(name), type=int, default=default, help=f"{what}; default {default}"
        )


def option_of(name: str) -> str:
    """Return how an option is written on the command line.

    Args:
        name: Its attribute.
    """
    return "--" + name.replace("_", "-")


def check_counts(chosen: Namespace) -> str | None:
    """Return the problem with the members that are chosen; None: there is none.

    Args:
        chosen: The options of the run.
    """
    if chosen.applications and FaultClass.RETENTION in chosen.faults:
        return "--faults retention needs --applications 0: they write all topics to the tables"
    counts = [getattr(chosen, name) for name in COUNTS]
    if chosen.values is Values.AVRO:
        return _check_decoding(chosen)
    is_enough = chosen.plain_consumers >= 1 and min(counts) >= 0
    if is_enough and chosen.queries + sum(counts) <= MEMBERS_MAX:
        return None
    return f"there is a plain consumer, and there are at most {MEMBERS_MAX} members"


def _check_decoding(chosen: Namespace) -> str | None:
    """Return the problem with a run whose members decode values; None: there is none."""
    others = chosen.queries, chosen.plain_consumers, chosen.classic
    if any(others) or not 1 <= chosen.applications <= MEMBERS_MAX:
        return f"--values avro needs 1 to {MEMBERS_MAX} applications: no other members decode"
    if chosen.sinks != [TableKind.DELTA]:
        return "--values avro needs --sinks delta: the table has the fields of the values"
    if not {FaultClass.NETWORK}.issuperset(chosen.faults):
        return "--values avro has no --faults but network: the others are those of queries"
    return None


def draw_others(chosen: Namespace, *, fast: bool, is_slow: bool) -> Others:
    """Draw the members beside the queries.

    Args:
        chosen: The options of the run: its seed, and how many members there are of each kind.
        fast: Whether the fast reader can be used.
        is_slow: Whether batches are few and large.
    """
    chance = Random(f"{chosen.seed}-applications")
    drawn = draw_queries(chance, chosen.applications, fast=fast, is_slow=is_slow)
    return Others(
        plain=tuple(f"c{number}" for number in range(1, chosen.plain_consumers + 1)),
        classic=tuple(f"classic{number}" for number in range(1, chosen.classic + 1)),
        applications=tuple(
            replace(
                each,
                name=f"a{number}",
                instance_id=each.instance_id and f"instance-a{number}",
                interval_s=each.interval_s or APPLICATION_INTERVAL_S,
                emit="ranges" if chosen.values is Values.AVRO and number % 2 else "records",
            )
            for number, each in enumerate(drawn, 1)
        ),
    )


def draw_usual_faults(
    chance: Random,
    others: Others,
    queries: tuple[str, ...],
    topics: tuple[str, ...],
    *,
    duration_s: float,
    session_s: float,
) -> tuple[Fault, ...]:
    """Draw what goes wrong with queries, the usual consumer and topics, in the order of time.

    Args:
        chance: Where it is drawn from.
        others: The members beside the queries.
        queries: The queries.
        topics: The topics.
        duration_s: How long faults are due, in seconds.
        session_s: The group's session timeout, in seconds.
    """
    has_members = bool(queries or others.usual)
    return draw_faults(
        chance,
        duration_s=duration_s,
        session_s=session_s,
        queries=queries,
        plain_consumers=others.usual,
        topics=topics,
        gap_s=GAP_S if has_members else GROWTH_GAP_S,
        kinds=tuple(FAULTS) if has_members else (FaultKind.GROW,),
    )


def draw_faults_of_others(
    seed: int, others: Others, *, duration_s: float, session_s: float
) -> tuple[Fault, ...]:
    """Draw what goes wrong with members beyond the usual ones, in the order of time.

    Args:
        seed: The seed of the run.
        others: The members beside the queries.
        duration_s: How long faults are due, in seconds.
        session_s: The group's session timeout, in seconds.
    """
    drawn: list[Fault] = []
    for name, kind in others.kinds(()).items():
        if name not in others.usual:
            is_query = kind is MemberKind.APPLICATION
            drawn += draw_faults(
                Random(f"{seed}-{name}"),
                duration_s=duration_s,
                session_s=session_s,
                queries=(name,) if is_query else (),
                plain_consumers=() if is_query else (name,),
                topics=(),
                gap_s=APPLICATION_GAP_S if is_query else CONSUMER_GAP_S,
                kinds=FAULTS_OF_APPLICATIONS if is_query else FAULTS_OF_CONSUMERS,
            )
    return tuple(sorted(drawn, key=lambda each: each.at_s))
