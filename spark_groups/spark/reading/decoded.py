"""Decodes the keys and values of record batches, in the task that reads them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from spark_groups.errors import RecordsError
from spark_groups.formats.decoding import Undecodable
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.compiled import AVRO, prepare
from spark_groups.spark.schemas.decoders import UNDECODABLE_TYPE, decoders_of
from spark_groups.spark.schemas.row_formats import (
    UNDECODABLE,
    Format,
    OnUndecodable,
    RowFormats,
)
from spark_groups.types import TopicPartition

_log = logging.getLogger(__name__)

_IDLE_MAX: Final = 4

Refuse = Callable[[pa.RecordBatch, str], object]
"""Gets a record that cannot be decoded, as a batch of one row with bytes, and the reason."""


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows, and the records that they are made of.

    Args:
        rows: With decoded keys and values.
        records: The same records with their bytes.
    """

    rows: pa.RecordBatch
    records: pa.RecordBatch

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        count: int = self.rows.num_rows
        return count

    def slice(self, offset: int, length: int | None = None) -> DecodedRows:
        """Return some of the rows."""
        return DecodedRows(self.rows.slice(offset, length), self.records.slice(offset, length))


def decoded(
    settings: RangeSettings, batches: Iterable[pa.RecordBatch], refuse: Refuse | None = None
) -> Iterator[DecodedRows]:
    """Decode record batches; one is divided where a decoder's memory is full.

    Args:
        settings: How they were read, with the formats.
        batches: The records, with bytes.
        refuse: Gets records that cannot be decoded where `onUndecodable` is deadLetters.

    Raises:
        RecordsError: A record cannot be decoded, and `onUndecodable` is fail.
        SchemaLookupError: A schema cannot be looked up in time.
        NotCompiledError: A column is Avro, and compiled code is unavailable.
    """
    if settings.formats is None:
        for batch in batches:
            yield DecodedRows(batch, batch)
        return
    with _borrowed(settings) as decoder:
        for batch in batches:
            yield from decoder.decoded(batch, refuse)
        decoder.warn()


def load_decoders(settings: RangeSettings) -> None:
    """Import the decoders and load their compiled code, before the first task reads."""
    if settings.formats is not None:
        with _borrowed(settings):
            pass


@contextmanager
def _borrowed(settings: RangeSettings) -> Iterator[_RowDecoder]:
    """Lend decoders, which know the schemas of earlier tasks; keep them unless the task failed."""
    assert settings.formats is not None
    key = (settings.formats, settings.memory_bytes, settings.poll_timeout_s)
    decoder = _IDLE.pop(key, None) or _RowDecoder(settings, settings.formats)
    yield decoder
    _IDLE[key] = decoder
    while len(_IDLE) > _IDLE_MAX:
        del _IDLE[next(iter(_IDLE))]


class _RowDecoder:
    """The decoders of a stream's columns, and counts of the records that they refuse."""

    def __init__(self, settings: RangeSettings, formats: RowFormats) -> None:
        self._on_undecodable = formats.on_undecodable
        if any(each.format is Format.AVRO for each in formats.by_column.values()):
            prepare(AVRO)
        self._decoders = decoders_of(
            formats,
            timeout_s=settings.poll_timeout_s,
            memory_bytes=settings.memory_bytes,
        )
        self._counts: dict[TopicPartition, tuple[int, int, str]] = {}

    def decoded(self, batch: pa.RecordBatch, refuse: Refuse | None) -> Iterator[DecodedRows]:
        """Decode one batch."""
        while batch.num_rows:
            rows, refused = self._first_rows(batch)
            records = batch.slice(0, rows.num_rows)
            batch = batch.slice(rows.num_rows)
            reasons = {row: _reason(refused[row]) for row in sorted(refused)}
            if reasons and self._on_undecodable is OnUndecodable.FAIL:
                raise _error(records, refused)
            if self._on_undecodable is OnUndecodable.NULL:
                rows = rows.append_column(UNDECODABLE, _undecodable(records, reasons))
                self._count(records, reasons)
            elif reasons:
                assert refuse is not None
                for row, reason in reasons.items():
                    refuse(records.slice(row, 1), reason)
                good = [row for row in range(rows.num_rows) if row not in reasons]
                rows, records = (each.take(pa.array(good, pa.int64())) for each in (rows, records))
            if rows.num_rows:
                yield DecodedRows(rows, records)

    def _first_rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, _Refused]:
        """Return the first rows of a batch, decoded, and those that are refused, by column."""
        rows, refused = batch, dict[int, dict[str, Undecodable]]()
        for name, decoder in self._decoders.items():
            column = decoder.decode(rows.column(name))
            rows = rows.slice(0, len(column.values))
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, name, column.values)
            for row, why in column.refused.items():
                refused.setdefault(row, {})[name] = why
        # The last decoder may have taken fewer rows than those before it.
        return rows, {row: why for row, why in refused.items() if row < rows.num_rows}

    def _count(self, records: pa.RecordBatch, reasons: Mapping[int, str]) -> None:
        for row, reason in reasons.items():
            place, record_offset = _place(records, row)
            count, first_offset, first = self._counts.get(place, (0, record_offset, reason))
            self._counts[place] = count + 1, first_offset, first

    def warn(self) -> None:
        """Log how many records were not decoded, and forget them."""
        counts, self._counts = self._counts, {}
        for place, (count, first_offset, reason) in counts.items():
            _log.warning(
                "%d records of %s cannot be decoded, and have the column %s, because onUndecodable"
                " is null; the first is that at offset %d: %s",
                *(count, place, UNDECODABLE, first_offset, reason),
            )


_Refused = dict[int, dict[str, Undecodable]]
_IDLE: dict[tuple[object, ...], _RowDecoder] = {}
"""Decoders between tasks of this process."""


def _reason(refused: Mapping[str, Undecodable]) -> str:
    return "; ".join(
        f"the {name} cannot be decoded"
        + (f" with schema id {why.schema_id}" if why.schema_id is not None else "")
        + f": {why.reason}"
        for name, why in refused.items()
    )


def _place(records: pa.RecordBatch, row: int) -> tuple[TopicPartition, int]:
    topic, index, record_offset = (
        records.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    return TopicPartition(topic, index), record_offset


def _error(records: pa.RecordBatch, refused: _Refused) -> RecordsError:
    row = min(refused)
    place, record_offset = _place(records, row)
    return RecordsError(
        f"the record of {place} at offset {record_offset}: {_reason(refused[row])}. Set"
        " onUndecodable to null to get such records with their bytes, or, with write_table and"
        " emit=ranges, to deadLetters"
    )


def _undecodable(records: pa.RecordBatch, reasons: Mapping[int, str]) -> pa.Array:
    """Return the column `undecodable`: null where a record was decoded."""
    if not reasons:
        return pa.nulls(records.num_rows, UNDECODABLE_TYPE)
    is_good = [row not in reasons for row in range(records.num_rows)]
    return pa.StructArray.from_arrays(
        [
            records.column("key"),
            records.column("value"),
            pa.array([reasons.get(row) for row in range(records.num_rows)], pa.string()),
        ],
        fields=[*UNDECODABLE_TYPE],
        mask=pa.array(is_good),
    )
