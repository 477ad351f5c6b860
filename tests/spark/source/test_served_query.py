"""A function of Spark Connect and the runner of its query, which tell each other of a batch."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import OptionsError
from spark_groups.group.ledger.plan_text import NOTHING_PLANNED
from spark_groups.spark.control.channel import directories_of_runner
from spark_groups.spark.control.control_messages import BatchAsked, BatchWritten
from spark_groups.spark.control.running_query import query_between
from spark_groups.spark.control.served_query import BatchChannel, is_called_by_spark
from tests.runtime.members import committed
from tests.spark.source.query_run_setup import Start, ranges, small_batches, until_rows
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def start(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> Iterator[Start]:
    with small_batches(kafka, topic_name, group_id) as started:
        yield started


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchChannel]:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    channel = BatchChannel(os.getppid(), directories_of_runner(), answer_s=5, linked_s=10)
    yield channel
    channel.close()


def test_function_learns_its_batch_and_what_it_has_written_is_committed(
    start: Start, channel: BatchChannel, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    run = start(key="the key")
    run.control.start()
    end = until_rows(run, NOTHING_PLANNED)
    planned = ranges(run, NOTHING_PLANNED, end)
    found = channel.ask("the key")
    assert "secret" not in repr(found)
    packed = base64.b64decode(found.options)
    running = query_between(found.start, found.end, (), found.run_id, packed)
    assert (running.ranges, running.checked.group_id) == (planned, group_id)
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 0
    assert channel.report(BatchWritten(plan=found.end, trigger_interval_s=3600.0))
    wait_until(lambda: committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4)
    activity = run.driver._engine.started().parts.liveness.activity
    assert activity.idle_limit_s == 4 * 3600.0, "its member stays until the next trigger"
    run.control.close()


def test_function_without_the_key_learns_nothing(start: Start, channel: BatchChannel) -> None:
    for key in ("the key", ""):
        run = start(key=key)
        run.control.start()
        end = until_rows(run, NOTHING_PLANNED)
        ranges(run, NOTHING_PLANNED, end)
        guess = "a guess" if key else ""
        with pytest.raises(OptionsError, match="did not answer"):
            channel.ask(guess)
        assert run.answer(BatchAsked(number=1, key=guess)) is None, "if it guesses a name, too"
        run.leave(2.0)


def test_runner_answers_while_its_batch_runs(start: Start) -> None:
    asked = BatchAsked(number=1, key="the key")
    run = start(key=asked.key)
    end = until_rows(run, NOTHING_PLANNED)
    assert run.answer(asked) is None
    ranges(run, NOTHING_PLANNED, end)
    assert run.answer(asked) is not None
    after = run.latest_offset(end)
    assert run.answer(asked) is None, "the batch has ended"
    ranges(run, end, after)
    assert run.answer(asked) is not None
    run.note_end()
    assert run.answer(asked) is None, "the query is ending"


WORKER = "pyspark/foreach_batch_worker.py"


@pytest.mark.parametrize(
    ("file", "called", "is_spark"),
    [(WORKER, "it", True), (WORKER, "code without a frame", False), ("mine.py", "it", False)],
)
def test_function_that_the_users_own_function_calls_does_not_prove_a_batch(
    file: str, called: str, *, is_spark: bool
) -> None:
    calls: dict[str, Any] = {}
    exec(compile("def call(func): return func()", file, "exec"), calls)

    def written() -> bool:
        return is_called_by_spark()

    function = written if called == "it" else partial(written)
    assert calls["call"](function) is is_spark


def test_two_queries_of_one_load_are_refused(start: Start, channel: BatchChannel) -> None:
    runs = [start(key="the key") for _ in range(2)]
    end = until_rows(runs[0], NOTHING_PLANNED)
    for run in runs:
        run.control.start()
        ranges(run, NOTHING_PLANNED, end)

    def refused() -> bool:
        try:
            channel.ask("the key")
        except OptionsError as error:
            return "load it once for each query" in str(error)
        return False

    wait_until(refused)
    for run in runs:
        run.control.close()


LEFT_ALONE = """
import atexit, os, time
from spark_groups.spark.control.served_query import end_with_server
atexit.register(print, "this may wait for the server", flush=True)
end_with_server()
server_pid = os.getppid()
print("ready", flush=True)
while os.getppid() == server_pid:
    time.sleep(0.01)
print("ends", flush=True)
"""


def test_process_whose_server_is_gone_does_not_wait_for_it() -> None:
    server = subprocess.Popen(
        ("sh", "-c", '"$0" -c "$1" & read _', sys.executable, LEFT_ALONE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    server.stdin.close()
    assert server.stdout.read() == "ends\n"
    server.stdout.close()
    assert server.wait(LONG_S) is not None
