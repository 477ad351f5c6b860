"""Documents that are made again and again, for as long as somebody wants them.

Many streams share one feed: its thread looks once for all of them, and ends when the last one has
left, unless it is to be kept. A stream that is too slow for some documents does not get them: only
the latest is there.
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
"""How long the end waits for a look that is under way; its thread does not keep the process."""


REOPEN_S: Final = 5.0
"""How long a feed that is kept waits after it could not look at all."""


class Watch(Protocol):
    """What looks again and again."""

    def look(self) -> View:
        """Return what there is now; what cannot be read is part of it."""


class Feed:
    """One thread that looks, and whoever waits for what it sees.

    Args:
        open_watch: Opens what looks; it is closed by the same thread.
        is_kept: Whether it goes on where a look could not be made at all: nobody asks again for
            what is watched while nobody looks.
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
        """Whether nothing comes any more."""
        return self._is_over.is_set()

    def after(self, number: int, timeout_s: float) -> tuple[int, str]:
        """Return the latest document with its number, once there is one after that number.

        Args:
            number: The number of the last one that was got; 0: none was.
            timeout_s: How long to wait; then the number is the same, and the text that of before.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._number > number or self.is_over, timeout_s)
            return self._number, self._text

    def end(self) -> None:
        """Look no more, and let everybody go who waits."""
        self._is_over.set()
        with self._changed:
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join(END_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._look_on()
            while self.is_kept and not self._is_over.wait(REOPEN_S):
                self._look_on()
        finally:
            self.end()

    def _look_on(self) -> None:
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
            # A stream that goes on without documents would look like a group that stands still.
            again = f"it begins anew in {REOPEN_S:g} s, without its history"
            logger.exception("a feed ended%s", f": {again}" if self.is_kept else "")


class Feeds:
    """The feeds that somebody wants now, and those that are kept, by what they are about.

    Args:
        open_watch: Opens what looks, by the same key.
        kept: What is looked at also while nobody wants it, from now on.
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
        """Return what is looked at now."""
        with self._lock:
            return list(self._feeds)

    @contextmanager
    def join(self, key: str) -> Iterator[Feed]:
        """Take part in a feed, which begins with the first stream and ends with the last."""
        with self._lock:
            feed = self._feeds.get(key)
            if feed is None or feed.is_over:
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
        for each in feeds:
            each.end()
        for each in feeds:
            each.join()
