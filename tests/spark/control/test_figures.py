"""The figures of a query, which the driver reads from its runner."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_groups import figures
from spark_groups.group.ledger.plan_text import plan_text
from spark_groups.runtime import snapshot_sockets
from spark_groups.runtime.snapshot_sockets import SnapshotPublisher
from spark_groups.types import BatchPlan
from tests.monitoring.views import busy_view


def query(*ends: str | None) -> Any:
    sources = [SimpleNamespace(endOffset=end) for end in ends]
    return SimpleNamespace(lastProgress=SimpleNamespace(sources=sources) if ends else None)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Snapshots of two members, of which a query knows one."""
    directory = tmp_path / "sockets"
    directory.mkdir(mode=0o700)
    monkeypatch.setattr(snapshot_sockets, "snapshot_directory", lambda: directory)
    mine, other = busy_view().as_plain(), busy_view().as_plain()
    mine["tally"]["joined_as"] = ["m0", "m1"]
    other["tally"]["joined_as"] = ["another"]
    publishers = [SnapshotPublisher(lambda view=view: view) for view in (mine, other)]
    for each in publishers:
        each.start()
    yield mine
    for each in publishers:
        each.close()


def test_members_are_found_by_the_ends_of_their_sources(published: dict[str, Any]) -> None:
    for member_id in ("m0", "m1"):
        end = plan_text(BatchPlan("g", member_id, 3, (), ()))
        (found,) = figures(query(end, None, "17", '{"orders":{"0":5}}'))
        assert {name: found[name] for name in published} == published
        assert found["health"]["condition"] == "READING"
        assert found["tally"]["counts"]["batches_planned"] == 2


def test_query_without_progress_or_of_other_sources_has_none(published: dict[str, Any]) -> None:
    assert figures(query()) == []
    assert figures(query("17")) == []
