"""A token that is renewed before it expires, by a thread of its own.

The source of tokens is called without a lock, one call at a time, and never by a thread that
needs a token: such a thread waits until its own deadline.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from spark_groups.errors import AccessError, BrokerUnreachableError
from spark_groups.group.member.backoff import Backoff
from spark_groups.wire.security.bearer_token import BearerToken, refresh_at_ms

CALL_TIMEOUT_S: Final = 15.0
"""How long one call of the source may take."""
RETRY_MAX_S: Final = 10.0
"""The longest pause between two calls that failed; Kafka's Java client always waits this long."""
LOOK_S: Final = 60.0
"""How long the thread sleeps at most: the clock of the host may be set, and tokens may live longer
than a thread can wait."""
_SPARE_MS: Final = 1_000
_SPARE_SHARE: Final = 0.05
"""A token is not used in the last second of its lifetime, or in the last 5 %: it would expire on
its way to the broker."""
UNUSED_MAX: Final = 8
"""The unused tokens that are fetched, one after the other, before the thread ends."""
SILENT_CALLS_MAX: Final = 3
"""The calls that may hang at the same time: Python cannot end a thread."""
logger = logging.getLogger(__name__)


class RenewedToken:
    """The token of one login; any thread may call its methods.

    Args:
        fetch: Returns a new token; raises an AccessError or a BrokerUnreachableError.
        source: The source of tokens, for messages.
        call_timeout_s: How long one call of `fetch` may take.
    """

    def __init__(
        self,
        fetch: Callable[[], BearerToken],
        source: str,
        *,
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self._fetch = fetch
        self._source = source
        self._call_timeout_s = call_timeout_s
        self._changed = threading.Condition()
        self._token: BearerToken | None = None
        self._has_issued = False
        self._refresh_at_ms = 0.0
        self._usable_until_ms = 0.0
        self._failure: AccessError | BrokerUnreachableError | None = None
        self._backoff = Backoff()
        self._ended_calls = 0
        self._unused = 0
        self._is_awaited = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._silent: list[threading.Thread] = []

    def token(self, timeout_s: float) -> BearerToken:
        """Return the current token; only if there is none, wait for one.

        Args:
            timeout_s: How long to wait.

        Raises:
            AccessError: The source refused.
            BrokerUnreachableError: The source failed, or did not answer in time.
        """
        deadline = time.monotonic() + max(0.001, timeout_s)
        with self._changed:
            self._unused = 0
            if self._token is not None and self._is_usable():
                self._start()
                return self._token
            if self._failure is not None and time.monotonic() < self._backoff.not_before:
                raise type(self._failure)(str(self._failure))
            ended = self._ended_calls
            self._is_awaited = True
            self._start()
            self._changed.notify_all()
            while self._ended_calls == ended:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise BrokerUnreachableError(f"{self._source} did not answer in time")
                self._changed.wait(left_s)
            if self._token is not None and self._failure is None:
                return self._token
            failure = self._failure or BrokerUnreachableError(f"{self._source} issued no token")
            raise type(failure)(str(failure))

    def forget(self) -> None:
        """Fetch another token next time: a broker rejected this one."""
        with self._changed:
            self._token = self._failure = None
            self._backoff.succeeded()
            self._changed.notify_all()

    def close(self) -> None:
        """Renew it no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _is_usable(self) -> bool:
        return self._token is not None and _now_ms() < self._usable_until_ms

    def _start(self) -> None:
        """Start the thread unless it runs; after a fork of the process it does not run."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="token-renewal", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._await_need():
            outcome = self._call()
            with self._changed:
                self._note(outcome)
                self._is_awaited = False
                self._ended_calls += 1
                self._unused += isinstance(outcome, BearerToken)
                self._changed.notify_all()

    def _await_need(self) -> bool:
        """Wait until a token is needed; otherwise return False, and the thread ends."""
        with self._changed:
            while not self._is_awaited:
                if self._is_closed or self._unused > UNUSED_MAX or not self._is_usable():
                    self._thread = None
                    return False
                pause_s = max(
                    (self._refresh_at_ms - _now_ms()) / 1000,
                    self._backoff.not_before - time.monotonic(),
                )
                if pause_s <= 0:
                    return True
                self._changed.wait(min(pause_s, LOOK_S))
            return True

    def _note(self, outcome: BearerToken | AccessError | BrokerUnreachableError) -> None:
        if isinstance(outcome, BearerToken):
            if self._failure is not None:
                logger.info("%s issues tokens again", self._source)
            self._token, self._failure, self._has_issued = outcome, None, True
            now_ms = _now_ms()
            self._refresh_at_ms = refresh_at_ms(outcome, now_ms, random.random())
            spare_ms = min(_SPARE_MS, _SPARE_SHARE * outcome.remaining_ms(now_ms))
            self._usable_until_ms = outcome.expires_at_ms - spare_ms
            self._backoff.succeeded()
            return
        if self._has_issued and isinstance(outcome, AccessError):
            # A source that has issued a token has the right to: it may be out of order for a while.
            outcome = BrokerUnreachableError(str(outcome))
        if self._failure is None and self._token is not None and self._is_usable():
            logger.warning(
                "%s; the current token is used for another %.0f s, and the next one is fetched as"
                " soon as possible",
                outcome,
                self._token.remaining_ms(_now_ms()) / 1000,
            )
        self._failure = outcome
        self._backoff.failed(time.monotonic(), RETRY_MAX_S)

    def _call(self) -> BearerToken | AccessError | BrokerUnreachableError:
        """Call the source in a thread that may be left behind."""
        self._silent = [each for each in self._silent if each.is_alive()]
        if len(self._silent) >= SILENT_CALLS_MAX:
            return BrokerUnreachableError(
                f"{self._source} has not answered {len(self._silent)} earlier calls"
            )
        outcomes: list[BearerToken | AccessError | BrokerUnreachableError] = []

        def call() -> None:
            try:
                outcomes.append(self._fetch())
            except (AccessError, BrokerUnreachableError) as error:
                outcomes.append(error)
            except (Exception, SystemExit) as error:  # A thread would end without a word.
                outcomes.append(BrokerUnreachableError(f"{self._source}: {type(error).__name__}"))

        thread = threading.Thread(target=call, name="token-fetch", daemon=True)
        thread.start()
        thread.join(self._call_timeout_s)
        if outcomes:
            return outcomes[0]
        self._silent.append(thread)
        return BrokerUnreachableError(
            f"{self._source} did not answer within {self._call_timeout_s:g} s"
        )


def _now_ms() -> float:
    return time.time() * 1000
