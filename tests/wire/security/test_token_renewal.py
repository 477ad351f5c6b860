"""A token that a thread renews: its source fails, hangs, recovers, and is asked by many at once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from spark_groups.errors import AccessError, BrokerUnreachableError
from spark_groups.wire.security import token_renewal
from spark_groups.wire.security.bearer_token import BearerToken
from spark_groups.wire.security.token_renewal import SILENT_CALLS_MAX, UNUSED_MAX, RenewedToken
from workshop.parts.waiting import LONG_S, SOON_S, wait_until

SOURCE = "the token provider 'tests'"


class Source:
    """A source of tokens that tests change while it runs.

    Args:
        lifetime_s: How long its tokens are good.
    """

    def __init__(self, lifetime_s: float = 300.0) -> None:
        self.lifetime_s = lifetime_s
        self.calls = 0
        self.failure: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.answered_at_once = 0
        """How many calls are answered also while it may not answer."""

    def __call__(self) -> BearerToken:
        self.calls += 1
        call = self.calls
        if call > self.answered_at_once:
            self.may_answer.wait(LONG_S)
        if self.failure is not None:
            raise self.failure
        return BearerToken(f"token-{call}", int((time.time() + self.lifetime_s) * 1000))


@contextmanager
def renewed(source: Callable[[], BearerToken], **options: float) -> Iterator[RenewedToken]:
    """Give the token of a source; it is not renewed afterwards."""
    token = RenewedToken(source, SOURCE, **options)
    try:
        yield token
    finally:
        token.close()


def test_many_threads_share_one_call() -> None:
    source = Source()
    source.may_answer.clear()
    with renewed(source) as token, ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(token.token, LONG_S) for _ in range(8)]
        wait_until(lambda: source.calls)
        source.may_answer.set()
        assert {each.result(LONG_S).text for each in asked} == {"token-1"}
        assert token.token(LONG_S).text == "token-1"
    assert source.calls == 1


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tokens be renewed 0.2 s after they were fetched, long before they expire."""
    monkeypatch.setattr(
        token_renewal, "refresh_at_ms", lambda _token, now_ms, _chance: now_ms + 200
    )


@pytest.mark.usefixtures("early")
def test_a_token_is_renewed_before_it_expires_and_no_thread_waits() -> None:
    source = Source()
    source.answered_at_once = 1
    source.may_answer.clear()
    with renewed(source, call_timeout_s=LONG_S) as token:
        first = token.token(LONG_S)
        wait_until(lambda: source.calls == 2, what="the renewal")
        began_at = time.monotonic()
        assert token.token(LONG_S) == first, "the old one while the new one is not there"
        assert time.monotonic() - began_at < SOON_S
        source.may_answer.set()
        wait_until(lambda: token.token(LONG_S) != first, what="the next token")


@pytest.mark.usefixtures("early")
def test_a_failure_is_retried_while_the_token_is_valid_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "spark_groups.wire.security.token_renewal")
    source = Source()
    with renewed(source) as token:
        token.token(LONG_S)
        source.failure = AccessError(f"{SOURCE} failed with KeyError: 'x'")
        calls = source.calls
        wait_until(lambda: source.calls >= calls + 3, what="calls that fail")
        first = token.token(LONG_S)
        assert token.token(LONG_S) == first
        source.failure = None
        wait_until(lambda: token.token(LONG_S) != first, what="the next token")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO"], caplog.text
    assert f"{SOURCE} failed with KeyError: 'x'; the current token is used for" in caplog.text
    assert "token-" not in caplog.text


@pytest.mark.parametrize("kind", [AccessError, BrokerUnreachableError])
def test_a_failure_without_a_token_is_an_error_and_paced(kind: type[Exception]) -> None:
    source = Source()
    source.failure = kind("it failed")
    with renewed(source) as token:
        began_at = time.monotonic()
        while time.monotonic() - began_at < 1.0:
            with pytest.raises(kind, match="it failed"):
                token.token(LONG_S)
        # Pauses of 0.1, 0.2, 0.4 and 0.8 s, and so on.
        assert source.calls <= 2 + math.log2(1 + (time.monotonic() - began_at) / 0.1)
        source.failure = None
        token.forget()
        assert token.token(LONG_S).text


def test_a_source_that_hangs_holds_up_no_thread_beyond_the_deadline() -> None:
    source = Source()
    source.may_answer.clear()
    with renewed(source, call_timeout_s=0.3) as token:
        for timeout_s in (0.1, LONG_S):
            began_at = time.monotonic()
            with pytest.raises(BrokerUnreachableError, match="did not answer"):
                token.token(timeout_s)
            assert time.monotonic() - began_at < SOON_S
        silent = "has not answered 3 earlier calls"
        wait_until(lambda: silent in failure_of(token), what="no further call")
        assert source.calls == SILENT_CALLS_MAX
        source.may_answer.set()
        wait_until(lambda: not failure_of(token), what="a token")


def failure_of(token: RenewedToken) -> str:
    """Return why there is no token; empty: there is one."""
    try:
        token.token(LONG_S)
    except BrokerUnreachableError as error:
        return str(error)
    return ""


def test_a_rejected_token_is_replaced() -> None:
    source = Source()
    with renewed(source) as token:
        for call in range(1, 6):
            assert token.token(LONG_S).text == f"token-{call}"
            token.forget()
    assert source.calls == 5


def test_an_unexpected_error_ends_no_thread_silently() -> None:
    source = Source()
    source.failure = ZeroDivisionError("hush")
    with renewed(source) as token:
        assert failure_of(token) == f"{SOURCE}: ZeroDivisionError"


@pytest.mark.usefixtures("early")
def test_an_unused_token_is_not_renewed_for_ever() -> None:
    source = Source()
    with renewed(source) as token:
        token.token(LONG_S)
        wait_until(lambda: token._thread is None, what="the end of the thread")
        assert source.calls <= UNUSED_MAX + 1
        assert token.token(LONG_S).text.startswith("token-")


@pytest.mark.usefixtures("early")
def test_failures_do_not_end_the_renewal_of_a_valid_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_renewal, "RETRY_MAX_S", 0.05)
    source = Source()
    with renewed(source) as token:
        first = token.token(LONG_S)
        source.failure = BrokerUnreachableError("it failed")
        wait_until(lambda: source.calls > UNUSED_MAX + 3, what="more calls than unused tokens")
        source.failure = None
        wait_until(lambda: token.token(LONG_S) != first, what="the next token")


def test_a_source_that_has_issued_a_token_is_asked_again_although_it_refuses_once() -> None:
    source = Source()
    with renewed(source) as token:
        token.token(LONG_S)
        token.forget()
        source.failure = AccessError("no credentials found")
        with pytest.raises(BrokerUnreachableError, match="no credentials found"):
            token.token(LONG_S)
        source.failure = None
        wait_until(lambda: issues(token), what="the next token")


def issues(token: RenewedToken) -> bool:
    try:
        return token.token(LONG_S).text.startswith("token-")
    except BrokerUnreachableError:
        return False


def test_a_token_that_lives_for_ever_has_a_thread_that_waits() -> None:
    with renewed(lambda: BearerToken("t", 2**63 - 1)) as token:
        assert token.token(LONG_S).text == "t"
        thread = token._thread
        assert thread is not None
        thread.join(0.2)
        assert thread.is_alive()
