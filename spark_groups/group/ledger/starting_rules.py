"""Where an assigned partition starts, and which events report that: a table.

The first rule that fits the facts about a partition applies, and every combination of facts fits
one. Kafka's offsets go before everything else, and an error never counts as "no committed offset".
A partition that the query may have read, or that may have been added since the group began, starts
at its beginning: rows may be read twice, none is skipped.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias

from spark_groups.group.ledger.events import (
    ExistingRowsSkipped,
    NewTopicRead,
    PartitionsReadFromBeginning,
    PartitionsStarted,
    RowsSinceSkipped,
)
from spark_groups.group.ledger.known_topics import Added, InCheckpoint
from spark_groups.group.ledger.starting import Option


class Committed(Enum):
    """Whether the group has a committed offset of the partition."""

    OF_FORMER_GROUP = "the checkpoint is of another group, and this one has not read all its topics"
    UNKNOWN = "a request for committed offsets that decide was not answered, or failed"
    OFFSET = "the partition has a committed offset"
    NONE = "the partition has no committed offset"


class GroupRead(Enum):
    """Of which topics the group has committed offsets."""

    TOPIC = "the group has read the topic"
    OTHERS = "the group has read other topics only"
    NOTHING = "the group has read nothing"


class QueryRead(Enum):
    """What the query has read, in this run or before its checkpoint."""

    PARTITION = "the query has read the partition, and knows up to where"
    TOPIC = "the query has read the topic"
    NOTHING = "the query has read nothing of the topic"


class Skipping(Enum):
    """Whether a partition of the query may start after its beginning without being named."""

    POSSIBLE = "`latest` or a timestamp applies to a partition of the query"
    IMPOSSIBLE = "neither `latest` nor a timestamp applies to any partition of the query"


Fact: TypeAlias = Committed | GroupRead | QueryRead | InCheckpoint | Added | Option | Skipping


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides where a partition starts; beside a committed offset, the others do not count."""

    committed: Committed = Committed.NONE
    group_read: GroupRead = GroupRead.NOTHING
    query_read: QueryRead = QueryRead.NOTHING
    checkpoint: InCheckpoint = InCheckpoint.NO_CHECKPOINT
    added: Added = Added.BEFORE
    option: Option = Option.LATEST
    skipping: Skipping = Skipping.POSSIBLE


class Start(Enum):
    """Where a partition starts."""

    NOT_YET = "later: it is asked for again"
    REFUSED = "nowhere: the query fails"
    COMMITTED = "its committed offset"
    CHECKPOINTED = "where the query has read up to"
    BEGINNING = "its beginning"
    BEGINNING_OF_ALL = "its beginning, as all partitions of the topic"
    OPTION = "where `startingOffsets` or a timestamp says"


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table.

    Args:
        facts: Those for which it holds. Facts of one kind are alternatives; a kind that is missing
            does not matter.
        warning: The event once the partition has started, if any.
        is_loss: Whether offsets are gone: that is reported, and `failOnDataLoss` decides.
    """

    facts: tuple[Fact, ...]
    start: Start
    warning: type[PartitionsStarted] | None = None
    is_loss: bool = False

    def fits(self, facts: Facts) -> bool:
        """Return whether the rule holds for these facts."""
        kinds = {type(fact) for fact in self.facts}
        return all(type(each) not in kinds or each in self.facts for each in astuple(facts))


_UNREAD: Final = (GroupRead.OTHERS, GroupRead.NOTHING)
_SKIPS: Final = (Option.LATEST, Option.NAMED_LATEST, Option.TIMESTAMP)
_REPORTED: Final = (
    Option.LATEST,
    Option.TIMESTAMP,
    Option.BESIDE_TIMESTAMPS,
    Option.OF_EARLIER_TOPIC,
)
_MAY_BE_OLD: Final = (Added.BEFORE, Added.UNKNOWN)
_MAY_BE_NEW: Final = (Added.LATER, Added.WITH_TOPIC, Added.UNKNOWN)

RULES: Final = (
    Rule((Committed.OF_FORMER_GROUP,), Start.REFUSED),
    Rule((Committed.UNKNOWN,), Start.NOT_YET),
    Rule((Committed.OFFSET,), Start.COMMITTED),
    Rule((QueryRead.PARTITION,), Start.CHECKPOINTED, is_loss=True),
    # Without `latest` and timestamps, the group starts at the beginning, which loses nothing.
    Rule((QueryRead.TOPIC, *_UNREAD, Skipping.POSSIBLE), Start.BEGINNING_OF_ALL, is_loss=True),
    Rule((Option.NAMED,), Start.OPTION),
    Rule((InCheckpoint.LACKED, Added.WITH_TOPIC, *_REPORTED), Start.BEGINNING, NewTopicRead),
    # Its offset may have been deleted, or never copied to this group.
    Rule((InCheckpoint.READ, *_MAY_BE_OLD), Start.BEGINNING, PartitionsReadFromBeginning),
    Rule(
        (GroupRead.TOPIC, Added.UNKNOWN, *_REPORTED), Start.BEGINNING, PartitionsReadFromBeginning
    ),
    Rule(_MAY_BE_NEW, Start.BEGINNING),
    Rule((Option.OF_EARLIER_TOPIC,), Start.BEGINNING),
    Rule((InCheckpoint.UNREAD, *_UNREAD, *_SKIPS), Start.OPTION, RowsSinceSkipped),
    Rule(
        (InCheckpoint.NO_CHECKPOINT, GroupRead.OTHERS, *_SKIPS), Start.OPTION, ExistingRowsSkipped
    ),
    Rule((), Start.OPTION),
)
"""The first that fits applies."""


@lru_cache(maxsize=1024)
def starting_rule(facts: Facts) -> Rule:
    """Return the rule that applies."""
    return next(rule for rule in RULES if rule.fits(facts))
