"""What a task does: read offset ranges from Kafka, by one of two readers that give the same rows.

A range may hold fewer records than offsets: compaction, aborted transactions and control records
leave gaps, also at its end. So a range ends when a record at or past its end arrives, or when the
broker says that there is nothing more before it; never by counting.

A worker imports only what its reader needs, and does so in its first task.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reading.compiled import NotCompiledError, prepare
from spark_groups.types import OffsetRange

_log = logging.getLogger(__name__)

RangeReader = Callable[[RangeSettings, Iterable[OffsetRange]], Iterator[pa.RecordBatch]]


def read_ranges(settings: RangeSettings, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Read ranges by the reader that the settings choose.

    Raises:
        BrokerUnreachableError: No record came for `poll_timeout_s`; names what was waited for.
        DataLossError: Offsets are gone, and `failOnDataLoss` is true.
        NotCompiledError: The reader is `fast`, which cannot be used here.
    """
    yield from _reader(settings.reader)(settings, ranges)


@cache
def _reader(choice: ReaderChoice) -> RangeReader:
    """Return a reader, imported."""
    # Nothing that is imported is garbage: looking for some takes a fifth of the time (measured).
    gc.disable()
    try:
        reader = _READERS[choice]()
    finally:
        gc.enable()
    # Spark's workers collect garbage after every task. What was imported stays for as long as the
    # worker does, and looking through it would take a tenth of a second each time (measured).
    gc.freeze()
    return reader


def _fast() -> RangeReader:
    # The code is compiled if this machine has not done it yet; what it needs may be missing.
    prepare()
    from spark_groups.spark.reading import fast_reader  # it needs numba

    return fast_reader.read_ranges


def _auto() -> RangeReader:
    try:
        return _fast()
    except NotCompiledError as error:
        _log.warning("ranges are read by librdkafka: %s", error)
        return _librdkafka()


def _librdkafka() -> RangeReader:
    from spark_groups.spark.reading import librdkafka_reader  # so that only this needs it

    return librdkafka_reader.read_ranges


_READERS: Final[Mapping[ReaderChoice, Callable[[], RangeReader]]] = MappingProxyType(
    {
        ReaderChoice.AUTO: _auto,
        ReaderChoice.FAST: _fast,
        ReaderChoice.LIBRDKAFKA: _librdkafka,
    }
)
