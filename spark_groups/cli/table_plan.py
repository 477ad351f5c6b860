"""The views and plans of `spark-groups table`; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_groups.errors import ErrorCode, OptionsError
from spark_groups.fence.entries import Entry, EntryChange, FenceKey
from spark_groups.group.member.messages import PartitionError
from spark_groups.observation.plain_values import View
from spark_groups.types import TopicIdPartition, TopicPartition

_OFFSET: Final = re.compile(r"(?P<topic>[^:=]+):(?P<partition>\d{1,9})=(?P<offset>\d{1,18})")
_AGE: Final = re.compile(r"(\d{1,6})([smhd])")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """An entry of a table beside the group's committed offset.

    Args:
        topic: Its name, or its id if the topic no longer exists.
        start_offset: The first offset that the table has.
        next_offset: The first offset that the table does not have.
        committed_offset: None: there is none.
        difference: `committed_offset` minus `next_offset`; positive: a gap.
        remark: What the next batch does.
        is_refused: Whether the next batch is refused.
    """

    group_id: str
    topic: str
    partition: int
    start_offset: int
    next_offset: int
    committed_offset: int | None = None
    difference: int | None = None
    remark: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsView(View):
    """The entries of a table.

    Args:
        version: The table's version; None for tables without versions.
        problems: Errors of groups that cannot write, because the table was restored.
    """

    table: str
    version: int | None
    rows: tuple[OffsetRow, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """An entry in a plan.

    Args:
        start_offset: The current one; None: there is no entry.
        next_offset: The current one; None: there is no entry.
        new_start_offset: The planned one; None: no change.
        new_next_offset: The planned one; None: no change.
        is_refused: Whether this row prevents the plan from being executed.
    """

    topic: str
    partition: int
    start_offset: int | None = None
    next_offset: int | None = None
    new_start_offset: int | None = None
    new_next_offset: int | None = None
    remark: str = ""
    is_refused: bool = False


Planned = tuple[ChangeRow, EntryChange | None]
"""A row of a plan, and the change that a commit makes; None: no change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeView(View):
    """A plan, and its result.

    Args:
        refusal: The reason why it cannot be executed; empty if it can.
        next_step: The instruction for the user after it.
        is_executed: Whether the entries were changed.
    """

    table: str
    group_id: str
    rows: tuple[ChangeRow, ...]
    refusal: str = ""
    next_step: str = ""
    is_executed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRow:
    """A file or staging table of an attempt that was never committed."""

    name: str
    size_bytes: int
    age_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumView(View):
    """The orphans of a table; deleted if `is_executed`."""

    table: str
    rows: tuple[OrphanRow, ...]
    is_executed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields for JSON, and the sum of sizes."""
        total_bytes = sum(row.size_bytes for row in self.rows)
        return {**super(VacuumView, self).to_json(), "total_bytes": total_bytes}


def offset_row(
    key: FenceKey, entry: Entry, topic: str, committed: int | PartitionError | None
) -> OffsetRow:
    """Return an entry beside the committed offset, with a remark about the next batch.

    Args:
        key: The key of the entry.
        entry: The entry.
        topic: The topic's name.
        committed: The group's committed offset; an error: it is unknown; None: there is none.
    """
    committed_offset = None if isinstance(committed, PartitionError) else committed
    difference = None if committed_offset is None else committed_offset - entry.next_offset
    remark, is_refused = "", False
    if isinstance(committed, PartitionError):
        remark = f"its committed offset is unknown: {ErrorCode.name_of(committed.error_code)}"
    elif difference is None:
        remark = "the group has no committed offset"
    elif difference > 0:
        remark = f"gap: {difference} offsets would be missing, the next batch is refused"
        is_refused = True
    elif committed_offset is not None and committed_offset < entry.start_offset:
        remark = "before the table's start: the next batch is refused"
        is_refused = True
    elif difference < 0:
        remark = f"the table is ahead: {-difference} offsets will be skipped"
    return OffsetRow(
        group_id=key.group_id,
        topic=topic,
        partition=key.partition,
        start_offset=entry.start_offset,
        next_offset=entry.next_offset,
        committed_offset=committed_offset,
        difference=difference,
        remark=remark,
        is_refused=is_refused,
    )


def plan_change(
    key: FenceKey,
    topic: str,
    entry: Entry | None,
    next_offset: int,
    *,
    is_backwards: bool,
    is_explained: bool = True,
) -> Planned:
    """Return the change that sets an entry to an offset.

    Args:
        key: The entry's key.
        topic: The topic's name.
        entry: The current entry; None: there is none.
        next_offset: The first offset of the next batch.
        is_backwards: Whether the user has deleted the rows from there on.
        is_explained: Whether the user has named the offset, or has reset the group to it. If not,
            the table may be ahead because a crash came between its commit and Kafka's.
    """
    is_refused = False
    changed: Entry | None = None
    if entry is None:
        changed, remark = Entry(next_offset, next_offset), "new entry"
    elif next_offset == entry.next_offset:
        remark = "stays"
    elif next_offset > entry.next_offset:
        # The table has each record between the offsets of an entry, so it begins after the gap.
        changed = Entry(next_offset, next_offset)
        remark = f"{next_offset - entry.next_offset} offsets are missing, which is accepted"
    elif is_backwards and is_explained:
        changed = Entry(min(entry.start_offset, next_offset), next_offset)
        had = entry.next_offset - max(next_offset, entry.start_offset)
        remark = (
            f"delete all rows from offset {next_offset} on: the table has {had} offsets there,"
            " which are written again"
        )
    elif is_backwards:
        is_refused = True
        remark = (
            f"the table has {entry.next_offset - next_offset} offsets more, and no reset explains"
            " it: a batch may not be committed in Kafka yet. If you have deleted its rows, name"
            f" {topic}:{key.partition}={next_offset}"
        )
    else:
        is_refused = True
        remark = (
            f"the table has {entry.next_offset - next_offset} offsets more, and skips them: to"
            " have them written again, delete their rows and add --backwards"
        )
    return _planned(key, topic, entry, changed, remark, is_refused=is_refused)


def plan_copy(key: FenceKey, topic: str, entry: Entry | None, other: Entry) -> Planned:
    """Return the change that gives a group the entry of another group.

    Args:
        key: The key of the group's entry.
        topic: The topic's name.
        entry: The group's entry; None: there is none.
        other: The entry of the other group.
    """
    if entry == other:
        return _planned(key, topic, entry, None, "stays")
    if entry is not None:
        remark = f"the group has its own entry, and the other group's offset is {other.next_offset}"
        return _planned(key, topic, entry, None, remark, is_refused=True)
    return _planned(key, topic, None, other, "new entry")


def plan_repair(
    entries: Mapping[FenceKey, Entry], held: Mapping[FenceKey, Entry], names: Mapping[FenceKey, str]
) -> list[Planned]:
    """Return the changes that set entries to those of the restored version.

    Args:
        entries: The group's current entries.
        held: The entries in the version whose rows the table has.
        names: The topics' names.
    """
    planned = []
    for key in sorted({*entries, *held}):
        entry = entries.get(key)
        if entry is None:
            # A user has removed the entry, and the table has its rows.
            wanted, remark = held[key], "the entry is missing"
        elif key in held:
            wanted = held[key]
            remark = f"{entry.next_offset - wanted.next_offset} offsets went back"
        else:
            # The entry may begin behind a gap that was accepted, and the rows before it are gone.
            wanted = Entry(0, 0)
            remark = "no rows are left: the next batch is refused unless it begins at offset 0"
        changed, remark = (None, "stays") if wanted == entry else (wanted, remark)
        planned.append(_planned(key, names[key], entry, changed, remark))
    return planned


def _planned(
    key: FenceKey,
    topic: str,
    entry: Entry | None,
    changed: Entry | None,
    remark: str,
    *,
    is_refused: bool = False,
) -> Planned:
    row = ChangeRow(
        topic=topic,
        partition=key.partition,
        start_offset=None if entry is None else entry.start_offset,
        next_offset=None if entry is None else entry.next_offset,
        new_start_offset=None if changed is None else changed.start_offset,
        new_next_offset=None if changed is None else changed.next_offset,
        remark=remark,
        is_refused=is_refused,
    )
    return row, None if changed is None else EntryChange(key, entry, changed)


def key_of(group_id: str, partition: TopicIdPartition) -> FenceKey:
    """Return the key of a partition's entry."""
    return FenceKey(group_id, partition.topic_id, partition.partition)


