"""Looking again and again, whatever the brokers answer."""

from __future__ import annotations

import time
from contextlib import closing

from spark_groups.lab.broker.embedded import free_ports
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.watching import GroupWatch, steady_clock


def test_the_clock_is_that_of_the_system_and_goes_on() -> None:
    now = steady_clock()
    first = now()
    assert abs(first - time.time()) < 5.0
    assert now() >= first


def test_a_broker_that_is_not_there_is_part_of_the_frame() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    observer = GroupObserver(address, timeout_s=0.3)
    times = iter((1.0, 2.0))
    with closing(GroupWatch(observer, "flight-readers", lambda: next(times))) as watch:
        watch.look()
        frame = watch.look()
    assert (frame.at_s, frame.view) == (2.0, None)
    assert frame.stale is not None
    assert frame.stale.since_s == 1.0
    assert address in frame.stale.reason
