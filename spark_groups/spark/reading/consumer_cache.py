"""Consumers and producers that a worker process keeps between its tasks."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final, Generic, Protocol, TypeVar

from spark_groups.spark.options.range_settings import RangeSettings

IDLE_CONSUMERS_MAX: Final = 4
LIBRDKAFKA_IDLE_S: Final = 10.0
"""How long a client of librdkafka may be idle: if a middlebox dropped its connections without a
word, it would notice with the timeout of a request (measured: 66 s)."""


class Cached(Protocol):
    """A client that the cache keeps."""

    def rest(self) -> None:
        """Reset after a task."""

    def close(self) -> None:
        """Close the connections."""


_Cached = TypeVar("_Cached", bound=Cached)


class ConsumerCache(Generic[_Cached]):
    """Idle consumers by their settings.

    Args:
        idle_max: Number of idle consumers to keep; the one idle longest is closed.
        idle_s: How long one may be idle and still be used.
    """

    def __init__(
        self,
        make: Callable[[RangeSettings], _Cached],
        idle_max: int = IDLE_CONSUMERS_MAX,
        idle_s: float = inf,
    ) -> None:
        self._make = make
        self._idle_max = idle_max
        self._idle_s = idle_s
        self._idle: OrderedDict[RangeSettings, tuple[_Cached, float]] = OrderedDict()

    @contextmanager
    def borrow(self, settings: RangeSettings) -> Iterator[_Cached]:
        """Lend a consumer; keep it afterwards unless the task failed."""
        consumer = self._rested(settings) or self._make(settings)
        try:
            yield consumer
            consumer.rest()
        except BaseException:
            consumer.close()
            raise
        self._idle[settings] = consumer, time.monotonic()
        while len(self._idle) > self._idle_max:
            self._idle.popitem(last=False)[1][0].close()

    def _rested(self, settings: RangeSettings) -> _Cached | None:
        consumer, since = self._idle.pop(settings, (None, 0.0))
        if consumer is not None and time.monotonic() - since > min(
            self._idle_s, settings.timeouts.max_idle_s
        ):
            consumer.close()
            return None
        return consumer

    def close(self) -> None:
        """Close all idle consumers."""
        while self._idle:
            self._idle.popitem()[1][0].close()
