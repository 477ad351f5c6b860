"""Two queries of one application in one group: who is warned, and of whom."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_groups.protocol.subscription import Subscription
from spark_groups.runtime.snapshots import SnapshotPublisher
from spark_groups.spark.source import siblings as siblings_module
from spark_groups.spark.source.siblings import Application, siblings, warn_of_siblings
from tests.waiting import wait_until

MINE = Application(jvm_pid=7, subscription=Subscription.of_names("orders,bills"), instance_id=None)


def view(pid: int = 2, **changes: Any) -> dict[str, Any]:
    return {"group": "g", "pid": pid, "member_id": "m2", **MINE.as_plain(), **changes}


@pytest.mark.parametrize(
    ("other", "is_one"),
    [
        (view(), True),
        (view(pid=1), False),
        (view(is_ending=True), False),
        (view(jvm_pid=8), False),
        (view(instance_id="i"), False),
        (view(subscribed_topic_names=["orders"]), False),
        ({"group": "g", "pid": 2}, False),
    ],
    ids=["same", "itself", "ending", "another JVM", "static", "other topics", "other version"],
)
def test_sibling_is_of_the_same_application_and_subscription(
    other: Mapping[str, Any], is_one: bool
) -> None:
    assert bool(list(siblings([other], MINE, pid=1))) is is_one


def test_warning_names_the_other_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = SnapshotPublisher(view, tmp_path)
    publisher.start()
    with caplog.at_level(logging.WARNING):
        siblings_module._warn("g", MINE, tmp_path)
        assert caplog.text == "", "a query is not its own sibling"
        monkeypatch.setattr(siblings_module, "os", _Another)
        warn_of_siblings("g", replace(MINE, instance_id="i"), tmp_path)
        warn_of_siblings("g", MINE, tmp_path)
        wait_until(lambda: caplog.text, what="the warning")
    publisher.close()
    assert f"(runner {os.getpid()}, member m2)" in caplog.text
    assert "foreachBatch" in caplog.text
    assert caplog.text.count("another query of this application") == 1


class _Another:
    """Another process."""

    @staticmethod
    def getpid() -> int:
        return 0
