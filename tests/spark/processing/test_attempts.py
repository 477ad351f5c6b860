"""Trying a record: until it succeeds, until its deadline, and not longer."""

from __future__ import annotations

import signal
import time
from math import inf
from typing import NoReturn

import pytest

from spark_groups.errors import UnprocessableError
from spark_groups.spark.processing.attempts import attempt
from spark_groups.spark.processing.record import Record

RECORD = Record(b"k", b"v", "flights", 0, 17, 0)


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_groups.spark.processing.attempts.FIRST_PAUSE_S", 0.005)


def soon() -> float:
    return time.monotonic() + 0.1


class Failing:
    """Fails so many times, then succeeds."""

    def __init__(self, failures: float, error: type[Exception] = ValueError) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self, record: Record) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"{record} is bad")


def test_first_success_is_all() -> None:
    handle = Failing(0)
    assert attempt(handle, RECORD, soon()).error is None
    assert handle.calls == 1


@pytest.mark.parametrize("left_s", [inf, 3_600.0])
def test_it_is_tried_until_it_succeeds_and_each_failure_is_told(
    left_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    tried = attempt(Failing(2), RECORD, time.monotonic() + left_s)
    assert (tried.attempts, tried.error) == (3, None)
    assert caplog.messages == [
        "flights-0@17, attempt 1: ValueError: flights-0@17 is bad; again in 0.005 s",
        "flights-0@17, attempt 2: ValueError: flights-0@17 is bad; again in 0.01 s",
    ]


def test_at_the_deadline_it_is_over() -> None:
    tried = attempt(Failing(inf), RECORD, soon())
    assert tried.error == "ValueError: flights-0@17 is bad"
    assert tried.attempts > 1


def test_what_hangs_is_interrupted_even_if_it_takes_every_error() -> None:
    def hangs(_: Record) -> None:
        try:
            time.sleep(60)
        except Exception:
            time.sleep(60)

    before = signal.getsignal(signal.SIGALRM)
    tried = attempt(hangs, RECORD, soon())
    assert tried.error is not None
    assert tried.error.startswith("TimeoutError: not processed by its deadline")
    assert signal.getsignal(signal.SIGALRM) is before


def test_what_hangs_again_while_it_cleans_up_is_interrupted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_groups.spark.processing.attempts.AGAIN_S", 0.05)

    def hangs(_: Record) -> None:
        try:
            time.sleep(5)
        finally:
            time.sleep(5)

    began_s = time.monotonic()
    tried = attempt(hangs, RECORD, soon())
    assert tried.error is not None
    assert tried.error.startswith("TimeoutError")
    assert time.monotonic() - began_s < 5
    assert signal.getitimer(signal.ITIMER_REAL)[1] == 0


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("name \ud800"), "ValueError: name \\ud800"),
        (ValueError("é" * 5_000), "ValueError: " + "é" * 506),
    ],
    ids=["half of a pair", "long"],
)
def test_errors_are_told_in_text_that_can_be_written(error: Exception, told: str) -> None:
    def handle(_: Record) -> NoReturn:
        raise error

    assert attempt(handle, RECORD, soon()).error == told


def test_error_that_cannot_tell_itself_is_told_by_its_name() -> None:
    class UntoldError(Exception):
        def __str__(self) -> str:
            raise ValueError("it cannot be told")

    assert attempt(Failing(inf, UntoldError), RECORD, soon()).error == "UntoldError"


def test_hopeless_record_is_tried_once_if_there_is_a_deadline() -> None:
    handle = Failing(2, UnprocessableError)
    tried = attempt(handle, RECORD, time.monotonic() + 3_600)
    assert (tried.attempts, tried.error) == (1, "UnprocessableError: flights-0@17 is bad")


def test_without_a_deadline_a_hopeless_record_is_waited_for_too() -> None:
    assert attempt(Failing(2, UnprocessableError), RECORD, inf).attempts == 3


def test_when_time_is_up_it_is_not_tried() -> None:
    def handle(_: Record) -> NoReturn:
        raise AssertionError("it was tried")

    tried = attempt(handle, RECORD, time.monotonic() - 1)
    assert (tried.attempts, tried.error) == (0, "its time was up before it was tried")
