"""Events are told once, and the last ones are kept."""

from __future__ import annotations

import logging

import pytest

from spark_groups.protocol.events import Event, MemberLeft, QueryReturned
from spark_groups.runtime.timeline import LENGTH, Timeline


def test_event_is_logged_kept_and_shown_to_all_observers(caplog: pytest.LogCaptureFixture) -> None:
    timeline, seen = Timeline("g"), list[Event]()
    timeline.observers += [lambda event, _: seen.append(event)] * 2
    event = QueryReturned(1.0, "m1", 3)
    with caplog.at_level(logging.INFO, "spark_groups"):
        timeline.add(event, lambda _: None)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "group g: member m1 at epoch 3 joins again" in caplog.text
    assert seen == [event, event]
    assert len(timeline.lines()) == 1


def test_only_the_last_ones_are_kept() -> None:
    timeline = Timeline("g")
    for epoch in range(LENGTH + 5):
        timeline.add(MemberLeft(1.0, "m1", epoch), lambda _: None)
    lines = timeline.lines()
    assert len(lines) == LENGTH
    assert f"epoch {LENGTH + 4} " in lines[-1]
