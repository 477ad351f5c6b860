"""Reads offset ranges in a task, with one of two readers that return the same rows.

A worker imports only its own reader, in its first task.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Final, Protocol

import pyarrow as pa

from spark_groups.errors import OptionsError
from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reading.compiled import NotCompiledError, prepare
from spark_groups.spark.reading.decoded import DecodedRows, Refuse, decoded, load_decoders
from spark_groups.types import OffsetRange

ADDRESS_SPACE_BYTES: Final = 768 * 1024 * 1024
"""The address space that a worker needs for small records; with 600 MiB it crashed."""

_log = logging.getLogger(__name__)


class RangeReader(Protocol):
    """The module of a reader."""

    def read_ranges(
        self, settings: RangeSettings, ranges: Iterable[OffsetRange], /
    ) -> Iterator[pa.RecordBatch]:
        """Read all rows of ranges, which must not overlap, in offset order.

        Raises:
            BrokerUnreachableError: No record arrived for `poll_timeout_s`.
            DataLossError: Offsets no longer exist, and `failOnDataLoss` is true.
            RecordsError: Records cannot be decoded.
        """

    def warm_up(self, settings: RangeSettings, topics: Sequence[str], /) -> None:
        """Open the connections that reading these topics requires; none: those of any topic.

        Raises:
            BrokerUnreachableError: No broker responded in time.
            AccessError: TLS or authentication failed.
        """


def read_ranges(settings: RangeSettings, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Read the rows of ranges, with decoded keys and values; see `read_decoded`."""
    for each in read_decoded(settings, ranges):
        yield each.rows


def read_decoded(
    settings: RangeSettings, ranges: Iterable[OffsetRange], refuse: Refuse | None = None
) -> Iterator[DecodedRows]:
    """Read ranges with the configured reader, and decode them; see `RangeReader` and `decoded`.

    Raises:
        NotCompiledError: The reader is `fast`, and is unavailable.
        OptionsError: `kafka.client.rack` names a variable that is not set here, or this process has
            too little address space.
    """
    check_address_space(resource.getrlimit(resource.RLIMIT_AS)[0])
    records = _reader(settings.reader).read_ranges(settings.in_process(os.environ), ranges)
    yield from decoded(settings, records, refuse)
    _freeze_first_rows()


def check_address_space(limit_bytes: int) -> None:
    """Refuse to read in a process that would crash without a word while it reads.

    Args:
        limit_bytes: The address space that it may use; `resource.RLIM_INFINITY`: any.

    Raises:
        OptionsError: It is too little.
    """
    if limit_bytes != resource.RLIM_INFINITY and limit_bytes < ADDRESS_SPACE_BYTES:
        raise OptionsError(
            f"a Python worker may use {limit_bytes >> 20} MiB of address space, and reading takes"
            f" {ADDRESS_SPACE_BYTES >> 20}: set spark.executor.pyspark.memory to 1g or more for"
            " each core of an executor, or leave it out (or raise `ulimit -v`)"
        )


def warm_up(settings: RangeSettings, topics: Sequence[str]) -> None:
    """Import the configured reader, and open its connections; see `RangeReader`.

    Raises:
        NotCompiledError: The reader is `fast`, and is unavailable.
    """
    _reader(settings.reader).warm_up(settings.in_process(os.environ), topics)
    load_decoders(settings)


def load_reader(settings: RangeSettings) -> None:
    """Import reader and decoders and load their compiled code, before the first task reads."""
    _reader(settings.reader)
    load_decoders(settings)


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
    {ReaderChoice.AUTO: _auto, ReaderChoice.FAST: _fast, ReaderChoice.LIBRDKAFKA: _librdkafka}
)
