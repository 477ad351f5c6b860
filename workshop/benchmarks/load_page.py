"""A part of `workshop.benchmarks.load`: many groups in the list of `spark-groups serve`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import urlsplit

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.connecting import Brokers
from spark_groups.cli.group_list_watch import GroupListWatch
from spark_groups.cli.page_server import EVENTS_PATH
from spark_groups.observation.plain_values import View
from spark_groups.wire.connection import Connection
from workshop.benchmarks.heartbeats import coordinator_of
from workshop.benchmarks.light_members import LightMembers
from workshop.benchmarks.processes import usage_of
from workshop.benchmarks.timed_commands import command_line
from workshop.parts.brokers import create_topic, produce
from workshop.parts.waiting import wait_until

TOPIC: Final = "watched"
PARTITIONS: Final = 4
COMMITTED_OFFSET: Final = 1
WAIT_S: Final = 300.0
ANSWER_S: Final = 60.0
END_S: Final = 30.0


def measure_page(groups: int, refreshes: int) -> dict[str, Any]:
    """Watch groups with a member and committed offsets each, for so many refreshes of the page."""
    with EmbeddedKafka(heap_mb=512, start_timeout_s=WAIT_S) as kafka:
        servers = kafka.bootstrap_servers
        create_topic(servers, TOPIC, PARTITIONS)
        produce(servers, TOPIC, [b"row"] * 100)
        group_ids = [f"watched-{number:04}" for number in range(groups)]
        with LightMembers(coordinator_of(kafka, group_ids[0])) as light:
            light.join(group_ids, TOPIC)

            def is_assigned() -> bool:
                return all(len(e.member.assigned) == PARTITIONS and e.is_stable for e in light.all)

            wait_until(is_assigned, WAIT_S, "assignments of all groups")
            light.commit(COMMITTED_OFFSET)
            return {
                "groups": groups,
                "partitions_each": PARTITIONS,
                **_looks(servers, refreshes),
                **_served(servers, refreshes),
            }


def _looks(servers: str, refreshes: int) -> dict[str, Any]:
    """Return the time and the requests of each refresh, without HTTP."""
    times_s, requests = [], []
    sent: list[object] = []
    send = Connection._send

    def counted(connection: Connection, *arguments: Any) -> None:
        sent.append(arguments[0])
        send(connection, *arguments)

    with (
        patch.object(Connection, "_send", counted),
        closing(GroupListWatch(Brokers(servers, timeout_s=ANSWER_S))) as watch,
    ):
        for _ in range(refreshes):
            sent.clear()
            began_at = time.monotonic()
            frame = watch.look()
            times_s.append(time.monotonic() - began_at)
            # Light members, too, use this class, for heartbeats only.
            requests.append(sum("Heartbeat" not in str(each) for each in sent))
            assert frame.stale is None, frame.stale
    return {"look_s": times_s, "look_requests": requests, "detailed": _detailed(frame)}


def _detailed(frame: View) -> int:
    groups = frame.to_json()["groups"]
    return sum(group["details"] is not None for group in groups)


def _served(servers: str, refreshes: int) -> dict[str, Any]:
    """Return size and time of each document of the served page, and the memory of its process."""
    with _serving(servers) as (pid, url), closing(HTTPConnection(url, timeout=WAIT_S)) as http:
        http.request("GET", EVENTS_PATH)
        sizes, memory_mb = [], []
        for text in _documents(http.getresponse()):
            used = usage_of(pid)
            assert used is not None
            sizes.append(len(text))
            memory_mb.append(used.memory_mb)
            if len(sizes) == refreshes:
                break
    return {
        "document_bytes": sizes,
        "served_memory_mb": memory_mb,
    }


@contextmanager
def _serving(servers: str) -> Iterator[tuple[int, str]]:
    """Serve the page on a free port; yields the process and host:port."""
    command = command_line(["serve", "--port", "0", "--bootstrap-server", servers])
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield process.pid, urlsplit(line.split()[-1]).netloc
        finally:
            process.terminate()
            process.wait(END_S)


def _documents(response: HTTPResponse) -> Iterator[bytes]:
    """Yield the documents of a stream of Server-Sent Events."""
    while line := response.readline():
        if line.startswith(b"data: "):
            yield line.removeprefix(b"data: ")
