"""Which table gets the records of which topic, and how a batch is written to several tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from spark_groups.errors import OptionsError, TableError
from spark_groups.fence.beginnings import LOOK_AGAIN_S, Batch, UnsavedEntries
from spark_groups.group.member.events import listed
from spark_groups.group.member.subscription import Subscription
from spark_groups.spark.processing.strategies import SkipOrDeadLetter
from spark_groups.spark.tables.left_out import LeftOut
from spark_groups.spark.tables.letter_box import LetterBox
from spark_groups.spark.tables.own import OwnTable
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.types import OffsetRange

logger = logging.getLogger(__name__)

TABLES_AT_ONCE: Final = 8
"""How many tables are compared, or committed to, at the same time: each may need a connection."""

Route = Callable[[str], FencedTable] | Mapping[str, FencedTable]
"""The table of a topic, by the topic's name."""


class Asked(NamedTuple):
    """The ranges whose rows a table needs, and the attempt that stages them."""

    ranges: tuple[OffsetRange, ...]
    attempt: Attempt


Writing = Generator[Asked, Sequence[Piece], None]
"""The write of a batch to one table: yields the ranges to stage, and gets their staged rows."""


@dataclass(slots=True, eq=False)
class Target:
    """A table that gets topics, with its state between batches.

    Args:
        table: The table.
        letter_box: Writes its dead letters; None: a record that cannot be written fails the batch.
        topics: The names of its topics, as far as they are known.
        unsaved: Remembers where the group began partitions, while the table does not exist.
        left_out: What the batch leaves out or has not decoded, as it was staged last.
        look_at_s: When a batch without records for the table compares it again, in seconds.
    """

    table: FencedTable
    letter_box: LetterBox | None
    topics: set[str] = field(default_factory=set)
    unsaved: UnsavedEntries = field(default_factory=UnsavedEntries)
    left_out: Sequence[LeftOut] = ()
    look_at_s: float = 0.0

    def blamed(self, error: TableError) -> str:
        """Return the text of an error with the names of the table and of its topics."""
        text, table = str(error), str(self.table)
        place = "" if table in text else f"{table}: "
        return f"{place}{text} (the table gets {listed(sorted(self.topics))})"


