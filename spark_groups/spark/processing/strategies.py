"""Five strategies for records that cannot be processed.

They follow E. Koutanov, Effective Kafka, chapter 15, "Dealing with failures", in its order.
docs/failure_strategies.md describes how micro-batches differ, and how to choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_groups.errors import OptionsError

RETRY_TOPIC: Final = "{topic}.{group}.retry"
DEAD_LETTER_TOPIC: Final = "{topic}.{group}.dead-letter"


class Fate(Enum):
    """The outcome for a record."""

    PROCESSED = "processed"
    RECIRCULATED = "recirculated"
    DEAD_LETTERED = "dead-lettered"
    SKIPPED = "skipped"
    RELINQUISHED = "relinquished"
    UNDECODABLE = "undecodable"


class RetryTo(Enum):
    """The destination of recirculated records."""

    ORIGINAL_TOPIC = "the original topic: all its groups read them again"
    GROUP_TOPIC = (
        "a retry topic of the group, which it also subscribes to: no other group is affected"
    )


class AtLast(Enum):
    """The fate of a record that is not retried again."""

    DEAD_LETTER = Fate.DEAD_LETTERED
    SKIP = Fate.SKIPPED


@dataclass(frozen=True, slots=True)
class NoDeadline:
    """Retry each record until it is processed, without a limit; never skip or reorder.

    Requires `kafka.max.poll.interval.ms` of at least a day, and no `maxBatchTime`.
    """


@dataclass(frozen=True, slots=True)
class ProgressDeadline:
    """Retry each record until it is processed; the group rebalances if a batch is too slow.

    Requires `maxBatchTime`, after which the member leaves and others take its partitions.
    """


@dataclass(frozen=True, slots=True)
class Relinquish:
    """Release the partitions uncommitted before the deadline, and join again.

    Args:
        batch_deadline_s: Seconds per batch; None means four fifths of the rebalance timeout.
    """

    batch_deadline_s: float | None = None

    def __post_init__(self) -> None:
        _check_positive("batch_deadline_s", self.batch_deadline_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recirculate:
    """Send a record that misses its deadline back to the end of the queue, up to a limit.

    Args:
        to: The topic to send failed records to.
        max_retries: The maximum number of retries of one record.
        expire_after_s: Seconds after the original timestamp until which a record is retried; None
            means no expiry. The header `spark-groups.expires` of a producer takes precedence.
        at_last: The fate of a record that is not retried again.
        record_deadline_s: Seconds per record; None means its share of the rebalance timeout.
        retry_topic: Name of the group's retry topic, with `{topic}` and `{group}`.
        dead_letter_topic: Name of the group's dead-letter topic, with the same fields.

    Raises:
        OptionsError: A number is not positive, or a name lacks `{topic}`.
    """

    to: RetryTo = RetryTo.ORIGINAL_TOPIC
    max_retries: int = 3
    expire_after_s: float | None = None
    at_last: AtLast = AtLast.DEAD_LETTER
    record_deadline_s: float | None = None
    retry_topic: str = RETRY_TOPIC
    dead_letter_topic: str = DEAD_LETTER_TOPIC

    def __post_init__(self) -> None:
        for name in ("max_retries", "expire_after_s", "record_deadline_s"):
            _check_positive(name, getattr(self, name))
        for template in (self.retry_topic, self.dead_letter_topic):
            _check_template(template)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipOrDeadLetter:
    """Dead-letter or skip a record that misses its deadline, and continue.

    Args:
        at_last: Whether to dead-letter or to skip the record.
        record_deadline_s: Seconds per record; None means its share of the rebalance timeout.
        dead_letter_topic: Name of the group's dead-letter topic, with `{topic}` and `{group}`.

    Raises:
        OptionsError: The deadline is not positive, or the name lacks `{topic}`.
    """

    at_last: AtLast = AtLast.DEAD_LETTER
    record_deadline_s: float | None = None
    dead_letter_topic: str = DEAD_LETTER_TOPIC

    def __post_init__(self) -> None:
        _check_positive("record_deadline_s", self.record_deadline_s)
        _check_template(self.dead_letter_topic)


Strategy = NoDeadline | ProgressDeadline | Relinquish | Recirculate | SkipOrDeadLetter


def named_topic(template: str, topic: str, group_id: str) -> str:
    """Return the name of a group's retry or dead-letter topic."""
    return template.replace("{topic}", topic).replace("{group}", group_id)


def first_topic(template: str, topic: str, group_id: str) -> str:
    """Return the original topic of a group's retry topic; any other topic unchanged."""
    before, after = named_topic(template, "{topic}", group_id).split("{topic}")
    is_own = topic.startswith(before) and topic.endswith(after)
    return topic[len(before) : len(topic) - len(after)] if is_own else topic


def fate_of_failed(
    strategy: Strategy, *, retries: int | None, expires_ms: int | None, now_ms: float
) -> Fate:
    """Return the fate of a record that missed its deadline.

    Args:
        retries: None if the header cannot be read; then the record is not retried.
        expires_ms: Milliseconds since 1970; None means never.
        now_ms: Milliseconds since 1970.
    """
    match strategy:
        case Recirculate(max_retries=limit) if (
            retries is not None and retries < limit and (expires_ms is None or now_ms < expires_ms)
        ):
            return Fate.RECIRCULATED
        case Recirculate(at_last=at_last) | SkipOrDeadLetter(at_last=at_last):
            return at_last.value
        case _:
            # The other strategies have no record deadline.
            return Fate.RELINQUISHED


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise OptionsError(f"{name} must be positive, not {value:g}")


def _check_template(template: str) -> None:
    parts = template.replace("{group}", "").split("{topic}")
    if len(parts) != 2 or template == "{topic}":
        raise OptionsError(
            f"{template!r} is not a topic template: it must contain {{topic}} once, and other text"
        )
