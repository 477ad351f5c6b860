"""How long a batch and a record may take, and what a strategy wants of a stream's options.

A batch may hold partitions that are to be given up for as long as the rebalance time-out; at 90 %
of it they are given up uncommitted. So a batch that ends within four fifths is always in time,
whenever the revocation comes; divided by the largest batch that is what each record may take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from spark_groups.client.revocation import WARN_PERCENT
from spark_groups.errors import OptionsError
from spark_groups.protocol.subscription import LEGAL_TOPIC_NAME
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.letters import Addresses
from spark_groups.spark.processing.strategies import (
    AtLast,
    NoDeadline,
    ProgressDeadline,
    Recirculate,
    Relinquish,
    RetryTo,
    SkipOrDeadLetter,
    Strategy,
    first_topic,
    named_topic,
)

BUDGET_SHARE: Final = WARN_PERCENT[-1] / 100
LEAST_RECORD_S: Final = 0.01
ABSURDLY_LARGE_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Budget:
    """How long things may take.

    Args:
        record_s: Seconds per record; infinite means no limit.
        batch_s: Seconds per batch.
    """

    record_s: float = inf
    batch_s: float = inf


def budget_of(strategy: Strategy, options: SourceOptions) -> Budget:
    """Return how long a batch and a record may take.

    Raises:
        OptionsError: The strategy cannot do with these options; lists all that is wrong.
    """
    problems = [*_problems(strategy, options)]
    batch_s = BUDGET_SHARE * options.max_poll_interval_ms / 1000
    budget = Budget()
    match strategy:
        case Relinquish(batch_deadline_s=given):
            budget = Budget(batch_s=given or batch_s)
        case Recirculate(record_deadline_s=given) | SkipOrDeadLetter(record_deadline_s=given):
            record_s = given or batch_s / (options.max_offsets_per_trigger or inf)
            if record_s < LEAST_RECORD_S:
                problems.append(_too_short(batch_s, options))
            budget = Budget(record_s=record_s)
    if problems:
        raise OptionsError(
            f"the strategy {type(strategy).__name__} cannot be followed:"
            + "".join(f"\n  - {each}" for each in problems)
        )
    return budget


def addresses_of(strategy: Strategy, topic: str, options: SourceOptions) -> Addresses:
    """Return where records of a topic are sent that are not processed.

    Args:
        topic: The topic the record was read from; a group's retry topic counts as its original
            topic.

    Raises:
        OptionsError: A name cannot be that of a topic, nobody would read what is sent there, or the
            query would read its own dead letters.
    """
    group_id = options.group_id
    first, retry, dead_letter = topic, None, None
    if isinstance(strategy, Recirculate):
        first = first_topic(strategy.retry_topic, topic, group_id)
        is_own = strategy.to is RetryTo.GROUP_TOPIC
        retry = _legal(strategy.retry_topic, first, group_id) if is_own else first
        if not options.subscription.matches(retry):
            raise OptionsError(
                f"the query has to subscribe to {retry} too: what is sent there is to be read again"
            )
    if isinstance(strategy, (Recirculate, SkipOrDeadLetter)):
        is_kept = strategy.at_last is AtLast.DEAD_LETTER
        dead_letter = _legal(strategy.dead_letter_topic, first, group_id) if is_kept else None
        if dead_letter is not None and options.subscription.matches(dead_letter):
            raise OptionsError(
                f"the query must not subscribe to {dead_letter}: its dead letters would come back"
            )
    return Addresses(retry, dead_letter)


def _problems(strategy: Strategy, options: SourceOptions) -> Iterator[str]:
    """Say what is wrong with the options, for this strategy."""
    match strategy:
        case NoDeadline():
            if options.max_poll_interval_ms < ABSURDLY_LARGE_MS:
                yield (
                    "kafka.max.poll.interval.ms has to be a day or more, such as 2147483647: at"
                    " 90 % of it a batch loses what is to be given up"
                )
            if isfinite(options.max_batch_s):
                yield "maxBatchTime is a deadline: leave it away, or take ProgressDeadline"
        case ProgressDeadline():
            if not isfinite(options.max_batch_s):
                yield "maxBatchTime has to be set: after it the member of a slow batch leaves"
        case Relinquish():
            if options.instance_id is not None and not options.leave_on_stop:
                yield (
                    "leaveOnStop has to be true: a static member that leaves for a while keeps its"
                    " partitions"
                )
        case Recirculate() | SkipOrDeadLetter():
            if not options.include_headers:
                yield "includeHeaders has to be true: headers count, and are passed on"


def _legal(template: str, topic: str, group_id: str) -> str:
    name = named_topic(template, topic, group_id)
    if not LEGAL_TOPIC_NAME.fullmatch(name):
        raise OptionsError(
            f"{name!r} cannot be the name of a topic (up to 249 letters, digits, '.', '_', '-'):"
            " give the strategy another retry_topic or dead_letter_topic"
        )
    return name


def _too_short(batch_s: float, options: SourceOptions) -> str:
    most = int(batch_s / LEAST_RECORD_S)
    limit = options.max_offsets_per_trigger
    return (
        f"a batch may take {batch_s:g} s (kafka.max.poll.interval.ms), which is too little for"
        f" {'any number of' if limit is None else limit} records: set maxOffsetsPerTrigger to at"
        f" most {most}, or give the strategy a record_deadline_s"
    )
