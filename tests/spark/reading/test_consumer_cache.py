"""Consumers that a worker process keeps between tasks, and those it closes."""

from __future__ import annotations

import time
from dataclasses import replace
from math import inf

import pytest

from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.consumer_cache import ConsumerCache
from spark_groups.wire.timeouts import Timeouts

SETTINGS = RangeSettings(bootstrap_servers=("127.0.0.1:1",), group_id="g")


class Consumer:
    def __init__(self, settings: RangeSettings) -> None:
        self.settings = settings
        self.rests = 0
        self.is_closed = False

    def rest(self) -> None:
        self.rests += 1

    def close(self) -> None:
        self.is_closed = True


def test_consumer_is_kept_for_the_next_task() -> None:
    cache = ConsumerCache(Consumer)
    with cache.borrow(SETTINGS) as first:
        pass
    with cache.borrow(SETTINGS) as second:
        assert second is first
    assert (first.rests, first.is_closed) == (2, False)
    cache.close()
    assert first.is_closed


def test_consumer_that_failed_is_thrown_away() -> None:
    cache = ConsumerCache(Consumer)
    with pytest.raises(ZeroDivisionError), cache.borrow(SETTINGS) as failed:
        1 / 0  # noqa: B018
    with cache.borrow(SETTINGS) as another:
        assert another is not failed
    assert failed.is_closed


def test_consumer_that_waited_longest_makes_room() -> None:
    cache = ConsumerCache(Consumer, idle_max=1)
    with cache.borrow(SETTINGS) as first:
        pass
    with cache.borrow(replace(SETTINGS, client_id="other")) as other:
        pass
    assert (first.is_closed, other.is_closed) == (True, False)


@pytest.mark.parametrize(
    ("idle_s", "max_idle_s"), [(0.0, 540.0), (inf, 0.0)], ids=["the cache's limit", "the option"]
)
def test_consumer_that_was_idle_for_too_long_is_replaced(idle_s: float, max_idle_s: float) -> None:
    cache = ConsumerCache(Consumer, idle_s=idle_s)
    settings = replace(SETTINGS, timeouts=Timeouts(max_idle_s=max_idle_s))
    with cache.borrow(settings) as first:
        pass
    time.sleep(0.01)
    with cache.borrow(settings) as second:
        assert second is not first
    assert first.is_closed
