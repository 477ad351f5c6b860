"""Where a group is to read on: new offsets for its partitions, planned before anything is changed.

Words and rules are those of `kafka-consumer-groups.sh --reset-offsets`
(org.apache.kafka.tools.consumer.group.ConsumerGroupCommand): an offset beyond the log becomes its
start or its end, and a time after the last record the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from spark_groups.errors import OptionsError
from spark_groups.observation.plain_values import listed

INACTIVE_STATES: Final = frozenset({"Empty", "Dead"})


class ResetKind(Enum):
    """What new offsets are made of, by the option that asks for it."""

    TO_EARLIEST = "--to-earliest"
    TO_LATEST = "--to-latest"
    TO_OFFSET = "--to-offset"
    SHIFT_BY = "--shift-by"
    TO_DATETIME = "--to-datetime"
    FROM_GROUP = "--from-group"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where to.

    Args:
        kind: What new offsets are made of.
        number: An offset, by how much to shift, or milliseconds since 1970.
        group_id: The group whose committed offsets are taken over.
    """

    kind: ResetKind
    number: int = 0
    group_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOffsets:
    """What is known of a partition; None is unknown, or that there is none.

    Args:
        committed_offset: What the group has committed.
        log_start_offset: The first offset there is.
        log_end_offset: The next offset to be written.
        at_timestamp: The first offset that is as late as asked for; -1: none is.
        other_committed_offset: What the other group has committed.
    """

    committed_offset: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    at_timestamp: int | None = None
    other_committed_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRow:
    """A partition in a plan.

    Args:
        topic: Its topic.
        partition: Its index; None: the topic does not exist.
        committed_offset: What is committed now; None: unknown, or nothing is.
        new_offset: What is to be committed; None: that cannot be said.
        remark: Why not, or what else there is to know.
        error: Kafka's word for why it was not committed; None: nobody tried, or it was.
        is_passed_over: Whether it keeps what it has: the other group has committed nothing here.
    """

    topic: str
    partition: int | None
    committed_offset: int | None = None
    new_offset: int | None = None
    remark: str = ""
    error: str | None = None
    is_passed_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetView:
    """A plan, and what became of it.

    Args:
        group_id: The group.
        group_state: The coordinator's word; Dead if it does not exist.
        rows: Sorted by topic and partition.
        refusal: Why the plan cannot be carried out; empty if it can.
        is_executed: Whether offsets were committed.
    """

    group_id: str
    group_state: str
    rows: tuple[ResetRow, ...]
    refusal: str = ""
    is_executed: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether every partition has its new offset."""
        return self.is_executed and all(each.error is None for each in self.rows)

    @property
    def next_start(self) -> str:
        """What the next start of a query does if the plan is carried out; empty if it cannot be."""
        if self.refusal:
            return ""
        moves = [
            each.new_offset - each.committed_offset
            for each in self.rows
            if each.new_offset is not None and each.committed_offset is not None and not each.error
        ]
        again, skipped = -sum(min(0, each) for each in moves), sum(max(0, each) for each in moves)
        told = [
            f"{'The' if self.is_executed else 'With --execute the'} next start of a query reads on"
            " from NEW-OFFSET, whatever its checkpoint has read. Only a batch that the checkpoint"
            " has planned and not finished is read first, as it was planned."
        ]
        if again:
            told.append(f"{again} offsets are read again.")
        if skipped:
            told.append(f"{skipped} offsets are skipped.")
        return " ".join(told)

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain values."""
        plain = {name: listed(value) for name, value in asdict(self).items()}
        return {**plain, "next_start": self.next_start}


def plan_offset(target: ResetTarget, name: str, known: KnownOffsets) -> tuple[int | None, str]:
    """Return the new offset of a partition, None if there is none, and what to know about it.

    Args:
        target: Where to.
        name: What the partition is called.
        known: What is known of it.
    """
    start, end = known.log_start_offset, known.log_end_offset
    if start is None or end is None:
        return None, "where its log begins and ends is not known"
    wanted, remark = _WANTED[target.kind](target, known)
    if wanted is None:
        return None, remark
    if wanted > end:
        remark = f"New offset ({wanted}) is higher than latest offset for topic partition {name}."
        return end, f"{remark} Value will be set to {end}"
    if wanted < start:
        remark = f"New offset ({wanted}) is lower than earliest offset for topic partition {name}."
        return start, f"{remark} Value will be set to {start}"
    return wanted, remark


def _shifted(target: ResetTarget, known: KnownOffsets) -> tuple[int | None, str]:
    if known.committed_offset is None:
        return None, "cannot be shifted since there is no current committed offset"
    return known.committed_offset + target.number, ""


def _at_datetime(_: ResetTarget, known: KnownOffsets) -> tuple[int | None, str]:
    if known.at_timestamp is None:
        return None, "the offset of that time is not known"
    if known.at_timestamp < 0:
        return known.log_end_offset, "no record is that late: to the end of the log"
    return known.at_timestamp, ""


def _taken_over(target: ResetTarget, known: KnownOffsets) -> tuple[int | None, str]:
    if known.other_committed_offset is None:
        return None, f"group {target.group_id!r} has committed nothing here"
    return known.other_committed_offset, ""


_WANTED: Final[
    Mapping[ResetKind, Callable[[ResetTarget, KnownOffsets], tuple[int | None, str]]]
] = MappingProxyType(
    {
        ResetKind.TO_EARLIEST: lambda _, known: (known.log_start_offset, ""),
        ResetKind.TO_LATEST: lambda _, known: (known.log_end_offset, ""),
        ResetKind.TO_OFFSET: lambda target, _: (target.number, ""),
        ResetKind.SHIFT_BY: _shifted,
        ResetKind.TO_DATETIME: _at_datetime,
        ResetKind.FROM_GROUP: _taken_over,
    }
)


def refusal_of(
    group_id: str, group_state: str, members: tuple[str, ...], rows: tuple[ResetRow, ...]
) -> str:
    """Return why a plan cannot be carried out; empty if it can.

    Args:
        group_id: The group.
        group_state: The coordinator's word.
        members: What its members are called.
        rows: The plan.
    """
    if group_state not in INACTIVE_STATES:
        stop = f" Stop its members: {', '.join(members)}." if members else ""
        return (
            f"Assignments can only be reset if the group {group_id!r} is inactive, but the current"
            f" state is {group_state}.{stop}"
        )
    without = sum(each.new_offset is None and not each.is_passed_over for each in rows)
    if without:
        return f"{without} of {len(rows)} partitions have no new offset: nothing can be reset."
    if all(each.is_passed_over for each in rows):
        return "There are no partitions to reset."
    return ""


def parse_datetime(text: str) -> int:
    """Return milliseconds since 1970; without an offset it is in UTC, as for Kafka's tool.

    Args:
        text: `YYYY-MM-DDThh:mm:ss.sss`, with `Z` or an offset like `+02:00`, or without.

    Raises:
        OptionsError: It is no such text.
    """
    try:
        at = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError as error:
        raise OptionsError(
            f"{text!r} is not YYYY-MM-DDThh:mm:ss.sss, with Z or +hh:mm or in UTC"
        ) from error
    if at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    return round(at.timestamp() * 1000)
