"""Reads offset ranges in a task, with one of two readers that return the same rows.

A worker imports only its own reader, in its first task.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Final, Protocol

import pyarrow as pa

from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reading.compiled import NotCompiledError, prepare
from spark_groups.types import OffsetRange

_log = logging.getLogger(__name__)


class RangeReader(Protocol):
    """The module of a reader."""

    def read_ranges(
        self, settings: RangeSettings, ranges: Iterable[OffsetRange], /
    ) -> Iterator[pa.RecordBatch]:
        """Read all rows of ranges, which must not overlap."""

    def warm_up(self, settings: RangeSettings, topics: Sequence[str], /) -> None:
        """Open the connections that reading these topics requires; none: those of any topic."""


def read_ranges(settings: RangeSettings, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Read ranges, which must not overlap, with the configured reader.

    Raises:
        BrokerUnreachableError: No record arrived for `poll_timeout_s`.
        DataLossError: Offsets no longer exist, and `failOnDataLoss` is true.
        NotCompiledError: The reader is `fast`, and is unavailable.
        OptionsError: `kafka.client.rack` names a variable that is not set here.
    """
    yield from _reader(settings.reader).read_ranges(settings.in_process(os.environ), ranges)
    _freeze_first_rows()


def warm_up(settings: RangeSettings, topics: Sequence[str]) -> None:
    """Import the configured reader, and open its connections.

    Args:
        topics: The topics whose leaders are connected; none: all brokers.

    Raises:
        BrokerUnreachableError: No broker responded in time.
        AccessError: TLS or authentication failed.
        NotCompiledError: The reader is `fast`, and is unavailable.
    """
    _reader(settings.reader).warm_up(settings.in_process(os.environ), topics)


def load_reader(choice: ReaderChoice) -> None:
    """Import the configured reader and load its compiled code, before the first task reads."""
    _reader(choice)


@cache
def _reader(choice: ReaderChoice) -> RangeReader:
    # Imports create no garbage; collections would take a fifth of the time (measured).
    gc.disable()
    try:
        reader = _READERS[choice]()
    finally:
        gc.enable()
    # Spark's workers collect garbage after every task; scanning imported modules would take a tenth
    # of a second each time (measured).
    gc.freeze()
    return reader


@cache
def _freeze_first_rows() -> None:
    # Compiled functions load their types when they are first called: 20 ms of each collection
    # (measured).
    gc.freeze()


def _fast() -> RangeReader:
    prepare()
    from spark_groups.spark.reading import fast_reader  # requires spark-groups[fast]

    return fast_reader


def _auto() -> RangeReader:
    try:
        return _fast()
    except NotCompiledError as error:
        _log.warning("reading with librdkafka: %s", error)
        return _librdkafka()


def _librdkafka() -> RangeReader:
    from spark_groups.spark.reading import librdkafka_reader  # only this reader imports it

    return librdkafka_reader


_READERS: Final[Mapping[ReaderChoice, Callable[[], RangeReader]]] = MappingProxyType(
    {
        ReaderChoice.AUTO: _auto,
        ReaderChoice.FAST: _fast,
        ReaderChoice.LIBRDKAFKA: _librdkafka,
    }
)