class Targets:
    """The tables of a query.

    Args:
        route: The only table; or the table of each topic, which a function is asked for once.
        on_error: What becomes of records that cannot be written; None: the batch fails.

    Raises:
        OptionsError: `on_error` is a strategy that tables do not have; or as from `known`.
    """

    def __init__(self, route: FencedTable | Route, on_error: SkipOrDeadLetter | None) -> None:
        if on_error is not None:
            LetterBox(on_error)
        self._on_error = on_error
        self._route: Any = route
        self._by_topic: dict[str, Target] = {}
        self._all: list[Target] = []
        self._run_id: str | None = None
        self.is_one = False
        if isinstance(route, Mapping):
            for topic in route:
                self._of_topic(topic)
        elif not callable(route):
            self.is_one = True
            self._target(route, "")

    def __reduce__(self) -> tuple[type[Targets], tuple[Any, ...]]:
        return Targets, (self._route, self._on_error)

    def known(self, topics: Collection[str] = ()) -> Sequence[Target]:
        """Return the tables that are known once some topics are.

        Args:
            topics: The names of the topics.

        Raises:
            OptionsError: A topic has no table, or has another object for one that is known.
        """
        for topic in sorted(topics):
            self._of_topic(topic)
        return self._all

    def parts(self, batch: Batch, now_s: float, subscription: Subscription) -> dict[Target, Batch]:
        """Return the part of a batch that each table gets.

        A table without records in the batch is compared periodically, so that the entries of idle
        partitions begin.

        Args:
            batch: The batch, which also names topics of earlier runs of the query.
            now_s: The time, in seconds of any clock.
            subscription: The topics that the query reads now.

        Raises:
            OptionsError: As from `known`; no table gets a part.
        """
        if self.is_one:
            return dict.fromkeys(self._all, batch)
        names = {each.topic_id: each.topic for each in batch.ranges if len(each)}
        for topic in batch.topics:
            # Of those that match a pattern, some may be internal to Kafka, which no query reads.
            is_certain = topic.is_read or topic.name in subscription.topic_names
            if is_certain and subscription.matches(topic.name):
                names[topic.topic_id] = topic.name
        targets = {key: self._of_topic(name) for key, name in names.items()}
        if self._run_id != batch.run_id:
            # Only the first batch of a run has what the run before wrote last.
            self._run_id = batch.run_id
            for target in self._all:
                target.look_at_s = 0.0
        parts = {}
        for target in dict.fromkeys(targets.values()):
            part = replace(
                batch,
                ranges=tuple(e for e in batch.ranges if targets.get(e.topic_id) is target),
                topics=tuple(e for e in batch.topics if targets.get(e.topic_id) is target),
                before=tuple(e for e in batch.before if targets.get(e.topic_id) is target),
            )
            if any(map(len, part.ranges)) or now_s >= target.look_at_s:
                target.look_at_s = now_s + LOOK_AGAIN_S
                parts[target] = part
        return parts

    def _of_topic(self, topic: str) -> Target:
        if self.is_one:
            return self._all[0]
        if topic not in self._by_topic:
            route = self._route
            table: Any = route.get(topic) if isinstance(route, Mapping) else route(topic)
            if not hasattr(table, "task_writer"):
                raise OptionsError(
                    f"the route has no table for the topic {topic}, but {table!r}: name one, or do"
                    " not subscribe to the topic"
                )
            self._by_topic[topic] = self._target(table, topic)
            self._by_topic[topic].topics.add(topic)
        return self._by_topic[topic]

    def _target(self, table: FencedTable, topic: str) -> Target:
        for each in self._all:
            if each.table == table:
                return each
            if str(each.table) == str(table):
                raise OptionsError(
                    f"the topic {topic} has another object for {table}, and they would refuse each"
                    " other's commits: pass the same object for all topics of a table. If they are"
                    " two tables, let their names differ, such as by a schema or a catalog"
                )
        strategy = self._on_error
        box = LetterBox(strategy, is_in_table=table.keeps_letters) if strategy else None
        self._all.append(Target(table, box))
        return self._all[-1]


def resumed(writing: Writing, pieces: Sequence[Piece] | None = None) -> Asked | None:
    """Continue a write until it needs rows; None: the table has its part of the batch.

    Args:
        writing: The write.
        pieces: The rows that it has asked for; None: it has not begun.

    Raises:
        TableError: The batch cannot be written.
    """
    try:
        return next(writing) if pieces is None else writing.send(pieces)
    except StopIteration:
        return None


def write_together(
    writings: Mapping[Target, Writing],
    stage: Callable[[Mapping[Target, Asked]], Mapping[Target, Sequence[Piece]]],
) -> None:
    """Write a batch to its tables: compare all, stage their rows together, and commit to each.

    Where a table refuses the comparison, the batch fails before any commit. Where one refuses its
    commit, the others commit first: when the batch runs again, their fences have their parts.

    Args:
        writings: The write of each table's part.
        stage: Stages rows of several tables at once.

    Raises:
        TableError: A table refuses its part. The errors of further tables are in the log.
    """
    answers: Mapping[Target, Sequence[Piece] | None] = dict.fromkeys(writings)

    def advanced(target: Target) -> Asked | Exception | None:
        try:
            return resumed(writings[target], answers[target])
        except Exception as error:
            return error

    # The functions of a store of the user's may run Spark jobs, which belong to this thread.
    is_one_by_one = len(writings) == 1 or any(isinstance(e.table, OwnTable) for e in writings)
    with ThreadPoolExecutor(TABLES_AT_ONCE, "write-table") as pool:
        while answers:
            steps = [*(map if is_one_by_one else pool.map)(advanced, answers)]
            asked, failed = {}, []
            for target, step in zip(answers, steps, strict=True):
                if isinstance(step, Asked):
                    asked[target] = step
                elif step is not None:
                    if isinstance(step, TableError) and target.topics:
                        step.args = (target.blamed(step),)
                    failed.append(step)
            for error in failed[1:]:
                logger.error("%s", error)
            if failed:
                raise failed[0]
            answers = stage(asked) if asked else {}
