"""Feeds: one poll for all streams, and none without streams."""

from __future__ import annotations

import json
import threading

import pytest

from spark_groups.cli.feeds import Feed, Feeds
from tests.cli.feeds_setup import Counted, Counting
from workshop.parts.waiting import LONG_S, wait_until

QUICK_S = 0.01


def test_documents_come_in_order_and_a_slow_stream_gets_only_the_latest() -> None:
    counting = Counting()
    feed = Feed(counting.open, QUICK_S)
    number, text = feed.after(0, LONG_S)
    assert json.loads(text) == {"number": number}
    wait_until(lambda: counting.looks > number + 3, what="more looks")
    later, text = feed.after(number, LONG_S)
    assert later > number + 1
    assert json.loads(text) == {"number": later}
    feed.end()
    feed.join()
    assert counting.closed == 1


def test_nothing_new_in_time_is_the_same_number() -> None:
    feed = Feed(Counting().open, 3600.0)
    number, text = feed.after(0, LONG_S)
    assert feed.after(number, 0.01) == (number, text)
    feed.end()


def test_streams_share_a_feed_which_ends_with_the_last() -> None:
    counting = Counting()
    feeds = Feeds(lambda key: counting.open(), QUICK_S)
    with feeds.join("a") as first:
        with feeds.join("a") as second, feeds.join("b") as other:
            assert first is second
            assert other is not first
            assert feeds.keys() == ["a", "b"]
        assert feeds.keys() == ["a"]
        assert (first.is_over, other.is_over) == (False, True)
    assert first.is_over
    assert feeds.keys() == []
    wait_until(lambda: counting.closed == counting.opened == 2, what="the end of both")
    with feeds.join("a") as again:
        assert again is not first
        assert again.after(0, LONG_S)[0] > 0


def test_the_end_lets_everybody_go_who_waits() -> None:
    feeds = Feeds(lambda key: Counting().open(), 3600.0)
    with feeds.join("a") as feed:
        number, _ = feed.after(0, LONG_S)
        waiting = threading.Thread(target=feed.after, args=(number, 3600.0))
        waiting.start()
        feeds.close()
        waiting.join(LONG_S)
        assert not waiting.is_alive()
        assert feed.is_over


def test_a_failed_observation_ends_the_feed_and_the_next_stream_restarts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Counting):
        def look(self) -> Counted:
            raise ZeroDivisionError

    opened = iter((Broken(), Counting()))
    feeds = Feeds(lambda key: next(opened).open(), QUICK_S)
    with feeds.join("a") as feed:
        assert feed.after(0, LONG_S) == (0, "")
        wait_until(lambda: feed.is_over, what="the end of the feed")
        assert "a feed failed" in caplog.text
        with feeds.join("a") as again:
            assert again.after(0, LONG_S)[0] > 0
            assert feeds.keys() == ["a"]


def test_a_kept_feed_observes_without_a_reader() -> None:
    counting = Counting()
    feeds = Feeds(lambda key: counting.open(), QUICK_S, ("a",))
    wait_until(lambda: counting.looks > 2, what="polls without streams")
    with feeds.join("a") as feed:
        assert feed.after(0, LONG_S)[0] > 2
    assert (feed.is_over, feeds.keys(), counting.opened) == (False, ["a"], 1)
    feeds.close()
    assert feed.is_over
    assert counting.closed == 1


def test_a_kept_feed_restarts_after_a_failed_observation(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Counting):
        def look(self) -> Counted:
            raise ZeroDivisionError

    monkeypatch.setattr("spark_groups.cli.feeds.REOPEN_S", QUICK_S)
    opened = iter((Broken(), Counting()))
    feeds = Feeds(lambda key: next(opened).open(), QUICK_S, ("a",))
    with feeds.join("a") as feed:
        assert feed.after(0, LONG_S)[0] > 0
    assert "restarting in 0.01 s without its history" in caplog.text
    feeds.close()
