"""A job whose driver is killed repeatedly, by a seed, and restarted from its checkpoint.

Spark's file sink skips batches that it has written, and the group has no other member, so every row
appears once.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from demo.spark_log import read_rows
from spark_groups.broker.embedded import EmbeddedKafka
from tests.jobs.submitted import SubmittedJob
from tests.runtime.members import committed, describe
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.processes import is_alive
from workshop.parts.waiting import wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="reads command lines in /proc"),
]

PARTITIONS = 3
ROWS = 300
"""How many rows come with each start."""
STARTS = 6
START_S = 400.0
END_S = 400.0
"""More than the session: a member that could not leave is gone by then."""
LAUNCHERS: Mapping[str, tuple[str, ...]] = {"spark-submit": (), "python": (sys.executable,)}


def jvm_of(job: SubmittedJob) -> list[int]:
    return [pid for pid in job.processes() if b"org.apache.spark.deploy" in command_of(pid)]


def driver_of(job: SubmittedJob) -> list[int]:
    """Return the Python process that runs the job's own code."""
    found = ((pid, command_of(pid)) for pid in job.processes())
    return [
        pid
        for pid, command in found
        if b"consume.py" in command and b"org.apache.spark" not in command
    ]


def all_of(job: SubmittedJob) -> list[int]:
    return sorted(job.processes())


VICTIMS: Mapping[str, Callable[[SubmittedJob], list[int]]] = {
    "the JVM": jvm_of,
    "the driver's Python": driver_of,
    "all processes": all_of,
}


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def await_moment(job: SubmittedJob, chance: random.Random, has_joined: Callable[[], bool]) -> str:
    """Wait until a moment that chance chooses, and return what it is."""
    done = max(job.batches("commits"), default=-1)

    def await_it(condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            assert job.process.poll() is None, job.text()[-5000:]
            return condition()

        wait_until(is_so, START_S, what)

    if chance.random() < 0.2:
        await_it(has_joined, "the member")
        return "as a member, before its first batch"
    batch_id = done + chance.randrange(1, 4)
    log = chance.choice(("offsets", "commits"))
    await_it(lambda: batch_id in job.batches(log), f"batch {batch_id} in {log}")
    pause_s = chance.choice((0.0, chance.random() / 2))
    # When it dies is chosen, not waited for.
    time.sleep(pause_s)
    return f"{pause_s:.2f} s after batch {batch_id} was in {log}"


def _has_joined(members: Callable[[], set[str]], former: set[str]) -> bool:
    return bool(members() - former)


def kill(job: SubmittedJob, victims: list[int]) -> None:
    """Kill some processes of a job, and wait until all the others are gone, too."""
    assert victims
    everyone = job.processes()
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.process.wait(END_S)
    wait_until(lambda: not any(map(is_alive, everyone)), END_S, f"the end of {everyone}")
    # A process may have been started after the others were listed.
    wait_until(lambda: not job.process_group(), END_S, "the end of all processes")


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_that_is_killed_again_and_again_has_every_row_once(  # noqa: PLR0917
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path, launcher: str, seed: int
) -> None:
    chance, servers = random.Random(f"{launcher} {seed}"), kafka.bootstrap_servers
    create_topic(servers, topic_name, PARTITIONS)
    arguments = (
        *("--bootstrap-servers", servers, "--topics", topic_name, "--group", group_id),
        *("--set", "source.maxOffsetsPerTrigger=60"),
    )

    def job(*more: str) -> SubmittedJob:
        return SubmittedJob(tmp_path, "job", (*arguments, *more), launcher=LAUNCHERS[launcher])

    def members() -> set[str]:
        return {each.member_id for each in describe(servers, group_id).members}

    kills: list[str] = []
    produced = 0
    for _ in range(STARTS):
        rows = range(produced, produced + ROWS)
        produce(servers, topic_name, (Row(b"%d" % i, partition=i % PARTITIONS) for i in rows))
        produced += ROWS
        victim = chance.choice(list(VICTIMS))
        # A member that was killed before may still have its session.
        former = members()
        with job("--trigger", "0s") as running:
            moment = await_moment(running, chance, partial(_has_joined, members, former))
            kills.append(f"{victim} killed {moment}")
            kill(running, VICTIMS[victim](running))
        if chance.random() < 0.5:
            wait_until(lambda: not members(), END_S, f"an empty group: {kills}")
    with job("--trigger", "availableNow") as last:
        exit_code, _ = last.await_end(400)
        assert exit_code == 0, (kills, last.text()[-5000:])
    wait_until(lambda: not members(), END_S, f"an empty group: {kills}")
    found = Counter(map(int, read_rows([last.output], ["value"])["value"].to_pylist()))
    assert set(found) == set(range(produced)), kills
    assert found.most_common(1)[0][1] == 1, kills
    assert sum(committed(servers, group_id).values()) == produced, kills
