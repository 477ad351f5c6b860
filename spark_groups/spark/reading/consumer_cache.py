"""Consumers and producers that a worker process keeps between its tasks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

from spark_groups.spark.options.range_settings import RangeSettings

IDLE_CONSUMERS_MAX: Final = 4


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
    """

    def __init__(
        self, make: Callable[[RangeSettings], _Cached], idle_max: int = IDLE_CONSUMERS_MAX
    ) -> None:
        self._make = make
        self._idle_max = idle_max
        self._idle: OrderedDict[RangeSettings, _Cached] = OrderedDict()

    @contextmanager
    def borrow(self, settings: RangeSettings) -> Iterator[_Cached]:
        """Lend a consumer; keep it afterwards unless the task failed."""
        consumer = self._idle.pop(settings, None) or self._make(settings)
        try:
            yield consumer
            consumer.rest()
        except BaseException:
            consumer.close()
            raise
        self._idle[settings] = consumer
        while len(self._idle) > self._idle_max:
            self._idle.popitem(last=False)[1].close()

    def close(self) -> None:
        """Close all idle consumers."""
        while self._idle:
            self._idle.popitem()[1].close()
