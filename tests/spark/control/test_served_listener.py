"""A listener that a client of Spark Connect sends to the server: what runners hear of it."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_groups.spark.control.channel import directories_of_runner
from spark_groups.spark.control.control_messages import (
    BatchReported,
    Listening,
    NothingMoreReported,
    Released,
)
from spark_groups.spark.control.listener import ServedEvents
from tests.spark.control.test_listener import JVM, PLAN, Runner

CALLED: list[Any] = []
IDS: dict[str, Any] = {"id": uuid.UUID(int=7), "runId": uuid.UUID(int=8)}


def note(moved: Any) -> None:
    """Note a change of partitions."""
    CALLED.append(moved)


def progress(*ends: str) -> Any:
    """Return the progress of a query with these end offsets."""
    sources = [SimpleNamespace(endOffset=end) for end in ends]
    others = {"stateOperators": [], "observedMetrics": {}}
    return SimpleNamespace(progress=SimpleNamespace(sources=sources, **others, **IDS))


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedEvents]:
    sent = pickle.dumps(ServedEvents({"on_revoked": note}))
    assert pickle.loads(sent)._listener is None, "a client starts nothing"
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost")
    monkeypatch.setattr(os, "getppid", lambda: JVM)
    received: ServedEvents = pickle.loads(sent)
    yield received
    received._listener.close()


def test_runners_learn_the_groups_of_a_listener_on_the_server_with_its_first_report(
    events: ServedEvents,
) -> None:
    runner = Runner(directories_of_runner()[-1])
    assert runner.next() == Listening(reported_groups=(), holds_revocations=True)
    for _ in range(2):
        events.onQueryProgress(progress('{"another": "source"}', PLAN))
    assert runner.next() == Listening(reported_groups=("g",), holds_revocations=True)
    report = BatchReported(
        plan=PLAN, query_id=str(IDS["id"]), is_stateful=False, trigger_interval_s=0.0
    )
    assert [runner.next(), runner.next()] == [report, report]
    runner.change("revoked", number=3, deadline_s=100.0)
    assert runner.next() == Released(number=3)
    assert [each.group_id for each in CALLED] == ["g"]
    events.onQueryTerminated(SimpleNamespace(**IDS))  # type: ignore[arg-type]
    assert runner.next() == NothingMoreReported(query_id=str(IDS["id"]), had_reports=True)
    runner.client.close()
