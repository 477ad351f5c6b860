"""A query's process, as far as it needs no broker."""

from __future__ import annotations

import random
import threading

import pytest

from workshop.chaos.faults.schedule import draw_queries
from workshop.chaos.members.query import Query
from workshop.parts.waiting import wait_until


@pytest.mark.parametrize("listens", [True, False])
def test_sigterm_in_the_middle_of_a_wait_ends_the_query(
    listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    monkeypatch.setattr(Query, "_leave_and_exit", lambda _: left.set())
    query = object.__new__(Query)
    queries = draw_queries(random.Random(7), 8, fast=False)
    query._traits = next(each for each in queries if each.listens is listens)
    query._ending = threading.Event()
    # As the main thread does, at the begin and the end of a wait.
    with query._ending._cond:  # type: ignore[attr-defined]
        query._terminated()
        assert not query._ending.is_set()
    wait_until(query._ending.is_set, what="the end of the query")
    assert listens or left.wait(300)
