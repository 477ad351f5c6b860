"""Feeds of JSON documents, shared by the streams of the live page.

A feed polls in one thread for all its streams, and ends with the last of them unless it is kept. A
feed holds only its latest document: slow streams skip documents.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

from spark_groups.observation.plain_values import View

logger = logging.getLogger(__name__)

END_TIMEOUT_S: Final = 2.0
"""How long `join` waits for the poll under way; the thread is a daemon."""
FEEDS_MAX: Final = 32
"""How many groups are watched at a time, besides those that the command names."""
REOPEN_S: Final = 5.0
"""How long a kept feed waits after a failure before it reopens its watch."""


class TooManyFeedsError(Exception):
    """No feed can be added."""


class Watch(Protocol):
    """A group, or the list of groups, polled by a feed."""

    def look(self) -> View:
        """Return the current view; read errors are part of it."""


class Feed:
    """A thread that polls a watch, and the streams that wait for its documents.

    Args:
        open_watch: Opens the watch; the feed's thread opens and closes it.
        is_kept: Whether the feed reopens its watch after an exception, and outlives its streams.
    """

    def __init__(
        self,
        open_watch: Callable[[], AbstractContextManager[Watch]],
        interval_s: float,
        *,
        is_kept: bool = False,
    ) -> None:
        self.streams = 0
        self.is_kept = is_kept
        self._open_watch = open_watch
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._number = 0
        self._text = ""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group-feed", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the feed has ended."""
        return self._is_over.is_set()

    def after(self, number: int, timeout_s: float) -> tuple[int, str]:
        """Wait for a document newer than `number`, and return its number and text.

        Args:
            number: The number of the last document received; 0: none.
            timeout_s: After this time, the latest document is returned again.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._number > number or self.is_over, timeout_s)
            return self._number, self._text

    def end(self) -> None:
        """Stop polling, and wake all waiting streams."""
        self._is_over.set()
        with self._changed:
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join(END_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._poll()
            while self.is_kept and not self._is_over.wait(REOPEN_S):
                self._poll()
        finally:
            self.end()

    def _poll(self) -> None:
        try:
            with self._open_watch() as watch:
                while not self.is_over:
                    text = json.dumps(watch.look().to_json(), separators=(",", ":"))
                    with self._changed:
                        self._number += 1
                        self._text = text
                        self._changed.notify_all()
                    self._is_over.wait(self._interval_s)
        except Exception:
            # An open stream without documents would look like a group without changes.
            again = f"; restarting in {REOPEN_S:g} s without its history" if self.is_kept else ""
            logger.exception("a feed failed%s", again)


class Feeds:
    """The running feeds by key: those with streams, and the kept ones.

    Args:
        open_watch: Opens the watch for a key.
        kept: Keys of feeds that start now and run without streams.
    """

    def __init__(
        self,
        open_watch: Callable[[str], AbstractContextManager[Watch]],
        interval_s: float,
        kept: Iterable[str] = (),
    ) -> None:
        self._open_watch = open_watch
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._feeds = {key: self._begin(key, is_kept=True) for key in kept}

    def keys(self) -> list[str]:
        """Return the keys of the running feeds."""
        with self._lock:
            return list(self._feeds)

    @contextmanager
    def join(self, key: str) -> Iterator[Feed]:
        """Add a stream to a feed, which starts with its first stream and ends with its last.

        Raises:
            TooManyFeedsError: It would be a new one, which costs the brokers requests.
        """
        with self._lock:
            feed = self._feeds.get(key)
            if feed is None or feed.is_over:
                if sum(not each.is_kept for each in self._feeds.values()) >= FEEDS_MAX:
                    raise TooManyFeedsError(f"{FEEDS_MAX} groups are watched already")
                feed = self._feeds[key] = self._begin(key)
            feed.streams += 1
        try:
            yield feed
        finally:
            with self._lock:
                feed.streams -= 1
                if not feed.streams and not feed.is_kept:
                    feed.end()
                    if self._feeds.get(key) is feed:
                        del self._feeds[key]

    def _begin(self, key: str, *, is_kept: bool = False) -> Feed:
        return Feed(lambda: self._open_watch(key), self._interval_s, is_kept=is_kept)

    def close(self) -> None:
        """End all feeds, and with them their streams."""
        with self._lock:
            feeds = list(self._feeds.values())
        for feed in feeds:
            feed.end()
        for feed in feeds:
            feed.join()