def parse_new_offsets(given: Iterable[str]) -> dict[TopicPartition, int]:
    """Parse `TOPIC:PARTITION=OFFSET`.

    Raises:
        OptionsError: Malformed or repeated values; lists all of them.
    """
    found: dict[TopicPartition, int] = {}
    problems = []
    for text in given:
        match = _OFFSET.fullmatch(text)
        if match is None:
            problems.append(f"{text!r} is not TOPIC:PARTITION=OFFSET")
            continue
        name = TopicPartition(match["topic"], int(match["partition"]))
        if name in found:
            problems.append(f"{name} appears twice")
        found[name] = int(match["offset"])
    if problems:
        raise OptionsError("; ".join(problems))
    return found


def parse_age(text: str, *, at_least_s: int = 0) -> int:
    """Return an age in seconds.

    Args:
        text: A number with `s`, `m`, `h` or `d`: `12h`.
        at_least_s: The lowest age.

    Raises:
        OptionsError: The text has another form, or the age is too low.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        raise OptionsError(f"{text!r} is not a number with s, m, h or d, such as 12h or 1d")
    age_s = int(match[1]) * _UNIT_S[match[2]]
    if age_s < at_least_s:
        raise OptionsError(
            f"{text} is too young, because a batch in progress may use such files: at least"
            f" {at_least_s} s"
        )
    return age_s
