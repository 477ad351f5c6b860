"""The plan of a reset: a new offset for each partition.

Rules and messages are those of `kafka-consumer-groups.sh --reset-offsets`
(org.apache.kafka.tools.consumer.group.ConsumerGroupCommand): an offset outside the log becomes its
start or end, and a time after the last record becomes the end.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from spark_groups.cli.checkpoint_log import ChosenOffsets
from spark_groups.errors import OptionsError
from spark_groups.observation.plain_values import View
from spark_groups.types import TopicPartition

INACTIVE_STATES: Final = frozenset({"Empty", "Dead"})


class ResetKind(Enum):
    """The kind of target, by option."""

    TO_EARLIEST = "--to-earliest"
    TO_LATEST = "--to-latest"
    TO_CURRENT = "--to-current"
    TO_OFFSET = "--to-offset"
    SHIFT_BY = "--shift-by"
    TO_DATETIME = "--to-datetime"
    BY_DURATION = "--by-duration"
    FROM_FILE = "--from-file"
    FROM_GROUP = "--from-group"
    FROM_TABLE = "--from-table"
    FROM_CHECKPOINT = "--from-checkpoint"


_TAKES_OVER: Final = frozenset(
    {ResetKind.FROM_GROUP, ResetKind.FROM_TABLE, ResetKind.FROM_CHECKPOINT}
)


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The target of a reset.

    Args:
        number: An offset, a shift, or milliseconds since 1970.
        group_id: The group to copy offsets from.
        offsets: The offsets in a file.
        place: The name of the table, or of the checkpoint, to take offsets from.
        checkpoint: The chosen offsets of the checkpoint.
    """

    kind: ResetKind
    number: int = 0
    group_id: str = ""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    place: str = ""
    checkpoint: ChosenOffsets | None = None

    @property
    def is_at_time(self) -> bool:
        """Whether `number` is a time."""
        return self.kind in {ResetKind.TO_DATETIME, ResetKind.BY_DURATION}

    @property
    def takes_over(self) -> bool:
        """Whether the offsets are those of another group, of a table or of a checkpoint."""
        return self.kind in _TAKES_OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOffsets:
    """The offsets of a partition; None: unknown, or there is none.

    Args:
        at_timestamp: The offset of the first record at or after the requested time; -1: none.
        other_committed_offset: The offset of the group, table or checkpoint to copy from.
        file_offset: The offset in a file.
    """

    committed_offset: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    at_timestamp: int | None = None
    other_committed_offset: int | None = None
    file_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRow:
    """A partition in a plan.

    Args:
        partition: None: the topic does not exist.
        committed_offset: The current one; None: there is none.
        new_offset: None: cannot be determined.
        remark: Why there is no new offset, or a note.
        error: The name of Kafka's error code if the commit failed; else None.
        is_passed_over: Whether the offset stays, because the group, table or checkpoint to copy
            from has none.
        source: The source in the checkpoint that has the new offset; None: it is of no checkpoint.
    """

    topic: str
    partition: int | None
    committed_offset: int | None = None
    new_offset: int | None = None
    remark: str = ""
    error: str | None = None
    is_passed_over: bool = False
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBatch:
    """The batch of a checkpoint at whose end the new offsets are.

    Args:
        place: The path or URI of the checkpoint.
        batch_id: The last committed batch; None: there is none, and the offsets are where the
            query began.
        planned_batch_id: A batch that is planned, but not committed; None: there is none, or it
            reads nothing of the chosen partitions.
        planned_offsets: How many offsets of the chosen partitions that batch reads.
    """

    place: str
    batch_id: int | None
    planned_batch_id: int | None = None
    planned_offsets: int = 0

    @property
    def origin(self) -> str:
        """Where the offsets come from, as a sentence."""
        if self.batch_id is None:
            return f"No batch of {self.place} is committed: NEW-OFFSET is where its query began."
        return (
            f"NEW-OFFSET is the end of batch {self.batch_id}, the last committed in {self.place}."
        )

    @property
    def warning(self) -> str:
        """What a planned, but uncommitted batch means; empty if there is none."""
        if self.planned_batch_id is None:
            return ""
        return (
            f"Batch {self.planned_batch_id} is planned, but not committed: its"
            f" {self.planned_offsets:,} offsets are behind NEW-OFFSET, so they are read again,"
            " although its rows may be in the sink. To finish the batch, start the old query once"
            " more with trigger(availableNow=True), and then repeat this command. With --execute"
            " now, a sink that does not recognize rows that it has gets them twice."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetView(View):
    """A plan, and its result.

    Args:
        group_state: Dead if the group does not exist.
        rows: Sorted by topic and partition.
        refusal: Why the plan cannot be executed; empty if it can.
        is_executed: Whether offsets were committed.
        copied_group_id: The group whose offsets are copied; None: they are not another group's.
        checkpoint: The batch whose end is copied; None: the offsets are of no checkpoint.
    """

    group_id: str
    group_state: str
    rows: tuple[ResetRow, ...]
    refusal: str = ""
    is_executed: bool = False
    copied_group_id: str | None = None
    checkpoint: CheckpointBatch | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every new offset was committed."""
        return self.is_executed and all(row.error is None for row in self.rows)

    @property
    def next_start(self) -> str:
        """The effect of the plan on the next start of a query; empty if the plan is refused."""
        if self.refusal:
            return ""
        moves = {
            row: row.new_offset - row.committed_offset
            for row in self.rows
            if row.new_offset is not None and row.committed_offset is not None and not row.error
        }
        back = {each: -move for each, move in moves.items() if move < 0}
        forward = {each: move for each, move in moves.items() if move > 0}
        begin = f"{'The' if self.is_executed else 'With --execute the'} next start of a query"
        if self.checkpoint:
            sentences = [
                self.checkpoint.origin,
                f"{begin} with a new checkpointLocation continues from there.",
            ]
        else:
            sentences = [
                f"{begin} continues from NEW-OFFSET, not from its checkpoint. Only a batch that is"
                " planned but unfinished in the checkpoint is read first, as planned; with a new"
                " checkpointLocation none is."
            ]
        if back:
            sentences.append(
                f"{sum(back.values())} offsets are read again; a table of write_table skips those"
                " that it has. To write them again, delete all rows of these partitions from"
                f" NEW-OFFSET on, run `{self._set_entries(back, '--backwards')}`, and start the"
                " query with a new checkpointLocation."
            )
        if forward:
            sentences.append(
                f"{sum(forward.values())} offsets are skipped; a table of write_table that lacks"
                f" them refuses the next batch. To accept the gap, run"
                f" `{self._set_entries(forward)}`, and start the query with a new"
                " checkpointLocation."
            )
        if self.copied_group_id:
            copy = _table_command(self.group_id, "--from-group", self.copied_group_id)
            sentences.append(
                "A table of write_table keeps what it has by group: to copy these entries, too, run"
                f" `{copy}`. Without them, the table may get records twice."
            )
        return " ".join(sentences)

    def _set_entries(self, rows: Iterable[ResetRow], *flags: str) -> str:
        partitions: dict[str, list[str]] = {}
        for row in rows:
            partitions.setdefault(row.topic, []).append(str(row.partition))
        named = [
            word
            for topic, partition in partitions.items()
            for word in ("--topic", f"{topic}:{','.join(partition)}")
        ]
        return _table_command(self.group_id, "--to-current", *named, *flags)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them, and `next_start`."""
        return {**super(ResetView, self).to_json(), "next_start": self.next_start}


def _table_command(group_id: str, *how: str) -> str:
    words = ("spark-groups", "table", "set-offsets", group_id, "--table", "TABLE", *how)
    return shlex.join((*words, "--execute"))


def plan_offset(target: ResetTarget, name: str, known: KnownOffsets) -> tuple[int | None, str]:
    """Return the new offset of a partition, None if there is none, and a remark."""
    start, end = known.log_start_offset, known.log_end_offset
    if start is None or end is None:
        return None, "log start and end offsets are unknown"
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


def _current(_: ResetTarget, known: KnownOffsets) -> tuple[int | None, str]:
    if known.committed_offset is None:
        return (
            known.log_end_offset,
            "there is no current committed offset: using the end of the log",
        )
    return known.committed_offset, ""


def _at_datetime(_: ResetTarget, known: KnownOffsets) -> tuple[int | None, str]:
    if known.at_timestamp is None:
        return None, "the offset at that time is unknown"
    if known.at_timestamp < 0:
        return known.log_end_offset, "no record at or after that time: using the end of the log"
    return known.at_timestamp, ""


def _taken_over(target: ResetTarget, known: KnownOffsets) -> tuple[int | None, str]:
    if known.other_committed_offset is None:
        if target.kind is ResetKind.FROM_TABLE:
            return None, "the table has no offset of this group here"
        return None, f"group {target.group_id!r} has no committed offset here"
    return known.other_committed_offset, ""


def _checkpointed(_: ResetTarget, known: KnownOffsets) -> tuple[int | None, str]:
    """Return the offset of a checkpoint, which is refused beyond the end of the log.

    There the log is another than the one that the query has read: its end would skip records.
    """
    wanted, start, end = known.other_committed_offset, known.log_start_offset, known.log_end_offset
    assert start is not None
    assert end is not None
    if wanted is None:
        stays = known.committed_offset is not None
        then = "the committed offset stays" if stays else "it is read from its beginning"
        return None, f"the checkpoint has no offset here: {then}"
    if wanted > end:
        return None, (
            f"the checkpoint's offset ({wanted}) is beyond the end of the log ({end}): the topic"
            " was created again, or its log was truncated. Choose other partitions with --topic,"
            " and reset this one with --to-earliest"
        )
    if wanted < start:
        lost = f"the query has not read {start - wanted} offsets from {wanted} on"
        return start, f"{lost}, which retention has deleted: using the start of the log"
    return wanted, ""


_WANTED: Final[
    Mapping[ResetKind, Callable[[ResetTarget, KnownOffsets], tuple[int | None, str]]]
] = MappingProxyType(
    {
        ResetKind.TO_EARLIEST: lambda _, known: (known.log_start_offset, ""),
        ResetKind.TO_LATEST: lambda _, known: (known.log_end_offset, ""),
        ResetKind.TO_CURRENT: _current,
        ResetKind.TO_OFFSET: lambda target, _: (target.number, ""),
        ResetKind.SHIFT_BY: _shifted,
        ResetKind.TO_DATETIME: _at_datetime,
        ResetKind.BY_DURATION: _at_datetime,
        ResetKind.FROM_GROUP: _taken_over,
        ResetKind.FROM_FILE: lambda _, known: (known.file_offset, ""),
        ResetKind.FROM_TABLE: _taken_over,
        ResetKind.FROM_CHECKPOINT: _checkpointed,
    }
)


def refusal_of(
    group_id: str,
    group_state: str,
    members: tuple[str, ...],
    rows: tuple[ResetRow, ...],
    unknown: str = "",
) -> str:
    """Return why a plan cannot be executed; empty if it can.

    Args:
        group_id: The group.
        group_state: Its state.
        members: The names of its members.
        rows: The plan.
        unknown: Which offsets are unknown, with the error and what to do; empty if none is.
    """
    if group_state not in INACTIVE_STATES:
        stop = f" Stop its members: {', '.join(members)}." if members else ""
        return (
            f"Assignments can only be reset if the group {group_id!r} is inactive, but the current"
            f" state is {group_state}.{stop}"
        )
    if unknown:
        return f"{unknown}. No offset is reset: then run the command again."
    without = sum(row.new_offset is None and not row.is_passed_over for row in rows)
    if without:
        return f"{without} of {len(rows)} partitions have no new offset: no offset is reset."
    if all(row.is_passed_over for row in rows):
        return "There are no partitions to reset."
    return ""


def parse_datetime(text: str) -> int:
    """Return milliseconds since 1970; the default time zone is UTC, as in Kafka's tool.

    Args:
        text: `YYYY-MM-DDThh:mm:ss.sss`, optionally with `Z` or an offset such as `+02:00` or
            `+02`; the time, its seconds and their fraction may be left out. Python's own parser
            takes other forms in each of its versions.

    Raises:
        OptionsError: The text has another form.
    """
    wrong = f"{text!r} is not YYYY-MM-DDThh:mm:ss.sss, with Z or +hh:mm or in UTC"
    found = _DATETIME.fullmatch(text)
    if found is None:
        raise OptionsError(wrong)
    date, time, fraction, zone, hours, minutes = found.groups("")
    offset = f"{hours}:{minutes or '00'}" if zone not in {"", "Z"} else "+00:00"
    full_time = (time or "00:00") + ("" if time.count(":") > 1 else ":00")
    try:
        at = datetime.fromisoformat(f"{date}T{full_time}.{fraction[:6]:0<6}{offset}")
    except ValueError as error:
        raise OptionsError(f"{wrong}: {error}") from error
    if at.timestamp() < 0:
        raise OptionsError(f"{text!r} is before 1970")
    return round(at.timestamp() * 1000)


_DATETIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?"
    r"(Z|([+-][0-9]{2})(?::?([0-9]{2}))?)?)?"
)

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_DURATION: Final = re.compile(
    r"P(?:(?P<days>[0-9]{1,9})D)?"
    r"(?:T(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?"
)
_SECONDS: Final = MappingProxyType({"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1})


def parse_duration(text: str) -> int:
    """Return a duration in milliseconds.

    Args:
        text: `PnDTnHnMnS` (ISO 8601), for example `PT2H30M`.

    Raises:
        OptionsError: The text has another form.
    """
    found = _DURATION.fullmatch(text)
    parts = {name: value for name, value in (found.groupdict() if found else {}).items() if value}
    if not parts:
        raise OptionsError(f"{text!r} is not PnDTnHnMnS, such as P1D, PT2H30M or PT90S")
    return round(sum(float(value) * _SECONDS[name] * 1000 for name, value in parts.items()))


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise OptionsError(f"the file is not CSV: {error}") from error


def parse_offsets(lines: Iterable[str], group_id: str) -> dict[TopicPartition, int]:
    """Parse offsets in the format of `kafka-consumer-groups.sh --reset-offsets --export`.

    Args:
        lines: `topic,partition,offset`, or `group,topic,partition,offset`.
        group_id: Lines of other groups are ignored.

    Raises:
        OptionsError: Malformed lines or repeated partitions; lists all of them.
    """
    found: dict[TopicPartition, int] = {}
    problems: list[str] = []
    for number, row in enumerate(_rows(lines), 1):
        words = [each.strip() for each in row]
        if not any(words):
            continue
        if len(words) == 4 and words[0] != group_id:
            continue
        topic, *numbers = words[-3:]
        if len(words) not in {3, 4} or not topic or not all(map(_NUMBER.fullmatch, numbers)):
            problems.append(
                f"line {number} is neither topic,partition,offset nor group,topic,partition,offset"
            )
            continue
        name = TopicPartition(topic, int(numbers[0]))
        if name in found:
            problems.append(f"line {number} repeats {name}")
        found[name] = int(numbers[1])
    if problems:
        raise OptionsError("; ".join(problems))
    if not found:
        raise OptionsError(f"no line has an offset for group {group_id!r}")
    return found
