"""Time limits of batches and records, and the option requirements of each strategy.

A batch may delay a revocation for the rebalance timeout; after 90 % of it the member releases the
partitions uncommitted. A batch that ends within four fifths is always in time. That limit divided
by the maximum batch size is the limit of one record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from spark_groups.errors import OptionsError
from spark_groups.group.batches.revocation import WARN_PERCENT
from spark_groups.group.member.subscription import LEGAL_TOPIC_NAME
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
    """Time limits.

    Args:
        record_s: Seconds per record; infinite means no limit.
        batch_s: Seconds per batch.
    """

    record_s: float = inf
    batch_s: float = inf


def budget_of(strategy: Strategy, options: SourceOptions) -> Budget:
    """Return the time limits of a strategy.

    Raises:
        OptionsError: The options do not fit the strategy; lists all problems.
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
            f"the options do not fit the strategy {type(strategy).__name__}:"
            + "".join(f"\n  - {problem}" for problem in problems)
        )
    return budget


def addresses_of(strategy: Strategy, topic: str, options: SourceOptions) -> Addresses:
    """Return the retry and dead-letter topics of a topic.

    Args:
        topic: The topic the record was read from; a group's retry topic counts as its original
            topic.

    Raises:
        OptionsError: A topic name is illegal, the query does not subscribe to its retry topic, or
            subscribes to its own dead-letter topic.
    """
    group_id = options.group_id
    first, retry, dead_letter = topic, None, None
    if isinstance(strategy, Recirculate):
        first = first_topic(strategy.retry_topic, topic, group_id)
        is_own = strategy.to is RetryTo.GROUP_TOPIC
        retry = _legal(strategy.retry_topic, first, group_id) if is_own else first
        if not options.subscription.matches(retry):
            raise OptionsError(f"the query must also subscribe to {retry}, its retry topic")
    if isinstance(strategy, (Recirculate, SkipOrDeadLetter)):
        is_kept = strategy.at_last is AtLast.DEAD_LETTER
        dead_letter = _legal(strategy.dead_letter_topic, first, group_id) if is_kept else None
        if dead_letter is not None and options.subscription.matches(dead_letter):
            raise OptionsError(
                f"the query must not subscribe to {dead_letter}, its own dead-letter topic"
            )
    return Addresses(first, retry, dead_letter)


def _problems(strategy: Strategy, options: SourceOptions) -> Iterator[str]:
    match strategy:
        case NoDeadline():
            if options.max_poll_interval_ms < ABSURDLY_LARGE_MS:
                yield (
                    "kafka.max.poll.interval.ms must be at least a day, such as 2147483647: after"
                    " 90 % of it a batch loses the partitions that are being revoked"
                )
            if isfinite(options.max_batch_s):
                yield "maxBatchTime is a deadline: remove it, or use ProgressDeadline"
        case ProgressDeadline():
            if not isfinite(options.max_batch_s):
                yield "maxBatchTime must be set: it makes the member of a slow batch leave"
        case Relinquish():
            if options.instance_id is not None and not options.leave_on_stop:
                yield (
                    "leaveOnStop must be true: otherwise a static member keeps its partitions when"
                    " it leaves"
                )
        case Recirculate() | SkipOrDeadLetter():
            if not options.include_headers:
                yield "includeHeaders must be true: headers hold the retry count"


def _legal(template: str, topic: str, group_id: str) -> str:
    name = named_topic(template, topic, group_id)
    if not LEGAL_TOPIC_NAME.fullmatch(name):
        raise OptionsError(
            f"{name!r} is not a legal topic name (up to 249 letters, digits, '.', '_', '-'): change"
            " the strategy's retry_topic or dead_letter_topic"
        )
    return name


def _too_short(batch_s: float, options: SourceOptions) -> str:
    most = int(batch_s / LEAST_RECORD_S)
    limit = options.max_offsets_per_trigger
    return (
        f"a batch may take {batch_s:g} s (kafka.max.poll.interval.ms), too little for"
        f" {'any number of' if limit is None else limit} records: set maxOffsetsPerTrigger to at"
        f" most {most}, or set the strategy's record_deadline_s"
    )
